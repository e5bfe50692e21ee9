"""Read files and folders over SFTP (version 3, which OpenSSH speaks): ranges of files, by a few sessions of a host.

paramiko's own client decodes each listed name as UTF-8 and fails on others, and starts a thread for each read-ahead;
its `Message` packs and unpacks the fields.
"""

import stat
import struct
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import paramiko
from paramiko.sftp import (
    CMD_CLOSE,
    CMD_DATA,
    CMD_INIT,
    CMD_NAME,
    CMD_OPEN,
    CMD_OPENDIR,
    CMD_READ,
    CMD_READDIR,
    CMD_REALPATH,
    CMD_STAT,
    CMD_STATUS,
    CMD_VERSION,
    SFTP_EOF,
    SFTP_FLAG_READ,
    SFTP_NO_SUCH_FILE,
    SFTP_PERMISSION_DENIED,
)

from anamnesis_pipeline.errors import AnamnesisError, HostUnreachable, SourceMissing, SourceUnreadable
from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of
from anamnesis_pipeline.sources.ssh.link import SshLink, no_sftp

PIECE_BYTES = 32 << 10
"""Size of one request: every server answers this much at once."""
ON_THE_WAY = 64
"""Requests in flight at a time."""
MAX_PACKET_BYTES = 1 << 20
SESSIONS = 4
OPEN_FILES = 16
"""Open files per session."""
FILE_TIMEOUT_S = 600.0
"""For one whole use of a session; each piece has its own, shorter timeout."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of a file as the server sends them; `mtime_s` is in seconds."""

    size: int
    mode: int
    mtime_s: int

    @property
    def is_file(self) -> bool:
        """Return whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Return whether it is a folder, not a link to one."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Return whether it is a link, with any target."""
        return stat.S_ISLNK(self.mode)


class _Answer(paramiko.Message):  # type: ignore[misc]
    """The answer to a request; `status` is None unless it is nothing but a status."""

    def __init__(self, kind: int, content: bytes) -> None:
        super().__init__(content)
        self.kind = kind
        self.number = self.get_int()
        self.status = self.get_int() if kind == CMD_STATUS else None

    def get_bytes(self, n: int) -> bytes:
        """Return the next `n` bytes; beyond the end, paramiko would give zeros.

        :raises IndexError: there are fewer.
        """
        found: bytes = self.packet.read(n)
        if len(found) < n:
            raise IndexError
        return found

    def attributes(self) -> Attributes:
        flags = self.get_int()
        size = self.get_int64() if flags & paramiko.SFTPAttributes.FLAG_SIZE else 0
        if flags & paramiko.SFTPAttributes.FLAG_UIDGID:
            self.get_bytes(8)
        mode = self.get_int() if flags & paramiko.SFTPAttributes.FLAG_PERMISSIONS else 0
        mtime = 0
        if flags & paramiko.SFTPAttributes.FLAG_AMTIME:
            self.get_bytes(4)
            mtime = self.get_int()
        for _ in range(self.get_int() * 2 if flags & paramiko.SFTPAttributes.FLAG_EXTENDED else 0):
            self.get_binary()
        return Attributes(size, mode, mtime)


