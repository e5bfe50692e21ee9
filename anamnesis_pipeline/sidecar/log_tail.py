"""The latest lines of the sidecar's own log, kept in memory and without secrets, for people who look at the service."""

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
"""Lines."""
LONGEST = 4_000
"""Characters of one."""
NOISY = frozenset(
    "asyncio httpcore httpcore2 httpx httpx2 mcp multipart paramiko pymongo python_multipart urllib3".split()
)
"""Loggers of libraries that tell every step of theirs: only their warnings are kept."""
_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class LogLine:
    """One entry of the log; `text` may have several lines. `number` grows, also from one process to the next."""

    number: int
    at: datetime
    level: str
    logger: str
    text: str


class LogTail(logging.Handler):
    """Keeps what is logged in this process; the oldest goes first. Safe to share between threads."""

    def __init__(self, mask: Callable[[str], str], kept: int = KEPT) -> None:
        """:param mask: what no text is kept without."""
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter("%(message)s"))
        self.addFilter(is_telling)
        self._mask = mask
        self._lines: deque[LogLine] = deque(maxlen=kept)
        self._number = time.time_ns() // 1_000_000  # above what the process before this one gave out

    @property
    def last(self) -> int:
        """The number of the newest line."""
        with self._locked():
            return self._number

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record; called with the handler's lock held."""
        try:
            text = self._mask(self.format(record)[: 2 * LONGEST])[:LONGEST]
        except Exception:
            self.handleError(record)
            return
        self._number += 1
        at = datetime.fromtimestamp(record.created, UTC)
        self._lines.append(LogLine(self._number, at, record.levelname, record.name, text))

    def latest(self, limit: int, level: int = logging.NOTSET) -> list[LogLine]:
        """The last `limit` lines of at least this level, in their order."""
        with self._locked():
            found = list(islice((line for line in reversed(self._lines) if _is_at_least(line, level)), limit))
        return found[::-1]

    def since(self, number: int, limit: int, level: int = logging.NOTSET) -> list[LogLine]:
        """The first `limit` lines of at least this level that follow a number."""
        with self._locked():
            lines = (line for line in self._lines if line.number > number and _is_at_least(line, level))
            return list(islice(lines, limit))

    def lost(self, number: int) -> bool:
        """Whether lines that followed a number are gone."""
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
    """Whether a record says something: neither a library's small talk nor a reading that went well, of which pages and
    monitors make one every few seconds. Pure.
    """
    if record.levelno >= logging.WARNING:
        return True
    if record.name == access_log.name and isinstance(record.args, tuple) and len(record.args) == 4:
        method, _, status, _ = record.args
        return method not in _READS or not isinstance(status, int) or status >= 400
    return record.name.partition(".")[0] not in NOISY


@contextmanager
def tailing(tail: LogTail) -> Iterator[None]:
    """Keep what every logger of this process says, until the end."""
    root = logging.getLogger()
    root.addHandler(tail)
    try:
        yield
    finally:
        root.removeHandler(tail)


def _is_at_least(line: LogLine, level: int) -> bool:
    return logging.getLevelNamesMapping().get(line.level, logging.CRITICAL) >= level
