"""Message keys, the copies of messages, and lines that could not be read, as rows.

A message is one row under its own key, and one more for each further key by which it is known: their `canonical` is
its own key.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from anamnesis_pipeline.model import (
    RESULT_KEY,
    SOMEWHERE,
    DeadLetter,
    Occurrence,
    borrowed_key,
    call_of,
    content_id,
    part_id_of,
)
from anamnesis_pipeline.store.ingest_base import ParsedChunk
from anamnesis_pipeline.store.sqlite import typed_rows
from anamnesis_pipeline.store.sqlite.columns import clean, json_list
from anamnesis_pipeline.store.sqlite.episodes import remove_episode
from anamnesis_pipeline.store.sqlite.part_rows import PART_COLUMNS, read_row, write_part
from anamnesis_pipeline.summary_model import MAX_RECORDS

_PART = f"SELECT {PART_COLUMNS} FROM parts WHERE part_id = ?"  # noqa: S608


def write_messages(connection: sqlite3.Connection, chunk: ParsedChunk) -> None:
    """The keys, occurrences and dead letters of a chunk."""
    source, path = chunk.before.source, chunk.before.path
    rows = [(key, source, path, chunk.aliases.get(key, "")) for key in chunk.keys]
    _supersede_history(connection, source, path, chunk.claims)
    _supersede_agents(connection, source, path, chunk.claims)
    _supersede_forks(connection, source, path, [key for key in chunk.keys if key not in chunk.aliases])
    rows += [(claim, source, path, key) for claim, key in chunk.claims.items()]
    connection.executemany(
        "INSERT INTO messages (key, source, path, canonical) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING", rows
    )
    typed_rows.close_claims(connection, {**chunk.claims, **chunk.aliases})
    _write_occurrences(connection, source, chunk.occurrences)
    connection.executemany(
        "DELETE FROM dead_letters WHERE source = ? AND path = ? AND generation = ? AND line = ?",
        [(letter.source, letter.path, letter.generation, letter.line) for letter in chunk.revived],
    )
    connection.executemany(
        """INSERT INTO dead_letters (source, path, generation, line, reason) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (source, path, generation, line) DO UPDATE SET reason = excluded.reason""",
        [(letter.source, letter.path, letter.generation, letter.line, clean(letter.reason)) for letter in chunk.dead],
    )


def read_calls(connection: sqlite3.Connection, keys: Iterable[str]) -> dict[str, str]:
    """Further key -> id of the tool call, for those of `keys` by which a tool's result is known."""
    rows = connection.execute(
        """SELECT key, canonical FROM messages
            WHERE key IN (SELECT value FROM json_each(?2)) AND substr(canonical, 1, length(?1)) = ?1""",
        (RESULT_KEY, json_list(keys)),
    )
    return {key: call_of(canonical) for key, canonical in rows}


def read_dead_letters(connection: sqlite3.Connection, source: str | None, limit: int) -> list[DeadLetter]:
    """See `IngestRecords.dead_letters`."""
    rows = connection.execute(
        """SELECT source, path, generation, line, reason FROM dead_letters WHERE ?1 IS NULL OR source = ?1
            ORDER BY source, path, generation, line LIMIT ?2""",
        (source, limit),
    )
    return [DeadLetter(*row) for row in rows]


def _write_occurrences(connection: sqlite3.Connection, source: str, occurrences: Sequence[Occurrence]) -> None:
    """A copy that is known by a further key is one of the message whose key that is."""
    connection.executemany(
        """INSERT INTO occurrences (source, path, line, message_key)
            VALUES (?1, ?2, ?3, coalesce((SELECT nullif(canonical, '') FROM messages WHERE key = ?4), ?4))
            ON CONFLICT DO NOTHING""",
        [(source, o.path, o.line, o.message_key) for o in occurrences],
    )


def _supersede_history(connection: sqlite3.Connection, source: str, path: str, claims: Mapping[str, str]) -> None:
    """A prompt that only the history had, and that a transcript has now, belongs to the transcript.

    What was published of the history's is removed, and no tombstone stays; its line becomes an occurrence.
    """
    if not claims:
        return
    for key, history, file, message in typed_rows.held_by_history(connection, source, claims):
        for line in _remove_exchange(connection, history, content_id("exchange", key)):
            _write_occurrences(connection, history, [Occurrence(message, file, line)])
        connection.execute(
            "UPDATE messages SET source = ?, path = ?, canonical = ? WHERE key = ?", (source, path, message, key)
        )
        connection.execute("UPDATE occurrences SET message_key = ? WHERE message_key = ?", (message, key))


