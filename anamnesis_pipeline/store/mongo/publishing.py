"""Which parts are to become episodes."""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.newest_first import NEWEST_FIRST, Place, behind, buried, newest_of_sources, place
from anamnesis_pipeline.store.mongo.parts import PART_FIELDS, read_part, read_parts, summaries_of
from anamnesis_pipeline.summary_model import Summary

_PAGE = 50
"""Parts decompressed at a time while looking for some that no tombstone forbids."""
_UNPUBLISHED = {"to_publish": 1}


def parts_to_publish(tables: Tables, source: str, limit: int) -> list[tuple[Part, Summary | None]]:
    """See `IngestRecords.parts_to_publish`. A summary of an earlier version of the part counts as none."""
    parts = list(islice(_unpublished(tables, source), limit))
    summaries = summaries_of(tables, [part.part_id for part in parts])

    def current(part: Part) -> Summary | None:
        summary = summaries.get(part.part_id)
        return summary if summary and summary.content_hash == part.content_hash else None

    return [(part, current(part)) for part in parts]


def unpublished_sources(tables: Tables, known: Collection[str]) -> set[str]:
    """Sources but the `known` ones of which `parts_to_publish` lists something: those whose newest part is forbidden
    are looked at part by part.
    """
    newest = newest_of_sources(tables, _UNPUBLISHED, ["to_publish"])
    waiting = {source: part_id for source, part_id in newest.items() if source not in known}
    allowed: set[str] = set()
    for batch in batches(sorted(waiting.values()), _PAGE):
        parts = list(read_parts(tables, batch).values())
        allowed |= {part.part_id for part in parts} - _forbidden(tables, parts)
    found = {source for source, part_id in waiting.items() if part_id in allowed}
    return found | {source for source in waiting.keys() - found if any(_unpublished(tables, source))}


def _unpublished(tables: Tables, source: str) -> Iterator[Part]:
    """Parts whose episode is missing or old and that no tombstone forbids, newest first, read as they are asked for."""
    last: Place | None = None
    while True:
        where = {"source": source, **_UNPUBLISHED, **behind(last)}
        page = [
            read_part(document)
            for document in tables["parts"].each(where, PART_FIELDS, order=NEWEST_FIRST, limit=_PAGE)
        ]
        forbidden = _forbidden(tables, page)
        yield from (part for part in page if part.part_id not in forbidden)
        if len(page) < _PAGE:
            return
        last = place(page[-1])


def _forbidden(tables: Tables, parts: Sequence[Part]) -> set[str]:
    """Those of these parts of which a tombstone holds the id, or tombstones every message."""
    keys = {segment.message_key for part in parts for segment in part.segments}
    gone = {found["message_key"] for found in tables["tombstone_keys"].among("message_key", keys, ["message_key"])}
    silent = {part.part_id for part in parts if part.segments and all(s.message_key in gone for s in part.segments)}
    return silent | buried(tables, [part.part_id for part in parts])
