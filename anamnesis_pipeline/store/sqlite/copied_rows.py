"""Neutral rows written into the tables, and removed from them."""

# ruff: noqa: S608
# only names of ours enter the SQL

import json
import sqlite3
from collections.abc import Iterable, Sequence, Set
from typing import Any

from anamnesis_pipeline.store.copy_base import NUMBERS, SECRET, Key, Row
from anamnesis_pipeline.store.sqlite import passage_rows
from anamnesis_pipeline.store.tables import EPISODES, PASSAGES, PENDING, SPACES, Table
from anamnesis_pipeline.store.values import json_list

TEXT_FIELDS = (
    "summary", "tags", "machine", "path", "session_id", "metadata", "message_ids", "message_keys", "raw_exchange",
)  # fmt: skip
"""Fields of an episode that are columns of `episode_texts`."""


def with_lists(row: Row, lists: Set[str]) -> Row:
    """The row with these fields, read as JSON, as lists."""
    for name in lists:
        row[name] = json.loads(row[name])
    return row


def write(connection: sqlite3.Connection, table: Table, rows: Sequence[Row]) -> None:
    """Make or replace rows by their keys."""
    if table.space:
        _write_of_space(connection, table, rows)
    elif table is EPISODES:
        _write_episodes(connection, rows)
    elif table is PASSAGES:
        _write_passages(connection, rows)
    elif table is SPACES:
        _write_spaces(connection, rows)
    elif table is SECRET:
        connection.executemany("UPDATE store_secret SET secret = :secret", rows)
    elif table is NUMBERS:
        connection.executemany("DELETE FROM sqlite_sequence WHERE name = :name", rows)
        connection.executemany("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)", rows)
    elif table is PENDING:
        _upsert(connection, "pending", {"space_id": "space_id", "episode_key": "number"}, _others(table), rows)
    else:
        packed = [_packed(row, *table.lists) for row in rows]
        _upsert(connection, table.name, {name: name for name in table.key}, _others(table), packed)


def remove(connection: sqlite3.Connection, table: Table, keys: Sequence[Key]) -> None:
    """Remove rows by their keys, and what belongs to them."""
    if not keys:
        return
    if table.space:
        _remove_of_space(connection, table, [key for (key,) in keys])
    elif table is EPISODES:
        _remove_episodes(connection, [number for (number,) in keys])
    elif table is PASSAGES:
        passage_rows.delete_passages(connection, [passage_id for (passage_id,) in keys])
    elif table is SPACES:
        for owned in ("vectors", "token_vectors", "index_files", "pending", "space_variants", "spaces"):
            connection.executemany(f"DELETE FROM {owned} WHERE space_id = ?", keys)
    elif table is NUMBERS:
        connection.executemany("DELETE FROM sqlite_sequence WHERE name = ?", keys)
    else:
        columns = ["episode_key" if table is PENDING and name == "number" else name for name in table.key]
        terms = " AND ".join(f'"{name}" = ?' for name in columns)
        connection.executemany(f"DELETE FROM {table.name} WHERE {terms}", keys)


def _others(table: Table) -> dict[str, str]:
    """Columns of the fields outside of the key: column -> field."""
    return {name: name for name in table.fields if name not in table.key}


def _upsert(
    connection: sqlite3.Connection, name: str, key: dict[str, str], others: dict[str, str], rows: Iterable[Row]
) -> None:
    """:param key: and `others`: column -> field."""
    columns = key | others
    names = ", ".join(f'"{column}"' for column in columns)
    values = ", ".join(f":{field}" for field in columns.values())
    update = ", ".join(f'"{column}" = excluded."{column}"' for column in others)
    conflict = ", ".join(f'"{column}"' for column in key)
    action = f"UPDATE SET {update}" if others else "NOTHING"
    connection.executemany(f"INSERT INTO {name} ({names}) VALUES ({values}) ON CONFLICT ({conflict}) DO {action}", rows)


