"""What lacks vectors, kept as rows per space and episode in the transaction that changes it."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
from collections.abc import Iterable

from anamnesis_pipeline.store.sqlite.columns import json_list

LACKS_A_VECTOR = """EXISTS (
    SELECT 1 FROM space_variants sv WHERE sv.space_id = s.space_id AND NOT EXISTS (
        SELECT 1 FROM vectors v
        WHERE v.space_id = sv.space_id AND v.variant = sv.variant AND v.passage_id = p.passage_id))"""


def refresh(connection: sqlite3.Connection, episode_keys: Iterable[int], space_id: int | None = None) -> None:
    """Count again what these episodes lack, in one space or (None) in all."""
    keys = json_list(episode_keys)
    connection.execute(
        """DELETE FROM pending WHERE episode_key IN (SELECT value FROM json_each(:keys))
            AND (:space IS NULL OR space_id = :space)""",
        {"keys": keys, "space": space_id},
    )
    connection.execute(
        f"""INSERT INTO pending (space_id, episode_key, source, timestamp, missing)
            SELECT s.space_id, e.episode_key, e.source, e.timestamp, count(*)
            FROM json_each(:keys) k
            CROSS JOIN episodes e ON e.episode_key = k.value
            CROSS JOIN passages p ON p.episode_key = e.episode_key
            CROSS JOIN spaces s
            WHERE (:space IS NULL OR s.space_id = :space) AND {LACKS_A_VECTOR}
            GROUP BY s.space_id, e.episode_key""",
        {"keys": keys, "space": space_id},
    )


def expect_everything(connection: sqlite3.Connection, space_id: int) -> None:
    """In a new space, every episode lacks all its vectors. One statement over narrow rows: 75,000 take 0.2 s."""
    connection.execute(
        """INSERT INTO pending (space_id, episode_key, source, timestamp, missing)
            SELECT ?, episode_key, source, timestamp, passages FROM episodes WHERE passages > 0""",
        (space_id,),
    )
