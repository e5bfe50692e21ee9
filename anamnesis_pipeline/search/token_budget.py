"""Count tokens, and select the quotes that fit a budget. Pure except for the tokenizer.

Tokens are the word pieces that delimit passages. An unbroken run that the tokenizer does not know is one piece of any
length; here it counts by its bytes, as for Claude.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.parsing.text.sentences import sentence_spans, sentences
from anamnesis_pipeline.parsing.text.unspaced_scripts import words_in
from anamnesis_pipeline.search.context_items import Item, common_place, line_of, line_of_place
from anamnesis_pipeline.search.quoting import fenced, one_line

WORD_BYTES = 16
"""A longer piece counts one token for every BYTES_PER_TOKEN bytes."""
BYTES_PER_TOKEN = 4

MIN_QUOTE = 12
"""Budget in tokens below which no sentence is quoted."""
MIN_CUT = 50
"""Budget in tokens below which a sentence is left out instead of truncated."""
MAX_BLOCK_CHARS = 9_000
"""Claude Code truncates a hook's output at 10,000 characters; a block without its end would be stored as a text."""

_ITEM_END = re.compile(r"(?<=;)\s+|\s+(?=\| [A-Z])")


@dataclass(frozen=True, slots=True)
class Section:
    """Quotes under a heading, the most important first; an empty heading is not shown."""

    heading: str
    items: Sequence[Item]
    most_tokens: int
    """Limit per quote."""
    is_whole: bool = False
    """Quotes are whole sentences from the beginning and the end of an item, and longer where the budget allows."""
    waits: int = 0
    """Number of items of every other section that are selected before this one's first."""


@dataclass(frozen=True, slots=True)
class Block:
    """A finished block: its text, its total tokens, and its items in order."""

    text: str = ""
    tokens: int = 0
    items: tuple[Item, ...] = ()


def count_tokens(text: str, pieces: PieceCounter) -> int:
    """Return the number of tokens of a text."""
    return counted_tokens([text], pieces)[0]


def counted_tokens(texts: Sequence[str], pieces: PieceCounter) -> list[int]:
    """Return the number of tokens of each text."""
    found = zip(texts, pieces.spans(texts), strict=True)
    return [sum(_cost(text[start:end]) for start, end in spans) for text, spans in found]


