"""Fold log lines into chunks: the same lines in any number of calls give the same chunks."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from anamnesis_pipeline.model import BEGINS_LONG, GOES_ON, MAX_LINE_BYTES, Occurrence, Part, SegmentKind
from anamnesis_pipeline.parsing.claude_logs.chunking import (
    Cutter,
    Exchange,
    PendingTool,
    Trail,
    exchange_of,
    follow,
    is_own_answer,
    is_pause,
    is_seam,
)
from anamnesis_pipeline.parsing.claude_logs.log_lines import MAX_VALUES, Record, has_too_many_values, read_records
from anamnesis_pipeline.parsing.claude_logs.message_keys import agent_key
from anamnesis_pipeline.parsing.claude_logs.observers import ObserverRules, built_in
from anamnesis_pipeline.parsing.claude_logs.own_text import (
    FIRST_WORDS,
    begins_own_session,
    may_hold_memory,
    without_memory,
)
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.parsing.claude_logs.records import (
    UNKNOWN,
    LoggedMessage,
    boundary_of,
    continuation_of,
    fired_by,
    read_messages_of,
)
from anamnesis_pipeline.parsing.claude_logs.wide_text import narrowed
from anamnesis_pipeline.parsing.text.file_names import log_stem

STATE_VERSION = 1
"""Version of `FileState` as JSON."""

MAX_BOUNDARIES = 4
"""Limit of remembered compaction boundaries without a summary yet, the latest ones."""

MAX_VERSION_CHARS = MAX_TIME_CHARS = 40

TOO_LONG = f"longer than {MAX_LINE_BYTES >> 20} MB: archived, not parsed"

MAX_SESSIONS = 16
"""Limit of remembered interrupted sessions of one file, the latest ones."""

_OF_TOOLS = frozenset({SegmentKind.TOOL_INPUT, SegmentKind.TOOL_RESULT, SegmentKind.TOOL_ERROR})

COMPACTING_AGENT = "acompact"
"""Prefix of the IDs of subagents with which Claude Code compacts: their files repeat the compacted session."""


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """The file that the lines come from; `path` is relative to the source's folder.

    `agent_type` and `spawned_by` (a tool call's ID) are from a subagent's description. `folder` is the one that a
    person chose for a Cowork session: it replaces the first working directory. `launched` is the name of the project
    folder, which Claude Code derives from the directory that the session was launched in.
    """

    source: str
    path: str
    agent_type: str = ""
    spawned_by: str = ""
    folder: str = ""
    launched: str = ""

    @property
    def stem(self) -> str:
        """Return the session or `agent-<id>` in the file's name, also if it was set aside."""
        return log_stem(self.path)

    @property
    def agent_id(self) -> str:
        """Return the ID of the subagent whose file this is; empty for a session's file."""
        return self.stem.removeprefix("agent-") if self.stem.startswith("agent-") else ""


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a session that another one interrupted in the same file; the fields are those of `FileState`."""

    session_id: str = ""
    agent_id: str = ""
    first_cwd: str = ""
    cwd: str = ""
    exchange: Exchange | None = None
    own: bool | None = None
    observer: str = ""


@dataclass(frozen=True, slots=True)
class FileState:
    """The parser's state from preceding lines, small for any file size.

    `line` counts the lines read of this `generation`. `part_id` names the open chunk, whose text the store has. `own`:
    the session is a call of our summarizer; None before the first prompt. `observer`: the memory tool that owns the
    session. `borrows`: some of the file was copied from another session, maybe twice, with a mark and without.
    `boundaries` are the latest compactions, which may be written twice: the uuid of each, and that of the last record
    before it. `others` are the further sessions of a file that was spliced from several: each keeps its project.
    `fired` is the uuid of the latest record of a fired schedule: the prompt follows it.
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
    own: bool | None = None
    observer: str = ""
    borrows: bool = False
    boundaries: tuple[tuple[str, str], ...] = ()
    others: tuple[SessionState, ...] = ()
    fired: str = ""

    def to_json(self) -> str:
        """Return compact JSON with a version number."""
        values = asdict(self) | {"version": STATE_VERSION}
        return json.dumps(values, default=datetime.isoformat, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "FileState | None":
        """Return the state written by `to_json`; None if this version cannot read it."""
        try:
            values: dict[str, Any] = json.loads(text)
            if values.pop("version") != STATE_VERSION:
                return None
            trail, when = values.pop("trail"), values.pop("last_timestamp")
            pending = tuple(PendingTool(**tool) for tool in trail.pop("pending"))
            exchange = values.pop("exchange")
            others = [
                SessionState(**{**other, "exchange": Exchange(**other["exchange"]) if other["exchange"] else None})
                for other in values.pop("others", ())
            ]
            return cls(
                **values | {"boundaries": tuple(map(tuple, values["boundaries"]))},
                exchange=Exchange(**exchange) if exchange else None,
                others=tuple(others),
                last_timestamp=datetime.fromisoformat(when) if when else None,
                trail=Trail(**{**trail, "failed": tuple(trail["failed"])}, pending=pending),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages on consecutive lines, repeated ones included. `lines` counts the lines, including blank ones.

    `dead` are (line, reason) of lines that could not be read completely. `boundaries` maps the uuid of a compaction's
    boundary to that of the last record before it, `continued` a session to its continuation. `unknown` maps each
    unknown type, of records or of their content, to its number and the version of Claude Code that wrote the last.
    `odd_times` are (line, text) of implausible times. `fired`: as in the state, after these lines.
    """

    messages: tuple[LoggedMessage, ...]
    lines: int
    skipped: Counter[str]
    dead: tuple[tuple[int, str], ...] = ()
    boundaries: tuple[tuple[str, str], ...] = ()
    continued: tuple[tuple[str, str], ...] = ()
    unknown: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    odd_times: tuple[tuple[int, str], ...] = ()
    fired: str = ""

    @property
    def malformed(self) -> int:
        """Return the number of lines that could not be read completely."""
        return len(self.dead)

    @property
    def keys(self) -> list[str]:
        """Return every key that may identify a known message, in order, without repetitions."""
        return list(dict.fromkeys(name for logged in self.messages for name in logged.names))

    @property
    def borrowed_names(self) -> list[str]:
        """Return all keys of the messages that are marked as another session's."""
        return [name for logged in self.messages if logged.borrowed for name in logged.names]

    @property
    def lent_keys(self) -> list[str]:
        """Return the keys that messages have while only their copies are known."""
        return [key for logged in self.messages for key in logged.lent_as]


@dataclass(frozen=True, slots=True)
class Advance:
    """The result of a batch. `parts` are new, grown or closed; the last may still grow, and is then `open_part`.

    `keys` are of new messages, one each; `aliases` and `claims` map further keys to these. `own` counts the messages of
    our summarizer's session, and `answers` this memory's answers: both are left out. So are the messages of other
    memory tools' sessions, which `observed` counts by tool, and `observers` the sessions that began.
    """

    state: FileState
    parts: tuple[Part, ...]
    open_part: Part | None
    keys: tuple[str, ...]
    occurrences: tuple[Occurrence, ...]
    aliases: Mapping[str, str]
    claims: Mapping[str, str]
    own: int = 0
    answers: int = 0
    observed: Mapping[str, int] = field(default_factory=dict)
    observers: Mapping[str, int] = field(default_factory=dict)


ReadRecord = Callable[[Record, int, Counter[str]], list[LoggedMessage]]
"""(record, line number, counter of skipped items by reason) -> the messages in the record."""


def read_messages(
    lines: Iterable[str], first_line: int, read_record: ReadRecord = read_messages_of, fired: str = ""
) -> Batch:
    """Read lines of one file; `first_line` is the number of the first one in its archive, `fired` that of the state.

    A line is released before its messages are made, since one may have 50 MB.
    """
    messages: list[LoggedMessage] = []
    skipped: Counter[str] = Counter()
    dead: list[tuple[int, str]] = []
    boundaries: list[tuple[str, str]] = []
    continued: list[tuple[str, str]] = []
    odd_times: list[tuple[int, str]] = []
    unknown: dict[str, tuple[int, str]] = {}
    version = ""
    number = first_line
    for line in lines:
        if line.startswith(BEGINS_LONG):
            dead += [] if line.startswith(GOES_ON) else [(number, TOO_LONG)]
            number += 1
            continue
        length, line = len(line), narrowed(line)
        records, damaged = read_records(line)
        if damaged:
            dead.append((number, _why_damaged(line, length, len(records))))
        if may_hold_memory(line):
            records = _without_memory(records, skipped)
        del line
        for record in records:
            if fired and record.get("parentUuid") == fired:
                record.setdefault("turnOrigin", "scheduled")
            fired = fired_by(record) or fired
            version = str(record.get("version") or version)[:MAX_VERSION_CHARS]
            left_out = Counter[str]()
            try:
                found = read_record(record, number, left_out)
            except RecursionError:
                found = []
                dead.append((number, "nested too deeply"))
            messages += found
            skipped += left_out
            for name in (reason.removeprefix(UNKNOWN) for reason in left_out if reason.startswith(UNKNOWN)):
                unknown[name] = (unknown.get(name, (0, ""))[0] + left_out[UNKNOWN + name], version)
            written = record.get("timestamp")
            if found and found[0].message.timestamp is None and written not in (None, ""):
                odd_times.append((number, str(written)[:MAX_TIME_CHARS]))
            boundaries += filter(None, [boundary_of(record)])
            continued += filter(None, [continuation_of(record)])
        number += 1
    return Batch(
        tuple(messages),
        number - first_line,
        +skipped,
        tuple(dead),
        tuple(boundaries),
        tuple(continued),
        unknown,
        tuple(odd_times),
        fired,
    )


def _why_damaged(line: str, length: int, records: int) -> str:
    if has_too_many_values(line):
        return f"more than {MAX_VALUES:,} values on it: too much for the memory that one line may take"
    if records:
        return f"torn: {records} whole {'record' if records == 1 else 'records'} on it, the rest is no JSON object"
    return f"no JSON object in its {length} characters"


def _without_memory(records: Sequence[Record], skipped: Counter[str]) -> list[Record]:
    cut = [without_memory(record) for record in records]
    skipped["own:memory"] += sum(count for _, count in cut)
    return [record for record, _ in cut]


def advance(
    state: FileState,
    open_part: Part | None,
    batch: Batch,
    known: Collection[str],
    origin: FileOrigin,
    *,
    label: Callable[[str], str],
    idle_minutes: int,
    observers: ObserverRules | None = None,
) -> Advance:
    """Split a batch into chunks.

    :param open_part: the chunk that `state.part_id` names; it may have been closed meanwhile.
    :param known: message keys that another file owns, and those of `Batch.lent_keys` that this file owns; such messages
        only advance the context.
    :param label: working directory -> project.
    :param idle_minutes: a longer pause between two messages ends a chunk.
    :param observers: rules for other memory tools' sessions; None: the rules of this package.
    """
    cutter = Cutter(open_part, timedelta(minutes=idle_minutes))
    walk = _Walk(state, cutter, Found(known), batch, origin, label, observers or built_in())
    for logged, later in zip(batch.messages, times_after(batch.messages), strict=True):
        walk.step(logged, later)
    return walk.result(batch.lines)


def times_after(messages: Sequence[LoggedMessage]) -> list[datetime | None]:
    """Return for each message the first known time of its session from it on, among these messages."""
    known: dict[str, datetime] = {}
    found: list[datetime | None] = []
    for logged in reversed(messages):
        if logged.message.timestamp is not None:
            known[logged.session_id] = logged.message.timestamp
        found.append(known.get(logged.session_id))
    return found[::-1]


class _Walk:
    """The state of a file while a batch is split into chunks. Changing fields are separate: a new `FileState` for each
    message would cost as much as reading its line.
    """

    def __init__(
        self,
        state: FileState,
        cutter: Cutter,
        found: "Found",
        batch: Batch,
        origin: FileOrigin,
        label: Callable[[str], str],
        observers: ObserverRules,
    ) -> None:
        self._observers = observers
        self._observed, self._begun = Counter[str](), Counter[str]()
        self._state, self._trail = state, state.trail
        self._ordinal, self._spoken_at, self._own, self._answers = state.ordinal, state.last_timestamp, 0, 0
        self._boundaries, self._fired = (*state.boundaries, *batch.boundaries), batch.fired
        self._cutter, self._found, self._origin, self._label = cutter, found, origin, label

    def step(self, logged: LoggedMessage, later: datetime | None) -> None:
        """Add one message, unless it is known or one of ours.

        :param later: the next known time, for a message without one that none precedes.
        """
        message = logged.message
        if _begins_another_session(self._state, logged):
            self._state = _switched(self._state, logged.session_id)
            self._trail = replace(self._trail, lead="")  # another session's last statement may be private
            self._spoken_at = None
        if self._state.own is None:
            self._state = replace(self._state, own=begins_own_session(message.kind, message.text))
        if not self._state.observer:
            prompt = message.text if self._state.exchange is None and message.kind in FIRST_WORDS else ""
            if observer := self._observers.name_of(logged.cwd or self._state.cwd, logged.entrypoint, prompt):
                self._state = replace(self._state, observer=observer)
                self._begun[observer] += 1
        self._state = _located(self._state, logged, self._origin)
        if self._state.own:
            self._own += 1
            return
        if self._state.observer:
            self._observed[self._state.observer] += 1
            return
        if self._state.borrows:  # maybe the same message again, without the mark
            logged = replace(logged, seen_as=(*logged.seen_as, *logged.lent_as))
        if is_own_answer(self._trail, logged):
            self._answers += 1
        elif self._found.is_copy(logged):
            self._found.add_copy(logged, self._origin.path)
        else:
            self._found.add(logged)
            self._lay(logged, message.timestamp or self._spoken_at or later)
            self._spoken_at = message.timestamp or self._spoken_at
        self._trail = follow(self._trail, logged)

    def result(self, lines: int) -> Advance:
        """Return the result of a batch with `lines` lines."""
        parts = self._cutter.settled()
        last = self._cutter.open_part() if self._cutter.part else None
        state = replace(
            self._state,
            line=self._state.line + lines,
            ordinal=self._ordinal,
            part_id=last.part_id if last else "",
            last_timestamp=self._spoken_at,
            trail=self._trail,
            boundaries=self._boundaries[-MAX_BOUNDARIES:],
            fired=self._fired,
        )
        step = self._found.advance(state, parts, last, self._own)
        return replace(step, answers=self._answers, observed=self._observed, observers=self._begun)

    def _lay(self, logged: LoggedMessage, when: datetime | None) -> None:
        """Put a new message into the open or the next chunk; `when` is its time, or that of its neighbour."""
        message, template, part = logged.message, self._template(logged), self._cutter.part
        if part is not None and (
            part.exchange_id != template.exchange_id
            or part.session_id != template.session_id
            or part.kind != template.kind
            or message.kind is SegmentKind.COMPACT_SUMMARY
            or is_pause(self._spoken_at, message.timestamp, self._cutter.idle)
            or is_seam(self._trail, message.kind, self._cutter.size)
        ):
            self._cutter.close()
        self._ordinal += self._cutter.add(replace(message, timestamp=when), template, self._trail.lead)

    def _template(self, logged: LoggedMessage) -> Part:
        state, origin, kind = self._state, self._origin, logged.message.kind
        exchange, is_summary = state.exchange, kind is SegmentKind.COMPACT_SUMMARY
        part_kind = "subagent" if state.agent_id else "exchange"
        if is_summary or state.agent_id.startswith(COMPACTING_AGENT):
            part_kind = "compact_summary"
        return Part(
            part_id="",
            source=origin.source,
            path=origin.path,
            session_id=state.session_id,
            exchange_id=exchange.exchange_id if exchange else "",
            ordinal=self._ordinal,
            kind=part_kind,
            project=self._label(origin.folder or state.first_cwd),
            cwd=state.cwd,
            prompt=exchange.prompt if exchange else "",
            segments=(),
            closed=False,
            agent_id=state.agent_id,
            agent_type=origin.agent_type,
            origin=dict(self._boundaries).get(logged.parent, "") if is_summary else origin.spawned_by,
        )


class Found:
    """The new messages of a batch, and their keys."""

    def __init__(self, known: Collection[str]) -> None:
        self._keys: dict[str, None] = {}
        self._aliases: dict[str, str] = {}
        self._claims: dict[str, str] = {}
        self._occurrences: list[Occurrence] = []
        self._known = known

    def is_copy(self, logged: LoggedMessage) -> bool:
        """Return whether the message is known, by its key or a further one."""
        return any(map(self._is_known, logged.names))

    def add(self, logged: LoggedMessage) -> None:
        """Add a new message."""
        key = logged.message.key
        self._keys[key] = None
        self._aliases.update((alias, key) for alias in logged.message.aliases)
        self._claim(logged, key)

    def add_copy(self, logged: LoggedMessage, path: str) -> None:
        """Add an occurrence of a known message. The store maps a known alias on to the message's key.

        Its data on a subagent still counts: the copy read first may be another session's, or the answer.
        """
        name = next(filter(self._is_known, logged.names))
        key = self._aliases.get(name) or self._claims.get(name) or name
        if logged.message.kind in _OF_TOOLS:
            self._claim(logged, key)
        self._occurrences.append(Occurrence(key, path, logged.line))

    def add_said(self, logged: LoggedMessage, key: str, path: str) -> None:
        """Add another form of the message `key`, which another file has."""
        self._aliases[logged.message.key] = key
        self._occurrences.append(Occurrence(key, path, logged.line))

    def advance(self, state: FileState, parts: tuple[Part, ...], open_part: Part | None, own: int = 0) -> Advance:
        """Return the result of the batch after its split into chunks."""
        return Advance(
            state, parts, open_part, tuple(self._keys), tuple(self._occurrences), self._aliases, self._claims, own
        )

    def _claim(self, logged: LoggedMessage, key: str) -> None:
        spawned = (agent_key(logged.session_id, logged.spawned),) if logged.spawned else ()
        for claim in (*logged.claims, *spawned):
            self._claims.setdefault(claim, key)

    def _is_known(self, name: str) -> bool:
        return name in self._known or name in self._keys or name in self._aliases or name in self._claims


def _begins_another_session(state: FileState, logged: LoggedMessage) -> bool:
    """Return whether a message begins another session, other than a continuation of the current one. A continuation is
    in the same folder, or names its predecessor and is in a folder below.
    """
    if not logged.session_id or state.session_id in ("", logged.session_id):
        return False
    before, now = project_label(state.first_cwd), project_label(logged.cwd)
    return now != before and not (logged.parent and (not now or f"{now}/".startswith(f"{before}/")))


def _switched(state: FileState, session_id: str) -> FileState:
    """Return the state at the first message of another session, or where an interrupted one continues."""
    left = SessionState(
        state.session_id, state.agent_id, state.first_cwd, state.cwd, state.exchange, state.own, state.observer
    )
    known = {other.session_id: other for other in (*state.others, left)}
    now = known.pop(session_id, SessionState())
    others = tuple(known.values())[-MAX_SESSIONS:]
    return replace(
        state,
        session_id=now.session_id,
        agent_id=now.agent_id,
        first_cwd=now.first_cwd,
        cwd=now.cwd,
        exchange=now.exchange,
        own=now.own,
        observer=now.observer,
        others=others,
    )


def _located(state: FileState, logged: LoggedMessage, origin: FileOrigin) -> FileState:
    """Return the state with the place and exchange of `logged`. The first message determines the file's session."""
    agent_id = state.agent_id or origin.agent_id
    if not agent_id and not state.session_id and logged.sidechain:
        agent_id = logged.agent_id
    cwd = logged.cwd or state.cwd
    session_id = logged.session_id or state.session_id or origin.stem
    exchange = exchange_of(logged.message, state.exchange, in_subagent=bool(agent_id))
    borrows = state.borrows or logged.borrowed
    before = (state.session_id, state.agent_id, state.cwd, state.exchange, state.borrows)
    if (session_id, agent_id, cwd, exchange, borrows) == before:
        return state
    first = state.first_cwd or cwd
    if _is_launched_in(origin, cwd) and not _is_launched_in(origin, first):
        first = cwd  # earlier lines were copied from a session of another folder
    return replace(
        state,
        session_id=session_id,
        agent_id=agent_id,
        first_cwd=first,
        cwd=cwd,
        exchange=exchange,
        borrows=borrows,
    )


def _is_launched_in(origin: FileOrigin, cwd: str) -> bool:
    """Return whether the name of a log's folder is derived from this directory."""
    return bool(cwd) and re.sub(r"[^A-Za-z0-9]", "-", cwd) == origin.launched
