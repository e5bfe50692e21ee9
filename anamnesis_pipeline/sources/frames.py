"""Lines into zstd frames and back. A frame may be compressed against other text that its lines repeat."""

import threading
from collections.abc import Sequence

import zstandard

LEVEL = 3
LEANING_LEVEL = 9
MAX_TABLE_LOG = 23
"""Entries of the match finder's two tables, as a power of two, 4 bytes each: one for every byte of a usual base, where
the level's own tables would hold the last of it only.
"""
LEANING_BYTES = 16 << 10
"""Frames that are no larger when compressed by themselves are kept so: there is little to save."""
TEXT_BYTES = 16 << 20
"""Neither a base nor what leans on it is longer, so that reading a frame takes bounded memory."""


def packed(lines: Sequence[str]) -> bytes:
    """Lines without line breaks -> one frame."""
    return _compressor().compress(_joined(lines))


def packed_against(base: bytes, lines: Sequence[str]) -> bytes | None:
    """Lines -> one frame that can be read together with the text `base` only. None when either text is too long."""
    text = _joined(lines)
    if not base or max(len(base), len(text)) > TEXT_BYTES:
        return None
    window = max(16, (len(base) + len(text)).bit_length())
    table = min(window, MAX_TABLE_LOG)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEANING_LEVEL, window_log=window, hash_log=table, chain_log=table, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters, dict_data=_dictionary(base)).compress(text)


def unpacked(frame: bytes, base: bytes | None = None) -> list[str]:
    """One frame -> its lines.

    :raises zstandard.ZstdError: damaged, or not of this base.
    :raises UnicodeDecodeError: damaged.
    """
    reader = zstandard.ZstdDecompressor(dict_data=_dictionary(base)) if base else zstandard.ZstdDecompressor()
    return reader.decompress(frame).decode("utf-8", "surrogatepass").split("\n")


def base_text(frames: bytes) -> bytes:
    """A row of frames, none of which has a base -> the text they hold; empty when it is too long for a base.

    :raises zstandard.ZstdError: damaged.
    """
    with zstandard.ZstdDecompressor().stream_reader(frames, read_across_frames=True) as reader:
        text = reader.read(TEXT_BYTES + 1)
    return text if len(text) <= TEXT_BYTES else b""


class _Compressors(threading.local):
    """One of each thread: for small texts, making one takes as long as compressing."""

    held: zstandard.ZstdCompressor | None = None


_compressors = _Compressors()


def _compressor() -> zstandard.ZstdCompressor:
    if _compressors.held is None:
        _compressors.held = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return _compressors.held


def _joined(lines: Sequence[str]) -> bytes:
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _dictionary(base: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
