"""Passages and words as terms, for what the search index does not hold yet."""

import re
import threading
from collections.abc import Sequence

from anamnesis_pipeline.store.index_terms import IndexTerms, exact_phrases
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.search_definitions import EXACT, STEM
from anamnesis_pipeline.store.mongo.text_queries import Phrase, Terms
from anamnesis_pipeline.store.values import indexed
from anamnesis_pipeline.unspaced_scripts import sought

REMEMBERED = 20_000
"""Texts whose terms are kept; a search looks at the newest passages, and the next one mostly at the same."""

_STEM_INDEX = "stem_index"
_PIECES = re.compile(r"[^\W_]+")

_Key = tuple[bool, str]
"""Whether the terms are exact ones, and the text."""


class PassageTerms:
    """Terms as FTS5 makes them, which is what `stem` means in every backend. Safe to share between threads."""

    def __init__(self) -> None:
        self._stems = IndexTerms()
        self._lock = threading.Lock()
        self._known: dict[_Key, Terms] = {}

    def phrases(self, analyzer: str, word: str) -> list[Phrase]:
        """What a word is looked up by: alternatives, none for what is no word.

        :raises ValueError: there is no such analyzer.
        """
        if analyzer not in (STEM, EXACT):
            raise ValueError(f"analyzer {analyzer!r} is neither 'stem' nor 'exact'")
        text = indexed(word).replace("\0", " ").strip()
        if analyzer == EXACT:
            found = [(phrase, tuple(phrase.split())) for phrase in dict.fromkeys(exact_phrases(text))]
            return [Phrase(phrase, terms, terms) for phrase, terms in found]
        text = sought(text)
        terms = self._stems.of(_STEM_INDEX, [text])[text]
        return [Phrase(text, terms, _pieces(text, terms))] if terms else []

    def of(self, documents: Sequence[Document], fields: Sequence[str]) -> list[dict[str, Terms]]:
        """The terms of passages by field."""
        with self._lock:
            asked = dict.fromkeys(_key(document, name) for document in documents for name in fields)
            if any(key not in self._known for key in asked):
                if len(self._known) > REMEMBERED:
                    self._known = {key: self._known[key] for key in asked if key in self._known}
                self._read([key for key in asked if key not in self._known])
            return [{name: self._known[_key(document, name)] for name in fields} for document in documents]

    def _read(self, keys: Sequence[_Key]) -> None:
        self._known |= {(is_exact, text): tuple(text.split()) for is_exact, text in keys if is_exact}
        if texts := [text for is_exact, text in keys if not is_exact]:
            self._known |= {(False, text): terms for text, terms in self._stems.of(_STEM_INDEX, texts).items()}


def _key(document: Document, name: str) -> _Key:
    """By the text itself: a database that was restored gives its keys to other passages."""
    return name == "terms", document.get(name, "")


def _pieces(text: str, terms: Terms) -> tuple[str, ...]:
    """What each term of a text is of; itself where the text is taken apart otherwise, e.g. at a stray accent."""
    pieces = tuple(_PIECES.findall(text))
    return pieces if len(pieces) == len(terms) else tuple(terms)
