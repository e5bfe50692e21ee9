"""Anchors identify the sections of a document by their titles."""

import re
from collections import Counter
from collections.abc import Iterable

from anamnesis_pipeline.model import content_id

TOP = "~top"
"""The anchor of the text before the first title. It matches no title, since `~` is doubled in titles."""
MAX_TITLE_CHARS = 120

_NUMBER = re.compile(r"(?<!~)((?:~~)*)~[0-9]+$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)")


def plain_title(raw: str) -> str:
    """Return a heading's text on one line without Markdown markup, at most 120 characters."""
    title = _LINK.sub(r"\1", raw[: 4 * MAX_TITLE_CHARS])
    title = " ".join(title.replace("**", "").replace("`", "").split())
    return title if len(title) <= MAX_TITLE_CHARS else title[: MAX_TITLE_CHARS - 1] + "…"


def anchor_of(titles: Iterable[str]) -> str:
    """Return the anchor for `titles`, outermost first; `told_apart` numbers equal ones."""
    return " > ".join(_short(title) for title in titles) or TOP


def told_apart(anchors: Iterable[str]) -> list[str]:
    """Return the anchors in order; each repeated one gets its number among its equals."""
    seen: Counter[str] = Counter()
    found = []
    for anchor in anchors:
        seen[anchor] += 1
        found.append(anchor if seen[anchor] == 1 else f"{anchor}~{seen[anchor]}")
    return found


def unnumbered(anchor: str) -> str:
    """Return the anchor without its number from `told_apart`: the titles alone, which stay when equals come or go."""
    return _NUMBER.sub(r"\1", anchor)


def _short(title: str) -> str:
    kept = title if len(title) <= MAX_TITLE_CHARS else f"{title[:100]}…{content_id(title)[:8]}"
    return kept.replace("~", "~~")
