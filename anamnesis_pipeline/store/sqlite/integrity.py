"""Whether full text agrees with the texts. In a large store a process of its own compares them, behind all others: the
index asks Python about each passage, which would keep every other thread of this process waiting for a minute.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import FrameType

from anamnesis_pipeline.errors import RetryLater, StoreBusy, StoreCorrupt, StoreFull
from anamnesis_pipeline.store.sqlite.connection import Database

TABLES = ("stem_index", "exact_index")
COMPARED_HERE = 2_000
"""Passages that are compared before another process would have started."""
LAST = 19
"""How much such a process gives way: as much as it can."""

_TOLD = {kind.__name__: kind for kind in (StoreFull, StoreCorrupt, StoreBusy, RetryLater)}
"""What the other process tells by name and text, to be raised here: all that `_compared` raises."""
_INTERRUPTED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERRUPT}
"""What SQLite says where a signal met the function that the index asks."""


def problems_of(path: Path, passages: int) -> list[str]:
    """What does not agree, of a copy of this moment; empty when all does. At 100,000 passages it takes 50 s.

    :param passages: about how many there are.
    :raises StoreFull: the disk has no room for the copy.
    :raises StoreCorrupt: the file cannot be read.
    :raises RetryLater: they could not be compared to the end, or a writer held the file for too long.
    """
    if passages <= COMPARED_HERE:
        return _compared(path)
    apart = subprocess.run([sys.executable, "-m", __name__, str(path)], stdout=subprocess.PIPE, text=True, check=False)
    if apart.returncode:
        raise RetryLater(f"the check of {path} was ended before it was done; try again")
    told = json.loads(apart.stdout)
    if "raised" in told:
        raise _TOLD[told["raised"]](told["text"])
    problems: list[str] = told["problems"]
    return problems


def main(path: Path) -> None:
    """Compare behind all others, and leave no copy behind when ended."""
    os.nice(LAST)
    signal.signal(signal.SIGTERM, _end)
    told: dict[str, list[str] | str]
    try:
        told = {"problems": _compared(path)}
    except tuple(_TOLD.values()) as exc:
        told = {"raised": type(exc).__name__, "text": str(exc)}
    sys.stdout.write(json.dumps(told))


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(1)


def _compared(path: Path) -> list[str]:
    problems = []
    with closing(Database(path)) as database, database.copied() as connection:
        for table in TABLES:
            try:
                connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")  # noqa: S608
            except sqlite3.DatabaseError as exc:
                if exc.sqlite_errorcode & 0xFF in _INTERRUPTED:
                    raise RetryLater(f"the check of {path} did not come to its end: {exc}") from exc
                if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
                    raise
                problems.append(f"{table} does not match the passages: {exc}")
    return problems


if __name__ == "__main__":
    main(Path(sys.argv[1]))
