"""Split bytes into complete lines, in bounded memory."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

from anamnesis_pipeline.model import BEGINS_LONG, GOES_ON, MAX_LINE_BYTES

BLOCK_BYTES = 1 << 20
FINGERPRINT_BYTES = 4096
OBJECT_BYTES = 1 << 20
"""A larger file is no description, and is not read."""
BATCH_CHARS = 4 << 20
_CUTS = (0, 1 << 10, 8 << 10, 64 << 10, 256 << 10)
"""Distances in bytes from the end of a piece of a long line at which it may be split, at the first safe boundary."""
HIDDEN = "[left out: it may be the middle of a secret]"
_BOM = b"\xef\xbb\xbf"
_UUID = re.compile(r'"uuid": ?"([^"\\]{1,64})"')
_HEAD_LINES = 50

ReadBlock = Callable[[int, int], bytes]
"""(offset, length) -> bytes; empty at the end."""
IsSeam = Callable[[int], bool]
"""Whether no secret spans an offset."""


def complete_lines(
    read: ReadBlock, offset: int, end: int, is_seam: IsSeam = lambda _: True, *, inside: bool = False
) -> Iterator[tuple[str, int]]:
    """Yield (line without its line break, offset behind it) for each complete line in [offset, end).

    A last line without a newline counts only if it is a whole JSON object; otherwise it waits. Its newline, if written
    later, is then an empty line, and empty lines are skipped. A line of more than `MAX_LINE_BYTES` without its NUL
    bytes comes in pieces, so that memory is bounded; it waits for its newline as well.

    :param inside: `offset` is behind a piece of a long line.
    """
    start = offset
    if inside:
        stop = _newline(read, offset, end)
        if stop is None:
            return
        yield from _pieces(read, offset, stop, is_seam, stop + 1, begun=True)
        start = stop + 1
    for raw, position, is_ended in _raw_lines(read, start, end):
        if not raw:
            if is_ended:
                yield from _pieces(read, start, position - 1, is_seam, position)
        elif is_ended or is_whole_record(raw[0]):
            text = [text_of(raw.pop(), first=start == 0)]
            if text[0]:
                yield text.pop(), position  # a line may have 50 MB: free it before the reader parses it
        start = position


def text_lines(read: ReadBlock, offset: int, end: int, is_seam: IsSeam = lambda _: True) -> Iterator[tuple[str, int]]:
    """Yield (line without its line break, offset behind it) for each line of a text in [offset, end), including empty
    lines and a last one without a newline. White space is unchanged; NUL bytes are dropped, and invalid UTF-8 is
    replaced. Long lines come in pieces, as in `complete_lines`.
    """
    start = offset
    for raw, position, is_ended in _raw_lines(read, offset, end):
        if raw:
            text = [raw.pop().decode("utf-8", "replace")]
            yield text.pop(), position
        else:
            yield from _pieces(read, start, position - is_ended, is_seam, position)
        start = position


def _pieces(
    read: ReadBlock, at: int, stop: int, is_seam: IsSeam, behind: int, *, begun: bool = False
) -> Iterator[tuple[str, int]]:
    """Yield (piece, offset behind it) of a long line in [at, stop), each with its mark. If no safe boundary is found,
    the text up to the next one is left out, since it may be the rest of a secret.

    :param behind: offset behind the line break.
    :param begun: `at` is behind a piece.
    """
    mark, is_open = (GOES_ON, not is_seam(at)) if begun else (BEGINS_LONG, False)
    while at < stop:
        cut, seam = stop, True
        if stop - at > BLOCK_BYTES:
            cuts = [_between_characters(read, at + BLOCK_BYTES - back) for back in _CUTS]
            found = next(filter(is_seam, cuts), None)
            cut, seam = (cuts[0], False) if found is None else (found, True)
        text = read(at, cut - at).replace(b"\0", b"").decode("utf-8", "replace")
        if text or cut == stop:
            yield mark + (HIDDEN if is_open else text), behind if cut == stop else cut
            mark = GOES_ON
        at, is_open = cut, not seam


def _between_characters(read: ReadBlock, at: int) -> int:
    """Return the offset, or the nearest one before it at which a UTF-8 character begins."""
    near = read(at - 3, 4)
    return next((at - back for back, byte in enumerate(reversed(near)) if byte & 0xC0 != 0x80), at)


def _newline(read: ReadBlock, at: int, end: int) -> int | None:
    """Return the offset of the next newline; None: there is none before `end`."""
    while at < end:
        block = read(at, min(BLOCK_BYTES, end - at))
        if not block:
            return None
        if (found := block.find(b"\n")) >= 0:
            return at + found
        at += len(block)
    return None


def _raw_lines(read: ReadBlock, offset: int, end: int) -> Iterator[tuple[list[bytes], int, bool]]:
    """Yield ([line], offset behind it, whether it has a newline). A consumer that takes the line out of its list owns
    its only reference. The list is empty for a line that is too long for memory.

    NUL bytes are dropped while reading: a crash may leave gigabytes of them in place of a line.
    """
    pending: list[bytes] = []
    position = at = offset
    while at < end:
        if sum(map(len, pending)) > MAX_LINE_BYTES:
            pending, stop = [], _newline(read, at, end)
            at = position = end if stop is None else stop + 1
            yield [], position, stop is not None
            continue
        block = read(at, min(BLOCK_BYTES, end - at))
        if not block:
            break
        first, *rest = block.split(b"\n")
        line_end = at + len(first)
        at += len(block)
        if kept := first.replace(b"\0", b""):
            pending.append(kept)
        for piece in rest:
            raw, pending = [b"".join(pending)], [kept] if (kept := piece.replace(b"\0", b"")) else []
            position = line_end + 1
            line_end += len(piece) + 1
            yield raw, position, True
    tail = [b"".join(pending)]
    if tail[0]:
        yield tail, at, False


def batches(lines: Iterator[tuple[str, int]], offset: int, most: int) -> Iterator[tuple[list[str], int, bool]]:
    """Yield (lines, offset behind them, whether it is the last batch). A batch has at most `most` lines and
    `BATCH_CHARS`, except for a single longer line. Only the last batch may be empty.
    """
    batch: list[str] = []
    size = 0
    for line, end in lines:
        if batch and (len(batch) >= most or size + len(line) > BATCH_CHARS):
            yield batch, offset, False
            batch, size = [], 0
        batch.append(line)
        size, offset = size + len(line), end
        del line  # only the batch refers to it now
    yield batch, offset, True


def whole_object(read: ReadBlock, end: int) -> Iterator[tuple[str, int]]:
    """Yield a small file that is one JSON object as one line with the offset behind it; else nothing."""
    text = text_of(read(0, min(end, OBJECT_BYTES)), first=True)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        yield text if "\n" not in text else json.dumps(value, ensure_ascii=False, separators=(",", ":")), end


def text_of(raw: bytes, *, first: bool = False) -> str:
    """Return the text of a raw line: no byte order mark, CR or NUL bytes, invalid UTF-8 replaced. Never fails."""
    if first:
        raw = raw.removeprefix(_BOM)
    text = raw.decode("utf-8", "replace")
    if "\0" in text:
        text = text.replace("\0", "")
    return text.strip(" \t\r\n")


def is_whole_record(raw: bytes) -> bool:
    """Return whether a line without a newline is a complete JSON object."""
    text = text_of(raw, first=True)
    if not text.startswith("{") or not text.endswith("}"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def fingerprint(read: ReadBlock, offset: int) -> str:
    """Return a hash of the first and last 4 KB of the `offset` bytes already read: 32 hex characters.

    It is stable while the file only grows, and changes when a file is replaced or rewritten in place, even if it has
    grown longer again. It ignores everything behind `offset`, so a torn tail may still change.
    """
    length = min(FINGERPRINT_BYTES, offset)
    digest = blake2b(digest_size=16)
    digest.update(read(0, length) if length else b"")
    digest.update(read(offset - length, length) if length else b"")
    return digest.hexdigest()


def mark_of(lines: Sequence[str]) -> str:
    """Return a 32-character hex digest of a log's first lines that its copies share.

    Copies and forks keep the uuids of records, and little else of a line. Without uuids, the first line counts.
    """
    uuids = (found[1] for line in lines[:_HEAD_LINES] if (found := _UUID.search(line)))
    return blake2b(next(uuids, lines[0]).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
