"""Question to hits: the one entry to search."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Episode, ScoredPassage, Space, StoredPassage, Variant, Where
from anamnesis_pipeline.search.folding import fold
from anamnesis_pipeline.search.fusion import FUSION_DEPTH, Ranking, best_passages, explain, reciprocal_rank_fusion
from anamnesis_pipeline.search.query import Hit, Mode, SearchAnswer, SearchQuery
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.store.base import Store

EmbedQuery = Callable[[str, Space], NDArray[np.float32]]

HIDDEN_KINDS = ("compact_summary",)
"""Left out unless asked for by `kind`: Claude Code's summaries of text that is here verbatim."""
CHARS_PER_TOKEN = 4


class Engine:
    """Searches one store. Stateless between calls; safe to share between threads."""

    def __init__(
        self, store: Store, embed_query: EmbedQuery | None, space_for: Callable[[Space], Space] = lambda active: active
    ) -> None:
        """:param embed_query: the text's vector, shape (dim,), in the given space; None: no model here.
        :param space_for: the space to search while the active one's model still loads.
        """
        self._store = store
        self._embed_query = embed_query
        self._space_for = space_for

    def search(self, query: SearchQuery) -> SearchAnswer:
        """The best episodes, one hit each. A part that cannot answer is named in `degraded`; the others do."""
        started = time.perf_counter()
        where = self._effective(query.where)
        degraded: list[str] = []
        space, vector = self._vector(query, degraded)
        rankings, best = self._candidates(query, where, space, vector)
        hits = self._hits(query, rankings, best, space, vector)
        if query.track and hits:
            self._store.episodes.track([hit.episode.episode_id for hit in hits], datetime.now(UTC))
        tokens = sum(_tokens(hit.episode, hit.passage) for hit in hits)
        took_ms = (time.perf_counter() - started) * 1000
        return SearchAnswer(hits, took_ms, space.model_id if space else None, degraded, tokens)

    def _effective(self, where: Where) -> Where:
        hidden = where.hidden_kinds if where.kinds else tuple({*where.hidden_kinds, *HIDDEN_KINDS})
        if not where.projects:
            return replace(where, hidden_kinds=hidden)
        known = self._store.episodes.projects()
        projects = {label for name in where.projects for label in (name, *labels_of(name, known))}
        return replace(where, hidden_kinds=hidden, projects=tuple(sorted(projects)))

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
        except AnamnesisError as exc:
            degraded.append(f"dense: {exc}")
            return active, None

    def _candidates(
        self, query: SearchQuery, where: Where, space: Space | None, vector: NDArray[np.float32] | None
    ) -> tuple[list[Ranking], list[ScoredPassage]]:
        """Deeper lists until there are enough episodes, or no list has more to give."""
        depth = max(FUSION_DEPTH, 4 * query.top_k)
        wanted = 2 * query.top_k if query.fold else query.top_k
        while True:
            rankings = self._rankings(query, where, space, vector, depth)
            best = best_passages(rankings, reciprocal_rank_fusion(rankings))
            if len(best) >= wanted or all(len(ranking.passages) < depth for ranking in rankings):
                return rankings, best
            depth *= 4

    def _rankings(
        self, query: SearchQuery, where: Where, space: Space | None, vector: NDArray[np.float32] | None, depth: int
    ) -> list[Ranking]:
        text, vectors = self._store.text, self._store.vectors
        if query.mode is Mode.EXACT:
            tokens = query.text.split()
            return [Ranking("exact", 1.0, text.matching(tokens, depth, where, analyzer="exact"))]
        rankings = []
        if space is not None and vector is not None:
            for variant in space.variants:
                nearest = vectors.nearest(space.key, variant, vector, depth, where)
                rankings.append(Ranking(f"dense_{variant}", 1.0, nearest))
        if query.mode is Mode.SEMANTIC:
            return rankings
        words, literals = content_words(query.text), literal_tokens(query.text)
        rankings += [
            Ranking(f"words_{variant}", 1.0, text.matching(words, depth, where, variant=variant)) for variant in Variant
        ]
        if literals:
            rankings.append(Ranking("exact", 1.0, text.matching(literals, depth, where, analyzer="exact")))
        return rankings

    def _hits(
        self,
        query: SearchQuery,
        rankings: Sequence[Ranking],
        best: Sequence[ScoredPassage],
        space: Space | None,
        vector: NDArray[np.float32] | None,
    ) -> list[Hit]:
        best = best[: query.top_k * (4 if query.fold else 1)]
        passages = self._store.episodes.passages([candidate.passage_id for candidate in best])
        episodes = self._store.episodes.get([candidate.episode_id for candidate in best])
        cosines = self._cosines(space, vector, list(passages))
        live = [c for c in best if c.passage_id in passages and c.episode_id in episodes]
        live = [c for c in live if _clears(cosines.get(c.passage_id), query.min_score)]
        groups = (
            fold([passages[c.passage_id].passage.text for c in live]) if query.fold else [[n] for n in range(len(live))]
        )
        hits = []
        budget = query.max_tokens if query.max_tokens is not None else float("inf")
        for group in groups[: query.top_k]:
            first, also = live[group[0]], tuple(live[n].episode_id for n in group[1:])
            episode, passage = episodes[first.episode_id], passages[first.passage_id]
            budget -= _tokens(episode, passage)
            if budget < 0:
                break
            details = explain(rankings, first.passage_id) if query.explain else None
            hits.append(Hit(episode, first.score, cosines.get(first.passage_id), passage, also, details))
        return hits

    def _cosines(
        self, space: Space | None, vector: NDArray[np.float32] | None, passage_ids: Sequence[int]
    ) -> dict[int, float]:
        if space is None or vector is None:
            return {}
        found = self._store.vectors.get(space.key, Variant.TEXT, passage_ids)
        return {passage_id: float(np.dot(theirs, vector)) for passage_id, theirs in found.items()}


def labels_of(name: str, known: Sequence[str]) -> list[str]:
    """The project labels that a bare name means: `api` means `acme/api` and `~/work/api`, never `my-api`."""
    return [label for label in known if label.endswith("/" + name)]


def _clears(cosine: float | None, floor: float | None) -> bool:
    return not floor or cosine is None or cosine >= floor


def _tokens(episode: Episode, passage: StoredPassage) -> int:
    return (len(episode.summary) + len(passage.passage.text)) // CHARS_PER_TOKEN
