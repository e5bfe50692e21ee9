"""Summaries as every backend keeps them, and what they mean for their part. Pure."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.store.values import as_json, clean, moment
from anamnesis_pipeline.summary_model import RecordType, Summary, TypedRecord

SUMMARY_COLUMNS = (
    "part_id", "content_hash", "text", "model", "tags", "records", "skip", "problem", "retry_at", "attempts",
    "reply_key",
)  # fmt: skip


def publication_hash(content_hash: str, summary: Summary | None) -> str:
    """What an episode is made of: the text, and the summary of that text with its tags and records."""
    if summary is None:
        return content_id(content_hash)
    rest = as_json([summary.tags, record_rows(summary.records), summary.skip])
    return content_id(content_hash, summary.text, summary.model, rest)


def read_summary_values(
    part_id: str, content_hash: str, text: str, model: str, tags: str, records: str, skip: int, problem: str,
    retry_at: str | None, attempts: int, reply_key: str,
) -> Summary:  # fmt: skip
    """The values of `SUMMARY_COLUMNS`."""
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


def record_rows(records: Iterable[TypedRecord]) -> list[list[Any]]:
    """Typed records as what JSON can hold."""
    return [[record.type, record.text, record.why, record.message_ids] for record in records]


def cleaned(summary: Summary) -> Summary:
    """`summary` as it will be read back."""
    return replace(
        summary,
        text=clean(summary.text),
        tags=tuple(clean(tag) for tag in summary.tags),
        records=tuple(replace(r, text=clean(r.text), why=clean(r.why)) for r in summary.records),
        problem=clean(summary.problem),
    )
