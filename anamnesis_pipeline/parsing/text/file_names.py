"""Reversible conversion of file names between bytes and text. Systems store bytes; a store keeps text.

A byte that is not UTF-8 becomes one character of a private range, U+F780 to U+F7FF. Bytes of such characters in a name
are converted as well, so that each name has exactly one text and can be restored from it.
"""

import re
import unicodedata
from typing import NamedTuple

HISTORY = "history.jsonl"
"""The prompt history, in the folder above the log root `projects`. It outlives the logs of its sessions."""

_LOG = re.compile(
    r"(?P<stem>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|agent-.*?)"
    r"(?:\.(?P<before>orphaned|superseded)-\d[\w:-]*(?:\.\d+Z?[\w-]*)?)?\.jsonl"
    r"(?:\.(?P<behind>orphaned|superseded)-\d[\w:-]*(?:\.\d+Z?)?)?",
    re.DOTALL,
)
_PRIVATE = 0xF700
_ESCAPED = re.compile("[\uf780-\uf7ff]")
_SURROGATE = re.compile("[\udc80-\udcff]")


def composed(text: str) -> str:
    """Return the text in Unicode form NFC, in which names and words are compared: macOS decomposes letters in paths,
    which gives one folder two spellings.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def name_of(raw: bytes) -> str:
    """Return the text of a name or path, for storage. Never fails."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    text = _ESCAPED.sub(lambda found: "".join(chr(_PRIVATE + byte) for byte in found[0].encode()), text)
    return _SURROGATE.sub(lambda found: chr(_PRIVATE + (ord(found[0]) & 0xFF)), text)


def bytes_of(name: str) -> bytes:
    """Return the bytes of a name or path, the inverse of `name_of`. Also accepts Python's surrogate escapes.

    :raises ValueError: it contains half a surrogate pair or a NUL, which no name has.
    """
    if "\0" in name:
        raise ValueError("a name holds a NUL byte")
    if name.isascii():
        return name.encode()
    return _ESCAPED.sub(lambda found: chr(ord(found[0]) - _PRIVATE + 0xDC00), name).encode("utf-8", "surrogateescape")


class LogName(NamedTuple):
    """Parts of a transcript's name: the session or `agent-<id>`, and why Claude Code set it aside (`orphaned`,
    `superseded`); empty: it is current.
    """

    stem: str
    set_aside: str = ""


def log_name(path: str) -> LogName | None:
    """Return the parts of a Claude Code transcript's name, at any depth; None for any other file.

    Current transcripts are `<session>.jsonl` and `agent-<id>.jsonl`. Former ones that were set aside are
    `<session>.orphaned-<time>-<suffix>.jsonl`, `<session>.jsonl.superseded-<time>` and, from 2025,
    `<session>.jsonl.orphaned-<time>`.
    """
    found = _LOG.fullmatch(path.rpartition("/")[2])
    return LogName(found["stem"], found["before"] or found["behind"] or "") if found else None


def log_stem(path: str) -> str:
    """Return the session or `agent-<id>` in a file's name, also of a former transcript; for any other file, its name up
    to `.jsonl`.
    """
    found = log_name(path)
    return found.stem if found else path.rpartition("/")[2].partition(".jsonl")[0]
