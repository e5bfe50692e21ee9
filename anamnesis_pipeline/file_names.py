"""Names of files as text, whatever bytes they are made of. Systems keep bytes; a store keeps text.

A byte that is no UTF-8 becomes one character of a private range, U+F780 to U+F7FF. So do the bytes of a name that holds
such characters itself, so that each name has one text, and each text that was made here goes back to the name.
"""

import re
import unicodedata
from typing import NamedTuple

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
    """The text in Unicode's form NFC, in which names and words are compared: macOS decomposes the letters of a path, so
    that one folder has two spellings.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def name_of(raw: bytes) -> str:
    """The text of a name or path, which can be stored. Never fails."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    text = _ESCAPED.sub(lambda found: "".join(chr(_PRIVATE + byte) for byte in found[0].encode()), text)
    return _SURROGATE.sub(lambda found: chr(_PRIVATE + (ord(found[0]) & 0xFF)), text)


def bytes_of(name: str) -> bytes:
    """The bytes of a name or path: what `name_of` was given. Also takes what Python itself made of odd bytes.

    :raises ValueError: it holds half a surrogate pair or a NUL, which no name has.
    """
    if "\0" in name:
        raise ValueError("a name holds a NUL byte")
    if name.isascii():
        return name.encode()
    return _ESCAPED.sub(lambda found: chr(ord(found[0]) - _PRIVATE + 0xDC00), name).encode("utf-8", "surrogateescape")


class LogName(NamedTuple):
    """What the name of a transcript says: the session or `agent-<id>` it is of, and why Claude Code set it aside
    (`orphaned`, `superseded`); empty: it is the present one.
    """

    stem: str
    set_aside: str = ""


def log_name(path: str) -> LogName | None:
    """What the name of a Claude Code transcript says, at any depth; None for any other file.

    `<session>.jsonl` and `agent-<id>.jsonl` are the present ones. Former ones that were set aside, and not overwritten,
    are `<session>.orphaned-<time>-<suffix>.jsonl`, `<session>.jsonl.superseded-<time>` and, of 2025,
    `<session>.jsonl.orphaned-<time>`.
    """
    found = _LOG.fullmatch(path.rpartition("/")[2])
    return LogName(found["stem"], found["before"] or found["behind"] or "") if found else None


def log_stem(path: str) -> str:
    """The session or `agent-<id>` that a file's name says, also that of a former transcript; of any other file its name
    without `.jsonl` and what follows it.
    """
    found = log_name(path)
    return found.stem if found else path.rpartition("/")[2].partition(".jsonl")[0]
