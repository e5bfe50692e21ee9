"""How many tokens a text has, and which quotes fit a budget. Pure but for the tokenizer.

Counted in the word pieces that passages are cut by. An unbroken run that is no word of the tokenizer is one piece
however long it is; here it counts by its bytes, as it would cost Claude.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.search.context_items import Item, common_place, line_of, line_of_place
from anamnesis_pipeline.search.quoting import fenced, one_line
from anamnesis_pipeline.unspaced_scripts import words_in

WORD_BYTES = 16
"""A piece of more bytes than these counts one token for every BYTES_PER_TOKEN."""
BYTES_PER_TOKEN = 4

MOST_BLOCK_CHARS = 9_000
"""Claude Code cuts what a hook says at 10,000 characters; a block without its end would be remembered as a text."""

_SENTENCE = re.compile(r".+?(?:[.!?;:](?=\s)|[。！？；]|$)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Section:
    """Quotes under a heading, the most important first; no heading: none is shown."""

    heading: str
    items: Sequence[Item]
    most_tokens: int
    """Of one quote."""


@dataclass(frozen=True, slots=True)
class Block:
    """A finished block: its text, the tokens of all of it, and the items in it, in order."""

    text: str = ""
    tokens: int = 0
    items: tuple[Item, ...] = ()


def count_tokens(text: str, pieces: PieceCounter) -> int:
    """Tokens of a text."""
    return sum(_cost(text[start:end]) for start, end in pieces.spans([text])[0])


def _cost(piece: str) -> int:
    size = len(piece.encode("utf-8", "replace"))
    return 1 if size <= WORD_BYTES else -(-size // BYTES_PER_TOKEN)


def shortened(text: str, most: int, words: Collection[str], pieces: PieceCounter) -> str:
    """At most `most` tokens of a text, around the sentence that has most of `words`; what is left out shows as …

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
    while first > 0 and last == len(spans) and spans[first - 1][2] <= left:  # the end was reached: more of before
        first -= 1
        left -= spans[first][2]
    if last == first:
        return ""
    return _between(text, spans[first][0], spans[last - 1][1])


def _best_begin(text: str, words: Collection[str]) -> int:
    wanted = {word.lower() for word in words}
    sentences = list(_SENTENCE.finditer(text))
    held = [len(wanted.intersection(word.lower() for word, _, _ in words_in(each[0]))) for each in sentences]
    return sentences[held.index(max(held))].start() if any(held) else 0


def _between(text: str, start: int, end: int) -> str:
    """The text from one word's beginning to another's end."""
    if start and not text[start - 1].isspace():
        start = text.find(" ", start, end) + 1 or start
    cut = text[start:end] if end == len(text) or text[end].isspace() else text[start:end].rsplit(" ", 1)[0]
    return f"{'…' if start else ''}{cut.strip()}{'…' if end < len(text) else ''}"


def fitted(
    sections: Sequence[Section], most: int, words: Collection[str], pieces: PieceCounter
) -> tuple[Block, list[Item]]:
    """The block of as many items as `most` tokens hold, and the items that did not fit. The first of every section
    comes before the second of any, and an item that is too long leaves room for the next.
    """
    common = common_place(item for section in sections for item in section.items)
    around = fenced([line_of_place(common) or "-"])
    left, room = most - count_tokens(around, pieces), MOST_BLOCK_CHARS - len(around)
    chosen, out = list[tuple[int, Item, str]](), list[Item]()
    for number, item in _by_turns(sections):
        section = sections[number]
        text = shortened(one_line(item.text), section.most_tokens, words, pieces)
        line = line_of(item, text, common)
        heading = "" if any(n == number for n, _, _ in chosen) else section.heading
        cost = count_tokens(f"{heading}\n{line}", pieces)
        if not text or cost > left or len(heading) + len(line) + 2 > room:
            out.append(item)
            continue
        left, room = left - cost, room - len(heading) - len(line) - 2
        chosen.append((number, item, line))
    chosen.sort(key=lambda each: each[0])
    text = fenced(filter(None, [line_of_place(common), *_lines(sections, chosen)]) if chosen else ())
    return Block(text, count_tokens(text, pieces), tuple(item for _, item, _ in chosen)), out


def _by_turns(sections: Sequence[Section]) -> Iterable[tuple[int, Item]]:
    longest = max((len(section.items) for section in sections), default=0)
    for rank in range(longest):
        for number, section in enumerate(sections):
            if rank < len(section.items):
                yield number, section.items[rank]


def _lines(sections: Sequence[Section], chosen: Sequence[tuple[int, Item, str]]) -> Iterable[str]:
    last = -1
    for number, _, line in chosen:
        if number != last and sections[number].heading:
            yield sections[number].heading
        last = number
        yield line
