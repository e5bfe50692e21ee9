"""Convert lines to zstd frames and back. A frame may be compressed against other text that its lines repeat."""

import threading
from collections.abc import Sequence

import zstandard

LEVEL = 3
LEANING_LEVEL = 9
MAX_TABLE_LOG = 23
"""Entries of the match finder's two tables, as a power of two, 4 bytes each: one for every byte of a usual base. The
level's own tables would hold only its end.
"""
LEANING_BYTES = 16 << 10
"""Frames of at most this compressed size get no base: there is little to save."""
TEXT_BYTES = 16 << 20
"""Limit of a base and of the text compressed against it, so that reading a frame takes bounded memory."""


def packed(lines: Sequence[str]) -> bytes:
    """Compress lines without line breaks into one frame."""
    return _compressor().compress(_joined(lines))


def packed_against(base: bytes, lines: Sequence[str]) -> bytes | None:
    """Compress lines into one frame that needs the text `base` to be read. None if either text is too long."""
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
    """Return the lines of one frame.

    :raises zstandard.ZstdError: damaged, or made with another base.
    :raises UnicodeDecodeError: damaged.
    """
    reader = zstandard.ZstdDecompressor(dict_data=_dictionary(base)) if base else zstandard.ZstdDecompressor()
    return reader.decompress(frame).decode("utf-8", "surrogatepass").split("\n")


def base_text(frames: bytes) -> bytes:
    """Return the text of a sequence of frames without bases; empty if it is too long for a base.

    :raises zstandard.ZstdError: damaged.
    """
    with zstandard.ZstdDecompressor().stream_reader(frames, read_across_frames=True) as reader:
        text = reader.read(TEXT_BYTES + 1)
    return text if len(text) <= TEXT_BYTES else b""


class _Compressors(threading.local):
    """One compressor per thread: for small texts, creating one takes as long as compressing."""

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
