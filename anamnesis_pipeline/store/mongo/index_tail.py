"""How far a search index is behind its collection: it follows every write some time later.

Writes are serial, and each gives what it changes a higher `seq` than anything had before. An index follows in batches,
not in the order of a batch, and shows some of one before the rest (https://github.com/mongodb/mongot,
`ChangeStreamDocumentUtils`, `DefaultIndexingWorkScheduler`). So one that has shown a `seq` holds all that was written
before it a few seconds later; until then that is read, too. What is behind is read from the collection; and since a
document that is found is always read as it is now, nothing is ever shown that does not pass.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.mongo.client import Collections
from anamnesis_pipeline.store.mongo.collections import Collection, Document, Filter
from anamnesis_pipeline.store.mongo.facets import condition, of_episodes
from anamnesis_pipeline.store.mongo.search_indexes import SearchIndex
from anamnesis_pipeline.store.mongo.text_queries import filtered
from anamnesis_pipeline.store.mongo.translation import IndexDown, asking

log = logging.getLogger(__name__)

STEPS = (0, 100, 1_000, 10_000)
"""So many changes before the newest one it is asked, in turn, whether the index holds it. Of what lies farther behind,
only the newest are read.
"""
SETTLED_AFTER_S = 5.0
"""What an index showed so long ago is there whole."""
QUIET_S = 60.0 + SETTLED_AFTER_S
"""Where no `seq` was given for so long, an index that shows the newest is whole: a transaction lives for 60 s at most
(https://www.mongodb.com/docs/manual/reference/parameters/, `transactionLifetimeLimitSeconds`).
"""
UNSETTLED = 1_000
"""Changes before the one that was shown that may not be there yet, as long as nothing is known to be whole: more than
one transaction makes of most kinds, and all that a process reads which starts while others write. Of a larger one
that was written in the minute before, it finds a part only, for its first five seconds.
"""
WARNED_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Tail:
    """What a search has to read itself: documents whose `seq` is higher than `since`. Of `newest` and all before it,
    `is_whole` tells whether they and the index are everything.
    """

    since: int
    newest: int
    is_whole: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether the index has it all."""
        return self.since >= self.newest

    def of(self, where: Filter) -> Filter:
        """The documents of the tail that pass a filter."""
        return {"seq": {"$gt": self.since}, **where}


@dataclass(slots=True)
class _Reached:
    """How far an index is: whole up to `settled`; and what it has `shown`, when, ascending."""

    settled: int = 0
    shown: list[tuple[float, int]] = field(default_factory=list)

    def settle(self, now: float) -> None:
        """Take what was shown long enough ago for whole."""
        for when, seq in self.shown:
            if when <= now - SETTLED_AFTER_S:
                self.settled = max(self.settled, seq)
        self.shown = [(when, seq) for when, seq in self.shown if seq > self.settled]

    def last_shown(self) -> int:
        """The highest it is known to have."""
        return self.shown[-1][1] if self.shown else self.settled

    def show(self, now: float, seq: int) -> None:
        """It has this one now."""
        if seq > self.last_shown():
            self.shown.append((now, seq))


class IndexTail:
    """How far indexes are known to be, by name. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """:param clock: seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Reached] = {}
        self._warned_at = -WARNED_EVERY_S

    def behind(
        self, index: str, newest: int, holds: Callable[[int], bool], unused_s: Callable[[], float] = lambda: 0.0
    ) -> Tail:
        """What an index may lack.

        :param newest: the highest `seq` there was when the search began.
        :param holds: asks the index whether it holds anything of that `seq` or a higher one.
        :param unused_s: asks for how long no `seq` was given.
        """
        settled, shown = self._reached(index, newest)
        for step in STEPS:
            reached = newest - step
            if reached <= settled:
                return Tail(settled, newest)
            if reached <= shown:
                return Tail(_whole(settled, shown), newest)
            if holds(reached):
                is_quiet = step == 0 and settled == 0 and unused_s() >= QUIET_S
                self._learn(index, reached, is_whole=is_quiet)
                return Tail(reached if is_quiet else _whole(settled, reached), newest)
        self._warn(index, newest)
        return Tail(max(settled, newest - STEPS[-1]), newest, is_whole=False)

    def forget(self, index: str) -> None:
        """An index did not answer: when it does, it may have begun anew."""
        with self._lock:
            self._known.pop(index, None)

    def _reached(self, index: str, newest: int) -> tuple[int, int]:
        """Up to where it is whole, and what it has shown. An index that was farther than its collection is now had
        another life: that was restored, and its index begins anew under the same name.
        """
        with self._lock:
            known = self._known.setdefault(index, _Reached())
            known.settle(self._clock())
            if newest < known.settled:
                known = self._known[index] = _Reached()
            return known.settled, known.last_shown()

    def _learn(self, index: str, reached: int, *, is_whole: bool) -> None:
        with self._lock:
            known = self._known.setdefault(index, _Reached())
            if is_whole:
                known.settled = max(known.settled, reached)
            else:
                known.show(self._clock(), reached)

    def _warn(self, index: str, newest: int) -> None:
        with self._lock:
            if time.monotonic() - self._warned_at < WARNED_EVERY_S:
                return
            self._warned_at = time.monotonic()
        log.warning(
            "Search index %s is more than %d changes behind (the newest is %d): what was written between is found once "
            "it caught up. If this stays so, look at the search process (mongot) and its log.",
            index,
            STEPS[-1],
            newest,
        )


