"""Which parts want a summary, and the summaries there are, in MongoDB."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from heapq import merge
from itertools import groupby, islice
from typing import Any

from anamnesis_pipeline.model import Part
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.episode_docs import read_aliases
from anamnesis_pipeline.store.mongo.newest_first import NEWEST_FIRST, Place, behind, buried, newest_of_sources, place
from anamnesis_pipeline.store.mongo.parts import change_parts, read_parts
from anamnesis_pipeline.store.mongo.summary_docs import read_summary, write_summaries
from anamnesis_pipeline.store.project_names import names_of
from anamnesis_pipeline.store.values import instant
from anamnesis_pipeline.summary_model import Summary

PARTS_AT_ONCE = 100
_ASKED_FOR = ""
"""`summary_due` of a part whose summary is wanted anew: before every instant."""
_MISSING = {"to_summarize": 1}


class MongoSummaries:
    """The part of `IngestRecords` that is about summaries."""

    _database: Database

    def parts_to_summarize(
        self, source: str, now: datetime, limit: int, project: str | None = None, *, after: Part | None = None
    ) -> list[Part]:
        """See `IngestRecords.parts_to_summarize`. A deleted episode's part is left out."""
        last = None if after is None else place(after)

        def work(tables: Tables) -> list[Part]:
            where = {"source": source, **_of_project(tables, project)}
            part_ids = [part_id for _, part_id in islice(_wanting(tables, where, now, last), limit)]
            return _in_order(tables, part_ids)

        return self._database.read(work)

    def sources_to_summarize(self, now: datetime) -> set[str]:
        """See `IngestRecords.sources_to_summarize`."""
        return self._database.read(lambda tables: _sources(tables, now))

    def want_summaries(
        self,
        except_model: str,
        *,
        source: str | None = None,
        project: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        accepts: Callable[[Part], bool] = lambda part: True,
    ) -> dict[str, int]:
        """See `IngestRecords.want_summaries`."""
        rows = self._database.read(lambda tables: _summarized_by_others(tables, except_model, source, project))
        found = list(islice(self._accepted(rows, accepts), limit))
        for batch in batches([] if dry_run else found):
            self._database.write(partial(_ask_for, part_ids=[part_id for part_id, _ in batch]))
        return dict(Counter(source for _, source in found))

    def _accepted(self, rows: Sequence[tuple[str, str]], accepts: Callable[[Part], bool]) -> Iterator[tuple[str, str]]:
        """(part id, source) of those parts that are; the texts of a few are in memory at once."""
        for batch in batches(rows, PARTS_AT_ONCE):
            parts = self._database.read(partial(_in_order, part_ids=[part_id for part_id, _ in batch]))
            yield from ((part.part_id, part.source) for part in parts if accepts(part))

    def put_summaries(self, summaries: Sequence[Summary]) -> int:
        """See `IngestRecords.put_summaries`."""
        return sum(self._database.write(partial(write_summaries, summaries=batch)) for batch in batches(summaries))

    def summary(self, part_id: str) -> Summary | None:
        """See `IngestRecords.summary`."""
        return self._database.read(lambda tables: read_summary(tables, part_id))

    def last_summary_problem(self) -> str:
        """See `IngestRecords.last_summary_problem`."""
        found = self._database.read(
            lambda tables: tables["summaries"].one(
                {"problem": {"$gt": ""}}, ["problem"], order=[("retry_at", -1), ("part_id", 1)]
            )
        )
        return str(found["problem"]) if found else ""

    def summary_counts(self) -> dict[str, int]:
        """See `IngestRecords.summary_counts`."""
        by = {"model": "$model", "is_flagged": {"$gt": ["$problem", ""]}, "skip": "$skip"}
        groups = self._database.read(
            lambda tables: tables["summaries"].aggregate([
                {"$match": {"model": {"$gte": ""}}},  # so that the index is read, and no text
                {"$group": {"_id": by, "summaries": {"$sum": 1}}},
            ])
        )  # fmt: skip
        counts: Counter[str] = Counter()
        for group in groups:
            of = group["_id"]
            counts["problem" if of["is_flagged"] else "skip" if of["skip"] else of["model"]] += group["summaries"]
        return dict(counts)


def _due(now: datetime) -> dict[str, Any]:
    # the index holds those that are closed and have such a text, and the query has to say so
    return {"closed": 1, "summary_due": {"$type": "string", "$lte": instant(now)}, "held_by": None}


def _wanting(tables: Tables, where: Filter, now: datetime, last: Place | None) -> Iterator[Place]:
    """The parts that want a summary, newest first, each once."""
    missing, due = (_places(tables, {**where, **wanted}, last) for wanted in (_MISSING, _due(now)))
    yield from (listed for listed, _ in groupby(merge(missing, due, reverse=True)))


def _places(tables: Tables, where: Filter, last: Place | None) -> Iterator[Place]:
    """Places of the parts that match and are not deleted, newest first, read as they are asked for."""
    while True:
        page = tables["parts"].find(
            {**where, **behind(last)}, ["ended_at", "part_id"], order=NEWEST_FIRST, limit=PARTS_AT_ONCE
        )
        gone = buried(tables, [part["part_id"] for part in page])
        yield from ((part["ended_at"], part["part_id"]) for part in page if part["part_id"] not in gone)
        if len(page) < PARTS_AT_ONCE:
            return
        last = page[-1]["ended_at"], page[-1]["part_id"]


def _sources(tables: Tables, now: datetime) -> set[str]:
    """Sources with a part that wants a summary: those whose newest one is buried are looked at part by part."""
    newest = [newest_of_sources(tables, _MISSING, ["to_summarize"]), newest_of_sources(tables, _due(now))]
    gone = buried(tables, [part_id for its in newest for part_id in its.values()])
    found = {source for its in newest for source, part_id in its.items() if part_id not in gone}
    others = {source for its in newest for source in its} - found
    return found | {source for source in others if any(_wanting(tables, {"source": source}, now, None))}


def _summarized_by_others(
    tables: Tables, except_model: str, source: str | None, project: str | None
) -> list[tuple[str, str]]:
    """(part id, source) of the parts whose present content something else summarized, newest first."""
    others = (found["part_id"] for found in tables["summaries"].each({"model": {"$ne": except_model}}, ["part_id"]))
    summarized: dict[str, Any] = {"closed": 1, "held_by": None, "summarized_hash": {"$type": "string"}}
    summarized |= {} if source is None else {"source": source}
    fields = ("part_id", "source", "ended_at", "content_hash", "summarized_hash")
    found: list[Document] = [
        part
        for part in tables["parts"].among("part_id", others, fields, **summarized, **_of_project(tables, project))
        if part["summarized_hash"] == part["content_hash"]
    ]
    gone = buried(tables, [part["part_id"] for part in found])
    found.sort(key=lambda part: (part["ended_at"], part["part_id"]), reverse=True)
    return [(part["part_id"], part["source"]) for part in found if part["part_id"] not in gone]


def _ask_for(tables: Tables, part_ids: Sequence[str]) -> None:
    change_parts(tables, {"part_id": {"$in": list(part_ids)}}, {"summary_due": _ASKED_FOR})


def _in_order(tables: Tables, part_ids: Sequence[str]) -> list[Part]:
    """Those of these parts that are there, newest first."""
    parts = read_parts(tables, part_ids).values()
    return sorted(parts, key=place, reverse=True)


def _of_project(tables: Tables, project: str | None) -> dict[str, Any]:
    """The condition that a part is of a project, by any of its names, since a part keeps its own; None: of any."""
    return {} if project is None else {"project": {"$in": sorted(names_of(read_aliases(tables), project))}}
