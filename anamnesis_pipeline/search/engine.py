"""Question to hits: the one entry to search."""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import AnamnesisError, EmbeddingQueueFull
from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, ScoredPassage, Space, StoredPassage, Variant, Where
from anamnesis_pipeline.search.backlog import backlog_notes
from anamnesis_pipeline.search.folding import fold
from anamnesis_pipeline.search.fusion import FUSION_DEPTH, Ranking, best_passages, explain, reciprocal_rank_fusion
from anamnesis_pipeline.search.query import Hit, Mode, SearchAnswer, SearchQuery
from anamnesis_pipeline.search.trust import trust_factor
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.store.base import Store

EmbedQuery = Callable[[str, Space], NDArray[np.float32]]

HIDDEN_KINDS = ("compact_summary",)
"""Left out unless asked for by `kind`: Claude Code's summaries of text that is here verbatim."""
LITERAL_WEIGHT = 2.0
"""Of the list of literal tokens: an identifier in a question means itself, not what surrounds it. At 1 passages that
share the question's other words win; the development questions over real logs score the same at 1 and 2."""
LOW_VALUE_FACTOR = 0.8
"""On the score of routine, unless literal tokens alone were asked for. Questions over real logs: hit@5 .741 as at 1,
recall@10 .722 against .685, MRR@10 .606 against .611."""
CHARS_PER_TOKEN = 4
WORD_THREADS = 8
"""Full-text lists searched at once, over all searches: SQLite leaves Python's lock while it reads."""
REFILL_DEPTH = 1_000
"""Ranks looked at to replace what was folded away or fell below the floor; deeper ones are no answers any more."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A query with everything looked up. `vector` is the query's in `space`, shape (dim,)."""

    query: SearchQuery
    where: Where
    space: Space | None
    vector: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class _Found:
    """A candidate as stored: the best passage of an episode, its fused score, with `factor` in it, and its cosine."""

    episode: Episode
    passage: StoredPassage
    score: float
    cosine: float | None
    factor: float = 1.0


_Waiting = tuple[str, float, Callable[[], list[ScoredPassage]]]
"""Name and weight of a list of candidates, and a call that waits for it."""


