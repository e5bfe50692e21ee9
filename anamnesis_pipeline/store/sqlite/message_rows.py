"""Message keys, the copies of messages, and lines that could not be read, as rows.

A message is one row under its own key, and one more for each further key by which it is known: their `canonical` is
its own key.
"""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from anamnesis_pipeline.archive_model import DeadLetter
from anamnesis_pipeline.message_keys import AGENT_KEY, RESULT_KEY, borrowed_key, call_of
from anamnesis_pipeline.model import SOMEWHERE, Occurrence, content_id, part_id_of
from anamnesis_pipeline.store.ingest_base import ParsedChunk
from anamnesis_pipeline.store.part_values import read_part
from anamnesis_pipeline.store.sqlite import typed_rows
from anamnesis_pipeline.store.sqlite.episodes import remove_episode
from anamnesis_pipeline.store.sqlite.part_rows import PART_COLUMNS, write_part
from anamnesis_pipeline.store.values import clean, json_list
from anamnesis_pipeline.summary_model import MAX_RECORDS

_PART = f"SELECT {PART_COLUMNS} FROM parts WHERE part_id = ?"  # noqa: S608

_YOUNGER = f"""EXISTS (SELECT 1 FROM files AS owner, files AS reader
    WHERE (owner.source, owner.path) = (messages.source, messages.path)
        AND (reader.source, reader.path) = (:source, :path) AND reader.source <> owner.source
        AND owner.first_mtime_ns > reader.first_mtime_ns
        AND owner.source NOT IN ({typed_rows.HISTORIES}) AND reader.source NOT IN ({typed_rows.HISTORIES})
        AND '/' || owner.path NOT LIKE '%/agent-%' AND '/' || reader.path NOT LIKE '%/agent-%')"""  # noqa: S608
"""Whether the owner of a message gives way to a file of another source that has it too: both are sessions' own."""


def read_known(connection: sqlite3.Connection, keys: Sequence[str], reader: tuple[str, str] | None) -> set[str]:
    """Keys that have an owner, unless it gives way to the reader."""
    source, path = reader or ("", "")
    rows = connection.execute(
        f"""SELECT key FROM messages
            WHERE key IN (SELECT value FROM json_each(:keys)) AND NOT {_YOUNGER}""",  # noqa: S608
        {"keys": json_list(keys), "source": source, "path": path},
    )
    return {key for (key,) in rows}


def is_owned_by_another(connection: sqlite3.Connection, keys: Sequence[str], reader: tuple[str, str]) -> bool:
    """Whether some key has an owner that is not the reader and does not give way to it."""
    found = connection.execute(
        f"""SELECT 1 FROM messages WHERE key IN (SELECT value FROM json_each(:keys))
                AND (source, path) <> (:source, :path) AND NOT {_YOUNGER} LIMIT 1""",  # noqa: S608
        {"keys": json_list(keys), "source": reader[0], "path": reader[1]},
    )
    return found.fetchone() is not None


def write_messages(connection: sqlite3.Connection, chunk: ParsedChunk) -> None:
    """The keys, occurrences and dead letters of a chunk."""
    source, path = chunk.before.source, chunk.before.path
    rows = [(key, source, path, chunk.aliases.get(key, "")) for key in chunk.keys]
    claims, keys = _resolved(connection, chunk.claims), {key: chunk.aliases.get(key, key) for key in chunk.keys}
    _supersede_history(connection, source, path, claims)
    written = {part.part_id for part in chunk.parts}
    _supersede_agents(connection, source, path, claims, written)
    _supersede_forks(connection, source, path, keys, written)
    _supersede_younger(connection, source, path, keys, written)
    rows += [(claim, source, path, key) for claim, key in claims.items()]
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


def _resolved(connection: sqlite3.Connection, claims: Mapping[str, str]) -> dict[str, str]:
    """The claims, each of a message's own key, where a copy made it by a further one."""
    own: dict[str, str] = dict(
        connection.execute(
            "SELECT key, canonical FROM messages WHERE canonical <> '' AND key IN (SELECT value FROM json_each(?))",
            (json_list(claims.values()),),
        ).fetchall()
    )
    return {claim: own.get(key, key) for claim, key in claims.items()}


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


