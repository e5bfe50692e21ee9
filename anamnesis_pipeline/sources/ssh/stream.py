"""Stream many small files of a remote host: `tar` of just these, in reading order and ahead of the reader."""

import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of
from anamnesis_pipeline.sources.base import Read
from anamnesis_pipeline.sources.ssh.link import SshLink
from anamnesis_pipeline.sources.ssh.sftp import SESSIONS

BLOCK_BYTES = 512
PIECE_BYTES = 1 << 18
MAX_NAME_BYTES = 1 << 16
_NAME, _SIZE, _CHECKSUM, _TYPE = slice(0, 100), slice(124, 136), slice(148, 156), slice(156, 157)
_REGULAR, _LONG_NAME, _LONG_TARGET = {b"0", b"\0"}, b"L", b"K"
_OTHERS = {b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"S", _LONG_TARGET}
"""Links, devices, folders and pipes, whose content is skipped."""
_WIDE = 0x80
"""First byte of a number with too many digits for octal."""


def regular_files(receive: Callable[[int], bytes], most_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (path, content) of each whole regular file; files larger than `most_bytes` are skipped.

    :param receive: returns the next bytes of the stream, at most the given number; empty at its end.
    :raises EOFError: the stream is cut off, or is not from `tar`.
    """
    stream = _Stream(receive)
    name: bytes | None = None
    while (header := stream.take(BLOCK_BYTES)).strip(b"\0"):
        size, kind = _checked(header), header[_TYPE]
        if kind == _LONG_NAME and size <= MAX_NAME_BYTES:
            name = stream.content(size).rstrip(b"\0")
        elif kind in _REGULAR and size <= most_bytes:
            yield name if name is not None else header[_NAME].partition(b"\0")[0], stream.content(size)
            name = None
        elif kind in _REGULAR or kind in _OTHERS:
            stream.pass_over(size)
            name = name if kind == _LONG_TARGET else None
        else:
            raise EOFError


def _checked(header: bytes) -> int:
    """Return the size in a header.

    :raises EOFError: it is no header.
    """
    try:
        if int(header[_CHECKSUM].strip(b" \0"), 8) != sum(header) - sum(header[_CHECKSUM]) + 8 * ord(" "):
            raise EOFError
        size = header[_SIZE]
        return int.from_bytes(size[1:], "big") if size[0] == _WIDE else int(size.strip(b" \0"), 8)
    except ValueError:
        raise EOFError from None


class _Stream:
    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive
        self._held, self._at = b"", 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._held):
            held = bytearray(self._held[self._at :])
            while len(held) < count:
                received = self._receive(PIECE_BYTES)
                if not received:
                    raise EOFError
                held += received
            self._held, self._at, end = bytes(held), 0, count
        piece, self._at = self._held[self._at : end], end
        return piece

    def content(self, size: int) -> bytes:
        """Return the content behind a header, without the padding of its last block."""
        return self.take(_padded(size))[:size]

    def pass_over(self, size: int) -> None:
        left = _padded(size)
        while left:
            left -= len(self.take(min(left, PIECE_BYTES)))


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


SMALL_BYTES = 1 << 20
"""Larger files are read in ranges."""
GROWN_BYTES = 8 << 20
"""A file that has grown beyond this since it was listed is not taken from the stream."""
BUFFER_BYTES = 32 << 20
"""Size of the files that wait for their reader."""
HANDFUL_BYTES = 128 << 10
"""Size of one batch for the reader."""
LIST_FILES = 20_000
"""Files per stream, so that a list of any length takes bounded memory on the host."""

_TAR = (
    "LC_ALL=C exec tar --create --file=- --format=gnu --blocking-factor=64 --absolute-names --dereference "
    "--hard-dereference --ignore-failed-read --no-recursion --null --files-from=- 2>/dev/null"
)
_COMMAND = f"exec sh -c {shlex.quote(_TAR)}"


class Fetching:
    """Reads files that are read whole and in order from streams, all others by `read`. Thread-safe.

    Files stay in memory within a limit, and can be read again.
    """

    def __init__(self, link: SshLink, read: Read, files: Sequence[tuple[str, int]]) -> None:
        """:param read: reads a range of a file that is not in a stream.
        :param files: (absolute path, size) in the order they will be read.
        """
        self._link = link
        self._read_range = read
        small = list(dict.fromkeys(path for path, size in files if size <= SMALL_BYTES))
        self._files = small
        self._number = {path: number for number, path in enumerate(small)}
        self._changed = threading.Condition()
        self._arrived: dict[int, bytes] = {}
        self._bytes = 0
        self._decided = 0
        """Files below this number have arrived, or will not come in a stream."""
        self._reading = 0
        self._problem: HostRefused | HostUnreachable | None = None
        self._is_left = False
        self._thread = threading.Thread(target=self._fetch, name=f"fetching {link.place}", daemon=True)

    def __enter__(self) -> Read:
        """Start the stream."""
        if len(self._files) > 1:
            self._thread.start()
        else:
            self._decided = len(self._files)
        return self._read

    def __exit__(self, *problem: object) -> None:
        """Stop the stream without waiting for the rest."""
        with self._changed:
            self._is_left = True
            self._arrived.clear()
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _read(self, path: str, offset: int, length: int) -> bytes:
        number = self._number.get(path)
        if number is not None:
            with self._changed:
                if number > self._reading:
                    self._reading = number
                    self._changed.notify_all()
                while number >= self._decided and self._problem is None:
                    self._changed.wait()
                data = self._arrived.get(number)
                if data is None and number >= self._decided and self._problem is not None:
                    raise type(self._problem)(str(self._problem))
            if data is not None:
                return data[offset : offset + length]
        return self._read_range(path, offset, length)

    def _fetch(self) -> None:
        try:
            first = 0
            while first < len(self._files) and not self._is_left:
                batch = self._files[first : first + LIST_FILES]
                if not self._streamed(batch):
                    self._read_apart(first)
                    break
                first += len(batch)
                self._decide(first)
        except (HostRefused, HostUnreachable) as problem:
            self._fail(problem)
        except Exception as problem:  # a thread that waits for the bytes would never return
            self._fail(HostUnreachable(f"reading from {self._link.place} failed ({type(problem).__name__})"))

    def _fail(self, problem: HostRefused | HostUnreachable) -> None:
        with self._changed:
            self._problem = problem
            self._changed.notify_all()

    def _decide(self, number: int) -> None:
        with self._changed:
            self._decided = max(self._decided, number)
            self._changed.notify_all()

    def _streamed(self, batch: Sequence[str]) -> bool:
        """Receive the stream of some files. Return False if the host has no usable `tar`."""
        listed = b"".join(bytes_of(path) + b"\0" for path in batch)
        is_any = False
        start = self._link.channel(_COMMAND, float("inf"))
        with ThreadPoolExecutor(1, thread_name_prefix="listing") as sender, start as channel:
            sender.submit(channel.sendall, listed)  # files may come back before the whole list is read
            sender.submit(channel.shutdown_write)
            try:
                for files in _handfuls(regular_files(channel.recv, GROWN_BYTES)):
                    is_any = True
                    numbered = [(self._number.get(name_of(path)), data) for path, data in files]
                    if not self._take([(number, data) for number, data in numbered if number is not None]):
                        return True
            except EOFError:
                if is_any:
                    raise
            channel.status_event.wait(self._link.read_timeout_s)
            if channel.exit_status < 0:
                raise EOFError
            return is_any or channel.exit_status == 0

    def _take(self, files: Sequence[tuple[int, bytes]]) -> bool:
        """Store files for their reader, by number. Return False if none will come."""
        whole = [(number, data) for number, data in files if is_whole(data)]
        size = sum(len(data) for _, data in whole)
        with self._changed:
            while not self._is_left:
                oldest = next(iter(self._arrived), None)
                if oldest is None or self._bytes + size <= BUFFER_BYTES:
                    break
                if oldest < self._reading:  # its reader has gone on
                    self._bytes -= len(self._arrived.pop(oldest))
                else:
                    self._changed.wait()
            if not self._is_left:
                self._arrived.update(whole)
                self._bytes += size
        self._decide(max((number + 1 for number, _ in files), default=0))
        return not self._is_left

    def _read_apart(self, first: int) -> None:
        """Read the rest one by one, several at a time."""
        with ThreadPoolExecutor(SESSIONS, thread_name_prefix="sftp") as pool:
            for start in range(first, len(self._files), 2 * SESSIONS):
                numbers = range(start, min(start + 2 * SESSIONS, len(self._files)))
                found = pool.map(self._whole, (self._files[number] for number in numbers))
                here = zip(numbers, found, strict=True)
                if not self._take([(number, data) for number, data in here if data is not None]):
                    return
                self._decide(numbers.stop)

    def _whole(self, path: str) -> bytes | None:
        try:
            return self._read_range(path, 0, GROWN_BYTES)
        except SourceUnreadable:  # its reader gets the error
            return None


def is_whole(data: bytes) -> bool:
    """Return whether a file from a stream is intact. `tar` fills a file that shrinks while it is read with zeros, so
    one that ends in zeros is read in ranges: a matching size now would prove nothing.
    """
    return not data.endswith(b"\0")


def _handfuls(members: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield batches, since waking the reader costs as much as reading a small file."""
    some: list[tuple[bytes, bytes]] = []
    size = 0
    for path, data in members:
        some.append((path, data))
        size += len(data)
        if size >= HANDFUL_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
