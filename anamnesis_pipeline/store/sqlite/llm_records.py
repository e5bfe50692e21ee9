"""Replies of LLMs, what their calls cost, and batches under way, in SQLite."""

# ruff: noqa: S608
# only names of ours enter the SQL

import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime

from anamnesis_pipeline.errors import LlmCallTaken
from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.llm_base import LONGEST_QUEUE_S, Lease, OpenBatch
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.values import clean, instant, json_list
from anamnesis_pipeline.summary_model import LlmBudget, LlmUse


class SqliteLlm:
    """See `LlmRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def replies(self, keys: Sequence[str]) -> dict[str, str]:
        """See `LlmRecords.replies`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT key, reply FROM llm_replies WHERE key IN (SELECT value FROM json_each(?))", (json_list(keys),)
            )
            return dict(rows.fetchall())

    def note_asked(self, asked: Mapping[str, Part]) -> set[str]:
        """See `LlmRecords.note_asked`."""
        noted: set[str] = set()
        for batch in batches(list(asked.items())):
            with self._database.write() as connection:
                allowed = [(key, part.part_id) for key, part in batch if _is_as_stored(connection, part)]
                connection.executemany(
                    """INSERT INTO llm_asked (key, part_id) VALUES (?, ?)
                        ON CONFLICT (key, part_id) DO UPDATE SET void = 0""",
                    allowed,
                )
            noted.update(key for key, _ in allowed)
        return noted

    def put_reply(self, key: str, reply: str, backend: str, model: str) -> bool:
        """See `LlmRecords.put_reply`."""
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM llm_asked WHERE key = ? AND void", (key,)).fetchone():
                return False
            connection.execute(
                """INSERT INTO llm_replies (key, backend, model, reply) VALUES (?, ?, ?, ?)
                    ON CONFLICT (key) DO NOTHING""",
                (key, backend, model, clean(reply)),
            )
            connection.execute("DELETE FROM llm_failures WHERE key = ?", (key,))
        return True

    def rewrite_reply(self, key: str, before: str, after: str) -> bool:
        """See `LlmRecords.rewrite_reply`."""
        with self._database.write() as connection:
            rewritten = connection.execute(
                "UPDATE llm_replies SET reply = ? WHERE key = ? AND reply = ?", (clean(after), key, before)
            )
            return rewritten.rowcount == 1

    def put_failures(self, problems: Mapping[str, str]) -> None:
        """See `LlmRecords.put_failures`."""
        for batch in batches(list(problems.items())):
            with self._database.write() as connection:
                connection.executemany(
                    "INSERT INTO llm_failures (key, problem) VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
                    [(key, clean(problem)) for key, problem in batch],
                )

    def failures(self, keys: Sequence[str]) -> dict[str, str]:
        """See `LlmRecords.failures`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT key, problem FROM llm_failures WHERE key IN (SELECT value FROM json_each(?))",
                (json_list(keys),),
            )
            return dict(rows.fetchall())

    def reserve(
        self,
        call_id: str,
        day: str,
        backend: str,
        model: str,
        expected: LlmUse,
        budget: LlmBudget,
        lease: Lease | None = None,
    ) -> bool:
        """See `LlmRecords.reserve`."""
        with self._database.write() as connection:
            if not budget.holds(_used(connection, day) + expected):
                return False
            if lease is not None:
                _take(connection, call_id, lease)
            connection.execute(
                """INSERT INTO llm_calls
                        (call_id, day, backend, model, settled, calls, input_tokens, output_tokens, dollars)
                    VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?) ON CONFLICT (call_id) DO NOTHING""",
                (call_id, day, backend, model, *_columns(expected)),
            )
        return True

    def renew(self, call_id: str, until: datetime) -> None:
        """See `LlmRecords.renew`."""
        with self._database.write() as connection:
            connection.execute("UPDATE llm_leases SET until = ? WHERE call_id = ?", (instant(until), call_id))

    def leased(self, keys: Sequence[str], now: datetime) -> set[str]:
        """See `LlmRecords.leased`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT key FROM llm_leases WHERE key IN (SELECT value FROM json_each(?)) AND until > ?",
                (json_list(keys), instant(now)),
            )
            return {key for (key,) in rows}

    def settle(self, call_id: str, used: LlmUse | None) -> None:
        """See `LlmRecords.settle`."""
        with self._database.write() as connection:
            if used is None:
                connection.execute("UPDATE llm_calls SET settled = 1 WHERE call_id = ?", (call_id,))
            else:
                connection.execute(
                    """UPDATE llm_calls SET settled = 1, calls = ?, input_tokens = ?, output_tokens = ?, dollars = ?
                        WHERE call_id = ? AND settled = 0""",
                    (*_columns(used), call_id),
                )
            connection.execute("DELETE FROM llm_leases WHERE call_id = ?", (call_id,))

    def used(self, day: str) -> LlmUse:
        """See `LlmRecords.used`."""
        with self._database.read() as connection:
            return _used(connection, day)

    def take_turn(self, backend: str, now: datetime, per_minute: int) -> float:
        """See `LlmRecords.take_turn`."""
        moment = now.timestamp()
        with self._database.write() as connection:
            row = connection.execute("SELECT next_at FROM llm_turns WHERE backend = ?", (backend,)).fetchone()
            free_at = row[0] if row and row[0] - moment < LONGEST_QUEUE_S else moment
            turn = max(moment, free_at)
            connection.execute(
                """INSERT INTO llm_turns (backend, next_at) VALUES (?, ?)
                    ON CONFLICT (backend) DO UPDATE SET next_at = excluded.next_at""",
                (backend, turn + 60.0 / per_minute),
            )
        return float(turn - moment)

    def put_batch(self, batch_id: str, backend: str, batch: OpenBatch) -> None:
        """See `LlmRecords.put_batch`."""
        with self._database.write() as connection:
            connection.execute(
                """INSERT INTO llm_batches (batch_id, backend, model, call_id, keys) VALUES (?, ?, ?, ?, ?)
                    ON CONFLICT (batch_id) DO NOTHING""",
                (batch_id, backend, batch.model, batch.call_id, json_list(batch.keys)),
            )

    def open_batches(self, backend: str) -> dict[str, OpenBatch]:
        """See `LlmRecords.open_batches`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT batch_id, call_id, model, keys FROM llm_batches WHERE backend = ? ORDER BY rowid", (backend,)
            )
            return {
                batch_id: OpenBatch(call_id, model, tuple(json.loads(keys))) for batch_id, call_id, model, keys in rows
            }

    def close_batch(self, batch_id: str) -> None:
        """See `LlmRecords.close_batch`."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM llm_batches WHERE batch_id = ?", (batch_id,))


