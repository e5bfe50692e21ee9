"""Order candidate lists into one, and decide whether it answers at all."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import QueryVectors
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Episode, EpisodeFilter, EpisodeHead, ScoredPassage, Space, StoredPassage, Variant
from anamnesis_pipeline.parsing.text.transcripts import Voice, voice_shares, voices_in
from anamnesis_pipeline.search.best_sentences import second_passages
from anamnesis_pipeline.search.candidates import RARE
from anamnesis_pipeline.search.dialogue import CONCLUDED, SAID, asks_for_outcome, mostly, voice_factor, voice_factors
from anamnesis_pipeline.search.floor import Confidence, Evidence, Level, confidence, in_words, nearest_of, says_nothing
from anamnesis_pipeline.search.fusion import Ranking, best_passages, reciprocal_rank_fusion
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.search.reranking import (
    BY_WORDS,
    LATE_DEPTH,
    late_by_words,
    later_first,
    max_similarities,
    with_late_interaction,
    with_neighbours,
    without_vectors_heard,
)
from anamnesis_pipeline.search.stage_times import StageTimes
from anamnesis_pipeline.search.time_expressions import TimeReference
from anamnesis_pipeline.search.trust import is_logged, is_written
from anamnesis_pipeline.search.words import content_words, unknown_share
from anamnesis_pipeline.store.base import Store

VOICE_DEPTH = 30
"""Passages whose speakers are read from the texts of their episodes. 60 give the same order."""
WITHOUT_LATE = 0.5
"""Exponent of the speaker factors if no token vectors were compared: the scores of lists alone are closer together."""
JUDGED = 10
"""Episodes that a search shows: only if all of them have vectors can it decide that nothing answers."""


@dataclass(frozen=True, slots=True)
class Question:
    """A resolved query. `vectors` are the query's in `space`; `words` are its content words, `literals` its literal
    tokens.
    """

    query: SearchQuery
    where: EpisodeFilter
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
    """Speakers of the first passages from logs: these passages, their episodes, and the score factors, also of what was
    written to be read. `concluded`: most of a passage was typed by a person or ended a turn.
    """

    passages: Mapping[int, StoredPassage] = field(default_factory=dict)
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    factors: Mapping[int, float] = field(default_factory=dict)
    concluded: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Ranked:
    """Passages in order, the best of each episode and the scores of all; `late`, `vectors` and `told` of the first
    ones; the evidence, and the confidence that any of them answers.
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
    """Orders the candidates of one store. Thread-safe."""

    def __init__(self, store: Store, times: StageTimes) -> None:
        self._store = store
        self._times = times

    def order(self, question: Question, rankings: Sequence[Ranking], most: int | None) -> Ranked:
        """Fuse the lists, then reorder the first candidates by late interaction and by their neighbours."""
        profile = question.query.profile
        episode_of = {p.passage_id: p.episode_id for ranking in rankings for p in ranking.passages}
        scores = reciprocal_rank_fusion(rankings, profile.depth, profile.rrf_k)
        first = sorted(scores, key=lambda key: (-scores[key], -key))[: max(LATE_DEPTH, 2 * question.query.top_k)]
        vectors = self.vectors_of(question, first)
        if vectors:
            scores = without_vectors_heard(scores, rankings, set(first) - vectors.keys())
        with self._times.of("late"):
            late = self._late(question, first[:LATE_DEPTH])
        heard = {**late, **late_by_words(late, rankings, set(first) - vectors.keys())} if vectors else late
        scores = with_late_interaction(scores, heard, profile.late, profile.sharpness, episode_of)
        heads = self._store.episodes.heads(list(dict.fromkeys(episode_of[key] for key in first)))
        if late:  # the neighbour's share would outweigh the small gaps of the lists alone
            scores = with_neighbours(scores, profile.neighbours, heads, episode_of)
        told = Told()
        if profile.boosts and question.query.mode is not Mode.EXACT:
            exponent = profile.voices * (1.0 if late else WITHOUT_LATE)
            told = self._told(question.query.text, scores, episode_of, heads, exponent)
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
        """Return the speakers of the first passages, and their weight for a question.

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
        written = [key for key in first if (head := heads.get(episode_of[key])) and is_written(head)]
        factors |= dict.fromkeys(written, weights[Voice.PERSON])
        if asks_for_outcome(text):
            said = {key: heads[passages[key].episode_id] for key, share in shares.items() if mostly(share, SAID)}
            factors |= {key: factors[key] * more for key, more in later_first(said).items()}
        concluded = frozenset(key for key, share in shares.items() if mostly(share, CONCLUDED))
        return Told(passages, episodes, {key: factor**exponent for key, factor in factors.items()}, concluded)

    def _evidence(self, question: Question, rankings: Sequence[Ranking]) -> Evidence | None:
        """Return the evidence that anything answers; None if it is not known."""
        nearest = nearest_of(rankings)
        if question.level is None or not nearest:
            return None
        times = question.times
        when = content_words(times.words) if times is not None and times.by_the_clock else []
        try:
            unknown = unknown_share(question.query.text, self._store.text.unknown, when)
        except AnamnesisError:  # the word lists have reported it already
            return None
        return Evidence(nearest, unknown)

    def says_nothing(self, question: Question, ranked: Ranked) -> bool:
        """Return whether a search with a relevance threshold found nothing near enough."""
        query = question.query
        wants_floor = query.mode is Mode.HYBRID and query.min_score is None
        return wants_floor and _is_judged(ranked) and says_nothing(ranked.rankings, ranked.sure, query.profile.floor)

    @staticmethod
    def rare_words_held(ranked: Ranked) -> dict[int, int]:
        """Return passage ID -> number of rare literal words in it."""
        return {p.passage_id: int(p.score) for r in ranked.rankings if r.name == RARE for p in r.passages}

    @staticmethod
    def confidence_in(
        question: Question, ranked: Ranked, episode: Episode, best: str, cosine: float | None
    ) -> Confidence:
        """Return the confidence that an episode answers: by its own text, regardless of the number of hits.

        :param best: the text of its best passage.
        :param cosine: of that passage.
        """
        if question.query.mode is Mode.EXACT:
            return Confidence.STRONG if question.query.min_score is None else Confidence.FAIR
        sure = in_words(ranked.evidence, question.level, cosine, question.query.profile.weak_below)
        return Confidence.FAIR if sure is Confidence.WEAK and _holds(episode, best, question) else sure

    def with_all_words(self, question: Question, rankings: Sequence[Ranking], depth: int) -> list[Ranking]:
        """Restrict the lists to passages with every word of the question: they answer it at any distance."""
        query = question.query
        if not query.profile.all_words or (query.lists and BY_WORDS not in query.lists):
            return []
        try:
            held = self._store.text.with_all(question.words, depth, question.where)
        except AnamnesisError:  # the word lists have reported it already
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
        except AnamnesisError:  # the dense lists have reported it already
            return {}

    def vectors_of(self, question: Question, passage_ids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Return the stored vectors, shape (dim,), of the passages that have one."""
        if question.space is None or question.vectors is None:
            return {}
        try:
            return dict(self._store.vectors.get(question.space.key, Variant.TEXT, passage_ids))
        except AnamnesisError:  # the dense lists have reported it already
            return {}


def _holds(episode: Episode, best: str, question: Question) -> bool:
    """Return whether an episode has a literal token of a question, or its best passage every word."""
    if question.literals:
        said = f"{best} {episode.raw_exchange}".casefold()
        if any(re.search(rf"(?<!\w){re.escape(token.casefold())}(?!\w)", said) for token in question.literals):
            return True
    lowered = best.lower()  # a fast check before the text is split into words
    return all(word in lowered for word in question.words) and set(content_words(best)).issuperset(question.words)


def _is_judged(ranked: Ranked) -> bool:
    """Return whether all first hits have vectors: without one, a passage's distance is not known yet."""
    return all(best.passage_id in ranked.vectors for best in ranked.best[:JUDGED])
