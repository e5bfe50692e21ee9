"""Passages and words as terms, for what the search index does not hold yet."""

import threading
from collections.abc import Sequence

from anamnesis_pipeline.store.exact_terms import exact_phrases
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.search_definitions import EXACT, STEM
from anamnesis_pipeline.store.mongo.text_queries import Phrase, Terms
from anamnesis_pipeline.store.sqlite.index_terms import IndexTerms
from anamnesis_pipeline.store.values import clean

REMEMBERED = 20_000
"""Texts whose terms are kept; a search looks at the newest passages, and the next one mostly at the same."""

_STEM_INDEX = "stem_index"


class PassageTerms:
    """Terms as FTS5 makes them, which is what `stem` means in every backend. Safe to share between threads."""

    def __init__(self) -> None:
        self._stems = IndexTerms()
        self._lock = threading.Lock()
        self._known: dict[tuple[int, str], Terms] = {}

    def phrases(self, analyzer: str, word: str) -> list[Phrase]:
        """What a word is looked up by: alternatives, none for what is no word.

        :raises ValueError: there is no such analyzer.
        """
        if analyzer not in (STEM, EXACT):
            raise ValueError(f"analyzer {analyzer!r} is neither 'stem' nor 'exact'")
        text = clean(word).replace("\0", " ").strip()
        if analyzer == EXACT:
            return [Phrase(phrase, tuple(phrase.split())) for phrase in dict.fromkeys(exact_phrases(text))]
        terms = self._stems.of(_STEM_INDEX, [text])[text]
        return [Phrase(text, terms)] if terms else []

    def of(self, documents: Sequence[Document], fields: Sequence[str]) -> list[dict[str, Terms]]:
        """The terms of passages by field; a text never changes under its key."""
        with self._lock:
            asked = [(document["_id"], name) for document in documents for name in fields]
            if any(key not in self._known for key in asked):
                if len(self._known) > REMEMBERED:
                    self._known = {key: self._known[key] for key in asked if key in self._known}
                for name in fields:
                    self._read(name, [each for each in documents if (each["_id"], name) not in self._known])
            return [{name: self._known[document["_id"], name] for name in fields} for document in documents]

    def _read(self, name: str, documents: Sequence[Document]) -> None:
        texts = list(dict.fromkeys(document[name] for document in documents))
        if name == "terms":
            terms: dict[str, Terms] = {text: tuple(text.split()) for text in texts}
        else:
            terms = dict(self._stems.of(_STEM_INDEX, texts)) if texts else {}
        self._known |= {(document["_id"], name): terms[document[name]] for document in documents}
