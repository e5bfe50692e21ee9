"""The writer's turn among processes: who has it, who waits for it, and who gives way.

A transaction that meets another one's uncommitted change is refused at once, and who only tries again from time to time
hardly ever meets the moment between two batches of another one. So who waits changes the turn's document outside of
any transaction: such a write waits until the transaction ends
(https://www.mongodb.com/docs/manual/core/transactions-production-consideration/). By the same write who just had the
turn knows that somebody waits, and lets that one first. Of those who wait, who had it for long tries a little later:
what a search writes in passing does not queue behind the batches of several others.
"""

import time
from contextlib import suppress

import pymongo
from pymongo.collection import Collection as DriverCollection
from pymongo.errors import OperationFailure, PyMongoError

from anamnesis_pipeline.store.mongo.collections import Collection, Document

TURN = {"_id": "turn"}
"""The document that every transaction changes first. `waited`: how often somebody waited for it."""
WAITS_S = 10.0
"""How long one attempt to wait may take: whoever has the turn is waited for until that transaction ends."""
MOST_LATER_S = 0.03
"""Who waits comes so much later, at most, as a fifth of its last turn."""
GIVES_WAY_S = 0.1
"""How long at most who just wrote waits for another one to take the turn: longer than anybody comes later."""
LOOKS_EVERY_S = 0.004

_WRITE_CONFLICT = 112


class TurnTaken(Exception):  # noqa: N818
    """Another process has the turn."""


def take(writer: Collection) -> None:
    """Take the turn, in a transaction and as its first statement.

    :raises TurnTaken: another process has it.
    """
    try:
        writer.upsert(TURN, {"$inc": {"turn": 1}})
    except OperationFailure as exc:
        if exc.code != _WRITE_CONFLICT:
            raise
        raise TurnTaken from exc


class Turns:
    """What one process knows of the turns. Used by one thread at a time."""

    def __init__(self) -> None:
        self._took_s = 0.0
        self._ended = -GIVES_WAY_S
        self._waited = 0

    def ended(self, began: float) -> None:
        """Note that a turn of this process, which began then, is over."""
        self._ended = time.monotonic()
        self._took_s = self._ended - began

    def wait(self, writer: DriverCollection[Document], within_s: float) -> None:
        """Wait until the one who has the turn has it no more. That this goes wrong must not fail a write."""
        with suppress(PyMongoError), pymongo.timeout(min(WAITS_S, within_s)):
            writer.update_one(TURN, {"$inc": {"waited": 1}})
            self._waited += 1  # what this process did is no sign of another one
        self._come_later()

    def give_way(self, writer: DriverCollection[Document]) -> None:
        """Where this process wrote just now and another one waits, let that take the turn first. As for `wait`: a
        server that does not answer is the write's own matter.
        """
        until = self._ended + GIVES_WAY_S
        if time.monotonic() >= until:
            return
        with suppress(PyMongoError):
            turn, waited = _state(writer)
            waits, self._waited = waited != self._waited, waited
            while waits and time.monotonic() < until and _state(writer)[0] == turn:
                time.sleep(LOOKS_EVERY_S)
            if waits:  # that one's turn is over just now, and still others may be about to take theirs
                self._come_later()

    def _come_later(self) -> None:
        time.sleep(min(self._took_s / 5, MOST_LATER_S))


def _state(writer: DriverCollection[Document]) -> tuple[int, int]:
    """The number of the turn, and how often somebody waited."""
    found = writer.find_one(TURN) or {}
    return found.get("turn", 0), found.get("waited", 0)
