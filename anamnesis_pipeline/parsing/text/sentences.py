"""Sentence splitting. Pure.

A line end is a sentence end, as in lists, code and tool output, unless the next line continues the sentence, as in
wrapped prose. Abbreviations, versions, file names and text between backticks do not end a sentence.
"""

import re
from collections.abc import Iterator

Span = tuple[int, int]
"""Start and end of a run of a text, in characters."""

WRAPPED_CHARS = 50
"""Minimum length of a prose line that continues in the next."""

_LINE = re.compile(r"[^\n]*\n?")
_END = re.compile(r"(?<=[.!?])[\"'”’)\]*_]*\s+(?=\S)|(?<=[。！？])")
_WORD_ENDS = re.compile(r"(?<![\w.])[^\W\d_]{3,}\.[\"'”’)\]*_]*$|[!?][\"'”’)\]*_]*$")
"""Text before a sentence end if the next sentence begins with a small letter."""
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“])(?:e\.g|i\.e|vs|cf|approx|resp|incl|excl|nr|pp|mr|mrs|ms|dr|prof|usw|bzw"
    r"|z\.\s?b|d\.\s?h|u\.\s?a|[A-Za-z])\.$|\.\.\.$|(?:^|:)\W*\d+\.$",
    re.IGNORECASE,
)
_ITEM_NUMBER = re.compile(r"\s\d{1,2}\.\Z")
_GOES_ON = re.compile(r"[a-z(`\"“]")
_PROSE = re.compile(r"[^\W\d_].*[^\W\d_]\S{0,2} ")
_MARKED = re.compile(r"\s*(?:[-*+>|#•]|\d+[.)→:|])")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, each on one line, without runs that have no word or number."""
    found = (" ".join(text[start:end].split()) for start, end in sentence_spans(text))
    return [sentence for sentence in found if any(map(str.isalnum, sentence))]


def beginning(text: str, most: int, *, keep_lines: bool = False) -> str:
    """Return the first sentences of a text that fit into `most` characters. If these fill less than a third of that,
    cut after a word and add an ellipsis.

    :param keep_lines: False: join all lines.
    """
    text = text.strip() if keep_lines else " ".join(text.split())
    if len(text) <= most:
        return text
    ends = [end for _, end in sentence_spans(text[: most + 1])[:-1] if not _ITEM_NUMBER.search(text, 0, end)]
    if ends and ends[-1] >= most // 3:
        return text[: ends[-1]]
    return (text[: most - 1].rsplit(None, 1) or [""])[0].rstrip(" ,;:") + "\u2026"


def sentence_spans(text: str) -> list[Span]:
    """Return the spans of the sentences of a text, in order, without surrounding spaces."""
    spans = []
    for start, end in _lines(text):
        begin = start
        for match in _END.finditer(text, start, end):
            before, following = text[begin : match.start()], text[match.end() : match.end() + 1]
            if before.count("`") % 2 or _ABBREVIATION.search(before):
                continue
            if following.islower() and (not _WORD_ENDS.search(before) or before.endswith("etc.")):
                continue
            spans.append((begin, match.end()))
            begin = match.end()
        spans.append((begin, end))
    return [trimmed for span in spans if (trimmed := _trimmed(text, span))[0] < trimmed[1]]


def _lines(text: str) -> Iterator[Span]:
    """Yield the lines of a text; wrapped lines of prose count as one."""
    start, last = 0, ""
    for match in _LINE.finditer(text):
        if match.start() > start and not _continues(last, match[0]):
            yield start, match.start()
            start = match.start()
        last = match[0]
    if start < len(text):
        yield start, len(text)


def _continues(line: str, following: str) -> bool:
    """Return whether a sentence continues in the next line."""
    return (
        len(line) > WRAPPED_CHARS
        and line.rstrip()[-1:] not in ".!?:;{}[]|,)"
        and _GOES_ON.match(following.lstrip(" ")) is not None
        and not _MARKED.match(following)
        and all(_PROSE.search(each) for each in (line, following + " "))
    )


def _trimmed(text: str, span: Span) -> Span:
    found = text[span[0] : span[1]]
    return span[0] + len(found) - len(found.lstrip()), span[1] - len(found) + len(found.rstrip())