def _supersede_agents(connection: sqlite3.Connection, source: str, path: str, claims: Mapping[str, str]) -> None:
    """A subagent's task or answer that its own file had first belongs to the file of who asked, which shows it now."""
    if not claims:
        return
    held = connection.execute(
        """SELECT key, canonical, path FROM messages m
            WHERE key IN (SELECT value FROM json_each(?1)) AND source = ?2 AND path <> ?3 AND canonical <> ''
                AND EXISTS (SELECT 1 FROM parts p WHERE p.source = m.source AND p.path = m.path AND agent_id <> '')""",
        (json_list(claims), source, path),
    ).fetchall()
    taken: dict[str, dict[str, str]] = {}
    for claim, key, file in held:
        taken.setdefault(file, {})[key] = claims[claim]
    for file, keys in taken.items():
        _take_over(connection, (source, file), (source, path), keys)


def _supersede_forks(connection: sqlite3.Connection, source: str, path: str, keys: Sequence[str]) -> None:
    """Messages that only a fork had belong to their own session, which was read later."""
    originals = {borrowed_key(key): key for key in keys}
    held = connection.execute(
        """SELECT key, source, path FROM messages
            WHERE key IN (SELECT value FROM json_each(?)) AND canonical = '' AND (source, path) <> (?, ?)""",
        (json_list(originals), source, path),
    ).fetchall()
    taken: dict[tuple[str, str], dict[str, str]] = {}
    for key, *file in held:
        taken.setdefault((file[0], file[1]), {})[key] = originals[key]
    for file, its in taken.items():
        _take_over(connection, file, (source, path), its)


def _take_over(
    connection: sqlite3.Connection, former: tuple[str, str], owner: tuple[str, str], keys: Mapping[str, str]
) -> None:
    """Messages of one file become those of another, where they go by other keys."""
    _remove_messages(connection, *former, keys)
    for old, key in keys.items():
        connection.execute(
            "UPDATE messages SET source = ?, path = ?, canonical = ? WHERE key = ? OR canonical = ?",
            (*owner, key, old, old),
        )
        connection.execute("UPDATE occurrences SET message_key = ? WHERE message_key = ?", (key, old))
    _write_occurrences(connection, former[0], [Occurrence(key, former[1], SOMEWHERE) for key in keys.values()])
    # a run that parses that file at this moment has the messages in its open part, and must begin anew
    connection.execute("UPDATE files SET version = version + 1 WHERE source = ? AND path = ?", former)


def _remove_messages(connection: sqlite3.Connection, source: str, path: str, keys: Collection[str]) -> None:
    """Take messages out of the parts of a file; a part that held nothing else goes with its episodes."""
    part_ids = connection.execute(
        "SELECT part_id FROM parts WHERE source = ? AND path = ? ORDER BY ordinal", (source, path)
    ).fetchall()
    for part_id in part_ids:
        part = read_row(connection.execute(_PART, part_id).fetchone())
        left = tuple(segment for segment in part.segments if segment.message_key not in keys)
        if len(left) == len(part.segments):
            continue
        new_id = part_id_of(left[0]) if left else ""
        if new_id != part.part_id:
            _remove_part(connection, part.part_id)
            connection.execute(  # where the parser goes on
                "UPDATE files SET parser_state = replace(parser_state, ?, ?) WHERE source = ? AND path = ?",
                (part.part_id, new_id, source, path),
            )
        if left:
            write_part(connection, replace(part, part_id=new_id, segments=left))


def _remove_exchange(connection: sqlite3.Connection, source: str, exchange_id: str) -> Iterator[int]:
    """Remove the parts of an exchange of the history with their episodes; yields the line that it stood on."""
    parts = connection.execute(
        "SELECT part_id, ordinal FROM parts WHERE source = ? AND exchange_id = ? ORDER BY ordinal",
        (source, exchange_id),
    ).fetchall()
    for part_id, _ in parts:
        _remove_part(connection, part_id)
    if parts:
        yield parts[0][1]


def _remove_part(connection: sqlite3.Connection, part_id: str) -> None:
    for episode_id in (part_id, *(content_id("record", part_id, str(n)) for n in range(MAX_RECORDS))):
        remove_episode(connection, episode_id)
    connection.execute("DELETE FROM summaries WHERE part_id = ?", (part_id,))
    connection.execute("DELETE FROM parts WHERE part_id = ?", (part_id,))
