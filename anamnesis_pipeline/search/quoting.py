"""Quote stored text for Claude: one fenced block that no stored text can close or forge. Pure."""

import re
import unicodedata
from collections.abc import Iterable

from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS, MEMORY_PREFACES, MEMORY_TAG

PREFACE = MEMORY_PREFACES[0]
MAX_CHARS = 20_000
"""Length limit of a quoted text; shown texts are far shorter."""
LABEL_CHARS = 80
"""Length limit of the name of a project, machine, kind or file."""

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|\x1b[@-Z\\^_]"
)
_TAG_OPENS = re.compile(
    r"[<\uff1c\ufe64](?=\s*/|[!?|:]|[^\W\d]|\s+[^\W\d][\w:.-]{0,80}\s*(?:/\s*)?[>\uff1e\ufe65]"
    r"|\s+[^\W\d][\w:.-]{0,80}\s+[\w:.-]{1,80}\s*=)"
)
"""Also matches spaces inside, if only a name and attributes are between the brackets: `a < b` is no tag."""
_OWN_TAG = re.compile(re.escape(MEMORY_TAG).replace(r"\-", r"[-_\u00ad\u2010-\u2015\u2212\ufe63\uff0d]"), re.IGNORECASE)
_CODE_FENCE = re.compile(r"`{3,}|~{3,}")
_QUOTE_MARKS = re.compile("[\u201c\u201d\u201e\u201f]")
_NOT_IN_LABEL = re.compile(r"[^\w./~@+ :\\-]|:(?![/\\])")
_NOT_IN_ID = re.compile(r"[^\w./~@+:=#-]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Unicode categories of invisible or misleading characters."""
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Invisible characters of other categories: joiners, fillers and variation selectors."""


def defused(text: str) -> str:
    """Return a text as answers to a model show it, with its lines: without control, invisible and direction-changing
    characters and ANSI sequences. Tags, code fences and our own markers are broken, so that none opens or closes.
    """
    shown = _ANSI.sub(" ", text.replace("\r\n", "\n").replace("\r", "\n"))
    if not shown.isascii() or not shown.isprintable():
        shown = "".join(map(_seen, _BLANK.sub("", shown)))
    return without_own_tag(_CODE_FENCE.sub("'''", _TAG_OPENS.sub("\u2039", shown)))


def one_line(text: str) -> str:
    """Return a text for use between quotation marks: defused, on one line, without such marks inside."""
    return _QUOTE_MARKS.sub('"', " ".join(defused(text[:MAX_CHARS]).split()))


def without_own_tag(text: str) -> str:
    """Break the name of our block in a text, so that the text cannot begin or end one."""
    return _OWN_TAG.sub(MEMORY_TAG.replace("-", " "), text)


def label(text: str, most: int = LABEL_CHARS) -> str:
    """Return a name for use beside a quote. It cannot imitate another field; a longer one is shortened to its end."""
    plain = _NOT_IN_LABEL.sub("_", one_line(text))
    return plain if len(plain) <= most else "\u2026" + plain[1 - most :]


def id_label(text: str) -> str:
    """Return an ID for use in brackets."""
    return _NOT_IN_ID.sub("_", one_line(text))


def quoted(text: str) -> str:
    """Quote a text with marks that it does not contain. Only for the output of `one_line`."""
    return f"\u201c{text}\u201d"


def fenced(lines: Iterable[str]) -> str:
    """Return the block that ingest recognizes and drops; empty without lines. Stored text in them must be quoted."""
    body = "\n".join(lines)
    return "\n".join((MEMORY_BEGINS, PREFACE, body, MEMORY_ENDS)) if body else ""


def _seen(character: str) -> str:
    if character in "\n\t":
        return character
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    if category == "Cc":
        return " "
    return "" if category in _UNSEEN else character
