"""The latest lines of the sidecar's own log, in memory and masked, for the pages."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from anamnesis_pipeline.sidecar.observation import access_log

KEPT = 2_000
"""Lines kept."""
LONGEST = 4_000
"""Max characters of one line."""
NOISY = frozenset(
    "asyncio httpcore httpcore2 httpx httpx2 mcp multipart paramiko pymongo python_multipart urllib3".split()
)
"""Loggers of verbose libraries: only their warnings are kept."""
_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log entry; `text` may have several lines. `number` increases, also across processes."""

    number: int
    at: datetime
    level: str
    logger: str
    text: str


class LogTail(logging.Handler):
    """Keeps the log records of this process, dropping the oldest. Thread-safe."""

    def __init__(self, mask: Callable[[str], str], kept: int = KEPT) -> None:
        """:param mask: masks secrets in every text."""
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.addFilter(is_telling)
        self._mask = mask
        self._lines: deque[LogLine] = deque(maxlen=kept)
        self._number = time.time_ns() // 1_000_000  # above the numbers of the previous process

    @property
    def last(self) -> int:
        """Number of the newest line."""
        with self._locked():
            return self._number

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record. The caller holds the handler's lock."""
        try:
            text = self._mask(self.format(record)[: 2 * LONGEST])[:LONGEST]
        except Exception:
            self.handleError(record)
            return
        self._number += 1
        at = datetime.fromtimestamp(record.created, UTC)
        self._lines.append(LogLine(self._number, at, record.levelname, record.name, text))

    def latest(self, limit: int, level: int = logging.NOTSET) -> list[LogLine]:
        """Return the last `limit` lines of at least this level, in order."""
        with self._locked():
            found = list(islice((line for line in reversed(self._lines) if _is_at_least(line, level)), limit))
        return found[::-1]

    def since(self, number: int, limit: int, level: int = logging.NOTSET) -> list[LogLine]:
        """Return the first `limit` lines of at least this level after a number."""
        with self._locked():
            lines = (line for line in self._lines if line.number > number and _is_at_least(line, level))
            return list(islice(lines, limit))

    def lost(self, number: int) -> bool:
        """Return whether lines after a number were dropped."""
        with self._locked():
            return bool(self._lines) and self._lines[0].number > number + 1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.acquire()
        try:
            yield
        finally:
            self.release()


def is_telling(record: logging.LogRecord) -> bool:
    """Return whether a record is informative: neither a library's routine message nor a successful read, of which pages
    and monitors cause one every few seconds. Pure.
    """
    if record.levelno >= logging.WARNING:
        return True
    if record.name == access_log.name and isinstance(record.args, tuple) and len(record.args) == 4:
        method, _, status, _ = record.args
        return method not in _READS or not isinstance(status, int) or status >= 400
    return record.name.partition(".")[0] not in NOISY


@contextmanager
def tailing(tail: LogTail) -> Iterator[None]:
    """Keep the records of all loggers of this process during the block."""
    root = logging.getLogger()
    root.addHandler(tail)
    try:
        yield
    finally:
        root.removeHandler(tail)


def _is_at_least(line: LogLine, level: int) -> bool:
    return logging.getLevelNamesMapping().get(line.level, logging.CRITICAL) >= level
