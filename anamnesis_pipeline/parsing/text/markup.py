"""Removal of Markdown, tags and pictograms from text. Pure."""

import re

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]?|[\x00-\x08\x0b-\x1f\x7f]")
FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_IMAGE, _LINK = re.compile(r"!\[([^\]\n]*)\]\([^)\n]*\)"), re.compile(r"\[([^\]\n]+)\]\([^)\s]*\)")
_TAG = re.compile(r"</?[A-Za-z][\w:.-]*(?:\s[^<>\n]*)?/?>")
_BEGIN = re.compile(r"^(?:\s|[-*+•>#|]+(?=\s)|\[[ xX]\]\s|\d{1,3}[.)]\s)+")
_STRONG = re.compile(r"(\*\*\*|\*\*|__|~~)(?=\S)(.+?)(?<=\S)\1")
_WEAK = re.compile(r"(?<![\w*])([*_])(?=[^\s*_])([^*_\n]+?)(?<=\S)\1(?![\w*])")
CODE = re.compile(r"`+([^`\n]*)`+")
_PICTOGRAM = re.compile("[\u2190-\u21ff\u2300-\u23ff\u2460-\u27bf\u2b00-\u2bff\ufe0f\U0001f000-\U0001faff]")
_OTHERS = re.compile(r"\[(?:image|document|Image #)[^\]\n]*\]|^\s*\|[^\n]*\|\s*$", re.MULTILINE)
"""Placeholders of pictures, and table rows, in a message."""
_NUMBER = re.compile(r"\s*(\d{1,3}[.)])\s")


def plain(text: str) -> str:
    """Return a sentence or a line on one line, without Markdown, tags and pictograms."""
    bare = _TAG.sub(" ", _LINK.sub(r"\1", _IMAGE.sub(r"\1", _ANSI.sub("", text))))
    bare = _PICTOGRAM.sub("", bare)
    bare = _BEGIN.sub("", bare.replace("**`", "`").replace("`**", "`"))
    bare = _WEAK.sub(r"\2", _STRONG.sub(r"\2", CODE.sub(r"\1", bare)))
    return " ".join(bare.replace("**", "").replace("`", "").split()).strip("*_#>| ")


def plain_marks(sentence: str) -> str:
    """Return a sentence without links, list marks and emphasis; code keeps its backticks."""
    bare = _BEGIN.sub("", _PICTOGRAM.sub("", _LINK.sub(r"\1", sentence)))
    return " ".join(_STRONG.sub(r"\2", bare).replace("**", "").split())


def without_markup(text: str) -> str:
    """Return a message without code blocks, tables and marks; it keeps its lines and list numbers."""
    lines = _OTHERS.sub(" ", FENCE.sub("\n", text)).splitlines()
    return "\n".join(f"{number[1]} {plain(line)}" if (number := _NUMBER.match(line)) else plain(line) for line in lines)
