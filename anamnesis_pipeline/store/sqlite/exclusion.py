"""What is held back, and tombstones, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from datetime import datetime

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store import part_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.exclusion_base import BuriedSection, Lifted, Tombstone
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.part_rows import PART_COLUMNS
from anamnesis_pipeline.store.values import clean, instant, json_list, moment

_AMONG = "IN (SELECT value FROM json_each(?))"
_AMONG_FIRST = "IN (SELECT value FROM json_each(?1))"


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
            return [part_values.read_part(row) for row in rows]

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

    def explain(self, reason: str, episode_ids: Iterable[str], went_with: Mapping[str, str]) -> None:
        """See `ExclusionRecords.explain`."""
        rows = [(clean(reason), went_with.get(key, ""), key) for key in sorted({*episode_ids, *went_with})]
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

    def entries_of(self, ids: Sequence[str]) -> dict[str, str]:
        """See `ExclusionRecords.entries_of`."""
        with self._database.read() as connection:
            rows = connection.execute(
                f"""WITH RECURSIVE above (id, entry) AS (
                        SELECT episode_id, episode_id FROM tombstones WHERE episode_id {_AMONG_FIRST}
                        UNION SELECT a.id, t.went_with FROM above a JOIN tombstones t ON t.episode_id = a.entry
                            WHERE t.went_with <> ''
                    ) SELECT id, entry FROM above
                        WHERE NOT EXISTS (SELECT 1 FROM tombstones WHERE episode_id = entry AND went_with <> '')
                    UNION SELECT part_id, held_by FROM parts
                        WHERE held_by IS NOT NULL AND part_id {_AMONG_FIRST}""",
                (json_list(ids),),
            )
            return dict(rows.fetchall())

    def stood_in(self, episode_ids: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """See `ExclusionRecords.stood_in`."""
        found: dict[str, list[tuple[str, str]]] = {}
        with self._database.read() as connection:
            rows = connection.execute(
                f"""SELECT episode_id, source, path FROM buried_sections WHERE episode_id {_AMONG_FIRST}
                    UNION SELECT part_id, source, path FROM parts WHERE part_id {_AMONG_FIRST}
                    UNION SELECT k.episode_id, m.source, m.path FROM tombstone_keys k
                        JOIN messages m ON m.key = k.message_key WHERE k.episode_id {_AMONG_FIRST}
                    ORDER BY 1, 2, 3""",
                (json_list(episode_ids),),
            )
            for episode_id, source, path in rows:
                found.setdefault(episode_id, []).append((source, path))
        return found

    def lift(self, episode_ids: Sequence[str]) -> Lifted:
        """See `ExclusionRecords.lift`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """WITH RECURSIVE going (id) AS (
                    SELECT value FROM json_each(?) UNION SELECT episode_id FROM tombstones, going WHERE went_with = id
                ) SELECT id FROM going""",
                (json_list(episode_ids),),
            ).fetchall()
        total = Lifted()
        for batch in batches([key for (key,) in rows]):
            with self._database.write() as connection:
                done = _lift(connection, json_list(batch))
            total = Lifted(total.tombstones + done.tombstones, total.parts + done.parts, total.files + done.files)
        return total

    def lift_keys(self, keys: Sequence[str]) -> None:
        """See `ExclusionRecords.lift_keys`."""
        with self._database.write() as connection:
            connection.execute(f"DELETE FROM tombstone_keys WHERE message_key {_AMONG}", (json_list(keys),))

    def secret(self) -> bytes:
        """See `ExclusionRecords.secret`."""
        with self._database.read() as connection:
            return bytes(connection.execute("SELECT secret FROM store_secret").fetchone()[0])

    def bury_sections(self, sections: Iterable[BuriedSection]) -> None:
        """See `ExclusionRecords.bury_sections`."""
        for batch in batches(sorted(set(sections), key=lambda s: (s.episode_id, s.source, s.path))):
            with self._database.write() as connection:
                connection.executemany(
                    "INSERT INTO buried_sections VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", map(astuple, batch)
                )

    def has_buried(self) -> bool:
        """See `ExclusionRecords.has_buried`."""
        with self._database.read() as connection:
            return connection.execute("SELECT 1 FROM buried_sections LIMIT 1").fetchone() is not None

    def buried_at(self, source: str, place: str, texts: Iterable[str]) -> list[BuriedSection]:
        """See `ExclusionRecords.buried_at`."""
        with self._database.read() as connection:
            rows = connection.execute(
                """SELECT * FROM buried_sections WHERE place = ?1
                    UNION SELECT b.* FROM buried_sections b JOIN (
                        SELECT DISTINCT source, path FROM sightings
                        WHERE source = ?2 AND text IN (SELECT value FROM json_each(?3))
                    ) USING (source, path) WHERE EXISTS (SELECT 1 FROM buried_sections WHERE source = ?2)""",
                (place, source, json_list(texts)),
            )
            return list({row[0]: BuriedSection(*row) for row in rows}.values())


def _lift(connection: sqlite3.Connection, ids: str) -> Lifted:
    """Of at most so many ids as one transaction may change, as a JSON list."""
    rows = connection.execute(f"SELECT message_key FROM tombstone_keys WHERE episode_id {_AMONG}", (ids,))
    keys = [key for (key,) in rows.fetchall()]
    files = connection.execute(
        f"SELECT DISTINCT source, path FROM buried_sections WHERE episode_id {_AMONG}", (ids,)
    ).fetchall()
    lifted = connection.execute(f"DELETE FROM tombstones WHERE episode_id {_AMONG}", (ids,)).rowcount
    for table in ("tombstone_keys", "buried_sections"):
        connection.execute(f"DELETE FROM {table} WHERE episode_id {_AMONG}", (ids,))
    parts = connection.execute(f"UPDATE parts SET published_hash = NULL WHERE part_id {_AMONG}", (ids,)).rowcount
    logs = [] if parts else _without_messages(connection, keys)
    return Lifted(lifted, parts, _read_again(connection, {*files, *logs}, is_forgotten=not parts))


def _without_messages(connection: sqlite3.Connection, keys: Sequence[str]) -> list[tuple[str, str]]:
    """The files that had messages which were forgotten and are not any more; these are not known as read now."""
    rows = connection.execute(
        f"""SELECT key, source, path FROM messages
            WHERE key {_AMONG} AND key NOT IN (SELECT message_key FROM tombstone_keys)""",
        (json_list(keys),),
    ).fetchall()
    connection.execute(f"DELETE FROM messages WHERE key {_AMONG}", (json_list(key for key, _, _ in rows),))
    return [(source, path) for _, source, path in rows]


def _read_again(connection: sqlite3.Connection, files: Iterable[tuple[str, str]], *, is_forgotten: bool) -> int:
    """Let the next crawl read files from their beginning; returns how many. What was handed in is nowhere to be read.

    :param is_forgotten: what is archived of them lacks something; else they may be as they were.
    """
    # no file has such a fingerprint, so it is taken for another file: a new generation
    other = ", head_hash = 'lifted'" if is_forgotten else ""
    return sum(
        connection.execute(
            f"""UPDATE files SET mtime_ns = 0, version = version + 1{other} WHERE source = ? AND path = ?
                AND source NOT IN (SELECT key FROM sources WHERE kind = 'reserved')""",
            file,
        ).rowcount
        for file in files
    )
