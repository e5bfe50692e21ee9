"""Logical sessions: their transactions, and the writes that are done once although they are sent twice.

https://github.com/mongodb/specifications/blob/master/source/transactions/transactions.md and .../retryable-writes.md
"""

import time
from dataclasses import dataclass, field
from typing import Any

from anamnesis_tests.mongo_server.engine import Engine
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.storage import Writer
from anamnesis_tests.mongo_server.values import Document


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of a session: open, committed or aborted."""

    number: int
    writer: Writer
    began: float
    state: str = "open"


@dataclass(slots=True)
class Session:
    """What the server knows of an `lsid`."""

    number: int = -1
    transaction: Transaction | None = None
    done: dict[int, Document] = field(default_factory=dict)
    """Number of a statement to its result, of the retryable write `number`."""


class Sessions:
    """All sessions of a replica set; used under the engine's lock."""

    def __init__(self, engine: Engine, lifetime_s: float) -> None:
        self._engine = engine
        self._lifetime_s = lifetime_s
        self._sessions: dict[bytes, Session] = {}
        self._open: list[Transaction] = []

    def of(self, lsid: bytes) -> Session:
        """A session, known from its first command on."""
        return self._sessions.setdefault(lsid, Session())

    def begin(self, session: Session, number: int) -> Transaction:
        """Start a transaction; an older one of the session is given up.

        :raises Refusal: its number was used already.
        """
        if number < session.number or (number == session.number and session.transaction is None):
            raise _too_old(number, session.number)
        if session.transaction is not None:
            if number == session.number:
                raise Refusal(117, f"Transaction {number} has been started already")
            self.abort(session.transaction)
        session.number, session.done = number, {}
        session.transaction = Transaction(number, self._engine.begin(snapshot=True), time.monotonic())
        self._open.append(session.transaction)
        return session.transaction

    def current(self, session: Session, number: int) -> Transaction:
        """The transaction that a statement goes on with.

        :raises Refusal: it is over, or never began here.
        """
        if number < session.number:
            raise _too_old(number, session.number)
        held = session.transaction
        if held is None or number > session.number:
            raise Refusal(251, f"Given transaction number {number} does not match any in-progress transactions.")
        self.abort_expired()
        if held.state == "aborted":
            raise Refusal(251, f"Transaction with {{ txnNumber: {number} }} has been aborted.")
        return held

    def retryable(self, session: Session, number: int) -> None:
        """A write that is sent again if no answer came.

        :raises Refusal: a newer one was sent meanwhile.
        """
        if number < session.number:
            raise _too_old(number, session.number)
        if number > session.number:
            if session.transaction is not None:
                self.abort(session.transaction)
            session.number, session.done, session.transaction = number, {}, None

    def abort(self, transaction: Transaction) -> None:
        """Take back what a transaction did; one that is over stays as it is."""
        if transaction.state == "open":
            transaction.state = "aborted"
            self._open.remove(transaction)
            self._engine.abort(transaction.writer)

    def commit(self, transaction: Transaction) -> None:
        """Make visible what a transaction did; one that is committed stays so.

        :raises Refusal: it was aborted.
        """
        if transaction.state == "open":
            transaction.state = "committed"
            self._open.remove(transaction)
            self._engine.commit(transaction.writer)

    def abort_all(self) -> None:
        """No transaction outlives its primary."""
        for transaction in list(self._open):
            self.abort(transaction)

    def abort_expired(self) -> None:
        """Give up those that are open for too long."""
        now = time.monotonic()
        for transaction in [each for each in self._open if now - each.began > self._lifetime_s]:
            self.abort(transaction)

    def end(self, lsids: list[Any]) -> None:
        """`endSessions`."""
        for lsid in lsids:
            key = bytes(lsid["id"])
            session = self._sessions.pop(key, None)
            if session is not None and session.transaction is not None:
                self.abort(session.transaction)
            self._engine.unpin(key)


def _too_old(number: int, newest: int) -> Refusal:
    return Refusal(225, f"Cannot start transaction {number} because a newer transaction {newest} has already started.")
