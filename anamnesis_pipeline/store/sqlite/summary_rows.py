"""Summaries as rows, and what they mean for the row of their part."""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.store.sqlite.columns import as_json, clean, instant, json_list, moment
from anamnesis_pipeline.summary_model import RecordType, Summary, TypedRecord

_COLUMNS = "part_id, content_hash, text, model, tags, records, skip, problem, retry_at, attempts, reply_key"


def publication_hash(content_hash: str, summary: Summary | None) -> str:
    """What an episode is made of: the text, and the summary of that text with its tags and records."""
    if summary is None:
        return content_id(content_hash)
    rest = as_json([summary.tags, _record_rows(summary.records), summary.skip])
    return content_id(content_hash, summary.text, summary.model, rest)


def read_summary(connection: sqlite3.Connection, part_id: str) -> Summary | None:
    """The summary of a part, of whatever version of it."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM summaries WHERE part_id = ?", (part_id,)).fetchone()  # noqa: S608
    return None if row is None else _read_row(*row)


def write_summary(connection: sqlite3.Connection, summary: Summary) -> bool:
    """Insert or replace by part id; False when the same is there already, or it may not be kept (see
    `IngestRecords.put_summaries`). Nobody waits for one that is there any more.
    """
    if not _may_be_kept(connection, summary):
        return False
    summary = _cleaned(summary)
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
             as_json(_record_rows(summary.records)), summary.skip, summary.problem, retry_at, summary.attempts,
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
    after = _cleaned(after)
    connection.execute(
        "UPDATE summaries SET text = ?, tags = ?, records = ? WHERE part_id = ?",
        (after.text, json_list(after.tags), as_json(_record_rows(after.records)), after.part_id),
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


def _read_row(
    part_id: str, content_hash: str, text: str, model: str, tags: str, records: str, skip: int, problem: str,
    retry_at: str | None, attempts: int, reply_key: str,
) -> Summary:  # fmt: skip
    return Summary(
        part_id=part_id,
        content_hash=content_hash,
        text=text,
        model=model,
        tags=tuple(json.loads(tags)),
        records=tuple(
            TypedRecord(RecordType(kind), stated, why, tuple(ids)) for kind, stated, why, ids in json.loads(records)
        ),
        skip=bool(skip),
        problem=problem,
        retry_at=moment(retry_at) if retry_at else None,
        attempts=attempts,
        reply_key=reply_key,
    )


def _record_rows(records: Iterable[TypedRecord]) -> list[list[Any]]:
    return [[record.type, record.text, record.why, record.message_ids] for record in records]


def _cleaned(summary: Summary) -> Summary:
    return replace(
        summary,
        text=clean(summary.text),
        tags=tuple(clean(tag) for tag in summary.tags),
        records=tuple(replace(r, text=clean(r.text), why=clean(r.why)) for r in summary.records),
        problem=clean(summary.problem),
    )


def _instant(when: datetime | None) -> str | None:
    return None if when is None else instant(when)