class Engine:
    """Searches one store. Stateless between calls; safe to share between threads."""

    def __init__(
        self,
        store: Store,
        embed_query: EmbedQuery | None,
        space_for: Callable[[Space], Space] = lambda active: active,
        min_value: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """:param embed_query: the text's vector, shape (dim,), in the given space; None: no model here.
        :param space_for: the space to search while the active one's model still loads.
        :param min_value: the value, as episodes of logs carry it, below which one is routine and ranks lower.
        """
        self._store = store
        self._embed_query = embed_query
        self._space_for = space_for
        self._min_value = min_value
        self._threads = ThreadPoolExecutor(WORD_THREADS, thread_name_prefix="words")

    def search(self, query: SearchQuery) -> SearchAnswer:
        """The best episodes, one hit each. A part that cannot answer is named in `degraded`; the others do.
        So is what is still to be read and embedded, where nothing was found.
        """
        started = time.perf_counter()
        degraded: list[str] = []
        where, depth = self._effective(query.where), max(FUSION_DEPTH, 4 * query.top_k)
        words = self._start_words(query, where, depth)  # the store searches them while the model embeds
        space, vector = self._vector(query, degraded)
        hits = self._hits(_Question(query, where, space, vector), depth, words, degraded)
        if query.track and hits:
            self._track(hits, degraded)
        if not hits:  # only here: it takes longer than a search may
            self._note_backlog(query, degraded)
        tokens = sum(_tokens(hit.episode, hit.passage) for hit in hits)
        took_ms = (time.perf_counter() - started) * 1000
        return SearchAnswer(hits, took_ms, space.model_id if space else None, degraded, tokens)

    def _note_backlog(self, query: SearchQuery, degraded: list[str]) -> None:
        try:
            degraded += backlog_notes(self._store, query.mode)
        except AnamnesisError as exc:
            degraded.append(f"reading: {exc}")

    def _track(self, hits: Sequence[Hit], degraded: list[str]) -> None:
        try:
            self._store.episodes.track([hit.episode.episode_id for hit in hits], datetime.now(UTC))
        except AnamnesisError as exc:  # an answer is worth more than its count
            degraded.append(f"track: {exc}")

    def _effective(self, where: Where) -> Where:
        hidden = where.hidden_kinds if where.kinds else tuple({*where.hidden_kinds, *HIDDEN_KINDS})
        return replace(with_labels(self._store, where), hidden_kinds=hidden)

    def _vector(self, query: SearchQuery, degraded: list[str]) -> tuple[Space | None, NDArray[np.float32] | None]:
        active = self._store.spaces.active()
        if query.mode is Mode.EXACT:
            return active, None
        if active is None or self._embed_query is None:
            degraded.append("dense: no embedding model is loaded here")
            return active, None
        try:
            space = self._space_for(active)
            return space, self._embed_query(query.text, space)
        except EmbeddingQueueFull:  # there is more work than this machine can do: the caller is to wait
            raise
        except AnamnesisError as exc:
            degraded.append(f"dense: {exc}")
            return active, None

    def _hits(self, question: _Question, depth: int, words: Sequence[_Waiting], degraded: list[str]) -> list[Hit]:
        """Deeper lists until there are enough episodes that differ, or no list has more to give."""
        query = question.query
        while True:
            rankings = _answered([*self._dense(question, depth), *words], degraded)
            best = best_passages(rankings, reciprocal_rank_fusion(rankings))
            exhausted = _exhausted(rankings, depth, query.min_score)
            found = self._ranked(query, self._read(question, best if exhausted else best[:depth]))
            groups = fold([f.passage.passage.text for f in found]) if query.fold else [[n] for n in range(len(found))]
            deep_enough = depth >= REFILL_DEPTH and len(best) >= query.top_k
            if exhausted or deep_enough or len(groups) >= query.top_k:
                return _within_budget(query, rankings, [[found[n] for n in group] for group in groups])
            depth *= 4
            words = self._start_words(query, question.where, depth)

    def _dense(self, question: _Question, depth: int) -> list[_Waiting]:
        """The lists of nearest vectors, to be searched when they are asked for."""
        space, vector = question.space, question.vector
        if space is None or vector is None:
            return []
        nearest = self._store.vectors.nearest
        return [
            (f"dense_{variant}", 1.0, partial(nearest, space.key, variant, vector, depth, question.where))
            for variant in space.variants
        ]

    def _start_words(self, query: SearchQuery, where: Where, depth: int) -> list[_Waiting]:
        """The full-text lists that this kind of question takes its candidates from, being searched from now on."""
        if query.mode is Mode.SEMANTIC:
            return []
        matching = self._store.text.matching
        literals = query.text.split() if query.mode is Mode.EXACT else literal_tokens(query.text)
        lists: list[_Waiting] = []
        if literals:
            lists.append(("exact", LITERAL_WEIGHT, partial(matching, literals, depth, where, analyzer="exact")))
        if query.mode is Mode.HYBRID:
            words = content_words(query.text)
            lists += [(f"words_{v}", 1.0, partial(matching, words, depth, where, variant=v)) for v in Variant]
        return [(name, weight, self._threads.submit(search).result) for name, weight, search in lists]

    def _read(self, question: _Question, best: Sequence[ScoredPassage]) -> list[_Found]:
        """The candidates that still exist and clear the floor."""
        passages = self._store.episodes.passages([candidate.passage_id for candidate in best])
        cosines = self._cosines(question, list(passages))
        clear = [
            c for c in best if c.passage_id in passages and _clears(cosines.get(c.passage_id), question.query.min_score)
        ]
        episodes = self._store.episodes.get([candidate.episode_id for candidate in clear])
        return [
            _Found(episodes[c.episode_id], passages[c.passage_id], c.score, cosines.get(c.passage_id))
            for c in clear
            if c.episode_id in episodes
        ]

    def _ranked(self, query: SearchQuery, found: list[_Found]) -> list[_Found]:
        """The same, with routine moved down and what is curated up, but not for whoever names literal tokens: they want
        what holds them.
        """
        if query.mode is Mode.EXACT:
            return found
        least = self._min_value()
        factors = [_factor(f.episode, least) for f in found]
        valued = [replace(f, score=f.score * factor, factor=factor) for f, factor in zip(found, factors, strict=True)]
        return sorted(valued, key=lambda f: -f.score)

    def _cosines(self, question: _Question, passage_ids: Sequence[int]) -> dict[int, float]:
        space, vector = question.space, question.vector
        if space is None or vector is None:
            return {}
        try:
            found = self._store.vectors.get(space.key, Variant.TEXT, passage_ids)
        except AnamnesisError:  # the dense lists have said so already
            return {}
        return {passage_id: float(np.dot(theirs, vector)) for passage_id, theirs in found.items()}


def _answered(waiting: Sequence[_Waiting], degraded: list[str]) -> list[Ranking]:
    """The lists that could be had; what failed is noted in `degraded`, once."""
    rankings = []
    for name, weight, wait in waiting:
        try:
            rankings.append(Ranking(name, weight, wait()))
        except AnamnesisError as exc:
            note = f"{name}: {exc}"
            degraded += [note] if note not in degraded else []
    return rankings


def _exhausted(rankings: Sequence[Ranking], depth: int, floor: float | None) -> bool:
    """Whether deeper lists would bring nothing: all ended early, or the dense list fell below the floor."""
    below = any(
        ranking.name == f"dense_{Variant.TEXT}" and ranking.passages and ranking.passages[-1].score < floor
        for ranking in rankings
        if floor
    )
    return below or all(len(ranking.passages) < depth for ranking in rankings)


def _within_budget(query: SearchQuery, rankings: Sequence[Ranking], groups: Sequence[Sequence[_Found]]) -> list[Hit]:
    """A hit for each of the first `top_k` groups whose text still fits the budget."""
    hits = []
    left = query.max_tokens if query.max_tokens is not None else sys.maxsize
    for group in groups[: query.top_k]:
        first, *others = sorted(group, key=lambda found: found.episode.status != "active")  # in its place
        cost = _tokens(first.episode, first.passage)
        if cost > left:
            continue
        left -= cost
        also = tuple(other.episode.episode_id for other in others)
        details = explain(rankings, first.passage.passage_id) if query.explain else None
        score, factor = min(1.0, group[0].score), group[0].factor
        hits.append(Hit(first.episode, score, first.cosine, first.passage, also, details, factor))
    return hits


def with_labels(store: Store, where: Where) -> Where:
    """The filter with bare project names replaced by the labels they mean."""
    if not where.projects:
        return where
    known = store.episodes.projects()
    projects = {label for name in where.projects for label in (name, *labels_of(name, known))}
    return replace(where, projects=tuple(sorted(projects)))


def labels_of(name: str, known: Sequence[str]) -> list[str]:
    """The project labels that a bare name means: `api` means `acme/api` and `~/code/api`, never `my-api`."""
    return [label for label in known if label.endswith("/" + name)]


def _factor(episode: Episode, least: float) -> float:
    return trust_factor(episode) * (LOW_VALUE_FACTOR if _is_routine(episode, least) else 1.0)


def _is_routine(episode: Episode, least: float) -> bool:
    """What a client posted under the same name is the client's own, and no judgement of ours."""
    value = episode.metadata.get("value") if episode.source not in RESERVED_SOURCES else None
    return isinstance(value, int | float) and value < least


def _clears(cosine: float | None, floor: float | None) -> bool:
    return not floor or cosine is None or cosine >= floor


def _tokens(episode: Episode, passage: StoredPassage) -> int:
    return (len(episode.summary) + len(passage.passage.text)) // CHARS_PER_TOKEN
