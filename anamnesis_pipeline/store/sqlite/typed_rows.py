"""Which entries of the history and which transcripts' prompts are the same: equal texts, the nearest in time."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from anamnesis_pipeline.message_keys import (
    CLAIM_KEY,
    TYPED_KEY,
    TYPED_WITHIN_MS,
    forgotten_typed,
    nearest_typed,
    typed_at,
    typed_near,
)
from anamnesis_pipeline.store.values import json_list

HISTORIES = "SELECT key FROM sources WHERE kind = 'claude_history'"
"""The sources that are the history of some machine."""


def forbidden(connection: sqlite3.Connection, keys: Sequence[str]) -> set[str]:
    """Those of `keys` that a tombstone forbids, by this name or by the one that the same prompt has elsewhere."""
    rows = connection.execute(
        "SELECT DISTINCT message_key FROM tombstone_keys WHERE message_key IN (SELECT value FROM json_each(?))",
        (json_list(keys),),
    )
    found = {key for (key,) in rows}
    return found | {key for key in keys if (near := typed_near(key)) and _is_gone(connection, key, near)}


def _is_gone(connection: sqlite3.Connection, key: str, near: tuple[str, str]) -> bool:
    """Whether of all that may be the same prompt the nearest in time is forgotten, and not one that stays."""
    query = "SELECT DISTINCT message_key FROM tombstone_keys WHERE message_key BETWEEN ? AND ?"
    gone = _distances(key, connection.execute(query, near))
    if not gone:
        return False
    first, last = (name.removeprefix(forgotten_typed("")) for name in near)
    left = _distances(key, connection.execute("SELECT key FROM messages WHERE key BETWEEN ? AND ?", (first, last)))
    return min(gone) <= min(left, default=TYPED_WITHIN_MS)


def _distances(key: str, rows: Iterable[tuple[str]]) -> list[int]:
    return [abs(typed_at(found) - typed_at(key)) for (found,) in rows]


def claims_near(connection: sqlite3.Connection, entries: Iterable[str]) -> dict[str, dict[str, str]]:
    """See `IngestRecords.claims_near`."""
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        rows = connection.execute(
            """SELECT key, canonical FROM messages
                WHERE key BETWEEN ? AND ? AND NOT EXISTS (SELECT 1 FROM tombstone_keys WHERE message_key = ? || key)""",
            (*(typed_near(entry) or (entry, "")), forgotten_typed("")),
        )
        for claim, message in rows:
            found.setdefault(entry, {})[claim] = message
    return found


def held_by_history(
    connection: sqlite3.Connection, source: str, claims: Mapping[str, str]
) -> list[tuple[str, str, str, str]]:
    """(key, source, path, message) of the entries that only the history has, and that these messages are."""
    near: dict[str, dict[str, str]] = {}
    files: dict[str, tuple[str, str]] = {}
    for claim, message in claims.items():
        rows = connection.execute(
            f"""SELECT key, source, path FROM messages
                WHERE key BETWEEN ? AND ? AND canonical = '' AND source IN ({HISTORIES}) AND source <> ?""",  # noqa: S608
            (*(typed_near(claim) or (claim, claim)), source),
        )
        for key, *file in rows:
            files[key] = file[0], file[1]
            near.setdefault(key, {})[claim] = message
    return [(key, *files[key], message) for key, message in nearest_typed(near).items()]


def close_claims(connection: sqlite3.Connection, names: Mapping[str, str]) -> None:
    """Further key -> message: one that is known from the history by now is looked for there no more."""
    for message in {message for name, message in names.items() if typed_near(name)}:
        connection.execute(
            f"""DELETE FROM messages
                WHERE canonical = ?1 AND canonical <> '' AND {_begins("key", CLAIM_KEY)} AND EXISTS (
                SELECT 1 FROM messages y
                WHERE y.canonical = ?1 AND y.canonical <> '' AND {_begins("y.key", TYPED_KEY)})""",  # noqa: S608
            (message,),
        )


def are_open(connection: sqlite3.Connection, aliases: Mapping[str, str]) -> bool:
    """Whether every message that entries of the history are taken for is still looked for there."""
    query = f"SELECT 1 FROM messages WHERE canonical = ? AND canonical <> '' AND {_begins('key', CLAIM_KEY)}"  # noqa: S608
    return all(
        connection.execute(query, (message,)).fetchone()
        for alias, message in aliases.items()
        if alias.startswith(f"{TYPED_KEY}:")
    )


def _begins(column: str, key: str) -> str:
    return f"{column} >= '{key}:' AND {column} < '{key};'"
