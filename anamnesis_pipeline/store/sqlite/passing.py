"""Which passages pass a filter, where it leaves few: asked once, then remembered while nothing changes."""

# ruff: noqa: S608
# only names of ours enter the SQL

import sqlite3
import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.sqlite.filters import condition

FEW_ROWS = 20_000
REMEMBERED_FILTERS = 32

Ids = NDArray[np.int64]


class PassingPassages:
    """The answers to the filters asked last. Safe to share between threads."""

    def __init__(self, few: int = FEW_ROWS) -> None:
        """:param few: most passages that count as few."""
        self._few = few
        self._lock = threading.Lock()
        self._version = -1
        self._known: OrderedDict[Where, Ids | None] = OrderedDict()

    def of(self, connection: sqlite3.Connection, where: Where) -> Ids | None:
        """The keys of all passages that pass, ascending; None when they are more than few."""
        (version,) = connection.execute("SELECT version FROM filter_version").fetchone()
        with self._lock:  # while one asks the others wait, most often for the same
            if version == self._version and where in self._known:
                self._known.move_to_end(where)
                return self._known[where]
            ids = _asked(connection, where, self._few)
            if version != self._version:
                self._version = version
                self._known.clear()
            self._known[where] = ids
            if len(self._known) > REMEMBERED_FILTERS:
                self._known.popitem(last=False)
            return ids


def _asked(connection: sqlite3.Connection, where: Where, few: int) -> Ids | None:
    terms, values = condition(where)
    rows = connection.execute(
        f"""SELECT p.passage_id FROM episodes e CROSS JOIN passages p ON p.episode_key = e.episode_key
            WHERE {terms} LIMIT ?""",
        (*values, few + 1),
    ).fetchall()
    return np.sort(np.array(rows, np.int64).ravel()) if len(rows) <= few else None
