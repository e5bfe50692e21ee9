"""What a query's common words add to the BM25 scores of candidates that its rare words found.

FTS5 computes a score only by walking every passage that contains a word; for the few hundred candidates that matter
it is cheaper to count the word in their texts.
"""

import math
import re
import sqlite3
import string
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

K1, B = 1.2, 0.75
"""FTS5's own constants (sqlite.org/fts5.html, the bm25 function)."""

REMEMBERED_STEMS = 200_000

_WORDS = re.compile(r"[^\W_]+")


def idf(passages: int, containing: int) -> float:
    """FTS5's weight of a word."""
    return max(math.log((passages - containing + 0.5) / (containing + 0.5)), 1e-6) if containing < passages else 1e-6


def literal_tokens(text: str) -> list[str]:
    """The tokens of a text as the exact index knows them, without their pieces."""
    return [token.strip(string.punctuation) for token in text.lower().split()]


def plain_tokens(text: str) -> list[str]:
    """The words of a text as the stem index divides them."""
    return _WORDS.findall(text.lower())


def added_scores(
    texts: Sequence[str],
    weights: Mapping[str, float],
    tokenize: Callable[[str], list[str]],
    stem_of: Callable[[Iterable[str]], Mapping[str, str]],
) -> list[float]:
    """For each text, what the words of `weights` (stem -> idf) add to its BM25 score."""
    documents = [tokenize(text) for text in texts]
    stems = stem_of({token for document in documents for token in document})
    counted = {token: stem for token, stem in stems.items() if stem in weights}
    average = sum(map(len, documents)) / max(1, len(documents))
    return [_score([counted[t] for t in d if t in counted], len(d) / average, weights) if d else 0.0 for d in documents]


def _score(found: Sequence[str], relative_length: float, weights: Mapping[str, float]) -> float:
    damping = K1 * (1 - B + B * relative_length)
    counts = {stem: found.count(stem) for stem in set(found)}
    return sum(weights[stem] * n * (K1 + 1) / (n + damping) for stem, n in counts.items())


class Stems:
    """Token -> stem, asked of FTS5 itself so that it is the very one that the index holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def of(self, tokens: Iterable[str]) -> Mapping[str, str]:
        """The stem of each token; a token that is none has no entry."""
        wanted = set(tokens)
        with self._lock:
            if new := wanted - self._known.keys():
                if len(self._known) + len(new) > REMEMBERED_STEMS:
                    self._known.clear()
                    new = wanted
                self._known.update(_ask(sorted(new)))
            return {token: self._known[token] for token in wanted}


def _ask(tokens: Sequence[str]) -> dict[str, str]:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(
            "CREATE VIRTUAL TABLE t USING fts5 (x, tokenize = 'porter unicode61 remove_diacritics 2', content = '')"
        )
        connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab (t, instance)")
        connection.executemany("INSERT INTO t (rowid, x) VALUES (?, ?)", enumerate(tokens))
        stems = dict.fromkeys(tokens, "")
        stems.update((tokens[doc], term) for doc, term in connection.execute("SELECT doc, term FROM v"))
    finally:
        connection.close()
    return stems
