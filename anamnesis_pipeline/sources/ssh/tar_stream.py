"""Yield the regular files from the output of GNU `tar --format=gnu` as it arrives, in bounded memory.

`tarfile` takes as long for a small file as everything else that is done with it.
"""

from collections.abc import Callable, Iterator

BLOCK_BYTES = 512
PIECE_BYTES = 1 << 18
MOST_NAME_BYTES = 1 << 16
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
        if kind == _LONG_NAME and size <= MOST_NAME_BYTES:
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
            self._held, self._at, end = self._with_more(count), 0, count
        piece, self._at = self._held[self._at : end], end
        return piece

    def content(self, size: int) -> bytes:
        """Return the content behind a header, without the padding of its last block."""
        return self.take(_padded(size))[:size]

    def pass_over(self, size: int) -> None:
        left = _padded(size)
        while left:
            left -= len(self.take(min(left, PIECE_BYTES)))

    def _with_more(self, count: int) -> bytes:
        held = bytearray(self._held[self._at :])
        while len(held) < count:
            piece = self._receive(PIECE_BYTES)
            if not piece:
                raise EOFError
            held += piece
        return bytes(held)


def _padded(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES
