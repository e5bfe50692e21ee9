"""What is held back, and tombstones, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store.exclusion_base import Lifted, Tombstone
from anamnesis_pipeline.store.sqlite import part_rows
from anamnesis_pipeline.store.sqlite.columns import clean, instant, json_list, moment
from anamnesis_pipeline.store.sqlite.connection import Database, batches
from anamnesis_pipeline.store.sqlite.part_rows import PART_COLUMNS

_AMONG = "IN (SELECT value FROM json_each(?))"


class SqliteExclusion:
    """See `ExclusionRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def waiting(self, source: str, after: str, limit: int) -> list[Part]:
        """See `ExclusionRecords.waiting`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT {PART_COLUMNS} FROM parts
                    WHERE source = ? AND published_hash IS NOT wanted_hash AND held_by IS NULL AND part_id > ?
                    ORDER BY part_id LIMIT ?""",
                (source, after, limit),
            )
            return [part_rows.read_row(row) for row in rows]

    def hold(self, rule_of: Mapping[str, str]) -> int:
        """See `ExclusionRecords.hold`."""
        held = 0
        for batch in batches(sorted(rule_of.items())):
            with self._database.write() as connection:
                held += sum(
                    connection.execute(
                        "UPDATE parts SET held_by = ? WHERE part_id = ? AND held_by IS NULL", (rule_id, part_id)
                    ).rowcount
                    for part_id, rule_id in batch
                )
        return held

    def release(self, rule_id: str) -> int:
        """See `ExclusionRecords.release`."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT part_id FROM parts WHERE held_by = ?", (rule_id,)).fetchall()
        for batch in batches([part_id for (part_id,) in rows]):
            with self._database.write() as connection:
                connection.execute(f"UPDATE parts SET held_by = NULL WHERE part_id {_AMONG}", (json_list(batch),))
        return len(rows)

    def held(self) -> dict[str, int]:
        """See `ExclusionRecords.held`."""
        with self._database.read() as connection:
            return dict(
                connection.execute(
                    "SELECT held_by, count(*) FROM parts WHERE held_by IS NOT NULL GROUP BY held_by"
                ).fetchall()
            )

    def explain(self, reason: str, episode_ids: Iterable[str], records: Mapping[str, str]) -> None:
        """See `ExclusionRecords.explain`."""
        rows = [(clean(reason), records.get(key, ""), key) for key in sorted({*episode_ids, *records})]
        for batch in batches(rows):
            with self._database.write() as connection:
                connection.executemany("UPDATE tombstones SET reason = ?, went_with = ? WHERE episode_id = ?", batch)

    def tombstones(self, limit: int, before: tuple[datetime, str] | None = None) -> list[Tombstone]:
        """See `ExclusionRecords.tombstones`."""
        place = [instant(before[0]), before[1]] if before else []
        behind = "AND (deleted_at, episode_id) < (?, ?)" if before else ""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT episode_id, deleted_at, reason FROM tombstones WHERE went_with = '' {behind}
                    ORDER BY deleted_at DESC, episode_id DESC LIMIT ?""",
                (*place, limit),
            )
            return [Tombstone(episode_id, moment(at), reason) for episode_id, at, reason in rows]

    def lift(self, episode_ids: Sequence[str]) -> Lifted:
        """See `ExclusionRecords.lift`."""
        ids = json_list(episode_ids)
        with self._database.write() as connection:
            rows = connection.execute(f"SELECT message_key FROM tombstone_keys WHERE episode_id {_AMONG}", (ids,))
            keys = [key for (key,) in rows.fetchall()]
            lifted = connection.execute(f"DELETE FROM tombstones WHERE episode_id {_AMONG}", (ids,)).rowcount
            connection.execute(f"DELETE FROM tombstone_keys WHERE episode_id {_AMONG}", (ids,))
            parts = connection.execute(
                f"UPDATE parts SET published_hash = NULL WHERE part_id {_AMONG}", (ids,)
            ).rowcount
            return Lifted(lifted, parts, 0 if parts else _read_again(connection, keys))

    def lift_keys(self, keys: Sequence[str]) -> None:
        """See `ExclusionRecords.lift_keys`."""
        with self._database.write() as connection:
            connection.execute(f"DELETE FROM tombstone_keys WHERE message_key {_AMONG}", (json_list(keys),))


def _read_again(connection: sqlite3.Connection, keys: Sequence[str]) -> int:
    """Let files be read from their beginning that had messages which were forgotten and are not any more. Returns how
    many there are.
    """
    rows = connection.execute(
        f"""SELECT key, source, path FROM messages
            WHERE key {_AMONG} AND key NOT IN (SELECT message_key FROM tombstone_keys)""",
        (json_list(keys),),
    ).fetchall()
    connection.execute(f"DELETE FROM messages WHERE key {_AMONG}", (json_list(key for key, _, _ in rows),))
    return sum(
        connection.execute(
            # no file has such a fingerprint, so it is taken for another file: a new generation
            "UPDATE files SET head_hash = 'lifted', mtime_ns = 0, version = version + 1 WHERE source = ? AND path = ?",
            file,
        ).rowcount
        for file in {(source, path) for _, source, path in rows}
    )
