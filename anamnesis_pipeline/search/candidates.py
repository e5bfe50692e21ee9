"""Candidate lists, searched concurrently."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import EpisodeFilter, ScoredPassage, Space, Variant
from anamnesis_pipeline.search.fusion import Ranking
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.search.stage_times import StageTimes
from anamnesis_pipeline.search.words import content_words, literal_tokens, literal_words
from anamnesis_pipeline.store.base import Store

LIST_THREADS = 8
"""Lists searched at once, over all searches: SQLite releases the GIL while it reads."""

RARE = "rare"
"""Name of the list of passages with a rare literal word; a score is the number of such words."""
MAX_RARE = 3
"""A word is rare in at most this number of passages."""
RARE_WORDS = 5
"""Words of a question that are checked for rarity."""

Search = Callable[[], list[ScoredPassage]]

_List = tuple[str, float, Search]
"""(name of a candidate list, its weight, the search)"""
Waiting = tuple[str, float, Search]
"""(name of a candidate list, its weight, a call that waits for it)"""


class Candidates:
    """Starts candidate lists of one store. Thread-safe."""

    def __init__(self, store: Store, times: StageTimes) -> None:
        self._store = store
        self._times = times
        self._threads = ThreadPoolExecutor(LIST_THREADS, thread_name_prefix="lists")

    def start_words(self, query: SearchQuery, where: EpisodeFilter, depth: int) -> list[Waiting]:
        """Start searching the full-text lists for this kind of question."""
        if query.mode is Mode.SEMANTIC:
            return []
        matching, literals = self._store.text.matching, literal_tokens(query.text)
        if query.mode is Mode.EXACT:  # an exact search reports whether the whole literal text exists
            search, words = (
                (self._store.text.with_all, literals or query.text.split())
                if query.min_score is None
                else (matching, query.text.split())
            )
            exact_alone = ("exact", 1.0, partial(search, words, depth, where, analyzer="exact"))
            return self._start(_wanted([exact_alone], query.lists))
        exact: list[_List] = []
        if literals and query.profile.literal:
            exact = [("exact", query.profile.literal, partial(matching, literals, depth, where, analyzer="exact"))]
        if query.profile.literal and (rare := literal_words(query.text)[:RARE_WORDS]):
            exact.append((RARE, 1.0, partial(self._rare, rare, where)))
        words = content_words(query.text)  # one list after the other: the second uses the cached words
        texts: list[_List] = [(f"words_{v}", 1.0, partial(matching, words, depth, where, variant=v)) for v in Variant]
        wanted = (_wanted(lists, query.lists) for lists in (exact, texts))
        return [waiting for lists in wanted if lists for waiting in self._start(lists)]

    def _rare(self, words: Sequence[str], where: EpisodeFilter) -> list[ScoredPassage]:
        """Return the passages with any of these words that at most `MAX_RARE` passages in the filter have."""
        try:
            found = self._store.text.held_by_few(words, MAX_RARE, where)
        except AnamnesisError:  # the other word lists report it
            return []
        held = [(each.passage_id, each.episode_id) for few in found for each in few]
        return [ScoredPassage(*key, float(words_held)) for key, words_held in Counter(held).most_common()]

    def start_dense(
        self, space: Space, vector: NDArray[np.float32], where: EpisodeFilter, depth: int, names: Sequence[str] = ()
    ) -> list[Waiting]:
        """Start searching the lists of nearest vectors.

        :param names: of the lists to ask; empty: all.
        """
        nearest = self._store.vectors.nearest
        lists: list[_List] = [
            (f"dense_{v}", 1.0, partial(nearest, space.key, v, vector, depth, where)) for v in space.variants
        ]
        return [waiting for each in _wanted(lists, names) for waiting in self._start([each])]

    def _start(self, lists: Sequence[_List]) -> list[Waiting]:
        """Start searching these lists one after the other."""
        found: list[Future[list[ScoredPassage]]] = [Future() for _ in lists]

        def search_all() -> None:
            for future, (name, _, search) in zip(found, lists, strict=True):
                try:
                    with self._times.of(name):
                        future.set_result(search())
                except BaseException as exc:  # raised in the thread that waits for the list
                    future.set_exception(exc)

        self._threads.submit(search_all)
        return [(name, weight, future.result) for (name, weight, _), future in zip(lists, found, strict=True)]


def _wanted(lists: Sequence[_List], names: Sequence[str]) -> list[_List]:
    """Return the lists of these names; all if none is named."""
    return [each for each in lists if not names or each[0] in names]


def answered(waiting: Sequence[Waiting], degraded: list[str]) -> list[Ranking]:
    """Return the lists that answered; a failure is noted once in `degraded`."""
    rankings = []
    for name, weight, wait in waiting:
        try:
            rankings.append(Ranking(name, weight, wait()))
        except AnamnesisError as exc:
            note = f"{name}: {exc}"
            degraded += [note] if note not in degraded else []
    return rankings


def is_exhausted(rankings: Sequence[Ranking], depth: int, floor: float | None) -> bool:
    """Return whether deeper lists would add nothing: all ended early, or the dense list fell below the threshold."""
    below = any(
        ranking.name == f"dense_{Variant.TEXT}" and ranking.passages and ranking.passages[-1].score < floor
        for ranking in rankings
        if floor
    )
    return below or all(len(ranking.passages) < depth for ranking in rankings)
