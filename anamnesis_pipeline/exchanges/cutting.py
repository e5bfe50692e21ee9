"""Where an exchange is cut into parts.

A seam looks only at what precedes it, so it never moves when lines are added.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from anamnesis_pipeline.exchanges.records import LoggedMessage
from anamnesis_pipeline.model import Message, Part, Segment, SegmentKind, part_id_of

HARD = 4_000
"""No part holds more characters than this: the sum of its segments' texts."""

SOFT = 1_500
"""From this size on, a statement that follows tool results begins a new part."""

SMALL = 600
"""Parts below this size are not cut at the end of a step (a to-do done, a commit, an error mended)."""

LEAD = 300
"""Longest text carried over from before a part, in characters."""

MAX_PENDING = 64
"""Tool calls without a result that are remembered, the latest ones."""

_RESULTS = frozenset({SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})
_ANSWERS = _RESULTS | {SegmentKind.COMMAND}
_SPOKEN = frozenset(
    {
        SegmentKind.STATEMENT,
        SegmentKind.PROMPT,
        SegmentKind.AGENT_PROMPT,
        SegmentKind.STEERING,
        SegmentKind.CHANNEL,
        SegmentKind.PEER,
        SegmentKind.MACHINE_PROMPT,
    }
)


@dataclass(frozen=True, slots=True)
class PendingTool:
    """A tool call whose result has not come yet. One that `asks_memory` will get what is remembered already."""

    tool_use_id: str
    name: str
    milestone: bool
    asks_memory: bool = False


@dataclass(frozen=True, slots=True)
class Trail:
    """What the seams need to know of the messages so far.

    `after_result`: the last message was a tool's result. `step_done`: a step of work ended and nothing but results
    followed. `failed`: names of tools whose last result was an error. `lead`: end of what was said last.
    """

    after_result: bool = False
    step_done: bool = False
    failed: tuple[str, ...] = ()
    pending: tuple[PendingTool, ...] = ()
    lead: str = ""


def follow(trail: Trail, logged: LoggedMessage) -> Trail:
    """The trail behind `logged`."""
    kind = logged.message.kind
    if kind in _RESULTS:
        return _after_result(trail, logged)
    lead = tail(logged.message.text) if kind in _SPOKEN else trail.lead
    pending = trail.pending
    if logged.tool_use_id and (kind is SegmentKind.TOOL_INPUT or logged.asks_memory):
        call = PendingTool(logged.tool_use_id, logged.tool, logged.milestone, logged.asks_memory)
        pending = (*pending, call)[-MAX_PENDING:]
    return Trail(False, False, trail.failed, pending, lead)


def is_own_answer(trail: Trail, logged: LoggedMessage) -> bool:
    """Whether a message is what this memory answered to a call, or to a command that the user ran."""
    if logged.asks_memory or logged.message.kind not in _ANSWERS:
        return False
    return any(call.asks_memory and call.tool_use_id == logged.tool_use_id for call in trail.pending)


def _after_result(trail: Trail, logged: LoggedMessage) -> Trail:
    call = next((tool for tool in trail.pending if tool.tool_use_id == logged.tool_use_id), None)
    if call is None:
        return replace(trail, after_result=True)
    pending = tuple(tool for tool in trail.pending if tool is not call)
    others = tuple(name for name in trail.failed if name != call.name)
    if logged.message.kind is SegmentKind.TOOL_ERROR:
        return Trail(True, trail.step_done, (*others, call.name), pending, trail.lead)
    step_done = trail.step_done or call.milestone or call.name in trail.failed
    return Trail(True, step_done, others, pending, trail.lead)


def is_seam(trail: Trail, kind: SegmentKind, size: int) -> bool:
    """Whether a message of this kind begins a new part after one of `size` characters."""
    if kind in _RESULTS:
        return False
    if trail.step_done and size >= SMALL:
        return True
    opens_a_step = kind in {SegmentKind.STATEMENT, SegmentKind.THINKING}
    return opens_a_step and trail.after_result and size >= SOFT


