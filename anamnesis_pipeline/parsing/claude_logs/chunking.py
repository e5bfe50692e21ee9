"""Split an exchange into chunks.

A boundary depends only on preceding text, so it never moves when lines are added.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from anamnesis_pipeline.model import Message, Part, Segment, SegmentKind, content_id, part_id_of
from anamnesis_pipeline.parsing.claude_logs.identity import is_rewritten
from anamnesis_pipeline.parsing.claude_logs.records import LoggedMessage

HARD = 4_000
"""Maximum characters of a chunk: the sum of its segments' texts."""

SOFT = 1_500
"""From this size on, a statement after tool results begins a new chunk."""

SMALL = 600
"""A smaller chunk is not ended at the end of a step (a to-do done, a commit, a fixed error)."""

LEAD = 300
"""Maximum characters of the text carried over from before a chunk."""

MAX_PENDING = 64
"""Limit of remembered tool calls without a result, the latest ones."""

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
    """A tool call without a result yet. If it `asks_memory`, its result is remembered already."""

    tool_use_id: str
    name: str
    milestone: bool
    asks_memory: bool = False


@dataclass(frozen=True, slots=True)
class Trail:
    """State of the messages so far, for finding boundaries.

    `after_result`: the last message was a tool's result. `step_done`: a step of work ended and only results followed.
    `failed`: names of tools whose last result was an error. `lead`: end of the last statement.
    """

    after_result: bool = False
    step_done: bool = False
    failed: tuple[str, ...] = ()
    pending: tuple[PendingTool, ...] = ()
    lead: str = ""


def follow(trail: Trail, logged: LoggedMessage) -> Trail:
    """Return the trail after `logged`."""
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
    """Return whether a message is this memory's answer to a call, or to a command that the user ran."""
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
    """Return whether a message of this kind begins a new chunk after one of `size` characters."""
    if kind in _RESULTS:
        return False
    if trail.step_done and size >= SMALL:
        return True
    opens_a_step = kind in {SegmentKind.STATEMENT, SegmentKind.THINKING}
    return opens_a_step and trail.after_result and size >= SOFT


def is_pause(before: datetime | None, after: datetime | None, idle: timedelta) -> bool:
    """Return whether more than `idle` passed; a clock that went backwards is no pause."""
    return before is not None and after is not None and after - before > idle


def pieces(text: str, room: int) -> Iterator[tuple[int, str]]:
    """Split a text into (start, piece): the first at most `room` characters, the others at most HARD.

    Pieces end behind a line, else at a word's edge; inside a word only if it is longer than a whole piece. Nothing is
    dropped: the joined pieces are the text.
    """
    start = 0
    while len(text) - start > room:
        end = _cut_before(text, start, start + room)
        yield start, text[start:end]
        start, room = end, HARD
    yield start, text[start:]


def _cut_before(text: str, start: int, limit: int) -> int:
    """Return the best position in (start, limit] to split, given that `text` continues behind `limit`."""
    line_end = text.rfind("\n", start + (limit - start) // 2, limit)
    if line_end >= 0:
        return line_end + 1
    if text[limit].isspace() or text[limit - 1].isspace():
        return limit
    last_word = text[start:limit].rsplit(None, 1)[-1]
    word_start = limit - len(last_word)
    return word_start if word_start > start else limit


def tail(text: str) -> str:
    """Return the end of a text, at most LEAD characters, from the beginning of a word."""
    text = text.rstrip()
    if len(text) <= LEAD:
        return text
    end = text[-LEAD:]
    if text[-LEAD - 1].isspace():
        return end.lstrip()
    rest = end.split(None, 1)
    return rest[1] if len(rest) > 1 and not end[0].isspace() else end.lstrip()


class Cutter:
    """Distributes messages into chunks in order; holds only the open chunk."""

    def __init__(self, open_part: Part | None, idle: timedelta) -> None:
        self.idle = idle
        self.finished: list[Part] = []
        self._part = open_part
        self._segments = list(open_part.segments) if open_part else []
        self._changed = False
        self.size = sum(len(segment.text) for segment in self._segments)

    @property
    def part(self) -> Part | None:
        """Return the open chunk's fixed fields; its segments may be outdated."""
        return self._part

    def close(self) -> None:
        """Close the open chunk, if there is one."""
        if self._part is not None:
            self.finished.append(replace(self._part, segments=tuple(self._segments), closed=True))
        self._part, self._segments, self.size, self._changed = None, [], 0, False

    def add(self, message: Message, template: Part, lead: str) -> int:
        """Append a message, in several chunks if it is long. Return the number of new chunks.

        :param template: a chunk with everything but its ID, ordinal (that of the next chunk), segments and lead.
        :param lead: the last statement before the message.
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
        """Return every chunk that is new, grown or closed since the beginning, in order; the open one last."""
        return tuple(self.finished) if not self._changed else (*self.finished, self.open_part())

    def open_part(self) -> Part:
        """Return the current open chunk.

        :raises ValueError: there is none.
        """
        if self._part is None:
            raise ValueError("no part is open")
        return replace(self._part, segments=tuple(self._segments), closed=False)


# --- grouping --------------------------------------------------------------------------------------------

# Assign messages to exchanges: a prompt and everything up to the next one.

PROMPT_HEAD = 300
"""Characters of the prompt that every chunk of its exchange carries."""

_BEGINS = frozenset({SegmentKind.PROMPT, SegmentKind.CHANNEL, SegmentKind.PLAN})
_NO_PROMPTS = frozenset(
    {
        SegmentKind.COMPACT_SUMMARY,
        SegmentKind.RECAP,
        SegmentKind.NOTIFICATION,
        SegmentKind.PEER,
        SegmentKind.MACHINE_PROMPT,
        SegmentKind.SKILL,
    }
)
"""An exchange may begin with one of these, but its text is no prompt."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Its ID hashes the text and time of its first message, so it is the same in every copy of the log."""

    exchange_id: str
    prompt: str


def exchange_of(message: Message, current: Exchange | None, *, in_subagent: bool) -> Exchange:
    """Return the exchange of `message`, given the one before it (None at the beginning of a file).

    Messages before the first prompt form an exchange as well, named after its first message.
    """
    begins = message.kind in _BEGINS or (in_subagent and message.kind is SegmentKind.AGENT_PROMPT)
    if current is None or begins:
        head = "" if message.kind in _NO_PROMPTS else message.text[:PROMPT_HEAD]
        name = next(filter(is_rewritten, message.aliases), message.key)  # copies with another uuid share the alias
        return Exchange(content_id("exchange", name), head)
    return current
