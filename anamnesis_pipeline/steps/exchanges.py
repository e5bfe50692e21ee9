"""Parse what the archive of a source holds and no part has yet."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from anamnesis_pipeline.exchanges.parsing import Advance, Batch, FileOrigin, FileState, advance, read_messages
from anamnesis_pipeline.model import FileCursor, Part, Source
from anamnesis_pipeline.store.base import MAX_ROWS_PER_WRITE, IngestRecords, ParsedChunk, Store

CHUNK_LINES = 200
CHUNK_CHARACTERS = 2_000_000
"""A chunk ends at either; one longer line is a chunk of its own."""

ArchiveLines = Callable[[FileCursor, int], Iterator[str]]
"""(cursor, from_line) -> the masked lines of the cursor's generation, from that line on."""


@dataclass(frozen=True, slots=True)
class ParseReport:
    """What one run of `parse_source` did.

    `messages` are new, `duplicates` were known already. `parts` and `exchanges` count those written, `closed` the
    parts that fell idle. `skipped` counts records and blocks left out on purpose, by reason; `malformed` lines of
    which something could not be read. `overtaken` files were left to another run that was faster.
    """

    files: int
    lines: int
    messages: int
    duplicates: int
    parts: int
    exchanges: int
    closed: int
    skipped: dict[str, int]
    malformed: int
    overtaken: int
    seconds: float


@dataclass(slots=True)
class _Tally:
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
        self.lines += batch.lines
        self.messages += len(step.keys)
        self.duplicates += len(step.occurrences)
        self.malformed += batch.malformed
        self.parts.update(part.part_id for part in step.parts)
        self.exchanges.update(part.exchange_id for part in step.parts)
        self.skipped += batch.skipped


@dataclass(frozen=True, slots=True)
class _Context:
    """What is the same for every file of a run."""

    ingest: IngestRecords
    archive_lines: ArchiveLines
    label: Callable[[str], str]
    idle_minutes: int
    tally: _Tally


def parse_source(
    store: Store,
    archive_lines: ArchiveLines,
    source: Source,
    now: datetime,
    idle_minutes: int,
    label: Callable[[str], str],
) -> ParseReport:
    """Parse every archived line of `source` that was not parsed yet, and close the parts that fell idle.

    Files are read by their time of change, oldest first: a message belongs to the first file it was read from. A run
    that is interrupted goes on where it was; a file that another run parses at the same time is left to it.

    :param now: an open part whose last segment is more than `idle_minutes` older is closed.
    :param label: working directory -> project.
    """
    begun, tally = time.monotonic(), _Tally()
    context = _Context(store.ingest, archive_lines, label, idle_minutes, tally)
    for cursor in _unparsed(store.ingest.cursors(source.key).values()):
        tally.files += 1
        tally.overtaken += not _parse_file(context, cursor)
    closed = store.ingest.close_idle_parts(source.key, now - timedelta(minutes=idle_minutes))
    return ParseReport(
        files=tally.files,
        lines=tally.lines,
        messages=tally.messages,
        duplicates=tally.duplicates,
        parts=len(tally.parts),
        exchanges=len(tally.exchanges),
        closed=closed,
        skipped=dict(tally.skipped),
        malformed=tally.malformed,
        overtaken=tally.overtaken,
        seconds=time.monotonic() - begun,
    )


def _unparsed(cursors: Iterable[FileCursor]) -> list[FileCursor]:
    waiting = [cursor for cursor in cursors if cursor.parsed_lines < cursor.lines]
    return sorted(waiting, key=lambda cursor: (cursor.mtime_ns, cursor.path))


def _parse_file(context: _Context, cursor: FileCursor) -> bool:
    """Parse one file up to the last archived line. False if another run changed its cursor meanwhile.

    A file may have been replaced before its former content was parsed, so earlier generations come first.
    """
    state = _state_of(cursor)
    stored = cursor
    for generation in range(state.generation, cursor.generation + 1):
        ended: tuple[Part, ...] = ()
        if generation > state.generation:
            ended = _ended_part(context.ingest, state)
            state = FileState(generation=generation, ordinal=state.ordinal)
        last_line = cursor.lines if generation == cursor.generation else None
        lines = context.archive_lines(replace(cursor, generation=generation), state.line)
        wanted = islice(lines, None if last_line is None else last_line - state.line)
        for chunk in _chunks(wanted):
            committed, state = _parse_chunk(context, stored, state, chunk, ended)
            if committed is None:
                return False
            stored, ended = committed, ()
    return True


def _state_of(cursor: FileCursor) -> FileState:
    """Where the parser stands. A state from another version is given up: parsing goes on at the next line."""
    if not cursor.parser_state:
        return FileState()
    state = FileState.from_json(cursor.parser_state)
    return state or FileState(generation=cursor.generation, line=cursor.parsed_lines)


def _ended_part(ingest: IngestRecords, state: FileState) -> tuple[Part, ...]:
    """The part that was open when the file was replaced, closed."""
    part = ingest.part(state.part_id) if state.part_id else None
    return (replace(part, closed=True),) if part else ()


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for line in lines:
        if chunk and (len(chunk) >= CHUNK_LINES or size + len(line) > CHUNK_CHARACTERS):
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk


def _parse_chunk(
    context: _Context, cursor: FileCursor, state: FileState, lines: Sequence[str], ended: tuple[Part, ...]
) -> tuple[FileCursor | None, FileState]:
    """Parse and commit some lines. Returns the cursor (None if another run was faster) and state behind them."""
    ingest = context.ingest
    batch = read_messages(lines, state.line)
    step = advance(
        state,
        ingest.part(state.part_id) if state.part_id else None,
        batch,
        ingest.known_keys(batch.keys),
        FileOrigin(cursor.source, cursor.path),
        label=context.label,
        idle_minutes=context.idle_minutes,
    )
    is_current = step.state.generation == cursor.generation
    after = replace(
        cursor,
        parsed_lines=step.state.line if is_current else cursor.parsed_lines,
        parser_state=step.state.to_json(),
    )
    committed = _commit(ingest, cursor, after, replace(step, parts=(*ended, *step.parts)), state.part_id)
    if committed is not None:
        context.tally.count(batch, step)
    return committed, step.state


def _commit(
    ingest: IngestRecords, before: FileCursor, after: FileCursor, step: Advance, grown_id: str
) -> FileCursor | None:
    """Write a step; returns the cursor as stored, or None if another run was faster.

    A single huge line makes thousands of parts. The new ones are then written first, in small transactions: should
    the last one never come, the next run makes them again, since their messages belong to nobody yet. The part that
    was open before must not grow twice, so it always goes with the cursor.

    :param grown_id: the part that was open before.
    """
    parts = step.parts
    if len(parts) + len(step.keys) + len(step.occurrences) > MAX_ROWS_PER_WRITE:
        new = [part for part in parts if part.part_id != grown_id]
        for start in range(0, len(new), MAX_ROWS_PER_WRITE):
            if not ingest.commit_parsed(ParsedChunk(before, before, parts=new[start : start + MAX_ROWS_PER_WRITE])):
                return None
            before = replace(before, version=before.version + 1)
        parts = tuple(part for part in parts if part.part_id == grown_id)
    if not ingest.commit_parsed(ParsedChunk(before, after, step.keys, step.occurrences, parts)):
        return None
    return replace(after, version=before.version + 1)
