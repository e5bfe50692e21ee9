"""Summaries as rows, and what they mean for the row of their part."""

import sqlite3
from datetime import datetime

from anamnesis_pipeline.store.summary_values import (
    SUMMARY_COLUMNS,
    cleaned,
    publication_hash,
    read_summary_values,
    record_rows,
)
from anamnesis_pipeline.store.values import as_json, instant, json_list
from anamnesis_pipeline.summary_model import Summary

_COLUMNS = ", ".join(SUMMARY_COLUMNS)


def read_summary(connection: sqlite3.Connection, part_id: str) -> Summary | None:
    """The summary of a part, of whatever version of it."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM summaries WHERE part_id = ?", (part_id,)).fetchone()  # noqa: S608
    return None if row is None else read_summary_values(*row)


def write_summary(connection: sqlite3.Connection, summary: Summary) -> bool:
    """Insert or replace by part id; False when the same is there already, or it may not be kept (see
    `IngestRecords.put_summaries`). Nobody waits for one that is there any more.
    """
    if not _may_be_kept(connection, summary):
        return False
    summary = cleaned(summary)
    before = read_summary(connection, summary.part_id)
    is_new = before != summary or before.reply_key != summary.reply_key
    retry_at = _instant(summary.retry_at)
    if is_new:
        connection.execute(
            f"""INSERT INTO summaries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (part_id) DO UPDATE SET content_hash = excluded.content_hash, text = excluded.text,
                    model = excluded.model, tags = excluded.tags, records = excluded.records, skip = excluded.skip,
                    problem = excluded.problem, retry_at = excluded.retry_at, attempts = excluded.attempts,
                    reply_key = excluded.reply_key""",  # noqa: S608
            (summary.part_id, summary.content_hash, summary.text, summary.model, json_list(summary.tags),
             as_json(record_rows(summary.records)), summary.skip, summary.problem, retry_at, summary.attempts,
             summary.reply_key),
        )  # fmt: skip
    connection.execute(
        """UPDATE parts SET summarized_hash = ?2, summary_due = ?4,
                wanted_hash = CASE WHEN content_hash = ?2 THEN ?3 ELSE wanted_hash END
            WHERE part_id = ?1""",
        (summary.part_id, summary.content_hash, publication_hash(summary.content_hash, summary), retry_at),
    )
    return is_new


def rewrite_summary(connection: sqlite3.Connection, before: Summary, after: Summary) -> bool:
    """See `ForgetRecords.rewrite_summary`."""
    if read_summary(connection, before.part_id) != before:
        return False
    after = cleaned(after)
    connection.execute(
        "UPDATE summaries SET text = ?, tags = ?, records = ? WHERE part_id = ?",
        (after.text, json_list(after.tags), as_json(record_rows(after.records)), after.part_id),
    )
    connection.execute(
        "UPDATE parts SET wanted_hash = ? WHERE part_id = ? AND content_hash = ?",
        (publication_hash(after.content_hash, after), after.part_id, after.content_hash),
    )
    return True


def _may_be_kept(connection: sqlite3.Connection, summary: Summary) -> bool:
    return (
        connection.execute(
            """SELECT 1 FROM parts LEFT JOIN summaries s USING (part_id)
                WHERE part_id = ?1 AND ?2 IN (parts.content_hash, s.content_hash)
                    AND NOT EXISTS (SELECT 1 FROM llm_asked WHERE key = ?3 AND void)""",
            (summary.part_id, summary.content_hash, summary.reply_key),
        ).fetchone()
        is not None
    )


def _instant(when: datetime | None) -> str | None:
    return None if when is None else instant(when)