def _supersede_agents(
    connection: sqlite3.Connection, source: str, path: str, claims: Mapping[str, str], written: Collection[str]
) -> None:
    """A subagent's task or answer that its own file had first belongs to the file of who asked, which shows it now.

    A copy of the subagent's own file, which goes by the same name, asked for nothing: there it is said once more.
    """
    shared = {claim: key for claim, key in claims.items() if not claim.startswith(AGENT_KEY)}
    if not shared:
        return
    held = connection.execute(
        """SELECT known.key, m.key, m.source, m.path FROM messages known JOIN messages m ON m.key = known.canonical
            WHERE known.key IN (SELECT value FROM json_each(?))
                AND (SELECT agent_id FROM parts p WHERE p.source = m.source AND p.path = m.path LIMIT 1) <> ''""",
        (json_list(shared),),
    ).fetchall()
    owners: dict[str, tuple[str, str]] = {
        key: (its_source, its_path)
        for key, its_source, its_path in connection.execute(
            "SELECT key, source, path FROM messages WHERE key IN (SELECT value FROM json_each(?))",
            (json_list(shared.values()),),
        )
    }
    taken: dict[tuple[tuple[str, str], tuple[str, str]], dict[str, str]] = {}
    for claim, key, *file in held:
        owner = owners.get(shared[claim], (source, path))
        if _name(file[1]) != _name(owner[1]):
            taken.setdefault(((file[0], file[1]), owner), {})[key] = shared[claim]
    for (former, owner), keys in taken.items():
        _take_over(connection, former, owner, keys, written)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _supersede_forks(
    connection: sqlite3.Connection, source: str, path: str, keys: Mapping[str, str], written: Collection[str]
) -> None:
    """Messages that only a fork had belong to their own session, which was read later.

    :param keys: the messages' own keys, and further ones, to their own.
    """
    originals = {borrowed_key(name): key for name, key in keys.items()}
    held = connection.execute(
        """SELECT known.key, m.key, m.source, m.path FROM messages known
            JOIN messages m ON m.key = coalesce(nullif(known.canonical, ''), known.key)
            WHERE known.key IN (SELECT value FROM json_each(?1)) AND substr(m.key, 1, length(?2)) = ?2
                AND (m.source, m.path) <> (?3, ?4)""",
        (json_list(originals), borrowed_key(""), source, path),
    ).fetchall()
    taken: dict[tuple[str, str], dict[str, str]] = {}
    for name, key, *file in held:
        taken.setdefault((file[0], file[1]), {})[key] = originals[name]
    for file, its in taken.items():
        _take_over(connection, file, (source, path), its, written)


def _supersede_younger(
    connection: sqlite3.Connection, source: str, path: str, keys: Mapping[str, str], written: Collection[str]
) -> None:
    """Messages that a file of another source had before belong to the older file. `keys` lead to the messages' own."""
    held = connection.execute(
        """SELECT key, coalesce(nullif(canonical, ''), key), source, path FROM messages
            WHERE key IN (SELECT value FROM json_each(?)) AND (source, path) <> (?, ?)""",
        (json_list(keys), source, path),
    ).fetchall()
    taken: dict[tuple[str, str], dict[str, str]] = {}
    for key, message, *file in held:
        taken.setdefault((file[0], file[1]), {})[message] = keys[key]
    for file, its in taken.items():
        _take_over(connection, file, (source, path), its, written)


def _take_over(
    connection: sqlite3.Connection,
    former: tuple[str, str],
    owner: tuple[str, str],
    keys: Mapping[str, str],
    written: Collection[str],
) -> None:
    """Messages of one file become those of another, where they may go by other keys.

    :param written: the parts that the owner's chunk writes.
    """
    _remove_messages(connection, *former, keys, written)
    for old, key in keys.items():
        connection.execute(
            """UPDATE messages SET source = ?1, path = ?2, canonical = iif(key = ?3, '', ?3)
                WHERE key = ?4 OR (canonical = ?4 AND canonical <> '')""",  # that is what the index holds
            (*owner, key, old),
        )
        connection.execute("UPDATE occurrences SET message_key = ? WHERE message_key = ?", (key, old))
    _write_occurrences(connection, former[0], [Occurrence(key, former[1], SOMEWHERE) for key in keys.values()])
    # a run that parses that file at this moment has the messages in its open part, and must begin anew
    connection.execute("UPDATE files SET version = version + 1 WHERE source = ? AND path = ?", former)


def _remove_messages(
    connection: sqlite3.Connection, source: str, path: str, keys: Collection[str], written: Collection[str]
) -> None:
    """Take messages out of the parts of a file; a part that held nothing else goes with its episodes, unless it is
    about to be `written` as another file's: then it keeps its summary, and its episode what people changed of it.

    They are looked for in the order of the file, since an original is read in the order of its fork, and not behind
    the last of them: what a chunk takes over then costs what it is, not what the fork has.
    """
    missing = set(keys)
    part_ids = connection.execute(
        "SELECT part_id FROM parts WHERE source = ? AND path = ? ORDER BY ordinal", (source, path)
    ).fetchall()
    for part_id in part_ids:
        part = read_part(connection.execute(_PART, part_id).fetchone())
        left = tuple(segment for segment in part.segments if segment.message_key not in keys)
        if len(left) == len(part.segments):
            if not missing:
                return
            continue
        missing.difference_update(segment.message_key for segment in part.segments)
        new_id = part_id_of(left[0]) if left else ""
        if new_id != part.part_id:
            if part.part_id in written:
                connection.execute("UPDATE parts SET published_hash = NULL WHERE part_id = ?", part_id)
            else:
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
