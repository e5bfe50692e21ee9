"""The questions that were asked of the memory, in MongoDB."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from anamnesis_pipeline.store import query_base
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.query_base import QUERY_EXPIRES, USED_WITHIN, AskedQuery, QueryCounts
from anamnesis_pipeline.store.values import clean, instant, moment

NUMBERS = "query_log"
"""The counter of questions."""
NOTED_S = 5.0
"""How long a question waits to be noted: each keeps a thread of the service busy, and there are few."""


class MongoQueries:
    """See `QueryRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def note(self, query: str, asked: Mapping[str, Any], results: Sequence[str], when: datetime) -> None:
        """See `QueryRecords.note`."""
        ids = sorted({clean(episode_id) for episode_id in results})
        row = {
            "asked_at": instant(when), "query": clean(query), "asked": json.dumps(asked, sort_keys=True),
            "found": len(ids), "used_at": None,
        }  # fmt: skip

        def work(tables: Tables) -> None:
            _forget_old(tables, when)
            if sum(1 for _ in tables["episodes"].among("_id", ids, ["_id"])) < len(ids):
                return  # one was removed since it was found, and its questions with it
            number = tables.next_number(NUMBERS)
            tables["query_log"].insert([{"number": number, **row}])
            tables["query_results"].insert([{"episode_id": episode_id, "number": number} for episode_id in ids])

        self._database.write(work, within_s=NOTED_S)

    def use(self, episode_id: str, when: datetime) -> bool:
        """See `QueryRecords.use`."""
        lately = {"$gte": instant(when - USED_WITHIN), "$lte": instant(when)}

        def latest(tables: Tables) -> Document | None:
            found = tables["query_results"].find({"episode_id": clean(episode_id)}, ["number"])
            numbers = [each["number"] for each in found]
            return tables["query_log"].one(
                {"number": {"$in": numbers}, "asked_at": lately}, ["number"], order=[("number", -1)]
            )

        if (question := self._database.snapshot(latest)) is None:
            return False
        self._database.write(lambda tables: tables["query_log"].update(question, {"$set": {"used_at": instant(when)}}))
        return True

    def counts(self) -> QueryCounts:
        """See `QueryRecords.counts`."""
        sums = {
            "queries": {"$sum": 1},
            "answered": {"$sum": {"$cond": [{"$gt": ["$found", 0]}, 1, 0]}},
            "used": {"$sum": {"$cond": [{"$eq": ["$used_at", None]}, 0, 1]}},
        }
        stages: list[Document] = [{"$group": {"_id": None, **sums}}, {"$unset": "_id"}]
        rows = self._database.read(lambda tables: tables["query_log"].aggregate(stages))
        return QueryCounts(**rows[0]) if rows else QueryCounts(0, 0, 0)

    def unanswered(self, limit: int) -> list[AskedQuery]:
        """See `QueryRecords.unanswered`."""
        last: dict[tuple[str, str], Document] = {}
        times: dict[tuple[str, str], int] = {}
        for row in self._questions():
            key = row["query"], row["asked"]
            last[key], times[key] = row, times.get(key, 0) + (row["found"] == 0)
        waiting = sorted((row["number"], key) for key, row in last.items() if row["found"] == 0)
        return [_read(last[key], times[key]) for _, key in reversed(waiting)][:limit]

    def latest(self, projects: Sequence[str], limit: int) -> list[AskedQuery]:
        """See `QueryRecords.latest`."""
        last: dict[str, Document] = {}
        times: dict[str, int] = {}
        for row in self._questions():
            query = row["query"]
            if json.loads(row["asked"]).get("project") in projects:
                last.pop(query, None)  # what was asked last comes last
                last[query], times[query] = row, times.get(query, 0) + 1
        return [_read(row, times[query]) for query, row in reversed(last.items())][:limit]

    def every(self) -> dict[int, AskedQuery]:
        """See `QueryRecords.every`."""
        return {row["number"]: _read(row, 1) for row in self._questions()}

    def remove(self, numbers: Collection[int]) -> None:
        """See `QueryRecords.remove`."""
        self._database.write(lambda tables: _forget(tables, numbers))

    def clear(self) -> None:
        """See `QueryRecords.clear`."""

        def work(tables: Tables) -> None:
            for name in ("query_log", "query_results"):
                tables[name].delete({})

        self._database.write(work)

    def _questions(self) -> list[Document]:
        """All of them, the oldest first: they are bounded, and what was asked is JSON, which no server looks into."""
        fields = ("number", "query", "asked", "asked_at", "found")
        return self._database.read(lambda tables: tables["query_log"].find({}, fields, order=[("number", 1)]))


def forget_results_of(tables: Tables, episode_ids: Iterable[str]) -> None:
    """Forget the questions that found one of these episodes, which go: they may say what it said."""
    found = tables["query_results"].among("episode_id", episode_ids, ["number"])
    _forget(tables, {row["number"] for row in found})


def _forget_old(tables: Tables, when: datetime) -> None:
    """Forget what is beyond the bounds once one more question is noted."""
    newest = tables["query_log"].one({}, ["number"], order=[("number", -1)])
    if newest is None:
        return
    last_to_go = newest["number"] + 1 - query_base.QUERIES_KEPT
    beyond = {"$or": [{"asked_at": {"$lt": instant(when - QUERY_EXPIRES)}}, {"number": {"$lte": last_to_go}}]}
    _forget(tables, {row["number"] for row in tables["query_log"].find(beyond, ["number"])})


def _forget(tables: Tables, numbers: Iterable[int]) -> None:
    if gone := sorted(numbers):
        for name in ("query_log", "query_results"):
            tables[name].delete({"number": {"$in": gone}})


def _read(row: Document, times: int) -> AskedQuery:
    return AskedQuery(row["query"], json.loads(row["asked"]), moment(row["asked_at"]), times)
