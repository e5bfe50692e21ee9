"""One SQLite file in WAL mode, its connections, `sqlite3` errors as ours, and the check of its full text."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from anamnesis_pipeline.errors import AnamnesisError, GiveUp, RetryLater, StoreBusy, StoreCorrupt, StoreFull
from anamnesis_pipeline.store.index_terms import exact_terms, stem_terms

BUSY_TIMEOUT_S = 30.0
COPY = "anamnesis-check-"
"""How the name of a folder with a copy begins."""
COPY_LIVES_S = 6 * 3600.0
"""A copy that is older was left by a killed process."""
PAGE_CACHE_KIB = 8_192
SCARCE_BYTES = 4 << 20
"""With less than this free, an I/O error means a full disk: SQLite reports some of those as I/O errors."""

PRAGMAS = (
    "PRAGMA synchronous = FULL",  # a commit outlives a power cut, as a client that got its 201 expects
    f"PRAGMA cache_size = -{PAGE_CACHE_KIB}",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA trusted_schema = ON",  # the views behind the full-text indexes call ours
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA secure_delete = ON",  # what is deleted is zeroed in the file: a forgotten text is to be gone
)

_MAYBE_FULL = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_OUR_ERRORS: tuple[tuple[set[int], type[AnamnesisError], str], ...] = (
    (
        {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED},
        StoreBusy,
        f"{{path}} stayed locked by another process for {BUSY_TIMEOUT_S:.0f} s; try again",
    ),
    (
        {sqlite3.SQLITE_FULL},
        StoreFull,
        "no room to write {path}: {free:,} bytes are free on its disk; free some, then try again; "
        "nothing was half written",
    ),
    (
        {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_IOERR},
        StoreCorrupt,
        "{path} cannot be read as a database ({problem}); stop everything that uses it, move it away together with "
        "its -wal and -shm files, then restore a backup, or run anamnesis rebuild --from-archive",
    ),
    (
        {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH},
        GiveUp,
        "{path} cannot be opened for writing ({problem}); check that it is a file and who owns it",
    ),
    ({sqlite3.SQLITE_TOOBIG}, GiveUp, "{path}: one value is larger than SQLite stores ({problem}); split it"),
)


class Database:
    """The file and its connections, pooled: a connection serves one thread at a time, and none outlives `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        self._inherited: list[sqlite3.Connection] = []
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        with _translated(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection inside a read transaction: everything it reads is of one moment."""
        with _translated(self.path), self._borrowed() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("ROLLBACK")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A connection that holds the write lock; commits at the end, undoes everything on an exception.

        IMMEDIATE: a deferred transaction that reads and then writes fails at once when another process wrote.

        :raises StoreBusy: another process held the lock for longer than the time-out.
        """
        with _translated(self.path), self._borrowed() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def copied(self) -> Iterator[sqlite3.Connection]:
        """A connection to a copy of this moment, for slow work that must not hold the write lock.

        :raises StoreFull: the disk has no room for the copy.
        """
        for left in self.path.parent.glob(f"{COPY}*"):  # of killed processes: their texts may be forgotten since
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > COPY_LIVES_S:
                    shutil.rmtree(left)
        size, free = self.path.stat().st_size, _free_bytes(self.path)
        if free < 2 * size:
            raise StoreFull(f"a copy of {self.path} to check needs {2 * size:,} bytes and {free:,} are free; free some")
        with (
            TemporaryDirectory(prefix=COPY, dir=self.path.parent) as folder,
            _translated(self.path),
            closing(self._connect(Path(folder) / self.path.name)) as copy,
        ):
            with self._borrowed() as connection:
                connection.backup(copy)
            copy.execute("PRAGMA synchronous = OFF")
            yield copy

    def empty_log(self) -> bool:
        """Move all of the write-ahead log into the database file and empty it; False while others are reading it."""
        with _translated(self.path), self._borrowed() as connection:
            connection.execute("PRAGMA busy_timeout = 200")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000:.0f}")
            return not busy

    def close(self) -> None:
        """Close every connection; one in use closes when its user is done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():  # a forked child must neither use nor close its parent's connections
            self._inherited, self._idle = [*self._inherited, *self._idle], []
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            if self._closed:
                raise GiveUp(f"{self.path} was closed by this process; open the store again")
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._connect(self.path)
        try:
            yield connection
        except BaseException:
            connection.close()  # which also rolls back
            raise
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            connection.create_function("exact_terms", 1, exact_terms, deterministic=True)
            connection.create_function("stem_terms", 1, stem_terms, deterministic=True)
            connection.create_function("casefold", 1, str.casefold, deterministic=True)  # lower() knows ASCII alone
            _keep_a_log(connection)
            for pragma in PRAGMAS:
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection


@retry(
    retry=retry_if_exception(
        lambda exc: isinstance(exc, sqlite3.OperationalError) and exc.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
    ),
    wait=wait_random(0.002, 0.05),
    stop=stop_after_delay(BUSY_TIMEOUT_S),
    reraise=True,
)
def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Write-ahead logging. SQLite waits for no lock here where others open a new file at the same moment."""
    connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as exc:
        code = getattr(exc, "sqlite_errorcode", None)
        primary = code & 0xFF if code is not None else None
        free = _free_bytes(path)
        if primary in _MAYBE_FULL and free < SCARCE_BYTES:
            primary = sqlite3.SQLITE_FULL
        for codes, error, text in _OUR_ERRORS:
            if primary in codes:
                raise error(text.format(path=path, problem=exc, free=free)) from exc
        raise  # only a mistake in this package causes any other
    except FileExistsError as exc:
        raise GiveUp(f"{path.parent} is a file, and the store needs a folder there; move it away") from exc
    except OSError as exc:
        raise GiveUp(f"{path} cannot be written ({exc.strerror}); check who owns it and its folder") from exc


def _free_bytes(path: Path) -> int:
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free
    return 0


# --- does full text agree with the texts? ----------------------------------------------------------------
# In a large store a separate process of the lowest priority compares them: the index asks Python about each passage,
# which would block every other thread of this process for a minute.

COMPARED_HERE = 2_000
"""Passages that are compared faster than another process starts."""
_TOLD = {kind.__name__: kind for kind in (StoreFull, StoreCorrupt, StoreBusy, RetryLater)}
"""Errors that the other process reports by name and text: all that `_compared` raises."""
_INTERRUPTED = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERRUPT}
"""SQLite's errors where a signal met the function that the index asks."""


def problems_of(path: Path, passages: int) -> list[str]:
    """Return the disagreements in a copy of this moment. At 100,000 passages it takes 50 s.

    :param passages: about how many there are.
    :raises StoreFull: the disk has no room for the copy.
    :raises StoreCorrupt: the file cannot be read.
    :raises RetryLater: the comparison was interrupted, or a writer held the file for too long.
    """
    if passages <= COMPARED_HERE:
        return _compared(path)
    apart = subprocess.run([sys.executable, "-m", __name__, str(path)], stdout=subprocess.PIPE, text=True, check=False)
    if apart.returncode:
        raise RetryLater(f"the check of {path} was ended before it was done; try again")
    told = json.loads(apart.stdout)
    if "raised" in told:
        raise _TOLD[told["raised"]](told["text"])
    return list(told["problems"])


def _compared(path: Path) -> list[str]:
    problems = []
    with closing(Database(path)) as database, database.copied() as connection:
        for table in ("stem_index", "exact_index"):
            try:
                connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")  # noqa: S608
            except sqlite3.DatabaseError as exc:
                if exc.sqlite_errorcode & 0xFF in _INTERRUPTED:
                    raise RetryLater(f"the check of {path} did not come to its end: {exc}") from exc
                if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
                    raise
                problems.append(f"{table} does not match the passages: {exc}")
    return problems


def main(path: Path) -> None:
    """Compare at the lowest priority, and leave no copy behind when ended."""
    os.nice(19)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(1))
    told: dict[str, list[str] | str]
    try:
        told = {"problems": _compared(path)}
    except tuple(_TOLD.values()) as exc:
        told = {"raised": type(exc).__name__, "text": str(exc)}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
