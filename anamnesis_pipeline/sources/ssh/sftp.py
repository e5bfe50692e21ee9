"""Read files and folders over SFTP (version 3, which OpenSSH speaks), with many requests in flight.

paramiko's own client decodes names as UTF-8 and fails on others, and starts a thread for each read-ahead.
"""

import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anamnesis_pipeline.errors import HostUnreachable, SourceMissing, SourceUnreadable
from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of

PIECE_BYTES = 32 << 10
"""Size of one request: every server answers this much at once."""
ON_THE_WAY = 64
"""Requests in flight at a time."""
MAX_PACKET_BYTES = 1 << 20

_INIT, _VERSION, _OPEN, _CLOSE, _READ = 1, 2, 3, 4, 5
_OPENDIR, _READDIR, _REALPATH, _STAT = 11, 12, 16, 17
_STATUS, _HANDLE, _DATA, _NAME, _ATTRS = 101, 102, 103, 104, 105
_END, _NO_SUCH_FILE, _DENIED = 1, 2, 3
_SIZE, _OWNER, _MODE, _TIMES, _EXTENDED = 1, 2, 4, 8, 1 << 31
_READ_ONLY = 1


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


class Sftp:
    """A session on a channel whose subsystem is `sftp`. Not thread-safe.

    Paths are texts by `file_names.name_of`. Every method raises `SourceMissing` or `SourceUnreadable` if the server
    refuses, and paramiko's errors if the connection fails.
    """

    def __init__(self, channel: Any, place: str) -> None:
        self.channel = channel
        self._place = place
        self._buffer = bytearray()
        self._last = 0
        self._send(_INIT, struct.pack(">I", 3))
        kind, _ = self._packet()
        if kind != _VERSION:
            raise HostUnreachable(f"{place} speaks no SFTP; check `sftp {place}`, and Subsystem in its sshd_config")

    def stat(self, path: str) -> Attributes:
        """Return the attributes of a file or folder, or of a link's target."""
        _, answer = self._ask(_STAT, _string(bytes_of(path)), path)
        return _Fields(answer).attributes()

    def real_path(self, path: str) -> str:
        """Return the absolute path without links; `.` is the home."""
        _, answer = self._ask(_REALPATH, _string(bytes_of(path)), path)
        return name_of(_Fields(answer, 4).string())

    def folder(self, path: str) -> list[tuple[str, Attributes]]:
        """Return the entries of a folder with their names, without `.` and `..`; links are not followed."""
        _, answer = self._ask(_OPENDIR, _string(bytes_of(path)), path)
        handle = _Fields(answer).string()
        entries: list[tuple[str, Attributes]] = []
        try:
            while (page := self._page(handle, path)) is not None:
                entries += page
        finally:
            self.close(handle)
        return entries

    def open(self, path: str) -> bytes:
        """Open a regular file and return its handle for `read`."""
        _, answer = self._ask(_OPEN, _string(bytes_of(path)) + struct.pack(">II", _READ_ONLY, 0), path)
        return _Fields(answer).string()

    def close(self, handle: bytes) -> None:
        """Close a handle without waiting for the answer."""
        self._send(_CLOSE, self._numbered() + _string(handle))

    def read(self, handle: bytes, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes, fewer only at the end of the file."""
        pieces: list[bytes] = []
        at, end = offset, offset + length
        while at < end:
            data = self._read_train(handle, path, at, min(end, at + ON_THE_WAY * PIECE_BYTES))
            pieces.append(data)
            at += len(data)
            if not data:
                break
        return b"".join(pieces)

    def _read_train(self, handle: bytes, path: str, start: int, end: int) -> bytes:
        """Return the bytes of [start, end) up to the first short answer."""
        wanted: dict[int, tuple[int, int]] = {}
        for at in range(start, end, PIECE_BYTES):
            length = min(PIECE_BYTES, end - at)
            self._send(_READ, self._numbered() + _string(handle) + struct.pack(">QI", at, length))
            wanted[self._last] = at, length
        got: dict[int, bytes] = {}
        problem: SourceUnreadable | None = None
        for _ in range(len(wanted)):
            number, kind, answer = self._answer(wanted)
            at, _length = wanted[number]
            if kind == _DATA:
                got[at] = _Fields(answer).string()
            elif kind != _STATUS or _Fields(answer).number() != _END:
                problem = problem or _problem(kind, answer, path)
        if problem is not None:
            raise problem
        return b"".join(_in_a_row(got, start))

    def _page(self, handle: bytes, path: str) -> list[tuple[str, Attributes]] | None:
        """Return the next entries of a folder; None: there are no more."""
        self._send(_READDIR, self._numbered() + _string(handle))
        _, kind, answer = self._answer({self._last: None})
        fields = _Fields(answer)
        if kind == _STATUS and fields.number() == _END:
            return None
        if kind != _NAME:
            raise _problem(kind, answer, path)
        entries = []
        for _ in range(fields.number()):
            name = fields.string()
            fields.string()  # the line of `ls -l`
            attributes = fields.attributes()
            if name not in {b".", b".."}:
                entries.append((name_of(name), attributes))
        return entries

    def _ask(self, request: int, payload: bytes, path: str) -> tuple[int, bytes]:
        """Return (kind, content) of a request's one answer. A status is an error: success has another kind here."""
        self._send(request, self._numbered() + payload)
        _, kind, answer = self._answer({self._last: None})
        if kind == _STATUS:
            raise _problem(kind, answer, path)
        return kind, answer

    def _numbered(self) -> bytes:
        self._last = (self._last + 1) & 0xFFFFFFFF
        return struct.pack(">I", self._last)

    def _answer(self, wanted: "dict[int, Any]") -> tuple[int, int, bytes]:
        """Return (number, kind, content) of the next answer to one of `wanted`; answers to `close` are skipped."""
        while True:
            kind, content = self._packet()
            (number,) = struct.unpack_from(">I", content)
            if number in wanted:
                return number, kind, content[4:]

    def _send(self, kind: int, content: bytes) -> None:
        self.channel.sendall(struct.pack(">IB", len(content) + 1, kind) + content)

    def _packet(self) -> tuple[int, bytes]:
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


class _Fields:
    """Reader of an answer's fields, from its start."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self._content = content
        self._at = at

    def number(self) -> int:
        return int(self._taken(">I"))

    def string(self) -> bytes:
        length = self.number()
        self._at += length
        return self._content[self._at - length : self._at]

    def attributes(self) -> Attributes:
        flags = self.number()
        size = self._taken(">Q") if flags & _SIZE else 0
        if flags & _OWNER:
            self._at += 8
        mode = self.number() if flags & _MODE else 0
        mtime = 0
        if flags & _TIMES:
            self._at += 4
            mtime = self.number()
        for _ in range(self.number() * 2 if flags & _EXTENDED else 0):
            self.string()
        return Attributes(size, mode, mtime)

    def _taken(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return int(value)


def _in_a_row(got: dict[int, bytes], start: int) -> Iterator[bytes]:
    at = start
    while piece := got.get(at):
        yield piece
        at += len(piece)


def _string(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def _problem(kind: int, answer: bytes, path: str) -> SourceUnreadable:
    code = _Fields(answer).number() if kind == _STATUS else 0
    reason = {_NO_SUCH_FILE: "no such file or directory", _DENIED: "permission denied"}.get(code, "the host says no")
    return (SourceMissing if code == _NO_SUCH_FILE else SourceUnreadable)(
        f"cannot read the file {path}: {reason}; check the path and that this user may read it"
    )