def _whole(settled: int, shown: int) -> int:
    """Up to where an index that has shown a `seq` is whole; one transaction may have changed thousands before it."""
    return max(settled, shown - (STEPS[-1] if settled else UNSETTLED))


def newest_seq(collection: Collection, where: Filter | None = None) -> int:
    """The highest `seq` in a collection; 0 when it is empty."""
    found = collection.one(where or {}, ("seq",), order=[("seq", -1)])
    return int(found["seq"]) if found else 0


# --- all that passes a filter, where it is little: what a search without an index answers from -----------

EPISODES_LOOKED_UP = 5_000
"""A filter that leaves more is not followed from the episodes, whose fields are indexed, to what belongs to them."""


def live_rows(
    tables: Collections, name: str, where: Where, fields: Sequence[str], most: int, *, has: str | None = None
) -> list[Document] | None:
    """The documents of a collection that pass; None when there are more than `most`, or it takes too long to tell.

    :param has: a field that they must have.
    """
    wanted = {**condition(where), **({has: {"$exists": True}} if has else {})}
    if tables[name].size() > most:
        if not where.is_selective:
            return None
        episodes = tables["episodes"].find(of_episodes(where), ("_id",), limit=EPISODES_LOOKED_UP + 1)
        if len(episodes) > EPISODES_LOOKED_UP:
            return None
        wanted |= {"episode_id": {"$in": [episode["_id"] for episode in episodes]}}
    found = tables[name].find(wanted, fields, limit=most + 1)
    return found if len(found) <= most else None


# --- how much a filter leaves, as the index of full text counts it ---------------------------------------

PASSAGES = "passages"


def leaves_few(tables: Collections, index: SearchIndex, where: Where, most: int) -> bool:
    """Whether at most so many passages pass, about; False where the index does not say."""
    try:
        name = index.name(tables)
        passing = _passing(tables, name, condition(where), most)
        if not passing and (other := index.instead_of(name, tables, lambda: bool(_passing(tables, name, {}, 1)))):
            passing = _passing(tables, other, condition(where), most)
    except IndexDown:
        return False
    return passing <= most


def _passing(tables: Collections, name: str, where: Filter, most: int) -> int:
    """How many pass, at least."""
    count = {"type": "lowerBound", "threshold": most}
    with asking(name):
        (found,) = tables[PASSAGES].search([{"$searchMeta": {"index": name, **filtered([], where), "count": count}}])
    return int(found["count"]["lowerBound"])