def _write_episodes(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    packed = [_packed(row, "tags", "message_ids", "message_keys") for row in rows]
    key = {"episode_key": "number"}
    heads = {name: name for name in EPISODES.fields if name != "number" and name not in TEXT_FIELDS}
    _upsert(connection, "episodes", key, heads, packed)
    _upsert(connection, "episode_texts", key, {name: name for name in TEXT_FIELDS}, packed)
    connection.executemany("DELETE FROM episode_tags WHERE episode_key = :number", packed)
    connection.executemany(
        "INSERT INTO episode_tags (tag, episode_key) VALUES (?, ?)",
        [(tag, row["number"]) for row in rows for tag in set(row["tags"])],
    )


def _remove_episodes(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    asked = (json_list(numbers),)
    found = connection.execute(
        "SELECT passage_id FROM passages WHERE episode_key IN (SELECT value FROM json_each(?))", asked
    )
    passage_rows.delete_passages(connection, [passage_id for (passage_id,) in found.fetchall()])
    for table in ("episode_tags", "episode_texts", "pending", "episodes"):
        connection.execute(f"DELETE FROM {table} WHERE episode_key IN (SELECT value FROM json_each(?))", asked)


def _write_passages(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """A passage never changes; one that differs here is of an earlier moment, and goes with its vectors."""
    ids = json_list(row["passage_id"] for row in rows)
    present = connection.execute(
        "SELECT passage_id FROM passages WHERE passage_id IN (SELECT value FROM json_each(?))", (ids,)
    )
    if found := present.fetchall():
        passage_rows.delete_passages(connection, [passage_id for (passage_id,) in found])
    connection.executemany(
        """INSERT INTO passages (passage_id, episode_key, ordinal)
            VALUES (:passage_id, (SELECT episode_key FROM episodes WHERE episode_id = :episode_id), :ordinal)""",
        rows,
    )
    connection.executemany(
        """INSERT INTO passage_texts (passage_id, text, context, message_ids)
            VALUES (:passage_id, :text, :context, :message_ids)""",
        [_packed(row, "message_ids") for row in rows],
    )


def _write_spaces(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """At most one space is active, and one building: those that change give that up first."""
    connection.executemany("UPDATE spaces SET status = 'added' WHERE space_id = :space_id", rows)
    packed = [_packed(row, "variants") for row in rows]
    _upsert(connection, "spaces", {"space_id": "space_id"}, _others(SPACES), packed)
    connection.executemany("DELETE FROM space_variants WHERE space_id = :space_id", rows)
    connection.executemany(
        "INSERT INTO space_variants VALUES (?, ?)",
        [(row["space_id"], variant) for row in rows for variant in row["variants"]],
    )


def _write_of_space(connection: sqlite3.Connection, table: Table, rows: Sequence[Row]) -> None:
    """Vectors are deleted and inserted, as `vectors.py` does: a new seq tells every process that they are new."""
    _remove_of_space(connection, table, [row["passage_id"] for row in rows])
    kind, space_id, variant = _of_space(connection, table)
    if kind == "tokens":
        connection.executemany(
            "INSERT INTO token_vectors (space_id, passage_id, tokens, data) VALUES (?, ?, ?, ?)",
            [(space_id, row["passage_id"], row["tokens"], row["data"]) for row in rows],
        )
    else:
        connection.executemany(
            "INSERT INTO vectors (space_id, variant, passage_id, vec) VALUES (?, ?, ?, ?)",
            [(space_id, variant, row["passage_id"], row["vector"]) for row in rows],
        )


def _remove_of_space(connection: sqlite3.Connection, table: Table, passage_ids: Sequence[int]) -> None:
    kind, space_id, variant = _of_space(connection, table)
    name = "token_vectors" if kind == "tokens" else "vectors"
    of_variant = "" if kind == "tokens" else "AND variant = ?3"
    connection.execute(
        f"""DELETE FROM {name} WHERE space_id = ?1 {of_variant}
            AND passage_id IN (SELECT value FROM json_each(?2))""",
        (space_id, json_list(passage_ids), variant)[: 2 if kind == "tokens" else 3],
    )


def _of_space(connection: sqlite3.Connection, table: Table) -> tuple[str, int, str]:
    """Kind, numeric id of the space, and variant of a table of vectors."""
    kind, space, *variant = table.name.split("/")
    (space_id,) = connection.execute("SELECT space_id FROM spaces WHERE key = ?", (space,)).fetchone()
    return kind, space_id, variant[0] if variant else ""


def _packed(row: Row, *lists: str) -> dict[str, Any]:
    """The row with these lists as JSON."""
    return row | {name: json_list(row[name]) for name in lists}
