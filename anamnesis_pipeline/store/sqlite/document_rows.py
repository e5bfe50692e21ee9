"""Sections of documents in SQLite: where each of their texts was seen, and which is current."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from anamnesis_pipeline.model import FileCursor, Part, record_id
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.document_base import ParsedDocument, Settled, Sighting, Unsettled, Verdict
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records import events
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.files import vanished, versions_of, write_cursors
from anamnesis_pipeline.store.records.parts import write_parts
from anamnesis_pipeline.store.section_succession import successors
from anamnesis_pipeline.store.sighting_values import change_of, followed, rehomed
from anamnesis_pipeline.store.sqlite import unsettled_rows
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.engine import SqliteTables
from anamnesis_pipeline.store.sqlite.episode_rows import SET_STATUS
from anamnesis_pipeline.store.values import instant, json_list
from anamnesis_pipeline.summary_model import MAX_RECORDS

_COLUMNS = ", ".join(field.name for field in fields(Sighting))
_values_of = attrgetter(*(field.name for field in fields(Sighting)))
_VALUES = ", ".join("?" for _ in fields(Sighting))


class SqliteDocuments:
    """See `DocumentRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def commit(self, documents: Sequence[ParsedDocument]) -> list[int | None]:
        """See `DocumentRecords.commit`. A file is never divided."""
        done: list[int | None] = []
        for batch in _by_rows(documents):
            with self._database.write() as connection:
                done += [_commit(connection, document) for document in batch]
        return done

    def vanished(self, source: str) -> list[FileCursor]:
        """See `DocumentRecords.vanished`."""
        with self._database.read() as connection:
            return vanished(SqliteTables(connection), source)

    def unsettled(self, source: str, limit: int) -> list[Unsettled]:
        """See `DocumentRecords.unsettled`."""
        with self._database.read() as connection:
            query = "SELECT place, anchor, noted FROM unsettled WHERE source = ? ORDER BY place, anchor LIMIT ?"
            return [Unsettled(*row) for row in connection.execute(query, (source, limit))]

    def sightings_at(self, sections: Sequence[tuple[str, str]]) -> list[Sighting]:
        """See `DocumentRecords.sightings_at`."""
        found: list[Sighting] = []
        query = f"SELECT {_COLUMNS} FROM sightings WHERE place = ? AND anchor = ? ORDER BY source, path, part_id"
        with self._database.read() as connection:
            for section in sections:
                found += map(_read_row, connection.execute(query, section))
        return found

    def settle(self, sections: Sequence[Unsettled], verdicts: Mapping[str, Verdict]) -> Settled:
        """See `DocumentRecords.settle`."""
        counts, moved = [0, 0, 0], []
        with self._database.write() as connection:
            for part_id, verdict in verdicts.items():
                status = "active" if verdict.is_current else "superseded"
                values = (status, _published(connection, verdict.superseded_by))
                changed = _set_status(connection, part_id, *values)
                counts[2 if verdict.is_current else values[1] is None] += changed
                moved += [part_id] * changed
                for number in range(MAX_RECORDS if changed else 0):  # what an LLM drew from it goes with it
                    _set_status(connection, record_id(part_id, number), *values)
            events.note(SqliteTables(connection), Happening.STATUS, moved)
            connection.executemany(
                "DELETE FROM unsettled WHERE place = ? AND anchor = ? AND noted = ?", map(astuple, sections)
            )
        return Settled(*counts)

    def sightings_of(self, source: str, path: str) -> list[Sighting]:
        """See `DocumentRecords.sightings_of`."""
        with self._database.read() as connection:
            return sorted(_of_file(connection, source, path), key=lambda s: (not s.present, s.ordinal, s.part_id))

    def files_of(self, part_ids: Sequence[str]) -> set[tuple[str, str]]:
        """See `DocumentRecords.files_of`."""
        with self._database.read() as connection:
            query = "SELECT DISTINCT source, path FROM sightings WHERE part_id IN (SELECT value FROM json_each(?))"
            return {(source, path) for source, path in connection.execute(query, (json_list(part_ids),))}

    def seen_in(self, files: Sequence[tuple[str, str]]) -> set[str]:
        """See `DocumentRecords.seen_in`."""
        with self._database.read() as connection:
            return {s.part_id for source, path in files for s in _of_file(connection, source, path)}

    def same_text(self, part_ids: Sequence[str]) -> set[str]:
        """See `DocumentRecords.same_text`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT part_id FROM sightings WHERE text IN (
                    SELECT text FROM sightings WHERE part_id IN (SELECT value FROM json_each(?)))""",
                (json_list(part_ids),),
            )
            return {part_id for (part_id,) in rows}

    def remove(self, part_ids: Sequence[str]) -> int:
        """See `DocumentRecords.remove`."""
        removed = 0
        for batch in batches(sorted(set(part_ids))):
            held = "part_id IN (SELECT value FROM json_each(?))"
            with self._database.write() as connection:
                query = f"SELECT DISTINCT place, anchor, source FROM sightings WHERE {held}"
                sections = connection.execute(query, (json_list(batch),)).fetchall()
                unsettled_rows.note(connection, sections)
                connection.execute(
                    f"UPDATE sightings SET became = '' WHERE {held.replace('part_id', 'became')}", (json_list(batch),)
                )
                removed += connection.execute(f"DELETE FROM sightings WHERE {held}", (json_list(batch),)).rowcount
        return removed


def _published(connection: sqlite3.Connection, episode_id: str | None) -> str | None:
    """The id, if there is such an episode: a rule may hold it back, or it was deleted."""
    found = connection.execute("SELECT 1 FROM episodes WHERE episode_id = ?", (episode_id,)).fetchone()
    return episode_id if found else None


def _set_status(connection: sqlite3.Connection, episode_id: str, status: str, superseded_by: str | None) -> int:
    return connection.execute(
        f"{SET_STATUS} WHERE episode_id = ?3 AND (status <> ?1 OR superseded_by IS NOT ?2)",
        (status, superseded_by, episode_id, instant(datetime.now(UTC))),
    ).rowcount


def _by_rows(documents: Sequence[ParsedDocument]) -> Iterable[list[ParsedDocument]]:
    batch: list[ParsedDocument] = []
    rows = 0
    for document in documents:
        more = 1 + 2 * len(document.sections)
        if batch and rows + more > MAX_ROWS_PER_WRITE:
            yield batch
            batch, rows = [], 0
        batch.append(document)
        rows += more
    if batch:
        yield batch


def _commit(connection: sqlite3.Connection, document: ParsedDocument) -> int | None:
    before = document.before
    file = before.source, before.path
    if versions_of(SqliteTables(connection), [file]).get(file) != before.version:
        return None
    write_cursors(SqliteTables(connection), [replace(document.after, version=before.version + 1)])
    held = {s.part_id: s for s in _of_file(connection, before.source, before.path)}
    change = change_of(held, document.sections)
    now, went = change.now, change.went
    became = successors(held.values(), now.values()) if now else _renamed(connection, before.source, went)
    gone = [replace(s, present=False, became=became.get(s.part_id, "")) for s in went]
    _write_sightings(connection, [*gone, *(s for s in now.values() if s != held.get(s.part_id))])
    created = sum(_write_part(connection, part, now[part.part_id]) for part, _ in document.sections)
    for sighting in went:
        _rehome(connection, sighting)
    _note_changed(connection, before.source, change.came, went)
    return created


def _renamed(connection: sqlite3.Connection, source: str, went: Sequence[Sighting]) -> dict[str, str]:
    """Part that went with its file -> a part of another file of the source that holds the same text now."""
    query = (
        "SELECT part_id FROM sightings WHERE text = ? AND source = ? AND part_id <> ? AND present ORDER BY path LIMIT 1"
    )
    found = {s.part_id: connection.execute(query, (s.text, source, s.part_id)).fetchone() for s in went}
    return {part_id: row[0] for part_id, row in found.items() if row}


def _write_sightings(connection: sqlite3.Connection, sightings: Sequence[Sighting]) -> None:
    connection.executemany(
        f"""INSERT INTO sightings ({_COLUMNS}) VALUES ({_VALUES})
            ON CONFLICT (source, path, part_id) DO UPDATE SET ordinal = excluded.ordinal,
                first_line = excluded.first_line, last_line = excluded.last_line, since_ns = excluded.since_ns,
                skew_ns = excluded.skew_ns, cwd = excluded.cwd, present = excluded.present, became = excluded.became""",
        map(_values_of, sightings),
    )


def _write_part(connection: sqlite3.Connection, part: Part, sighting: Sighting) -> bool:
    """Whether the part is new. One that goes by this file, or by none that holds it, follows what is known of it."""
    row = connection.execute(
        "SELECT source, path, project, cwd, prompt, ordinal, section FROM parts WHERE part_id = ?", (part.part_id,)
    ).fetchone()
    if row is None:
        write_parts(SqliteTables(connection), [part])
        return True
    source, path, *known = row
    is_own = (source, path) == (sighting.source, sighting.path)
    if not is_own and _is_present(connection, source, path, part.part_id):
        return False
    fields = followed(part, known[-1])  # in the order of the columns above
    if not is_own or [*fields.values()] != known:
        _move_part(connection, part.part_id, {"source": part.source, "path": part.path, **fields})
    return False


def _move_part(connection: sqlite3.Connection, part_id: str, fields: Mapping[str, str | int]) -> None:
    changes = ", ".join(f"{name} = ?" for name in fields)
    connection.execute(
        f"UPDATE parts SET {changes}, published_hash = NULL WHERE part_id = ?", (*fields.values(), part_id)
    )


def _is_present(connection: sqlite3.Connection, source: str, path: str, part_id: str) -> bool:
    query = "SELECT 1 FROM sightings WHERE source = ? AND path = ? AND part_id = ? AND present"
    return connection.execute(query, (source, path, part_id)).fetchone() is not None


def _rehome(connection: sqlite3.Connection, went: Sighting) -> None:
    """Let a part whose file lost it go by another file that holds it."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM sightings WHERE part_id = ? AND present ORDER BY since_ns, source, path LIMIT 1",
        (went.part_id,),
    ).fetchone()
    part = connection.execute("SELECT source, path, section FROM parts WHERE part_id = ?", (went.part_id,)).fetchone()
    if row is None or part is None or part[:2] != (went.source, went.path):
        return
    other = _read_row(row)
    specs = dict(connection.execute("SELECT key, spec FROM sources WHERE key IN (?, ?)", (went.source, other.source)))
    _move_part(connection, went.part_id, rehomed(part[2], went.source, other, specs))


def _note_changed(
    connection: sqlite3.Connection, source: str, came: Sequence[Sighting], went: Sequence[Sighting]
) -> None:
    """Note sections in which a text came or went. A text that is the first of its section is settled as it is."""
    alone = "SELECT 1 FROM sightings WHERE place = ? AND anchor = ? AND (part_id <> ? OR became <> '') LIMIT 1"
    known = "SELECT 1 FROM episodes WHERE episode_id = ? AND status <> 'active'"
    noted = {(s.place, s.anchor) for s in went}
    for s in came:
        section = (s.place, s.anchor)
        if section not in noted and (
            connection.execute(alone, (*section, s.part_id)).fetchone()
            or connection.execute(known, (s.part_id,)).fetchone()
        ):
            noted.add(section)
    unsettled_rows.note(connection, [(*section, source) for section in sorted(noted)])


def _of_file(connection: sqlite3.Connection, source: str, path: str) -> list[Sighting]:
    query = f"SELECT {_COLUMNS} FROM sightings WHERE source = ? AND path = ?"
    return [_read_row(row) for row in connection.execute(query, (source, path))]


def _read_row(row: Sequence[Any]) -> Sighting:
    *middle, present, became = row
    values: list[Any] = [*middle, bool(present), became]
    return Sighting(*values)