def is_pause(before: datetime | None, after: datetime | None, idle: timedelta) -> bool:
    """Whether more than `idle` passed; a clock that went backwards is no pause."""
    return before is not None and after is not None and after - before > idle


def pieces(text: str, room: int) -> Iterator[tuple[int, str]]:
    """Cut a text into (start, piece): the first at most `room` characters, the others at most HARD.

    Cuts fall behind a line, else at a word's edge; inside a word only where it is longer than a whole piece.
    Nothing is dropped: the pieces joined are the text.
    """
    start = 0
    while len(text) - start > room:
        end = _cut_before(text, start, start + room)
        yield start, text[start:end]
        start, room = end, HARD
    yield start, text[start:]


def _cut_before(text: str, start: int, limit: int) -> int:
    """The best place to cut in (start, limit], given that `text` goes on behind `limit`."""
    line_end = text.rfind("\n", start + (limit - start) // 2, limit)
    if line_end >= 0:
        return line_end + 1
    if text[limit].isspace() or text[limit - 1].isspace():
        return limit
    last_word = text[start:limit].rsplit(None, 1)[-1]
    word_start = limit - len(last_word)
    return word_start if word_start > start else limit


def tail(text: str) -> str:
    """The end of a text, at most LEAD characters, from the beginning of a word."""
    text = text.rstrip()
    if len(text) <= LEAD:
        return text
    end = text[-LEAD:]
    if text[-LEAD - 1].isspace():
        return end.lstrip()
    rest = end.split(None, 1)
    return rest[1] if len(rest) > 1 and not end[0].isspace() else end.lstrip()


class Cutter:
    """Lays messages into parts, one after another; holds the only part that still grows."""

    def __init__(self, open_part: Part | None, idle: timedelta) -> None:
        self.idle = idle
        self.finished: list[Part] = []
        self._part = open_part
        self._segments = list(open_part.segments) if open_part else []
        self._changed = False
        self.size = sum(len(segment.text) for segment in self._segments)

    @property
    def part(self) -> Part | None:
        """The open part's fixed fields; its segments may lag behind."""
        return self._part

    def close(self) -> None:
        """Finish the open part, if there is one."""
        if self._part is not None:
            self.finished.append(replace(self._part, segments=tuple(self._segments), closed=True))
        self._part, self._segments, self.size, self._changed = None, [], 0, False

    def add(self, message: Message, template: Part, lead: str) -> int:
        """Append a message, in several parts if it is long. Returns how many parts it began.

        :param template: a part with everything but its id, ordinal (that of the next part), segments and lead.
        :param lead: what was said last before the message.
        """
        begun, room = 0, HARD - self.size
        if len(message.text) > room and (len(message.text) <= HARD or room < HARD // 2):
            self.close()
            room = HARD
        for start, text in pieces(message.text, room):
            if start:
                self.close()
            segment = Segment(message.key, message.uuid, message.kind, start, text, message.timestamp, message.sender)
            if self._part is None:
                own_lead = tail(message.text[max(0, start - 2 * LEAD) : start]) if message.kind in _SPOKEN else ""
                self._part = replace(
                    template, part_id=part_id_of(segment), ordinal=template.ordinal + begun, lead=own_lead or lead
                )
                begun += 1
            self._segments.append(segment)
            self.size += len(text)
            self._changed = True
        return begun

    def settled(self) -> tuple[Part, ...]:
        """Every part that is new, grown or closed since the beginning, in order; the open one last."""
        return tuple(self.finished) if not self._changed else (*self.finished, self.open_part())

    def open_part(self) -> Part:
        """The part that still grows, as it is now.

        :raises ValueError: there is none.
        """
        if self._part is None:
            raise ValueError("no part is open")
        return replace(self._part, segments=tuple(self._segments), closed=False)