def withdraw(connection: sqlite3.Connection, part_ids: Sequence[str]) -> None:
    """Remove every reply about these parts; those still to come are not kept."""
    asked = "SELECT key FROM llm_asked WHERE part_id IN (SELECT value FROM json_each(?))"
    connection.execute(f"DELETE FROM llm_replies WHERE key IN ({asked})", (json_list(part_ids),))
    void(connection, part_ids)


def void(connection: sqlite3.Connection, part_ids: Sequence[str]) -> None:
    """Keep no reply about these parts that is still to come, and no summary read from one. Summaries there are stay."""
    of_parts = (json_list(part_ids),)
    about = "part_id IN (SELECT value FROM json_each(?))"
    connection.execute(f"UPDATE llm_asked SET void = 1 WHERE {about}", of_parts)
    connection.execute(f"UPDATE summaries SET reply_key = '' WHERE {about}", of_parts)


def _is_as_stored(connection: sqlite3.Connection, part: Part) -> bool:
    """Whether a part, as somebody has it in memory, is not forgotten, and still the one in the store if it is there."""
    if connection.execute("SELECT 1 FROM tombstones WHERE episode_id = ?", (part.part_id,)).fetchone():
        return False
    row = connection.execute(
        "SELECT content_hash, lead, prompt FROM parts WHERE part_id = ?", (part.part_id,)
    ).fetchone()
    return row is None or row == (part.content_hash, clean(part.lead), clean(part.prompt))


def _take(connection: sqlite3.Connection, call_id: str, lease: Lease) -> None:
    """:raises LlmCallTaken: another call has one of the keys."""
    keys, since = json_list(lease.keys), instant(lease.since)
    held = "FROM llm_leases WHERE key IN (SELECT value FROM json_each(?))"
    connection.execute(f"DELETE {held} AND until <= ?", (keys, since))
    if connection.execute(f"SELECT 1 {held} LIMIT 1", (keys,)).fetchone():
        raise LlmCallTaken("another run is asking the same; its reply will do for both")
    connection.execute(
        "INSERT INTO llm_leases (key, call_id, until) SELECT DISTINCT value, ?, ? FROM json_each(?)",
        (call_id, instant(lease.until), keys),
    )


def _used(connection: sqlite3.Connection, day: str) -> LlmUse:
    row = connection.execute(
        """SELECT coalesce(sum(calls), 0), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0),
                coalesce(sum(dollars), 0.0) FROM llm_calls WHERE day = ?""",
        (day,),
    ).fetchone()
    return LlmUse(*row)


def _columns(use: LlmUse) -> tuple[int, int, int, float]:
    return use.calls, use.input_tokens, use.output_tokens, use.dollars
