"""Parse the archive of a source again from the first line: this version may read it differently.

A chunk is identified by its first message, so an unchanged chunk keeps its episode and its vectors. Which file owns a
message does not change. The store notes each finished file; after a kill the next run continues there, and starts an
unfinished file over.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from anamnesis_pipeline.model import MAX_RECORDS, DeadLetter, FileCursor, Part, record_id
from anamnesis_pipeline.parsing.claude_logs.parser import Advance, FileState
from anamnesis_pipeline.pipeline.parse import AgainReport, ParseContext
from anamnesis_pipeline.sources.base import is_description
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records.messages import ParsedChunk

NOTE = "parse_again."
"""Settings prefix: the last finished path of a source."""


def ask_again(store: Store, source: str) -> None:
    """Make the next parse of a source start from its first line. An interrupted run continues instead."""
    store.settings.swap(NOTE + source, None, "")


def is_asked_again(store: Store, source: str) -> bool:
    """Return whether a source is to be parsed again, or such a run was interrupted."""
    return store.settings.get(NOTE + source) is not None


def sources_asked_again(store: Store) -> set[str]:
    """Return the sources for which `is_asked_again` holds."""
    return {name.removeprefix(NOTE) for name in store.settings.all(NOTE)}


def parse_again(context: ParseContext) -> AgainReport:
    """Parse every file of a source again up to its cursor, and note that the source is finished.

    Entries of the prompt history stay unchanged: a transcript may own them by now.
    """
    store, source, report = context.store, context.source, AgainReport()
    behind = store.settings.get(NOTE + source.key) or ""
    cursors = store.files.cursors(source.key)
    logs = [path for path in sorted(cursors) if path > behind and not is_description(path)]
    for path in logs if source.kind != "claude_history" else ():
        if not _File(context, cursors[path], report).parse():
            report.overtaken += 1
            continue
        report.files += 1
        if not report.overtaken:
            store.settings.set(NOTE + source.key, path)
    if not report.overtaken:
        store.settings.set(NOTE + source.key, None)
    return report


class _File:
    """One file in progress. `made`: ids of its chunks. `seen`: keys read from its lines so far."""

    def __init__(self, context: ParseContext, cursor: FileCursor, report: AgainReport) -> None:
        self._context, self._cursor, self._report = context, cursor, report
        self._made: set[str] = set()
        self._seen: set[str] = set()
        self._open: Part | None = None
        self._dead = {
            (letter.generation, letter.line): letter
            for letter in context.store.messages.dead_letters(cursor.source, limit=MAX_ROWS_PER_WRITE)
            if letter.path == cursor.path
        }

    def parse(self) -> bool:
        """Parse the file; return False when another run wrote it meanwhile."""
        state = FileState()
        for generation in range(self._cursor.generation + 1):
            if generation > state.generation:
                if self._open is not None and not self._write([replace(self._open, closed=True)]):
                    return False
                self._open = None
                state = FileState(generation=generation, ordinal=state.ordinal, borrows=state.borrows)
            for lines in self._context.chunks(self._lines(generation)):
                self._report.lines += len(lines)
                batch = self._context.read(lines, state.line, state.fired)
                step = self._context.advance(state, batch, self._cursor.path, self._seen, self._open)
                dead = [(line, reason) for line, reason in batch.dead]
                if not self._take(step, dict(dead), range(state.line, step.state.line)):
                    return False
                state = step.state
        return self._end(state)

    def _lines(self, generation: int) -> Iterator[str]:
        """Yield all lines of a former generation, or the parsed lines of the present one."""
        lines = self._context.archive_lines.read(replace(self._cursor, generation=generation), 0)
        return lines if generation < self._cursor.generation else islice(lines, max(0, self._cursor.parsed_lines))

    def _take(self, step: Advance, dead: Mapping[int, str], lines: range) -> bool:
        self._seen.update(step.keys, step.aliases, step.claims)
        self._open = step.open_part
        open_id = step.open_part.part_id if step.open_part else ""
        source, path, generation = self._cursor.source, self._cursor.path, step.state.generation
        letters = [DeadLetter(source, path, generation, line, reason) for line, reason in dead.items()]
        revived = [
            letter
            for place, letter in self._dead.items()
            if place[0] == generation and place[1] in lines and place[1] not in dead
        ]
        parts = [part for part in step.parts if part.part_id != open_id]
        return self._write(parts, step, letters, revived)

    def _write(
        self,
        parts: Sequence[Part],
        step: Advance | None = None,
        dead: Sequence[DeadLetter] = (),
        revived: Sequence[DeadLetter] = (),
        state: FileState | None = None,
    ) -> bool:
        """Commit the changed chunks, with the messages that had no owner."""
        self._made.update(part.part_id for part in parts)
        changed = [part for part in map(self._as_stored, parts) if part is not None]
        self._report.changed += len(changed)
        self._report.unchanged += len(parts) - len(changed)
        known = self._context.store.messages.owners([*step.keys, *step.aliases, *step.claims]) if step else {}
        keys = [key for key in (*step.keys, *step.aliases) if key not in known] if step else []
        aliases = {key: own for key, own in step.aliases.items() if key not in known} if step else {}
        claims = {key: own for key, own in step.claims.items() if own in keys} if step else {}
        after = self._cursor if state is None else replace(self._cursor, parser_state=state.to_json())
        if not (changed or keys or dead or revived or after != self._cursor):
            return True
        chunk = ParsedChunk(self._cursor, after, keys, (), changed, dead, revived, aliases, claims)
        if not self._context.store.messages.commit_parsed(chunk):
            return False
        self._cursor = replace(after, version=self._cursor.version + 1)
        return True

    def _as_stored(self, part: Part) -> Part | None:
        """Return the chunk with facts learned later; None: it equals the stored one, or was deleted."""
        (stored,) = self._context.store.forgetting.parts([part.part_id]) or (None,)
        if stored is None:
            return part
        said = (part.segments, part.prompt, part.lead, part.kind)
        if (stored.segments, stored.prompt, stored.lead, stored.kind) == said and (stored.closed or not part.closed):
            return None
        if self._context.store.parts.part(part.part_id) is None:
            return None
        return replace(
            part,
            project=stored.project,
            agent_type=stored.agent_type,
            origin=stored.origin,
            closed=part.closed or stored.closed,
        )

    def _end(self, state: FileState) -> bool:
        """Write the open chunk and the parser state, then remove the chunks that no longer exist."""
        if not self._write([self._open] if self._open else [], state=state):
            return False
        path = (self._cursor.source, self._cursor.path)
        former = [part.part_id for part in self._context.store.forgetting.parts_of_files([path])]
        gone = [part_id for part_id in former if part_id not in self._made and self._context.store.parts.part(part_id)]
        for part_id in gone:
            for episode in (part_id, *(record_id(part_id, number) for number in range(MAX_RECORDS))):
                self._context.store.episodes.delete(episode, tombstone=False)
        self._report.removed += self._context.store.forgetting.remove_parts(gone)
        return True
