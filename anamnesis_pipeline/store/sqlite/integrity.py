"""Whether full text agrees with the texts. In a large store a process of its own compares them, behind all others: the
index asks Python about each passage, which would keep every other thread of this process waiting for a minute.
"""

import os
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

from anamnesis_pipeline.errors import RetryLater
from anamnesis_pipeline.store.sqlite.connection import Database

TABLES = ("stem_index", "exact_index")
COMPARED_HERE = 2_000
"""Passages that are compared before another process would have started."""
LAST = 19
"""How much such a process gives way: as much as it can."""


def problems_of(path: Path, passages: int) -> list[str]:
    """What does not agree, of a copy of this moment; empty when all does. At 100,000 passages it takes 50 s.

    :param passages: about how many there are.
    :raises StoreFull: the disk has no room for the copy.
    :raises RetryLater: the process that compared them was ended.
    """
    if passages <= COMPARED_HERE:
        return _compared(path)
    try:
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=os.nice, initargs=(LAST,)) as apart:
            return apart.submit(_compared, path).result()
    except BrokenProcessPool as exc:
        raise RetryLater(f"the check of {path} was ended before it was done; try again") from exc


def _compared(path: Path) -> list[str]:
    problems = []
    with closing(Database(path)) as database, database.copied() as connection:
        for table in TABLES:
            try:
                connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")  # noqa: S608
            except sqlite3.DatabaseError as exc:
                problems.append(f"{table} does not match the passages: {exc}")
    return problems
