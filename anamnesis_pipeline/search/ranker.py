"""Lists of candidates to one order, and whether it answers at all."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import QueryVectors
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Episode, EpisodeHead, ScoredPassage, Space, StoredPassage, Variant, Where
from anamnesis_pipeline.search.candidates import RARE
from anamnesis_pipeline.search.dialogue import CONCLUDED, SAID, asks_for_outcome, mostly, voice_factor, voice_factors
from anamnesis_pipeline.search.excerpts import second_passages
from anamnesis_pipeline.search.floor import (
    Confidence,
    Evidence,
    Level,
    confidence,
    in_words,
    nearest_of,
    says_nothing,
)
from anamnesis_pipeline.search.fusion import Ranking, best_passages, reciprocal_rank_fusion
from anamnesis_pipeline.search.late_interaction import max_similarities
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.search.reranking import (
    LATE_DEPTH,
    late_by_words,
    later_first,
    with_late_interaction,
    with_neighbours,
    without_vectors_heard,
)
from anamnesis_pipeline.search.stage_times import StageTimes
from anamnesis_pipeline.search.time_expressions import TimeReference
from anamnesis_pipeline.search.trust import is_logged
from anamnesis_pipeline.search.words import content_words, unknown_share
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.transcripts import voice_shares, voices_in

VOICE_DEPTH = 30
"""Passages whose speakers are read from the texts of their episodes. 60 order the same."""
WITHOUT_LATE = 0.5
"""Exponent of the factors for whose words they are where no token vectors were compared: lists alone tell places less
apart."""
JUDGED = 10
"""Episodes that a search shows: only where all of them have vectors it may find that nothing answers."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query with everything looked up. `vectors` are the query's in `space`; `words` carry meaning, `literals` mean
    exactly themselves.
    """

    query: SearchQuery
    where: Where
    space: Space | None
    vectors: QueryVectors | None
    least_value: float
    now: datetime
    times: TimeReference | None
    level: Level | None
    words: Sequence[str]
    literals: Sequence[str]


@dataclass(frozen=True, slots=True)
class Told:
    """Whose words the first passages hold: these, the episodes of logs among theirs, and for passages of logs the
    factor on the score. `concluded`: most of a passage is what a person typed or a turn ended with.
    """

    passages: Mapping[int, StoredPassage] = field(default_factory=dict)
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    factors: Mapping[int, float] = field(default_factory=dict)
    concluded: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Ranked:
    """Passages in order, the best of each episode and the scores of all; `late`, `vectors` and what is `told` of the
    first ones. What was found, and how sure it is by that that any answers.
    """

    rankings: Sequence[Ranking]
    best: Sequence[ScoredPassage]
    seconds: Mapping[str, int]
    late: Mapping[int, float]
    vectors: Mapping[int, NDArray[np.float32]]
    heads: Mapping[str, EpisodeHead]
    told: Told
    evidence: Evidence | None
    sure: float | None


class Ranker:
    """Orders what was found in one store. Safe to share between threads."""

    def __init__(self, store: Store, times: StageTimes) -> None:
        self._store = store
        self._times = times

    def order(self, question: Question, rankings: Sequence[Ranking], most: int | None) -> Ranked:
        """The lists fused, the first candidates ordered anew by late interaction and by what stands beside them."""
        profile = question.query.profile
        episode_of = {p.passage_id: p.episode_id for ranking in rankings for p in ranking.passages}
        scores = reciprocal_rank_fusion(rankings)
        first = sorted(scores, key=lambda key: (-scores[key], -key))[: max(LATE_DEPTH, 2 * question.query.top_k)]
        vectors = self.vectors_of(question, first)
        if vectors:
            scores = without_vectors_heard(scores, rankings, set(first) - vectors.keys())
        with self._times.of("late"):
            late = self._late(question, first[:LATE_DEPTH])
        heard = {**late, **late_by_words(late, rankings, set(first) - vectors.keys())} if vectors else late
        scores = with_late_interaction(scores, heard, profile.late, profile.sharpness, episode_of)
        heads = self._store.episodes.heads(list(dict.fromkeys(episode_of[key] for key in first)))
        if late:  # the lists alone tell neighbouring places less apart than a neighbour adds
            scores = with_neighbours(scores, profile.neighbours, heads, episode_of)
        told = Told()
        if profile.boosts and question.query.mode is not Mode.EXACT:
            told = self._told(question.query.text, scores, episode_of, heads, 1.0 if late else WITHOUT_LATE)
        scores = {key: score * told.factors.get(key, 1.0) for key, score in scores.items()}
        evidence = self._evidence(question, rankings)
        sure = confidence(evidence, question.level) if evidence is not None and question.level is not None else None
        return Ranked(
            rankings,
            best_passages(rankings, scores)[:most],
            second_passages(scores, episode_of),
            late,
            vectors,
            heads,
            told,
            evidence,
            sure,
        )

    def _told(
        self,
        text: str,
        scores: Mapping[int, float],
        episode_of: Mapping[int, str],
        heads: Mapping[str, EpisodeHead],
        exponent: float,
    ) -> Told:
        """Return whose words the first passages hold, and what that counts for a question.

        :param exponent: of the factors.
        """
        first = sorted(scores, key=lambda key: (-scores[key], -key))[:VOICE_DEPTH]
        logged = [key for key in first if (head := heads.get(episode_of[key])) and is_logged(head)]
        if not logged:
            return Told()
        with self._times.of("voices"):
            passages = self._store.episodes.passages(logged)
            episodes = self._store.episodes.get(list(dict.fromkeys(episode_of[key] for key in logged)))
            runs = {episode_id: voices_in(episode.raw_exchange) for episode_id, episode in episodes.items()}
            shares = {
                key: voice_shares(stored.passage.text, runs[stored.episode_id])
                for key, stored in passages.items()
                if stored.episode_id in runs
            }
        weights = voice_factors(text)
        factors = {key: voice_factor(share, weights) for key, share in shares.items()}
        if asks_for_outcome(text):
            said = {key: heads[passages[key].episode_id] for key, share in shares.items() if mostly(share, SAID)}
            factors |= {key: factors[key] * more for key, more in later_first(said).items()}
        concluded = frozenset(key for key, share in shares.items() if mostly(share, CONCLUDED))
        return Told(passages, episodes, {key: factor**exponent for key, factor in factors.items()}, concluded)

    def _evidence(self, question: Question, rankings: Sequence[Ranking]) -> Evidence | None:
        """What tells whether anything answers; None where that is not known."""
        nearest = nearest_of(rankings)
        if question.level is None or not nearest:
            return None
        times = question.times
        when = content_words(times.words) if times is not None and times.by_the_clock else []
        try:
            unknown = unknown_share(question.query.text, self._store.text.unknown, when)
        except AnamnesisError:  # the lists of words have said so already
            return None
        return Evidence(nearest, unknown)

    def says_nothing(self, question: Question, ranked: Ranked) -> bool:
        """Whether a search that wants a floor found nothing that is near enough."""
        query = question.query
        wants_floor = query.mode is Mode.HYBRID and query.min_score is None
        return wants_floor and _is_judged(ranked) and says_nothing(ranked.rankings, ranked.sure, query.profile.floor)

    @staticmethod
    def rare_words_held(ranked: Ranked) -> dict[int, int]:
        """Passage id -> how many literal words it has that hardly any other has."""
        return {p.passage_id: int(p.score) for r in ranked.rankings if r.name == RARE for p in r.passages}

    @staticmethod
    def confidence_in(
        question: Question, ranked: Ranked, episode: Episode, best: str, cosine: float | None
    ) -> Confidence:
        """How sure it is that an episode answers: by what it says alone, however many hits were asked for.

        :param best: the text of its best passage.
        :param cosine: of that passage.
        """
        if question.query.mode is Mode.EXACT:
            return Confidence.STRONG if question.query.min_score is None else Confidence.FAIR
        sure = in_words(ranked.evidence, question.level, cosine)
        return Confidence.FAIR if sure is Confidence.WEAK and _holds(episode, best, question) else sure

    def with_all_words(self, question: Question, rankings: Sequence[Ranking], depth: int) -> list[Ranking]:
        """Of the lists what has every word of the question: that answers it, however far it is."""
        query = question.query
        if not query.profile.all_words:
            return []
        try:
            held = self._store.text.with_all(question.words, depth, question.where)
        except AnamnesisError:  # the lists of words have said so already
            return []
        keys = {found.passage_id for found in held}
        kept = [replace(r, passages=[p for p in r.passages if p.passage_id in keys]) for r in rankings]
        return [*kept, Ranking("all_words", 1.0, held)]

    def _late(self, question: Question, passage_ids: Sequence[int]) -> dict[int, float]:
        space, vectors = question.space, question.vectors
        if space is None or vectors is None or vectors.tokens is None:
            return {}
        try:
            return max_similarities(vectors.tokens, self._store.vectors.tokens(space.key, passage_ids))
        except AnamnesisError:  # the dense lists have said so already
            return {}

    def vectors_of(self, question: Question, passage_ids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Stored vectors, shape (dim,), of those passages that have one."""
        if question.space is None or question.vectors is None:
            return {}
        try:
            return dict(self._store.vectors.get(question.space.key, Variant.TEXT, passage_ids))
        except AnamnesisError:  # the dense lists have said so already
            return {}


def _holds(episode: Episode, best: str, question: Question) -> bool:
    """Whether an episode has a literal token of a question, or its best passage every word."""
    if question.literals:
        said = f"{best} {episode.raw_exchange}".casefold()
        if any(re.search(rf"(?<!\w){re.escape(token.casefold())}(?!\w)", said) for token in question.literals):
            return True
    lowered = best.lower()  # most texts lack a word, and need not be divided into theirs
    return all(word in lowered for word in question.words) and set(content_words(best)).issuperset(question.words)


def _is_judged(ranked: Ranked) -> bool:
    """Whether all that would be shown first has vectors: of what has none nobody knows yet how near it is."""
    return all(best.passage_id in ranked.vectors for best in ranked.best[:JUDGED])
