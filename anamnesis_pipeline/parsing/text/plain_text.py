"""Extraction of prose: sentences without markdown, separated from code and tool output. Pure."""

import re

from anamnesis_pipeline.parsing.text.sentences import sentences
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

MIN_WORDS = 2
"""Minimum words of a sentence."""
MAX_SYMBOLS = 0.08
"""Max share of symbols in a sentence; a higher share means code or tool output."""

_ELEMENT = re.compile(r"<(system-reminder|command-[a-z]+|local-command-[a-z]+|[a-z]+-[a-z-]+)>.*?</\1>", re.DOTALL)
_SYMBOL = re.compile(r"[{}\[\]<>=|\\_@#$%^&*~;+\"]")
_WORD = re.compile(r"[^\W\d_][^\W\d_'’-]*")
_NUMBERED = re.compile(r"^\s*\d+(?:\s*[→|:]|-(?=\S))")
_PATH = re.compile(r"(?:~|\.{0,2})/[^\s:,;()]+|(?:[\w.@-]+/){2,}[^\s:,;()]*|[A-Za-z]:\\\S+")
_DRAWN = re.compile("[\u2500-\u259f\u2800-\u28ff]")
_CODE_LINE = re.compile(
    r"""\{"|"\}|=>|->|\(\)|::|:=|==|\|\||&&|;$|^\s*[@$]\w|^\s*(?:def|defp|fn|const|let|var|import|from|export|return|end|do)\b
    (?!\s+(?:me|us|the|a|an|of|it|that|this|my|your)\b)|\w\(\w*\)|\w+\.\w+\(|\w\([^()]*,$|^\w+\s?=\s?\S|--\w+=|/\*|\*/""",
    re.VERBOSE,
)
_FIELD = re.compile(
    r"^\s*(?:file_path|notebook_path|path|command|description|replace_all|pattern|glob|output_mode|old_string|new_string"
    r"|content|prompt|url|query|todos|subagent_type|timeout|limit|offset|status|activeForm|run_in_background|type|id|head_limit"
    r"|-[nABCi])\s*:"
)
_TOOL_LINE = re.compile(
    r"^(?:The file \S+ has been (?:updated|created)|File created successfully|Here's the result of running `?cat"
    r"|Exit code \d|Todos have been modified|Found \d+ (?:files?|lines?)|No (?:files|matches) found"
    r"|Web search results for query|Compiling \d"
    r"|Generated \w+ app|Command running in background|Co-Authored-By|Links: \[|\(Results are truncated|create mode \d"
    r"|(?:Bash|Edit|MultiEdit|Write|Read|Grep|Glob|Task|TodoWrite|WebFetch|WebSearch)\s*(?:$|[a-z_-]+:))"
)


def prose(text: str) -> list[str]:
    """Return the plain sentences that people wrote in a text, without code and tool output."""
    said = FENCE.sub("\n", _ELEMENT.sub("\n", text))
    return [bare for sentence in sentences(said) if is_prose(sentence) and (bare := plain(sentence))]


def is_prose(sentence: str) -> bool:
    """Return whether a text is a sentence, not a line of code, of a table, or of tool input or output."""
    if _NUMBERED.match(sentence) or _FIELD.match(sentence) or _TOOL_LINE.match(sentence) or _DRAWN.search(sentence):
        return False
    bare = CODE.sub("x", _PATH.sub("x", plain_marks(sentence)))
    if "\x1b" in sentence or _CODE_LINE.search(bare) or bare.lstrip().startswith("|"):
        return False
    words = _WORD.findall(bare)
    return (
        len(words) >= MIN_WORDS
        and len(_SYMBOL.findall(bare)) <= MAX_SYMBOLS * len(bare)
        and sum(map(len, words)) >= 0.55 * len(bare.replace(" ", ""))
        and bare.count("x") < len(words)
    )


def content_words_of(sentence: str) -> list[str]:
    """Return the words of a sentence that carry meaning."""
    return [word for word in map(str.lower, _WORD.findall(sentence)) if word not in STOP_WORDS and len(word) > 1]


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text on one line, cut at a space, with an ellipsis if truncated."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rsplit(" ", 1)[0].rstrip(",;:.-– ") + "…"


# --- markup ----------------------------------------------------------------------------------------------

# Removal of Markdown, tags and pictograms from text. Pure.

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
