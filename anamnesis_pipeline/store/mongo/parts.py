"""Parts as documents. Their flags (`tables.py`) are worked out by the server in the call that changes a part."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pymongo import UpdateMany, UpdateOne

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store import part_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.engine import flag_stages
from anamnesis_pipeline.store.summary_values import SUMMARY_COLUMNS, publication_hash, read_summary_values
from anamnesis_pipeline.store.tables import BY_NAME
from anamnesis_pipeline.store.values import clean, indexed, instant
from anamnesis_pipeline.summary_model import Summary

PART_FIELDS = part_values.PART_COLUMNS

_KEPT = {name: {"$ifNull": [f"${name}", None]} for name in ("published_hash", "summary_due", "held_by")}
"""What writing a part leaves as it was; null in a new one, since an expression tells null from missing."""


def of_source(source: str | None) -> Document:
    """The condition that something is of a source; None: of any, said so that an index that begins with it is read."""
    return {"source": {"$gte": ""} if source is None else source}


def read_part(document: Document) -> Part:
    """A document with `PART_FIELDS`."""
    return part_values.read_part([document[name] for name in PART_FIELDS])


def read_parts(tables: Tables, part_ids: Iterable[str]) -> dict[str, Part]:
    """Those of these parts that are there, by id."""
    found = tables["parts"].among("part_id", part_ids, PART_FIELDS)
    return {document["part_id"]: read_part(document) for document in found}


def summaries_of(tables: Tables, part_ids: Iterable[str]) -> dict[str, Summary]:
    """The summaries of these parts, of whatever version of them, by part."""
    found = tables["summaries"].among("part_id", part_ids, SUMMARY_COLUMNS)
    return {
        document["part_id"]: read_summary_values(*(document[name] for name in SUMMARY_COLUMNS)) for document in found
    }


def change_parts(
    tables: Tables, where: Filter, fields: Mapping[str, Any], computed: Mapping[str, Any] | None = None
) -> int:
    """Set fields of the parts that match, and work their flags out anew; returns how many matched.

    :param computed: field -> expression over the part as it was.
    """
    return tables["parts"].update(where, _change(fields, computed))


def part_change(where: Filter, fields: Mapping[str, Any], computed: Mapping[str, Any] | None = None) -> UpdateMany:
    """As `change_parts`, to be done together with other writes."""
    return UpdateMany(where, _change(fields, computed))


def mark_published(tables: Tables, made_of: Sequence[tuple[Part, Summary | None]]) -> set[str]:
    """Note that the episodes of these parts, each named once, are written. Returns the ids of those of which part and
    summary are still these; nothing is noted of the others.
    """
    wanted = {part.part_id: _read_of(part, summary) for part, summary in made_of}
    names = next(iter(wanted.values()), {})
    held = tables["parts"].find({"part_id": {"$in": list(wanted)}}, list(names)) if wanted else []
    current = {each["part_id"] for each in held if each == wanted[each["part_id"]]}
    if current:
        change_parts(tables, {"part_id": {"$in": sorted(current)}}, {}, {"published_hash": "$wanted_hash"})
    return current


def write_part(tables: Tables, part: Part) -> None:
    """Insert or replace by id; what was published and summarized stays recorded."""
    write_parts(tables, [part])


def write_parts(tables: Tables, parts: Sequence[Part]) -> None:
    """`write_part` of many; of several with one id the last one stays."""
    for batch in batches(parts):
        summaries = summaries_of(tables, {part.part_id for part in batch})
        tables["parts"].write([
            UpdateOne(
                {"part_id": part.part_id},
                _change(_fields(part, summaries.get(part.part_id)), _KEPT),
                upsert=True,
            )
            for part in batch
        ])  # fmt: skip


def _read_of(part: Part, summary: Summary | None) -> Document:
    """What is stored of a part that nothing has changed since it was read with this summary."""
    return {
        "part_id": part.part_id,
        "wanted_hash": publication_hash(part.content_hash, summary),
        "source": part.source,
        "path": part.path,
        "project": indexed(part.project),
        "cwd": clean(part.cwd),
        "prompt": clean(part.prompt),
        "lead": clean(part.lead),
        "agent_type": clean(part.agent_type),
        "origin": clean(part.origin),
        "section": part_values.pack_section(part.section),
    }


def _change(fields: Mapping[str, Any], computed: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    values = {name: {"$literal": value} for name, value in fields.items()}  # a text may begin with "$"
    return [{"$set": values | dict(computed or {})}, *flag_stages(BY_NAME["parts"])]


def _fields(part: Part, summary: Summary | None) -> Document:
    """All of a part but its id, the flags, and what is kept of an earlier version of it."""
    content_hash = part.content_hash
    is_current = summary is not None and summary.content_hash == content_hash
    return {
        "source": part.source,
        "path": part.path,
        "session_id": part.session_id,
        "exchange_id": part.exchange_id,
        "ordinal": part.ordinal,
        "kind": str(part.kind),
        "project": indexed(part.project),
        "cwd": clean(part.cwd),
        "prompt": clean(part.prompt),
        "agent_id": part.agent_id,
        "agent_type": clean(part.agent_type),
        "origin": clean(part.origin),
        "lead": clean(part.lead),
        "section": part_values.pack_section(part.section),
        "closed": int(part.closed),
        "started_at": min((instant(s.timestamp) for s in part.segments if s.timestamp), default=""),
        "ended_at": part_values.ended_at(part),
        "content_hash": content_hash,
        "wanted_hash": publication_hash(content_hash, summary if is_current else None),
        "summarized_hash": summary.content_hash if summary else None,
        "segments": part_values.pack(part.segments),
    }
