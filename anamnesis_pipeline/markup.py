"""Text without the marks of Markdown, tags and pictograms. Pure."""

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
"""Of a message: what stands for a picture, and rows of tables."""
_NUMBER = re.compile(r"\s*(\d{1,3}[.)])\s")


def plain(text: str) -> str:
    """A sentence or a line without the marks of markdown, tags and pictograms, on one line."""
    bare = _TAG.sub(" ", _LINK.sub(r"\1", _IMAGE.sub(r"\1", _ANSI.sub("", text))))
    bare = _PICTOGRAM.sub("", bare)
    bare = _BEGIN.sub("", bare.replace("**`", "`").replace("`**", "`"))
    bare = _WEAK.sub(r"\2", _STRONG.sub(r"\2", CODE.sub(r"\1", bare)))
    return " ".join(bare.replace("**", "").replace("`", "").split()).strip("*_#>| ")


def plain_marks(sentence: str) -> str:
    """A sentence without links and what marks its beginning and its stress, but with its code between backticks."""
    bare = _BEGIN.sub("", _PICTOGRAM.sub("", _LINK.sub(r"\1", sentence)))
    return " ".join(_STRONG.sub(r"\2", bare).replace("**", "").split())


def without_markup(text: str) -> str:
    """A message without code blocks, tables and marks; its lines stay, and the numbers of those in lists."""
    lines = _OTHERS.sub(" ", FENCE.sub("\n", text)).splitlines()
    return "\n".join(f"{number[1]} {plain(line)}" if (number := _NUMBER.match(line)) else plain(line) for line in lines)
