"""Extraction of prose: sentences without markdown, separated from code and tool output. Pure."""

import re

from anamnesis_pipeline.parsing.text.markup import CODE, FENCE, plain, plain_marks
from anamnesis_pipeline.parsing.text.sentences import sentences
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS

LEAST_WORDS = 2
"""Minimum words of a sentence."""
MOST_SYMBOLS = 0.08
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
        len(words) >= LEAST_WORDS
        and len(_SYMBOL.findall(bare)) <= MOST_SYMBOLS * len(bare)
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
