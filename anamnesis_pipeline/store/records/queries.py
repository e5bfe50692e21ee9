"""The queries that were asked of the memory, and what they found."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from anamnesis_pipeline.store.gateway import Gateway, Row, Tables
from anamnesis_pipeline.store.values import clean, instant, moment

QUERIES_KEPT = 5_000
"""Queries that are kept, the latest ones."""
QUERY_EXPIRES = timedelta(days=90)
NOTED_S = 5.0
"""How long a query waits for the write lock to be noted: each keeps a thread of the service busy, and there are few."""
USED_WITHIN = timedelta(minutes=30)
"""A read of an episode within this time counts for the latest query that found it: a read names no query."""


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A question. `asked` is what else was said in it: mode, project, other filters; `asked_at` is the last time.

    `times`: how often it was asked; of unanswered ones, how often without a result.
    """

    query: str
    asked: Mapping[str, Any]
    asked_at: datetime
    times: int


@dataclass(frozen=True, slots=True)
class QueryCounts:
    """Questions that are remembered, those that found something, and those of which something found was read."""

    queries: int
    answered: int
    used: int


class QueryRecords:
    """The latest queries and what they found, bounded by the constants above.

    When an episode is removed, so are the queries that found it: they may repeat its text.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def note(self, query: str, asked: Mapping[str, Any], results: Sequence[str], when: datetime) -> None:
        """Keep a query, secrets masked, and the ids of the episodes that it found; nothing if one of them is gone."""
        ids = sorted({clean(episode_id) for episode_id in results})
        row = {
            "asked_at": instant(when),
            "query": clean(query),
            "asked": json.dumps(asked, sort_keys=True),
            "found": len(ids),
            "used_at": None,
        }

        def work(tables: Tables) -> None:
            newest = tables["query_log"].one({}, ["number"], order=["-number"])
            if newest is not None:  # those that are beyond the bounds once one more is noted
                bounds = {"$lt": instant(when - QUERY_EXPIRES)}, {"$lte": newest["number"] + 1 - QUERIES_KEPT}
                beyond = {"$or": [{"asked_at": bounds[0]}, {"number": bounds[1]}]}
                _remove(tables, {each["number"] for each in tables["query_log"].find(beyond, ["number"])})
            if sum(1 for _ in tables["episodes"].among("episode_id", ids, ["episode_id"])) < len(ids):
                return  # an episode was removed since it was found, and its queries with it
            number = tables["query_log"].insert([row])
            tables["query_results"].insert([{"episode_id": episode_id, "number": number} for episode_id in ids])

        self._gateway.write(work, within_s=NOTED_S)

    def use(self, episode_id: str, when: datetime) -> bool:
        """Note that an episode was read: it helped the latest query of the last USED_WITHIN that found it. Return
        False, with nothing written, if there is none.
        """
        lately = {"$gte": instant(when - USED_WITHIN), "$lte": instant(when)}
        with self._gateway.snapshot() as tables:
            found = tables["query_results"].find({"episode_id": clean(episode_id)}, ["number"])
            of_these = {"number": {"$in": [row["number"] for row in found]}, "asked_at": lately}
            latest = tables["query_log"].one(of_these, ["number"], order=["-number"]) if found else None
        if latest is None:
            return False
        self._gateway.write(lambda tables: tables["query_log"].update(latest, {"used_at": instant(when)}))
        return True

    def counts(self) -> QueryCounts:
        """Count the queries that are kept."""
        with self._gateway.snapshot() as tables:
            log = tables["query_log"]
            return QueryCounts(log.count({}), log.count({"found": {"$gt": 0}}), log.count({"used_at": {"$ne": None}}))

    def unanswered(self, limit: int) -> list[AskedQuery]:
        """Return the queries that found nothing the last time they were asked so, each once, the latest first."""
        last: dict[tuple[str, str], Row] = {}
        times: dict[tuple[str, str], int] = {}
        for row in self._rows():
            key = row["query"], row["asked"]
            last[key], times[key] = row, times.get(key, 0) + (row["found"] == 0)
        waiting = sorted((row["number"], key) for key, row in last.items() if row["found"] == 0)
        return [_query(last[key], times[key]) for _, key in reversed(waiting)][:limit]

    def latest(self, projects: Sequence[str], limit: int) -> list[AskedQuery]:
        """Return the latest queries that were asked of any of these projects, by their whole names, each text once."""
        last: dict[str, Row] = {}
        times: dict[str, int] = {}
        for row in self._rows():
            query = row["query"]
            if json.loads(row["asked"]).get("project") in projects:
                last.pop(query, None)  # the query that was asked last comes last
                last[query], times[query] = row, times.get(query, 0) + 1
        return [_query(row, times[query]) for query, row in reversed(last.items())][:limit]

    def found_since(self, when: datetime) -> dict[str, int]:
        """Return id -> number of queries since a time that found the episode."""
        with self._gateway.snapshot() as tables:
            asked = tables["query_log"].find({"asked_at": {"$gte": instant(when)}, "found": {"$gt": 0}}, ["number"])
            found = tables["query_results"].among("number", [row["number"] for row in asked], ["episode_id"])
            return dict(Counter(row["episode_id"] for row in found))

    def every(self) -> dict[int, AskedQuery]:
        """Return number -> query, each time that it was asked, the oldest first."""
        return {row["number"]: _query(row, 1) for row in self._rows()}

    def remove(self, numbers: Collection[int]) -> None:
        """Remove these queries."""
        self._gateway.write(lambda tables: _remove(tables, numbers))

    def clear(self) -> None:
        """Remove all queries."""

        def work(tables: Tables) -> None:
            for name in ("query_log", "query_results"):
                tables[name].delete({})

        self._gateway.write(work)

    def _rows(self) -> list[Row]:
        """Return all queries, the oldest first. They are bounded by QUERIES_KEPT."""
        with self._gateway.read() as tables:
            return tables["query_log"].find({}, order=["number"])


def remove_queries_of(tables: Tables, episode_ids: Iterable[str]) -> None:
    """Remove the queries that found one of these episodes, which are being removed."""
    found = tables["query_results"].among("episode_id", episode_ids, ["number"])
    _remove(tables, {row["number"] for row in found})


def _remove(tables: Tables, numbers: Iterable[int]) -> None:
    if gone := sorted(numbers):
        for name in ("query_log", "query_results"):
            tables[name].delete({"number": {"$in": gone}})


def _query(row: Row, times: int) -> AskedQuery:
    return AskedQuery(row["query"], json.loads(row["asked"]), moment(row["asked_at"]), times)
