"""Decode the bytes of a text file in any charset."""

import codecs

from anamnesis_pipeline.errors import DocumentUnreadable

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 1 << 16
"""Size of the sample for guessing."""
_BAD_SHARE = 0.001
"""A text with a smaller share of invalid characters is UTF-8 that was damaged or truncated."""


def decoded(data: bytes) -> str:
    """Return the text of `data` with line feeds: by its byte order mark, else UTF-8, else UTF-16, else a guess.

    :raises DocumentUnreadable: it holds NUL characters, so it is no text.
    """
    text = _decoded(data)
    if "\0" in text:
        raise DocumentUnreadable("it holds NUL bytes, so it is no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(data: bytes) -> str:
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    wide = _utf16_without_mark(data[:4096])
    if wide:
        return data.decode(wide, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _guessed(data)


def _utf16_without_mark(head: bytes) -> str:
    """Return the UTF-16 codec of a text with a zero in nearly every second byte, as in Latin; else empty."""
    half = len(head) // 2
    if half < 2 or b"\0" not in head:
        return ""
    odd, even = head[1 : 2 * half : 2].count(0), head[0 : 2 * half : 2].count(0)
    if odd > 0.7 * half and even < 0.05 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.7 * half and odd < 0.05 * half else ""


def _guessed(data: bytes) -> str:
    as_utf8 = data.decode("utf-8", "replace")
    wide = sum(1 for character in as_utf8 if character > "\x7f")
    bad = as_utf8.count("\ufffd")
    if bad <= max(1, _BAD_SHARE * len(as_utf8)) and wide > 2 * bad:
        return as_utf8
    from charset_normalizer import from_bytes

    # the bytes around the first that are not ASCII show the charset
    first = next((n for n in range(0, len(data), 4096) if not data[n : n + 4096].isascii()), 0)
    best = from_bytes(data[max(0, first - 4096) : first + _SAMPLE_BYTES]).best()
    return data.decode(best.encoding if best else "cp1252", "replace")
