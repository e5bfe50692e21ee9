"""Parse the archived lines of a source that no chunk has yet."""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from anamnesis_pipeline.model import DeadLetter, FileCursor, Part, Source
from anamnesis_pipeline.parsing.claude_logs.history import advance_history, read_history
from anamnesis_pipeline.parsing.claude_logs.observers import ObserverRules, built_in
from anamnesis_pipeline.parsing.claude_logs.parser import Advance, Batch, FileOrigin, FileState, advance, read_messages
from anamnesis_pipeline.parsing.claude_logs.records import Beginning, beginning, stands_for
from anamnesis_pipeline.parsing.text.file_names import log_name
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.projects import Label
from anamnesis_pipeline.pipeline.sessions import note_continued, note_observers, note_odd_times, note_unknown
from anamnesis_pipeline.pipeline.tool_outputs import characters_named, outputs_of, with_whole_text
from anamnesis_pipeline.sources.base import (
    described_log,
    is_agent_description,
    is_description,
    is_session_record,
    record_above,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records.messages import MessageRecords, ParsedChunk
from anamnesis_pipeline.store.records.parts import PartRecords

CHUNK_LINES = 200
CHUNK_CHARACTERS = 2_000_000
"""Lines are parsed in runs that end at either limit; one longer line is a separate run."""

HEAD_LINES = 20
"""Lines of a new file that are searched for the beginning of its conversation."""

FOLDERS = "userSelectedFolders"
"""Field of a Cowork session's record."""

"""(cursor, from_line) -> the masked lines of the cursor's generation, from that line on."""


@dataclass(frozen=True, slots=True)
class ParseReport:
    """Result of `parse_source`.

    `messages` are new, `duplicates` were known already. `parts` and `exchanges` count those written, `closed` the
    chunks that became idle. `skipped`: records, blocks and messages left out on purpose, by reason; under `own:`, text
    that this system put into a log. `malformed`: lines that are dead letters now, since something in them is
    unreadable. `overtaken` files were left to another, faster run.
    """

    files: int = 0
    lines: int = 0
    messages: int = 0
    duplicates: int = 0
    parts: int = 0
    exchanges: int = 0
    closed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    malformed: int = 0
    overtaken: int = 0
    seconds: float = 0.0
    again: "AgainReport | None" = None
    """What was parsed again; None: nothing was requested."""


@dataclass(slots=True)
class AgainReport:
    """Result of `parse_again`. Chunks are `unchanged`, `changed` (new ones too) or `removed`; `overtaken` files changed
    during the run and are left to the next one.
    """

    files: int = 0
    lines: int = 0
    unchanged: int = 0
    changed: int = 0
    removed: int = 0
    overtaken: int = 0


@dataclass(slots=True)
class Tally:
    """Counters of a run."""

    files: int = 0
    lines: int = 0
    messages: int = 0
    duplicates: int = 0
    malformed: int = 0
    overtaken: int = 0
    parts: set[str] = field(default_factory=set)
    exchanges: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)

    def count(self, batch: Batch, step: Advance) -> None:
        """Add the results of one run of lines."""
        self.lines += batch.lines
        self.messages += len(step.keys)
        self.duplicates += len(step.occurrences)
        self.malformed += batch.malformed
        self.parts.update(part.part_id for part in step.parts)
        self.exchanges.update(part.exchange_id for part in step.parts)
        self.skipped += batch.skipped
        self.skipped += Counter({"own:summarizer": step.own, "own:answer": step.answers})
        self.skipped += Counter({f"observer:{name}": count for name, count in step.observed.items()})


