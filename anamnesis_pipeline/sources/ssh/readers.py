"""Read ranges of files on a remote host: a few SFTP sessions on its connection, each with its open files."""

import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from anamnesis_pipeline.errors import AnamnesisError, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.sources.ssh.link import SshLink, no_sftp
from anamnesis_pipeline.sources.ssh.sftp import Sftp

SESSIONS = 4
OPEN_FILES = 16
"""Open files per session."""
FILE_TIMEOUT_S = 600.0
"""For one whole use of a session; each piece has its own, shorter timeout."""


@dataclass(slots=True)
class _Session:
    connection: Any
    channel: Any
    sftp: Sftp
    age: int
    files: OrderedDict[str, tuple[bytes, int]] = field(default_factory=OrderedDict)
    """Path -> (handle, size at the last stat)."""


class SshReaders:
    """The SFTP sessions of a host. Thread-safe."""

    def __init__(self, link: SshLink) -> None:
        self._link = link
        self._free: list[_Session] = []
        self._count = 0
        self._age = 0
        self._changed = threading.Condition()

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes of a regular file; fewer only at its end.

        :raises SourceUnreadable: it is missing, not a regular file, or cannot be read.
        """
        with self._session(path) as session:
            handle, size, is_fresh = self._opened(session, path)
            if offset + length > size and not is_fresh:
                size = session.sftp.stat(path).size  # it may have grown
                session.files[path] = handle, size
            return session.sftp.read(handle, path, offset, max(0, min(length, size - offset)))

    @contextmanager
    def sftp(self) -> Iterator[Sftp]:
        """Lend a session for any other request."""
        with self._session("") as session:
            yield session.sftp

    def renew(self) -> None:
        """Drop open handles before reading a new listing: their files may have been replaced."""
        with self._changed:
            self._age += 1

    def close(self) -> None:
        """Close the sessions that are not in use."""
        with self._changed:
            sessions, self._free = self._free, []
            self._count -= len(sessions)
        for session in sessions:
            self._link.close_channel(session.channel)

    @contextmanager
    def _session(self, path: str) -> Iterator[_Session]:
        session = self._taken(path)
        is_whole = False
        try:
            with self._link.using(session.connection, FILE_TIMEOUT_S):
                if session.age != self._age:
                    self._forget(session)
                yield session
            is_whole = True
        except SourceUnreadable:
            is_whole = True
            raise
        except (struct.error, IndexError):
            raise HostUnreachable(f"{self._link.place} does not speak SFTP as it should") from None
        finally:
            self._give_back(session, is_whole)

    def _taken(self, path: str) -> _Session:
        """Return a free session, preferably with `path` open; a new one if all are in use and the limit allows it."""
        with self._changed:
            while not self._free and self._count >= SESSIONS:
                self._changed.wait()
            dead = [s for s in self._free if not s.connection.is_alive]
            self._free = [s for s in self._free if s.connection.is_alive]
            self._count += 1 - len(dead) - bool(self._free)
            session = next((s for s in self._free if path in s.files), self._free[-1] if self._free else None)
            if session is not None:
                self._free.remove(session)
        for lost in dead:
            self._link.close_channel(lost.channel)
        return session or self._made()

    def _made(self) -> _Session:
        try:
            connection, channel = self._link.open_channel(self._link.start_sftp)
            try:
                with self._link.using(connection, self._link.read_timeout_s):
                    return _Session(connection, channel, self._greeted(channel), self._age)
            except BaseException:
                self._link.close_channel(channel)
                raise
        except AnamnesisError:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise

    def _greeted(self, channel: Any) -> Sftp:
        try:
            return Sftp(channel, self._link.place)
        except (EOFError, OSError):
            channel.status_event.wait(1)
            if channel.exit_status >= 0:  # the server's SFTP program ended
                raise no_sftp(self._link.place) from None
            raise

    def _give_back(self, session: _Session, is_whole: bool) -> None:
        with self._changed:
            if is_whole:
                self._free.append(session)
            else:
                self._count -= 1
            self._changed.notify()
        if not is_whole:
            self._link.close_channel(session.channel)

    def _forget(self, session: _Session) -> None:
        for handle, _ in session.files.values():
            session.sftp.close(handle)
        session.files.clear()
        session.age = self._age

    def _opened(self, session: _Session, path: str) -> tuple[bytes, int, bool]:
        """Return (handle, size, whether it was just opened)."""
        if path in session.files:
            session.files.move_to_end(path)
            return *session.files[path], False
        found = session.sftp.stat(path)
        if not found.is_file:  # opening a pipe would block
            raise SourceUnreadable(f"cannot read the file {path}: not a regular file; check the path")
        handle = session.sftp.open(path)
        session.files[path] = handle, found.size
        if len(session.files) > OPEN_FILES:
            _, (oldest, _) = session.files.popitem(last=False)
            session.sftp.close(oldest)
        return handle, found.size, True
