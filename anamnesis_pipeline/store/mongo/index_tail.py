"""How far a search index is behind its collection: it follows every write some time later.

Writes are serial, and each gives what it changes a higher `seq` than anything had before. An index follows in that
order, so that one that holds any document of a `seq` holds, as it was then, all that was written before. What is behind
is read from the collection; and since a document that is found is always read as it is now, nothing is ever shown that
does not pass.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from anamnesis_pipeline.store.mongo.collections import Collection, Filter

log = logging.getLogger(__name__)

STEPS = (0, 100, 1_000, 10_000)
"""So many changes before the newest one it is asked, in turn, whether the index holds it. Of what lies farther behind,
only the newest are read.
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


class IndexTail:
    """How far indexes are known to be, by name. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        self._warned_at = -WARNED_EVERY_S

    def behind(self, index: str, newest: int, holds: Callable[[int], bool]) -> Tail:
        """What an index lacks.

        :param newest: the highest `seq` there was when the search began.
        :param holds: asks the index whether it holds anything of that `seq` or a higher one.
        """
        known = self._known.get(index, 0)
        for step in STEPS:
            reached = newest - step
            if reached <= known:
                return Tail(known, newest)
            if holds(reached):
                self._learn(index, reached)
                return Tail(reached, newest)
        self._warn(index, newest)
        return Tail(max(known, newest - STEPS[-1]), newest, is_whole=False)

    def forget(self, index: str) -> None:
        """An index did not answer: when it does, it may have begun anew."""
        with self._lock:
            self._known.pop(index, None)

    def _learn(self, index: str, reached: int) -> None:
        with self._lock:
            self._known[index] = max(reached, self._known.get(index, 0))

    def _warn(self, index: str, newest: int) -> None:
        with self._lock:
            if time.monotonic() - self._warned_at < WARNED_EVERY_S:
                return
            self._warned_at = time.monotonic()
        log.warning(
            "Search index %s is more than %d changes behind (the newest is %d): what was written between is found once "
            "it caught up. If this stays so, look at the search process (mongot) and its log.",
            index, STEPS[-1], newest,
        )  # fmt: skip


def newest_seq(collection: Collection, where: Filter | None = None) -> int:
    """The highest `seq` in a collection; 0 when it is empty."""
    found = collection.one(where or {}, ("seq",), order=[("seq", -1)])
    return int(found["seq"]) if found else 0