@dataclass(frozen=True, slots=True)
class ParseContext:
    """State shared by all files of a run, and how lines of its source are read."""

    store: Store
    archive_lines: ArchivedLines
    source: Source
    label: Label
    idle_minutes: int
    tally: Tally
    agents: dict[str, tuple[str, str]]
    """Path of a subagent's file -> its type and the call that spawned it."""
    forgotten: Callable[[Sequence[str]], set[str]]
    """Return the given keys that a tombstone forbids."""
    outputs: Mapping[str, FileCursor] = field(default_factory=dict)
    """Name of a tool's output -> its archived file."""
    observers: ObserverRules = field(default_factory=built_in)
    """Rules that recognize sessions of other memory tools."""
    branches: dict[str, str] = field(default_factory=dict)
    """Session -> its git branch, as far as this run has read."""
    folders: dict[str, str] = field(default_factory=dict)
    """Path prefix of a Cowork session's logs -> the folder chosen for it; empty prefix: all logs."""

    def origin(self, path: str) -> FileOrigin:
        """Return the origin of the lines of `path`."""
        agent_type, spawned_by = self.agents.get(path, ("", ""))
        folder = next((folder for place, folder in self.folders.items() if path.startswith(place)), "")
        return FileOrigin(self.source.key, path, agent_type, spawned_by, folder, self.source.folder)

    def read(self, lines: list[str], first_line: int, fired: str = "") -> Batch:
        """Parse the messages on `lines`, and empty the list. `first_line`: the first's number; `fired`: the state's."""
        if self._is_history:
            return read_history(_used_up(lines), first_line)
        return read_messages(_used_up(lines), first_line, fired=fired)

    def advance(
        self,
        state: FileState,
        batch: Batch,
        path: str,
        seen: Collection[str] | None = None,
        open_part: Part | None = None,
    ) -> Advance:
        """Return what a batch adds to the store.

        :param seen: of a file that is parsed again, the keys it gave since its first line: only these of its keys are
            known. None: parsing continues.
        :param open_part: of such a file, the chunk that `state` names.
        """
        batch = self._without_deleted(batch)
        own, origin = (self.source.key, path), self.origin(path)
        reader = own if seen is None else None
        known = self.store.messages.known_keys(batch.keys, reader) | self.store.messages.known_keys(
            batch.borrowed_names
        )
        if state.borrows:
            known |= {key for key, owner in self.store.messages.owners(batch.lent_keys).items() if owner == own}
        if seen is not None:
            owned = [key for key, owner in self.store.messages.owners(sorted(known)).items() if owner == own]
            known -= set(owned) - set(seen) - self.forgotten(owned)
        batch = self._with_outputs(batch, known)
        if self._is_history:
            claims = self.store.messages.claims_near([key for key in batch.keys if key not in known])
            batch, observed = self._without_observers(batch)
            step = advance_history(state, batch, known, claims, origin, label=self.label)
            return replace(step, observed=observed)
        if seen is None and state.part_id:
            open_part = self.store.parts.part(state.part_id)
        return advance(
            state,
            open_part,
            batch,
            known,
            origin,
            label=self.label,
            idle_minutes=self.idle_minutes,
            observers=self.observers,
        )

    def _without_deleted(self, batch: Batch) -> Batch:
        """Drop messages that stand for a deleted one: a prompt known from the history only, or a fork's message."""
        claims = [claim for logged in batch.messages for claim in logged.claims]
        if not (gone := self.forgotten([*claims, *batch.lent_keys])):
            return batch
        return replace(batch, messages=tuple(m for m in batch.messages if gone.isdisjoint(stands_for(m))))

    def _without_observers(self, batch: Batch) -> tuple[Batch, Counter[str]]:
        """Drop history entries of other memory tools' sessions. Return the rest and the number dropped by tool."""
        names = [self.observers.name_of(logged.cwd, logged.entrypoint) for logged in batch.messages]
        kept = tuple(logged for logged, name in zip(batch.messages, names, strict=True) if not name)
        return replace(batch, messages=kept), Counter(filter(None, names))

    def _with_outputs(self, batch: Batch, known: set[str]) -> Batch:
        """Insert the whole text of new results whose record has only a preview."""
        if not self.outputs:
            return batch
        messages = tuple(
            with_whole_text(m, self.outputs, self.archive_lines.read, self.tally.skipped)
            if m.moved_to and known.isdisjoint(m.names)
            else m
            for m in batch.messages
        )
        return replace(batch, messages=messages)

    def chunks(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Yield lines of a log in runs that fit in memory together with the outputs that they name."""
        sizes = {name.rpartition("/")[2]: cursor.offset for name, cursor in self.outputs.items()}
        chunk: list[str] = []
        size = 0
        for line in lines:
            characters = len(line) + characters_named(line, sizes)
            if chunk and (len(chunk) >= CHUNK_LINES or size + characters > CHUNK_CHARACTERS):
                yield chunk
                chunk, size = [], 0
            chunk.append(line)
            size += characters
            if size > CHUNK_CHARACTERS:
                del line
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk

    @property
    def _is_history(self) -> bool:
        return self.source.kind == "claude_history"


def parse_source(
    store: Store,
    archive_lines: ArchivedLines,
    source: Source,
    now: datetime,
    idle_minutes: int,
    label: Label,
    observers: ObserverRules | None = None,
) -> ParseReport:
    """Parse every pending archived line of `source`, and close idle chunks.

    A message belongs to the oldest file that has it, and among files of one source to the first that was read, so the
    order matters: sessions before their subagents, present logs before former ones that were set aside, known files
    before new ones, originals before forks, then by the time of the first record and of the last change. An interrupted
    run resumes; a file that another run is parsing is left to it.

    :param now: an open chunk whose last segment is more than `idle_minutes` older is closed.
    :param label: working directory -> project.
    :param observers: recognize sessions of other memory tools; None: the rules of this package.
    """
    begun, cursors = time.monotonic(), store.files.cursors(source.key)
    context = open_context(store, archive_lines, source, idle_minutes, label, observers)
    tally = context.tally
    for waiting in _unparsed(context, cursors.values()):
        tally.files += 1
        cursor = store.files.cursor(source.key, waiting.path)  # an earlier file may have claimed its messages
        tally.overtaken += cursor is None or not _parse_file(context, cursor)
    store.parts.link_agents(source.key)
    closed = store.parts.close_idle_parts(source.key, now - timedelta(minutes=idle_minutes))
    return ParseReport(
        files=tally.files,
        lines=tally.lines,
        messages=tally.messages,
        duplicates=tally.duplicates,
        parts=len(tally.parts),
        exchanges=len(tally.exchanges),
        closed=closed,
        skipped=dict(+tally.skipped),
        malformed=tally.malformed,
        overtaken=tally.overtaken,
        seconds=time.monotonic() - begun,
    )


def open_context(
    store: Store,
    archive_lines: ArchivedLines,
    source: Source,
    idle_minutes: int,
    label: Label,
    observers: ObserverRules | None = None,
) -> ParseContext:
    """Build the context of a run before it reads logs, including what other files say about them."""
    cursors = store.files.cursors(source.key)
    context = ParseContext(
        store,
        archive_lines,
        source,
        label,
        idle_minutes,
        Tally(),
        {},
        store.forgetting.forgotten,
        outputs_of(cursors.values()),
        observers or built_in(),
    )
    _read_descriptions(context, cursors)
    _read_session_records(context, cursors)
    return context


def _unparsed(context: ParseContext, cursors: Iterable[FileCursor]) -> list[FileCursor]:
    """Return files with pending lines; files that own shared messages come first."""
    waiting = [c for c in cursors if c.parsed_lines < c.lines and not is_description(c.path)]

    def order(cursor: FileCursor) -> tuple[bool, bool, bool, Beginning, int, str]:
        is_agent, is_new = bool(FileOrigin(cursor.source, cursor.path).agent_id), not cursor.parser_state
        is_set_aside = bool((named := log_name(cursor.path)) and named.set_aside)
        first = islice(context.archive_lines.read(cursor, 0), HEAD_LINES) if is_new and len(waiting) > 1 else ()
        return is_agent, is_set_aside, is_new, beginning(first), cursor.mtime_ns, cursor.path

    return sorted(waiting, key=order)


def _read_descriptions(context: ParseContext, cursors: Mapping[str, FileCursor]) -> None:
    """Read the descriptions of subagents; update chunks made before."""
    for cursor in cursors.values():
        if not is_agent_description(cursor.path):
            continue
        path, state = described_log(cursor.path), cursor.parser_state
        if cursor.parsed_lines < cursor.lines:
            state = next(iter(context.archive_lines.read(cursor, cursor.lines - 1)), "")
            context.store.parts.name_agent(cursor.source, path, *_description(state))
            after = replace(cursor, parsed_lines=cursor.lines, parser_state=state)
            context.tally.overtaken += not context.store.messages.commit_parsed(ParsedChunk(cursor, after))
        context.agents[path] = _description(state)


def _read_session_records(context: ParseContext, cursors: Mapping[str, FileCursor]) -> None:
    """Read the folders chosen for Cowork sessions; move chunks made before to their projects."""
    for cursor in cursors.values():
        if not is_session_record(cursor.path):
            continue
        is_above = record_above(folder_of(context.source)).endswith(f"/{cursor.path}")
        place = "" if is_above else f"{cursor.path.removesuffix('.json')}/"
        folder = before = _chosen_folder(cursor.parser_state)
        if cursor.parsed_lines < cursor.lines:
            folder = _chosen_folder(next(iter(context.archive_lines.read(cursor, cursor.lines - 1)), ""))
            for path, log in cursors.items() if folder != before else ():
                if path.startswith(place) and (state := FileState.from_json(log.parser_state)):
                    names = (context.label(before or state.first_cwd), context.label(folder or state.first_cwd))
                    context.store.projects.move_parts(cursor.source, [path], "", *names)
            state_after = json.dumps({FOLDERS: [folder]}, ensure_ascii=False)
            after = replace(cursor, parsed_lines=cursor.lines, parser_state=state_after)
            context.tally.overtaken += not context.store.messages.commit_parsed(ParsedChunk(cursor, after))
        if folder:
            context.folders[place] = folder


def _chosen_folder(text: str) -> str:
    """Return the first folder chosen for a Cowork session; empty: its record names none."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    folders = values.get(FOLDERS) if isinstance(values, dict) else None
    return next((each for each in folders if isinstance(each, str)), "") if isinstance(folders, list) else ""


def _description(text: str) -> tuple[str, str]:
    """Return a subagent's type and the id of the call that spawned it, if its description has them."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return "", ""
    found = [values.get(name) if isinstance(values, dict) else None for name in ("agentType", "toolUseId")]
    agent_type, spawned_by = (value if isinstance(value, str) else "" for value in found)
    return agent_type, spawned_by


def _parse_file(context: ParseContext, cursor: FileCursor) -> bool:
    """Parse one file up to the last archived line. Return False if another run changed its cursor in the meantime.

    A file may have been replaced before its former content was parsed, so earlier generations come first.
    """
    state = _state_of(cursor)
    stored = cursor
    for generation in range(state.generation, cursor.generation + 1):
        ended: tuple[Part, ...] = ()
        if generation > state.generation:
            ended = _ended_part(context.store.parts, state)
            state = FileState(generation=generation, ordinal=state.ordinal, borrows=state.borrows)
        last_line = cursor.lines if generation == cursor.generation else None
        lines = context.archive_lines.read(replace(cursor, generation=generation), state.line)
        wanted = islice(lines, None if last_line is None else last_line - state.line)
        for chunk in context.chunks(wanted):
            committed, state = _parse_chunk(context, stored, state, chunk, ended)
            if committed is None:
                return False
            stored, ended = committed, ()
    if stored.parsed_lines >= 0:
        return True
    after = replace(stored, parsed_lines=0, parser_state=state.to_json())
    return context.store.messages.commit_parsed(ParsedChunk(stored, after, parts=ended))


def _state_of(cursor: FileCursor) -> FileState:
    """Return the parser's state. The state of another version is dropped: parsing continues at the next line."""
    if not cursor.parser_state:
        return FileState()
    state = FileState.from_json(cursor.parser_state)
    return state or FileState(generation=cursor.generation, line=max(cursor.parsed_lines, 0))


def _ended_part(parts: PartRecords, state: FileState) -> tuple[Part, ...]:
    """Return the chunk that was open when the file was replaced, closed."""
    part = parts.part(state.part_id) if state.part_id else None
    return (replace(part, closed=True),) if part else ()


def _used_up(lines: list[str]) -> Iterator[str]:
    """Yield each line and remove it from the list: a huge line must not stay in memory beside its result."""
    lines.reverse()
    while lines:
        yield lines.pop()


def _parse_chunk(
    context: ParseContext, cursor: FileCursor, state: FileState, lines: list[str], ended: tuple[Part, ...]
) -> tuple[FileCursor | None, FileState]:
    """Parse and commit some lines. Return the cursor (None if another run was faster) and the state after them."""
    batch = context.read(lines, state.line, state.fired)
    note_continued(context.store, dict(batch.continued))
    _note_branches(context, batch)
    step = context.advance(state, batch, cursor.path)
    dead = [DeadLetter(cursor.source, cursor.path, state.generation, line, reason) for line, reason in batch.dead]
    is_current = step.state.generation == cursor.generation
    after = replace(
        cursor,
        parsed_lines=step.state.line if is_current else cursor.parsed_lines,
        parser_state=step.state.to_json(),
    )
    step = replace(step, parts=(*ended, *step.parts))
    committed = commit_step(context.store.messages, cursor, after, step, state.part_id, dead)
    if committed is not None:
        context.tally.count(batch, step)
        note_unknown(context.store.settings, batch.unknown)
        note_odd_times(context.store.settings, cursor.path, batch.odd_times)
        note_observers(context.store.settings, step.observers)
    return committed, step.state


def _note_branches(context: ParseContext, batch: Batch) -> None:
    """Store the git branch of each session where it changed; subagents do not count."""
    found = {
        logged.session_id: logged.branch
        for logged in batch.messages
        if logged.session_id and logged.branch not in {"", "HEAD"} and not (logged.agent_id or logged.sidechain)
    }
    if news := {key: branch for key, branch in found.items() if context.branches.get(key) != branch}:
        context.store.sessions.note_branches(context.source.key, news)
        context.branches.update(news)


def commit_step(
    messages: MessageRecords,
    before: FileCursor,
    after: FileCursor,
    step: Advance,
    grown_id: str,
    dead: Sequence[DeadLetter] = (),
    revived: Sequence[DeadLetter] = (),
) -> FileCursor | None:
    """Write a step. Return the cursor as stored, or None if another run was faster.

    A single huge line makes thousands of chunks. Then the new ones are written first, in small transactions: if the
    last transaction is lost, the next run makes them again, since no file owns their messages yet. The chunk that was
    open before must not grow twice, so it is always written with the cursor.

    :param grown_id: the chunk that was open before.
    """
    parts = step.parts
    rows = len(step.keys) + len(step.aliases) + len(step.claims) + len(step.occurrences)
    if len(parts) + rows > MAX_ROWS_PER_WRITE:
        new = [part for part in parts if part.part_id != grown_id]
        for start in range(0, len(new), MAX_ROWS_PER_WRITE):
            if not messages.commit_parsed(ParsedChunk(before, before, parts=new[start : start + MAX_ROWS_PER_WRITE])):
                return None
            before = replace(before, version=before.version + 1)
        parts = tuple(part for part in parts if part.part_id == grown_id)
    keys = (*step.keys, *step.aliases)
    chunk = ParsedChunk(before, after, keys, step.occurrences, parts, dead, revived, step.aliases, step.claims)
    if not messages.commit_parsed(chunk):
        return None
    return replace(after, version=before.version + 1)
