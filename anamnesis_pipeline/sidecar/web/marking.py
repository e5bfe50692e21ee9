"""Highlighting of query words in a text; everything else is escaped."""

import re
from collections.abc import Iterator

from markupsafe import Markup, escape

from anamnesis_pipeline.parsing.text.unspaced_scripts import sought, words_in
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.store.index_terms import IndexTerms

_TERMS = IndexTerms()
"""Words are compared as in the index: `retries` marks `retry`."""


def marked(text: str, question: str) -> Markup:
    """Return the text as HTML, with `<mark>` around the words of the query."""
    pieces, end = [], 0
    for start, stop in _merged(sorted(_spans(text, question))):
        pieces += [escape(text[end:start]), Markup("<mark>{}</mark>").format(text[start:stop])]
        end = stop
    return Markup("").join([*pieces, escape(text[end:])])


def _spans(text: str, question: str) -> Iterator[tuple[int, int]]:
    words, found = [sought(word) for word in content_words(question)], list(words_in(text))
    terms = _TERMS.of("stem_index", list({*words, *(sought(word) for word, _, _ in found)}))
    wanted = {terms[word] for word in words} - {()}
    yield from ((start, end) for word, start, end in found if terms[sought(word)] in wanted)
    for token in literal_tokens(question):
        yield from (match.span() for match in re.finditer(re.escape(token), text, re.IGNORECASE))


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge spans that touch or overlap; sorted by start."""
    held: tuple[int, int] | None = None
    for start, stop in spans:
        if held is not None and start <= held[1]:
            held = (held[0], max(held[1], stop))
            continue
        if held is not None:
            yield held
        held = (start, stop)
    if held is not None:
        yield held