class Sftp:
    """A session on a channel whose subsystem is `sftp`. Not thread-safe.

    Paths are texts by `file_names.name_of`. Every method raises `SourceMissing` or `SourceUnreadable` if the server
    refuses, paramiko's errors if the connection fails, and `IndexError` if an answer is too short.
    """

    def __init__(self, channel: Any, place: str) -> None:
        self.channel = channel
        self._place = place
        self._buffer = bytearray()
        self._last = 0
        self._write(CMD_INIT, struct.pack(">I", 3))
        kind, _ = self._packet()
        if kind != CMD_VERSION:
            raise HostUnreachable(f"{place} speaks no SFTP; check `sftp {place}`, and Subsystem in its sshd_config")

    def stat(self, path: str) -> Attributes:
        """Return the attributes of a file or folder, or of a link's target."""
        return self._ask(CMD_STAT, path).attributes()

    def real_path(self, path: str) -> str:
        """Return the absolute path without links; `.` is the home."""
        answer = self._ask(CMD_REALPATH, path)
        answer.get_int()  # the number of names, which is one
        return name_of(answer.get_binary())

    def folder(self, path: str) -> list[tuple[str, Attributes]]:
        """Return the entries of a folder with their names, without `.` and `..`; links are not followed."""
        handle = self._ask(CMD_OPENDIR, path).get_binary()
        entries: list[tuple[str, Attributes]] = []
        try:
            while True:
                answer = self._answer({self._send(CMD_READDIR, paramiko.Message().add_string(handle))})
                if answer.status == SFTP_EOF:
                    return entries
                if answer.kind != CMD_NAME:
                    raise _problem(answer, path)
                for _ in range(answer.get_int()):
                    name = answer.get_binary()
                    answer.get_binary()  # the line of `ls -l`
                    attributes = answer.attributes()
                    if name not in {b".", b".."}:
                        entries.append((name_of(name), attributes))
        finally:
            self.close(handle)

    def open(self, path: str) -> bytes:
        """Open a regular file and return its handle for `read`."""
        handle: bytes = self._ask(CMD_OPEN, path, struct.pack(">II", SFTP_FLAG_READ, 0)).get_binary()
        return handle

    def close(self, handle: bytes) -> None:
        """Close a handle without waiting for the answer."""
        self._send(CMD_CLOSE, paramiko.Message().add_string(handle))

    def read(self, handle: bytes, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes, fewer only at the end of the file."""
        pieces: list[bytes] = []
        at, end, is_over = offset, offset + length, False
        while at < end and not is_over:
            wanted: dict[int, int] = {}
            for start in range(at, min(end, at + ON_THE_WAY * PIECE_BYTES), PIECE_BYTES):
                request = paramiko.Message().add_string(handle).add_int64(start)
                wanted[self._send(CMD_READ, request.add_int(min(PIECE_BYTES, end - start)))] = start
            got: dict[int, bytes] = {}
            problem: SourceUnreadable | None = None
            for _ in range(len(wanted)):
                answer = self._answer(wanted)
                if answer.kind == CMD_DATA:
                    got[wanted[answer.number]] = answer.get_binary()
                elif answer.status != SFTP_EOF:
                    problem = problem or _problem(answer, path)
            if problem is not None:
                raise problem
            is_over = not got.get(at)
            while piece := got.get(at):  # behind a short answer, the next round asks again
                pieces.append(piece)
                at += len(piece)
        return b"".join(pieces)

    def _ask(self, kind: int, path: str, rest: bytes = b"") -> _Answer:
        """Return the answer to a request about a path. A status is an error: success has another kind here."""
        request = paramiko.Message().add_string(bytes_of(path)).add_bytes(rest)
        answer = self._answer({self._send(kind, request)})
        if answer.status is not None:
            raise _problem(answer, path)
        return answer

    def _send(self, kind: int, request: Any) -> int:
        """Send a request and return its number."""
        self._last = (self._last + 1) & 0xFFFFFFFF
        self._write(kind, struct.pack(">I", self._last) + request.asbytes())
        return self._last

    def _answer(self, wanted: Collection[int]) -> _Answer:
        """Return the next answer to one of the requests `wanted`; answers to `close` are skipped."""
        while (answer := _Answer(*self._packet())).number not in wanted:
            pass
        return answer

    def _write(self, kind: int, content: bytes) -> None:
        self.channel.sendall(struct.pack(">IB", len(content) + 1, kind) + content)

    def _packet(self) -> tuple[int, bytes]:
        """Return (kind, content) of the next packet."""
        (length,) = struct.unpack(">I", self._bytes(4))
        if not 1 <= length <= MAX_PACKET_BYTES:
            raise HostUnreachable(f"{self._place} does not speak SFTP as it should; check `sftp {self._place}`")
        packet = self._bytes(length)
        return packet[0], packet[1:]

    def _bytes(self, count: int) -> bytes:
        while len(self._buffer) < count:
            piece = self.channel.recv(1 << 18)
            if not piece:
                raise EOFError
            self._buffer += piece
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken


def _problem(answer: _Answer, path: str) -> SourceUnreadable:
    reasons = {SFTP_NO_SUCH_FILE: "no such file or directory", SFTP_PERMISSION_DENIED: "permission denied"}
    return (SourceMissing if answer.status == SFTP_NO_SUCH_FILE else SourceUnreadable)(
        f"cannot read the file {path}: {reasons.get(answer.status, 'the host says no')}; check the path and that this "
        "user may read it"
    )


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
        link.borrowers.append(self)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes of a regular file; fewer only at its end.

        :raises SourceUnreadable: it is missing, not a regular file, or cannot be read.
        """
        with self._session(path) as session:
            sftp = session.sftp
            if path in session.files:
                session.files.move_to_end(path)
                handle, size = session.files[path]
                if offset + length > size:
                    size = sftp.stat(path).size  # it may have grown
                    session.files[path] = handle, size
            else:
                found = sftp.stat(path)
                if not found.is_file:  # opening a pipe would block
                    raise SourceUnreadable(f"cannot read the file {path}: not a regular file; check the path")
                handle, size = sftp.open(path), found.size
                session.files[path] = handle, size
                if len(session.files) > OPEN_FILES:
                    _, (oldest, _) = session.files.popitem(last=False)
                    sftp.close(oldest)
            return sftp.read(handle, path, offset, max(0, min(length, size - offset)))

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
                    for handle, _ in session.files.values():
                        session.sftp.close(handle)
                    session.files.clear()
                    session.age = self._age
                yield session
            is_whole = True
        except SourceUnreadable:
            is_whole = True
            raise
        except IndexError:
            raise HostUnreachable(f"{self._link.place} does not speak SFTP as it should") from None
        finally:
            with self._changed:
                if is_whole:
                    self._free.append(session)
                else:
                    self._count -= 1
                self._changed.notify()
            if not is_whole:
                self._link.close_channel(session.channel)

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
        if session is not None:
            return session
        try:
            return self._made()
        except AnamnesisError:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise

    def _made(self) -> _Session:
        connection, channel = self._link.open_channel(None)
        try:
            with self._link.using(connection, self._link.read_timeout_s):
                try:
                    return _Session(connection, channel, Sftp(channel, self._link.place), self._age)
                except (EOFError, OSError):
                    channel.status_event.wait(1)
                    if channel.exit_status >= 0:  # the server's SFTP program ended
                        raise no_sftp(self._link.place) from None
                    raise
        except BaseException:
            self._link.close_channel(channel)
            raise
