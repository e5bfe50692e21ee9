"""What tells the sections of a document apart: their titles."""

import re
from collections import Counter
from collections.abc import Iterable

from anamnesis_pipeline.model import content_id

TOP = "~top"
"""The anchor of what stands before the first title. No title makes it, since `~` is doubled in those."""
MOST_TITLE_CHARS = 120

_NUMBER = re.compile(r"(?<!~)((?:~~)*)~[0-9]+$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s+\"[^\"]*\")?\)")


def plain_title(raw: str) -> str:
    """A heading's text in one line without Markdown's marks, at most 120 characters."""
    title = _LINK.sub(r"\1", raw[: 4 * MOST_TITLE_CHARS])
    title = " ".join(title.replace("**", "").replace("`", "").split())
    return title if len(title) <= MOST_TITLE_CHARS else title[: MOST_TITLE_CHARS - 1] + "…"


def anchor_of(titles: Iterable[str]) -> str:
    """The anchor that `titles`, outermost first, make; of equal ones see `told_apart`."""
    return " > ".join(_short(title) for title in titles) or TOP


def told_apart(anchors: Iterable[str]) -> list[str]:
    """The anchors in order, each equal one after the first with its number among its equals."""
    seen: Counter[str] = Counter()
    found = []
    for anchor in anchors:
        seen[anchor] += 1
        found.append(anchor if seen[anchor] == 1 else f"{anchor}~{seen[anchor]}")
    return found


def unnumbered(anchor: str) -> str:
    """The anchor without the number that `told_apart` gave it: the titles alone, which stay when equals come or go."""
    return _NUMBER.sub(r"\1", anchor)


def _short(title: str) -> str:
    kept = title if len(title) <= MOST_TITLE_CHARS else f"{title[:100]}…{content_id(title)[:8]}"
    return kept.replace("~", "~~")