def _cost(piece: str) -> int:
    size = len(piece.encode("utf-8", "replace"))
    return 1 if size <= WORD_BYTES else -(-size // BYTES_PER_TOKEN)


def shortened(text: str, most: int, words: Collection[str], pieces: PieceCounter) -> str:
    """Return at most `most` tokens around the sentence with the most of `words`; omissions are marked with …

    :param text: on one line.
    """
    spans = [(start, end, _cost(text[start:end])) for start, end in pieces.spans([text])[0]]
    if sum(cost for _, _, cost in spans) <= most:
        return text
    begin = _best_begin(text, words)
    first = next((n for n, (start, _, _) in enumerate(spans) if start >= begin), 0)
    left, last = most - 2, first
    while last < len(spans) and spans[last][2] <= left:
        left -= spans[last][2]
        last += 1
    while first > 0 and last == len(spans) and spans[first - 1][2] <= left:  # end reached: take earlier words
        first -= 1
        left -= spans[first][2]
    if last == first:
        return ""
    return _between(text, spans[first][0], spans[last - 1][1])


def whole_sentences(text: str, most: int, pieces: PieceCounter) -> str:
    """Return at most `most` tokens in whole sentences, alternately from the beginning and the end, with an ellipsis
    between them. A longer first sentence is truncated, or left out if `most` is small.

    :param text: on one line.
    """
    parts = [piece for sentence in sentences(text) for piece in _ITEM_END.split(sentence) if piece]
    spans = pieces.spans(parts)
    costs = [sum(_cost(part[start:end]) for start, end in span) for part, span in zip(parts, spans, strict=True)]
    if sum(costs) <= most:
        return text
    left, head, tail = most - 1, 0, len(parts)
    is_open, at_head = [True, True], True
    while any(is_open):
        cost = costs[head if at_head else tail - 1]
        if is_open[at_head] and cost <= left:
            left -= cost
            head, tail = (head + 1, tail) if at_head else (head, tail - 1)
        else:
            is_open[at_head] = False
        at_head = not at_head
    if head == 0:
        return shortened(text, most, (), pieces) if most >= MIN_CUT else ""
    return " ".join(filter(None, (" ".join(parts[:head]), "\u2026", " ".join(parts[tail:]))))


def _best_begin(text: str, words: Collection[str]) -> int:
    wanted = {word.lower() for word in words}
    spans = sentence_spans(text)
    held = [len(wanted.intersection(word.lower() for word, _, _ in words_in(text[start:end]))) for start, end in spans]
    return spans[held.index(max(held))][0] if any(held) else 0


def _between(text: str, start: int, end: int) -> str:
    """Return the text from one word's beginning to another's end."""
    if start and not text[start - 1].isspace():
        start = text.find(" ", start, end) + 1 or start
    cut = text[start:end] if end == len(text) or text[end].isspace() else text[start:end].rsplit(" ", 1)[0]
    return f"{'…' if start else ''}{cut.strip()}{'…' if end < len(text) else ''}"


def fitted(
    sections: Sequence[Section], most: int, words: Collection[str], pieces: PieceCounter, closing: str = ""
) -> tuple[Block, list[Item]]:
    """Return the block of as many items as fit into `most` tokens, and the other items. The first item of every section
    comes before the second of any; an item that is too long leaves its budget to the next. With budget left, quotes of
    whole sentences become longer, the first ones first.

    :param closing: our own line behind the quotes.
    """
    common = common_place(item for section in sections for item in section.items)
    around = fenced([line_of_place(common) or "-", *filter(None, [closing])])
    left, room = most - count_tokens(around, pieces), MAX_BLOCK_CHARS - len(around)
    chosen, out = dict[int, tuple[int, Item, str]](), list[Item]()
    quoted_tokens = dict[int, int]()
    for place, (number, item) in enumerate(_by_turns(sections)):
        section, flat = sections[number], one_line(item.text)
        heading = "" if any(n == number for n, _, _ in chosen.values()) else section.heading
        if section.is_whole:
            share = left - count_tokens(f"{heading}\n{line_of(item, '', common)}", pieces)
            text = whole_sentences(flat, min(section.most_tokens, share), pieces) if share >= MIN_QUOTE else ""
        else:
            text = shortened(one_line(item.quote or item.text), section.most_tokens, words, pieces)
        line = line_of(item, text, common)
        cost = count_tokens(f"{heading}\n{line}", pieces)
        if not text or cost > left or len(heading) + len(line) + 2 > room:
            out.append(item)
            continue
        left, room = left - cost, room - len(heading) - len(line) - 2
        chosen[place] = number, item, line
        quoted_tokens[place] = count_tokens(text, pieces)
    for place, (number, item, line) in chosen.items():
        if not sections[number].is_whole or left <= 0:
            continue
        longer = line_of(item, whole_sentences(one_line(item.text), quoted_tokens[place] + left, pieces), common)
        cost = count_tokens(longer, pieces) - count_tokens(line, pieces)
        if 0 < cost <= left and len(longer) - len(line) <= room:
            left, room = left - cost, room - len(longer) + len(line)
            chosen[place] = number, item, longer
    lines = sorted(chosen.values(), key=lambda each: each[0])
    text = fenced(filter(None, [line_of_place(common), *_lines(sections, lines), closing]) if lines else ())
    return Block(text, count_tokens(text, pieces), tuple(item for _, item, _ in lines)), out


def _by_turns(sections: Sequence[Section]) -> Iterable[tuple[int, Item]]:
    longest = max((section.waits + len(section.items) for section in sections), default=0)
    for turn in range(longest):
        for number, section in enumerate(sections):
            if 0 <= turn - section.waits < len(section.items):
                yield number, section.items[turn - section.waits]


def _lines(sections: Sequence[Section], chosen: Sequence[tuple[int, Item, str]]) -> Iterable[str]:
    last = -1
    for number, _, line in chosen:
        if number != last and sections[number].heading:
            yield sections[number].heading
        last = number
        yield line
