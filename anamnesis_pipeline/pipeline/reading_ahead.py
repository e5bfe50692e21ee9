"""Prefetching of the ends of grown logs: on a remote host each read is a round trip."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager

from anamnesis_pipeline.sources.base import Read
from anamnesis_pipeline.sources.lines import BLOCK_BYTES, FINGERPRINT_BYTES

AT_ONCE = 4
AHEAD_FILES = 8
"""Max prefetched files, each with little more than one block."""

Ranges = Sequence[tuple[int, int]]
"""(offset, length) each."""


def ranges_of_grown(offset: int, size: int) -> Ranges:
    """Return the ranges to read of a log of `size` bytes that was read up to `offset`: both fingerprints, and at most
    one block of new bytes. Pure.
    """
    begin, end = max(0, offset - FINGERPRINT_BYTES), min(size, offset + BLOCK_BYTES)
    if begin <= FINGERPRINT_BYTES:
        return [(0, end)]
    return [(0, FINGERPRINT_BYTES), (begin, end - begin)]


@contextmanager
def reading_ahead(read: Read, files: Sequence[tuple[str, Ranges]]) -> Iterator[Read]:
    """Yield a read function, for one thread, that prefetches these ranges of these files in this order; other reads go
    to `read`. Errors are raised when the affected range is read.

    :param files: (absolute path, ranges) each.
    """
    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="reading ahead")
    try:
        yield _Ahead(read, files, pool).read
    finally:
        pool.shutdown(cancel_futures=True)


class _Ahead:
    def __init__(self, read: Read, files: Sequence[tuple[str, Ranges]], pool: Executor) -> None:
        self._read = read
        self._files = files
        self._pool = pool
        self._number = {path: number for number, (path, _) in enumerate(files)}
        self._coming: dict[int, Future[list[bytes]]] = {}
        self._asked = 0
        """Files below this number were requested or skipped."""

    def read(self, path: str, offset: int, length: int) -> bytes:
        number = self._number.get(path)
        if number is not None:
            self._move_to(number)
            if number in self._coming:
                found = zip(self._files[number][1], self._coming[number].result(), strict=True)
                for (start, count), data in found:
                    if start <= offset and offset + length <= start + count:
                        return data[offset - start : offset - start + length]
        return self._read(path, offset, length)

    def _move_to(self, number: int) -> None:
        """Drop the files before this one, and prefetch the next ones."""
        for passed in [each for each in self._coming if each < number]:
            self._coming.pop(passed).cancel()
        until = min(number + AHEAD_FILES, len(self._files))
        for each in range(max(self._asked, number), until):
            self._coming[each] = self._pool.submit(self._ranges, *self._files[each])
        self._asked = max(self._asked, until)

    def _ranges(self, path: str, ranges: Ranges) -> list[bytes]:
        return [self._read(path, offset, length) for offset, length in ranges]
