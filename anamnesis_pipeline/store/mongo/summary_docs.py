"""Summaries as documents, and what they mean for their part."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pymongo import UpdateMany, UpdateOne

from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.parts import change_parts, part_change, summaries_of
from anamnesis_pipeline.store.summary_values import cleaned, publication_hash, record_rows
from anamnesis_pipeline.store.values import as_json, instant, json_list
from anamnesis_pipeline.summary_model import Summary


def read_summary(tables: Tables, part_id: str) -> Summary | None:
    """The summary of a part, of whatever version of it."""
    return summaries_of(tables, [part_id]).get(part_id)


def write_summary(tables: Tables, summary: Summary) -> bool:
    """Insert or replace by part id; False when the same is there already, or it may not be kept (see
    `IngestRecords.put_summaries`). Nobody waits for one that is there any more.
    """
    return write_summaries(tables, [summary]) == 1


def write_summaries(tables: Tables, summaries: Sequence[Summary]) -> int:
    """`write_summary` of several, one after the other; returns how many changed."""
    part_ids = list({summary.part_id for summary in summaries})
    texts = {
        part["part_id"]: part["content_hash"]
        for part in tables["parts"].each({"part_id": {"$in": part_ids}}, ["part_id", "content_hash"])
    }
    held = summaries_of(tables, part_ids)
    void = _void_keys(tables, summaries)
    documents: list[UpdateOne] = []
    changes: list[UpdateMany] = []
    for summary in map(cleaned, summaries):
        before = held.get(summary.part_id)
        may_replace = texts.get(summary.part_id), before.content_hash if before else None
        if summary.part_id not in texts or summary.content_hash not in may_replace or summary.reply_key in void:
            continue
        if before != summary or before.reply_key != summary.reply_key:
            documents.append(UpdateOne({"part_id": summary.part_id}, {"$set": _fields(summary)}, upsert=True))
            held[summary.part_id] = summary
        changes.append(part_change({"part_id": summary.part_id}, _meaning(summary, texts[summary.part_id])))
    tables["summaries"].write(documents)
    tables["parts"].write(changes)
    return len(documents)


def rewrite_summary(tables: Tables, before: Summary, after: Summary) -> bool:
    """See `ForgetRecords.rewrite_summary`."""
    if read_summary(tables, before.part_id) != before:
        return False
    after = cleaned(after)
    changed = {name: value for name, value in _fields(after).items() if name in ("text", "tags", "records")}
    tables["summaries"].update({"part_id": before.part_id}, {"$set": changed})
    of_this_text = {"part_id": after.part_id, "content_hash": after.content_hash}
    change_parts(tables, of_this_text, {"wanted_hash": publication_hash(after.content_hash, after)})
    return True


def _void_keys(tables: Tables, summaries: Sequence[Summary]) -> set[str]:
    """Keys of replies that may not be kept."""
    keys = {summary.reply_key for summary in summaries if summary.reply_key}
    return set(tables["llm_asked"].values("key", {"key": {"$in": list(keys)}, "void": 1})) if keys else set()


def _meaning(summary: Summary, content_hash: str) -> dict[str, Any]:
    """What a summary changes of its part, whose text is of that hash."""
    fields = {"summarized_hash": summary.content_hash, "summary_due": _instant(summary.retry_at)}
    if summary.content_hash == content_hash:
        fields["wanted_hash"] = publication_hash(content_hash, summary)
    return fields


def _fields(summary: Summary) -> Document:
    """All of a summary but the id of its part."""
    return {
        "content_hash": summary.content_hash,
        "text": summary.text,
        "model": summary.model,
        "tags": json_list(summary.tags),
        "records": as_json(record_rows(summary.records)),
        "skip": int(summary.skip),
        "problem": summary.problem,
        "retry_at": _instant(summary.retry_at),
        "attempts": summary.attempts,
        "reply_key": summary.reply_key,
    }


def _instant(when: datetime | None) -> str | None:
    return None if when is None else instant(when)
