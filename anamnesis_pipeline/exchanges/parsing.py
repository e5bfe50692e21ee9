"""Log lines -> parts, as a fold: lines fed in any number of calls give the same parts as in one call."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

from anamnesis_pipeline.exchanges.cutting import Cutter, PendingTool, Trail, follow, is_pause, is_seam
from anamnesis_pipeline.exchanges.grouping import Exchange, exchange_of
from anamnesis_pipeline.exchanges.records import LoggedMessage, read_messages_of, read_records
from anamnesis_pipeline.model import Message, Occurrence, Part, SegmentKind

STATE_VERSION = 1
"""Version of `FileState` as JSON."""

COMPACTING_AGENT = "acompact"
"""Ids of the subagents with which Claude Code compacts begin so: their files repeat the session they compact."""


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Which file the lines come from; `path` is relative to the source's folder."""

    source: str
    path: str

    @property
    def stem(self) -> str:
        """File name without its suffix."""
        return PurePosixPath(self.path).stem

    @property
    def agent_id(self) -> str:
        """Id of the subagent whose file this is; empty for a session's own file."""
        return self.stem.removeprefix("agent-") if self.stem.startswith("agent-") else ""


@dataclass(frozen=True, slots=True)
class FileState:
    """What the parser must know of the lines before, small whatever the file's size.

    `line` counts the lines read of this `generation`. `part_id` names the open part, whose text the store has.
    """

    generation: int = 0
    line: int = 0
    session_id: str = ""
    agent_id: str = ""
    first_cwd: str = ""
    cwd: str = ""
    exchange: Exchange | None = None
    ordinal: int = 0
    part_id: str = ""
    last_timestamp: datetime | None = None
    trail: Trail = field(default_factory=Trail)

    def to_json(self) -> str:
        """Compact JSON with a version number."""
        values = asdict(self) | {"version": STATE_VERSION}
        return json.dumps(values, default=datetime.isoformat, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "FileState | None":
        """The state written by `to_json`; None if this version cannot read it."""
        try:
            values: dict[str, Any] = json.loads(text)
            if values.pop("version") != STATE_VERSION:
                return None
            trail, when = values.pop("trail"), values.pop("last_timestamp")
            pending = tuple(PendingTool(**tool) for tool in trail.pop("pending"))
            exchange = values.pop("exchange")
            return cls(
                **values,
                exchange=Exchange(**exchange) if exchange else None,
                last_timestamp=datetime.fromisoformat(when) if when else None,
                trail=Trail(**{**trail, "failed": tuple(trail["failed"])}, pending=pending),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages on a run of lines, repeated ones included. `lines` counts the lines, blank ones too."""

    messages: tuple[LoggedMessage, ...]
    lines: int
    malformed: int
    skipped: Counter[str]

    @property
    def keys(self) -> list[str]:
        """Every message key, in order, repeated ones once."""
        return list(dict.fromkeys(logged.message.key for logged in self.messages))


@dataclass(frozen=True, slots=True)
class Advance:
    """What a batch adds. `parts` are new, grown or closed; the last may still grow, and is then `open_part`."""

    state: FileState
    parts: tuple[Part, ...]
    open_part: Part | None
    keys: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]


def read_messages(lines: Sequence[str], first_line: int) -> Batch:
    """Read lines of one file; `first_line` is the number of the first one in its archive."""
    messages: list[LoggedMessage] = []
    skipped: Counter[str] = Counter()
    malformed = 0
    for number, line in enumerate(lines, first_line):
        records, damaged = read_records(line)
        malformed += damaged
        for record in records:
            messages += read_messages_of(record, number, skipped)
    return Batch(tuple(messages), len(lines), malformed, +skipped)


def advance(
    state: FileState,
    open_part: Part | None,
    batch: Batch,
    known: Collection[str],
    origin: FileOrigin,
    *,
    label: Callable[[str], str],
    idle_minutes: int,
) -> Advance:
    """Lay a batch into parts.

    :param open_part: the part that `state.part_id` names; whether it was closed meanwhile does not matter.
    :param known: message keys that some file owns already; those messages only move the context on.
    :param label: working directory -> project.
    :param idle_minutes: a longer pause between two messages ends a part.
    """
    cutter = Cutter(open_part, timedelta(minutes=idle_minutes))
    seen: dict[str, None] = {}
    occurrences: list[Occurrence] = []
    for logged in batch.messages:
        key = logged.message.key
        before, state = state, _located(state, logged, origin)
        if key in known or key in seen:
            occurrences.append(Occurrence(key, origin.path, logged.line))
        else:
            seen[key] = None
            template = _template(state, logged.message.kind, origin, label(state.first_cwd))
            state = _laid(cutter, before, state, logged, template)
        state = replace(state, trail=follow(state.trail, logged))
    parts = cutter.settled()
    last = cutter.open_part() if cutter.part else None
    state = replace(state, line=state.line + batch.lines, part_id=last.part_id if last else "")
    return Advance(state, parts, last, tuple(seen), tuple(occurrences))


def _located(state: FileState, logged: LoggedMessage, origin: FileOrigin) -> FileState:
    """The state with the place and exchange of `logged`. The first message tells whose file it is."""
    agent_id = state.agent_id or origin.agent_id
    if not agent_id and not state.session_id and logged.sidechain:
        agent_id = logged.agent_id
    cwd = logged.cwd or state.cwd
    return replace(
        state,
        session_id=logged.session_id or state.session_id or origin.stem,
        agent_id=agent_id,
        first_cwd=state.first_cwd or cwd,
        cwd=cwd,
        exchange=exchange_of(logged.message, state.exchange, in_subagent=bool(agent_id)),
    )


def _laid(cutter: Cutter, before: FileState, state: FileState, logged: LoggedMessage, template: Part) -> FileState:
    """Put a new message into the open part or the next one."""
    message = logged.message
    if _closes(cutter, before, template, message):
        cutter.close()
    begun = cutter.add(message, template, before.trail.lead)
    return replace(state, ordinal=state.ordinal + begun, last_timestamp=message.timestamp or state.last_timestamp)


def _closes(cutter: Cutter, before: FileState, template: Part, message: Message) -> bool:
    part = cutter.part
    return part is not None and (
        part.exchange_id != template.exchange_id
        or part.kind != template.kind
        or message.kind is SegmentKind.COMPACT_SUMMARY
        or is_pause(before.last_timestamp, message.timestamp, cutter.idle)
        or is_seam(before.trail, message.kind, cutter.size)
    )


def _template(state: FileState, kind: SegmentKind, origin: FileOrigin, project: str) -> Part:
    exchange = state.exchange
    return Part(
        part_id="",
        source=origin.source,
        path=origin.path,
        session_id=state.session_id,
        exchange_id=exchange.exchange_id if exchange else "",
        ordinal=state.ordinal,
        kind=_part_kind(state, kind),
        project=project,
        cwd=state.cwd,
        prompt=exchange.prompt if exchange else "",
        segments=(),
        closed=False,
        agent_id=state.agent_id,
    )


def _part_kind(state: FileState, kind: SegmentKind) -> str:
    if kind is SegmentKind.COMPACT_SUMMARY or state.agent_id.startswith(COMPACTING_AGENT):
        return "compact_summary"
    return "subagent" if state.agent_id else "exchange"
