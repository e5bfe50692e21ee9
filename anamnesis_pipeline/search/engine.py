"""The entry point of search: from a query to hits."""

import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.embeddings.base import QueryVectors
from anamnesis_pipeline.errors import AnamnesisError, EmbeddingQueueFull
from anamnesis_pipeline.model import CHAT_ANSWER, HOLDING, Episode, EpisodeFilter, EpisodeHead, Space, StoredPassage
from anamnesis_pipeline.parsing.text.file_names import composed
from anamnesis_pipeline.search.best_sentences import SentenceReader
from anamnesis_pipeline.search.boosts import CORRECTION, aged, factors_of
from anamnesis_pipeline.search.candidates import Candidates, Waiting, answered, is_exhausted
from anamnesis_pipeline.search.dialogue import asks_for_outcome, dialogue_factors, words_of
from anamnesis_pipeline.search.events import BESIDE_COMPACTION, Event, around, event_in
from anamnesis_pipeline.search.explaining import Explanation, answer_explanation, hit_explanation
from anamnesis_pipeline.search.floor import Confidence
from anamnesis_pipeline.search.freshness import Statement, asks_what_holds, backlog_notes, embedding_notes, newer_first
from anamnesis_pipeline.search.fusion import fold
from anamnesis_pipeline.search.levels import stored_level
from anamnesis_pipeline.search.profiles import Decay, tuned
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Hit, Mode, SearchAnswer, SearchQuery
from anamnesis_pipeline.search.ranker import Question, Ranked, Ranker
from anamnesis_pipeline.search.reranking import company
from anamnesis_pipeline.search.session_answers import SessionAnswers
from anamnesis_pipeline.search.stage_times import StageTimes
from anamnesis_pipeline.search.time_expressions import TimeReference, asks_for_all, times_in
from anamnesis_pipeline.search.trust import Authority, authority_of, is_logged
from anamnesis_pipeline.search.words import content_words, literal_tokens
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import layer_of
from anamnesis_pipeline.store.session_model import SESSION_KIND
from anamnesis_pipeline.store.statements import statement_of

EmbedQuery = Callable[[str, Space], QueryVectors]
Rerank = Callable[[str, Sequence[str]], NDArray[np.float32]]
"""(question, texts) -> how well each text answers, shape (texts,)"""

COMPACTION = "compact_summary"
"""Kind of the summary that a compaction leaves."""
HIDDEN_KINDS = (COMPACTION, SESSION_KIND)
"""Left out unless requested by `kind`: summaries, by Claude Code and of sessions, of text that is stored verbatim."""
CHARS_PER_TOKEN = 4
SECTION_KINDS = ("document", "code")
RERANK_DEPTH = 20
"""First episodes whose best passages a cross-encoder reads."""
MAX_TOP_K, NOTES_DEPTH = 100, 4
"""Notes of a time are searched among `NOTES_DEPTH` times more hits."""
REFILL_DEPTH = 1_000
"""Ranks searched to replace hits that were collapsed or below the threshold; deeper ones are no answers."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A candidate as stored: the best passage of an episode and its companions, its cosine, its fused score including
    `company` and `factors`, and its score by the cross-encoder (`reread`).
    """

    episode: EpisodeHead
    passage: StoredPassage
    score: float
    cosine: float | None
    second: StoredPassage | None = None
    vector: NDArray[np.float32] | None = None
    factors: Mapping[str, float] = field(default_factory=dict)
    company: float = 0.0
    reread: float | None = None

    @property
    def passages(self) -> tuple[StoredPassage, ...]:
        """Return the passages of the excerpt."""
        return (self.passage,) if self.second is None else (self.passage, self.second)


@dataclass(frozen=True, slots=True)
class _Answered:
    """Hits, their explanation, and the searched space. `is_weak`: nothing answers well, and these are the nearest."""

    hits: list[Hit]
    explanation: Explanation | None
    space: Space | None
    is_weak: bool


class Engine:
    """Searches one store. Stateless between calls; thread-safe."""

    def __init__(
        self,
        store: Store,
        embed_query: EmbedQuery | None,
        space_for: Callable[[Space], Space] = lambda active: active,
        min_value: Callable[[], float] = lambda: 0.0,
        zone: Callable[[], tzinfo] = lambda: UTC,
        private: Callable[[], Private] = Private,
        rerank: Rerank | None = None,
        numbers: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """:param embed_query: returns the text's vectors in the given space; None: no model is loaded here.
        :param space_for: the space to search while the active one's model still loads.
        :param min_value: episodes of logs with a lower value are routine and rank lower.
        :param zone: time zone of the days in a question.
        :param private: the current private sources and projects, left out unless the question names them.
        :param rerank: scores passages by a cross-encoder; any AnamnesisError of it leaves the order unchanged.
        :param numbers: those of the ranking that are not the defaults: name of a field of `Profile` -> value.
        """
        self._store = store
        self._embed_query = embed_query
        self._space_for = space_for
        self._min_value = min_value
        self._zone = zone
        self._rerank = rerank
        self.private = private
        self._numbers = numbers
        self.times = StageTimes()
        self._candidates = Candidates(store, self.times)
        self._ranker = Ranker(store, self.times)
        self._session_answers = SessionAnswers(store)
        self._sentences = SentenceReader(store)

    def search(self, query: SearchQuery) -> SearchAnswer:
        """Return the best episodes, one hit each. A failed part is named in `degraded`; the other parts still answer.
        Without hits, `degraded` also names what is still to be read and embedded.
        """
        started = time.perf_counter()
        degraded: list[str] = []
        query = replace(query, text=composed(query.text), profile=tuned(query.profile, self._numbers()))
        now = query.now or datetime.now(UTC)
        asked, times = self._timed(query, now)
        told = self._sessions(query, times, now)
        if told is None:
            found = self._found(asked, times, now, degraded)
        else:  # most episodes of a time are pieces of its sessions
            deeper = replace(asked, top_k=min(MAX_TOP_K, NOTES_DEPTH * query.top_k))
            found = self._found(deeper, times, now, degraded)
            hits = _behind_sessions(told, found.hits)[: query.top_k]
            found = replace(found, hits=hits, is_weak=found.is_weak and not told)
        hits = found.hits
        if query.track and hits and not found.is_weak:
            try:
                self._store.episodes.track([hit.episode.episode_id for hit in hits], datetime.now(UTC))
            except AnamnesisError as exc:  # a failed usage count must not fail the answer
                degraded.append(f"track: {exc}")
        self._note_backlog(query, found, degraded)
        tokens = sum(_tokens(hit.episode, hit.passages) for hit in hits)
        took_ms = (time.perf_counter() - started) * 1000
        model_id = found.space.model_id if found.space else None
        return SearchAnswer(hits, took_ms, model_id, degraded, tokens, found.explanation, found.is_weak)

    def _found(self, query: SearchQuery, times: TimeReference | None, now: datetime, degraded: list[str]) -> _Answered:
        """Return the hits and how they were found."""
        where, depth = self._effective(query, now), max(query.profile.depth, 4 * query.top_k)
        words = self._candidates.start_words(query, where, depth)  # the store searches while the model embeds
        with self.times.of("embed"):
            space, vectors = self._vectors(query, degraded)
        level = stored_level(self._store, space) if space and vectors else None
        asked, literals = content_words(query.text), literal_tokens(query.text)
        question = Question(query, where, space, vectors, self._min_value(), now, times, level, asked, literals)
        return self._hits(question, depth, words, degraded)

    def _sessions(self, query: SearchQuery, times: TimeReference | None, now: datetime) -> list[Hit] | None:
        """Return the sessions of the time within the budget; None if the question asks for more than a time."""
        where = query.where
        narrows = where.kinds or where.types or where.tags or where.layers or where.session_id or where.only_superseded
        if times is None or not times.by_the_clock or narrows or not asks_for_all(query.text.replace(times.words, " ")):
            return None
        hits = self._session_answers.of(self._effective(query, now), times, query.top_k, now)
        spent = itertools.accumulate(_tokens(hit.episode, hit.passages) for hit in hits)
        most = query.max_tokens if query.max_tokens is not None else sys.maxsize
        return [hit for hit, tokens in zip(hits, spent, strict=True) if tokens <= most]

    def _timed(self, query: SearchQuery, now: datetime) -> tuple[SearchQuery, TimeReference | None]:
        """Return the query to search for, and the time that it names, or that of the event it refers to."""
        if query.where.since or query.where.until or not query.profile.boosts or query.mode is Mode.EXACT:
            return query, None
        if (times := times_in(query.text, now, self._zone())) is not None:
            return _narrowed(query, times, query.text.replace(times.words, " ")), times
        if (event := event_in(query.text)) is None or (times := self._time_of(event, query, now)) is None:
            return query, None
        if not event.is_compaction:
            return query, times
        asked = replace(query, text=event.rest)  # its words would find texts about compacting
        return _narrowed(asked, times, event.rest), times

    def _time_of(self, event: Event, query: SearchQuery, now: datetime) -> TimeReference | None:
        """Return the time of the event's best hit, without the query's kinds, tags and layers. For a compaction, search
        the summaries.
        """
        where = replace(query.where, kinds=(COMPACTION,) if event.is_compaction else (), tags=(), layers=())
        floor = -math.inf if event.is_compaction else query.profile.floor
        profile = replace(query.profile, boosts=False, floor=floor, rerank=False)
        asked = replace(
            query, text=event.words, top_k=1, where=where, max_tokens=None, explain=False, profile=profile, weak=False
        )
        if event.is_compaction:
            return self._compaction(event, asked, now)
        hits = self._found(asked, None, now, []).hits
        return around(event, hits[0].episode.timestamp) if hits else None

    def _compaction(self, event: Event, asked: SearchQuery, now: datetime) -> TimeReference | None:
        """Return the time when the session continued: of several summaries, some begin minutes earlier."""
        where = self._effective(asked, now)
        if event.is_the_last:
            found = [*self._store.episodes.page(where, 1).items]
        else:
            found = [hit.episode for hit in self._found(asked, None, now, []).hits]
        if not found:
            return None
        when, session_id = found[0].timestamp, found[0].session_id
        if session_id:
            near = replace(where, session_id=session_id, since=when, until=when + BESIDE_COMPACTION)
            when = max([when, *(episode.timestamp for episode in self._store.episodes.page(near, 1).items)])
        return around(event, when, session_id)

    def _note_backlog(self, query: SearchQuery, found: _Answered, degraded: list[str]) -> None:
        """Note the backlog. With hits, note only pending embeddings: a full check takes longer than a search may."""
        try:
            if not found.hits:
                degraded += backlog_notes(self._store, query.mode)
            elif found.space is not None and query.mode is not Mode.EXACT and not degraded:
                degraded += embedding_notes(self._store, found.space)
        except AnamnesisError as exc:
            degraded.append(f"reading: {exc}")

    def _effective(self, query: SearchQuery, now: datetime) -> EpisodeFilter:
        where = self.visible(query.where, query.include_private)
        where = replace(where, layers_at=now) if where.layers else where
        if query.as_of is not None:
            until = min(query.as_of, where.until) if where.until is not None else query.as_of
            where = replace(where, until=until, include_superseded=True)
        kinds = [kind for kind in HIDDEN_KINDS if kind != SESSION_KIND or not asks_for_outcome(query.text)]
        hidden = where.hidden_kinds if where.kinds else tuple({*where.hidden_kinds, *kinds})
        return replace(where, hidden_kinds=hidden)

    def visible(self, where: EpisodeFilter, include_private: Sequence[str]) -> EpisodeFilter:
        """Return the filter with stored project names, and without private content that it does not name."""
        return self.private().visible(self._store, where, include_private)

    def _vectors(self, query: SearchQuery, degraded: list[str]) -> tuple[Space | None, QueryVectors | None]:
        active = self._store.spaces.active()
        if query.mode is Mode.EXACT:
            return active, None
        if active is None or self._embed_query is None:
            degraded.append("dense: no embedding model is loaded here")
            return active, None
        try:
            space = self._space_for(active)
            if problem := self._store.vectors.index_state(space.key).problem:
                degraded.append(f"dense: {problem}")
            return space, self._embed_query(query.text, space)
        except EmbeddingQueueFull:  # this machine is overloaded: the caller has to wait
            raise
        except AnamnesisError as exc:
            degraded.append(f"dense: {exc}")
            return active, None

    def _hits(self, question: Question, depth: int, words: Sequence[Waiting], degraded: list[str]) -> _Answered:
        """Search ever deeper lists until there are enough distinct episodes, or the lists are exhausted."""
        query = question.query
        reread: dict[int, float] = {}
        while True:
            with self.times.of("lists"):
                rankings = answered([*self._dense(question, depth), *words], degraded)
            exhausted = is_exhausted(rankings, depth, query.min_score)
            with self.times.of("order"):
                judged = ranked = self._ranker.order(question, rankings, None if exhausted else depth)
            if self._ranker.says_nothing(question, ranked):
                held = self._ranker.with_all_words(question, rankings, depth)
                if not query.weak or any(ranking.passages for ranking in held):
                    exhausted = is_exhausted(held, depth, None)
                    ranked = self._ranker.order(question, held, None)
            with self.times.of("read"):
                read = self._read(question, ranked)
            read = self._reranked(query, read, reread, degraded)
            if ranked.late:  # the co-occurrence boost would outweigh the small gaps of the lists alone
                read = _accompanied(read, query.profile.company)
            found = self._boosted(question, ranked, read)
            if query.profile.decay is Decay.NONE and not query.profile.curated_first:  # else another order is asked for
                found = _rare_first(found, self._ranker.rare_words_held(ranked))
            found = self._below_cited(_newer_first(query, found, ranked.late))
            with self.times.of("fold"):
                texts = (tuple(stored.passage.text for stored in each.passages) for each in found)
                groups = fold(texts, query.top_k) if query.fold else [[n] for n in range(len(found))]
            deep_enough = depth >= REFILL_DEPTH and len(ranked.best) >= query.top_k
            if exhausted or deep_enough or len(groups) >= query.top_k:
                told = replace(ranked, evidence=judged.evidence)  # these lists hold only some of the nearest
                hits = self._shown(question, told, [[found[n] for n in group] for group in groups])
                explained = (
                    answer_explanation(question, judged, len(found), len(groups), self._numbers())
                    if query.explain
                    else None
                )
                is_weak = query.weak and all(hit.confidence is Confidence.WEAK for hit in hits)
                return _Answered(hits, explained, question.space, is_weak and bool(hits))
            depth *= 4
            words = self._candidates.start_words(query, question.where, depth)

    def _dense(self, question: Question, depth: int) -> list[Waiting]:
        if question.space is None or question.vectors is None:
            return []
        names = question.query.lists
        return self._candidates.start_dense(question.space, question.vectors.vector, question.where, depth, names)

    def _read(self, question: Question, ranked: Ranked) -> list[_Found]:
        """Return the candidates that still exist and reach the relevance threshold."""
        wanted = [candidate.passage_id for candidate in ranked.best]
        seconds = [second for c in ranked.best if (second := ranked.seconds.get(c.episode_id)) is not None]
        missing_texts = [key for key in (*wanted, *seconds) if key not in ranked.told.passages]
        passages = {**ranked.told.passages, **self._store.episodes.passages(missing_texts)}
        unread = [key for key in wanted if key not in ranked.vectors]
        vectors = {**ranked.vectors, **(self._ranker.vectors_of(question, unread) if unread else {})}
        cosines: dict[int, float] = {}
        if question.vectors is not None:
            asked = question.vectors.vector
            cosines = {key: float(np.dot(vectors[key], asked)) for key in wanted if key in vectors}
        least = question.query.min_score
        clear = [
            c
            for c in ranked.best
            if c.passage_id in passages and (not least or cosines.get(c.passage_id, math.inf) >= least)
        ]
        missing = [c.episode_id for c in clear if c.episode_id not in ranked.heads]
        heads = {**ranked.heads, **(self._store.episodes.heads(missing) if missing else {})}
        holding = self._holding(question, heads)
        return [
            _Found(
                heads[c.episode_id],
                passages[c.passage_id],
                c.score,
                cosines.get(c.passage_id),
                passages.get(ranked.seconds.get(c.episode_id, -1)),
                vectors.get(c.passage_id),
            )
            for c in clear
            if c.episode_id in holding
        ]

    def _reranked(
        self, query: SearchQuery, found: list[_Found], reread: dict[int, float], degraded: list[str]
    ) -> list[_Found]:
        """Give the highest of the first scores to the passage that the cross-encoder likes best, and so on.

        :param reread: its scores so far by passage; extended.
        """
        has_failed = any(note.startswith("rerank: ") for note in degraded)
        if self._rerank is None or has_failed or not query.profile.rerank or query.mode is Mode.EXACT:
            return found
        first = found[:RERANK_DEPTH]
        unread = [each.passage for each in first if each.passage.passage_id not in reread]
        try:
            if unread:
                with self.times.of("rerank"):
                    scores = self._rerank(query.text, [stored.passage.text for stored in unread])
                reread |= {stored.passage_id: float(score) for stored, score in zip(unread, scores, strict=True)}
        except AnamnesisError as exc:
            degraded.append(f"rerank: {exc}")
            return found
        order = sorted(first, key=lambda each: -reread[each.passage.passage_id])
        places = zip(order, first, strict=True)
        ordered = [replace(f, score=at.score, reread=reread[f.passage.passage_id]) for f, at in places]
        return ordered + found[RERANK_DEPTH:]

    def _holding(self, question: Question, heads: Mapping[str, EpisodeHead]) -> set[str]:
        """Return the ids of those that hold now, or held at the time of `as_of`: what was said by then, within its own
        bounds, and replaced by nothing that was said by then.
        """
        query = question.query
        if query.where.include_superseded or query.where.only_superseded:
            return set(heads)
        when = query.as_of or question.now
        found = {key for key, head in heads.items() if statement_of(head.metadata).holds_at(when)}
        if query.as_of is None:
            return found
        ended = {key: head for key in found if (head := heads[key]).status not in HOLDING}
        successors = self._store.episodes.heads([head.superseded_by for head in ended.values() if head.superseded_by])
        for key, head in ended.items():
            successor = successors.get(head.superseded_by or "")
            ceased = successor.timestamp if successor is not None else head.superseded_at
            if ceased is None or ceased <= when:
                found.discard(key)
        return found

    def _boosted(self, question: Question, ranked: Ranked, found: list[_Found]) -> list[_Found]:
        """Sort by score, with boosts. An exact search is not boosted: matches of its literal tokens count alone."""
        profile = question.query.profile
        if question.query.mode is Mode.EXACT:
            return found
        weighed, asked = [], words_of(question.query.text)
        for each in found:
            factors: dict[str, float] = {}
            if profile.boosts:
                concluded = each.passage.passage_id in ranked.told.concluded  # never routine, even if short
                least_value = -math.inf if concluded else question.least_value
                factors = factors_of(each.episode, least_value, question.times, profile)
                factors |= dialogue_factors(each.episode, each.passage.passage.text, asked, profile.named_speaker)
            score = aged(each.score * math.prod(factors.values(), start=1.0), each.episode, profile, question.now)
            weighed.append(replace(each, score=score, factors=factors))
        curated = profile.curated_first
        return sorted(
            weighed, key=lambda f: (curated and authority_of(f.episode) is not Authority.AUTHORITATIVE, -f.score)
        )

    def _below_cited(self, found: list[_Found]) -> list[_Found]:
        """Move each answer of the chat behind all that it cites."""
        answers = sorted((f for f in found if f.episode.kind == CHAT_ANSWER), key=lambda f: f.episode.timestamp)
        if not answers:
            return found
        cited, order = self._store.chat.cited_by([f.episode.episode_id for f in answers]), list(found)
        for answer in answers:  # oldest first: a later one may cite it
            its = cited.get(answer.episode.episode_id, frozenset())
            place = order.index(answer)
            last = max((n for n, f in enumerate(order) if f.episode.episode_id in its), default=place)
            if last > place:
                order.insert(last, replace(order.pop(place), score=order[last - 1].score))
        return order

    def _shown(self, question: Question, ranked: Ranked, groups: Sequence[Sequence[_Found]]) -> list[Hit]:
        """Return a hit for each group within the budget; only the shown episodes are read whole."""
        query, now = question.query, question.now
        chosen = _within_budget(query, groups)
        with self.times.of("show"):
            shown = [first.episode.episode_id for first, *_ in chosen]
            unread = [name for name in shown if name not in ranked.told.episodes]
            whole = {**ranked.told.episodes, **(self._store.episodes.get(unread) if unread else {})}
        hits = []
        leaders = [max(group, key=lambda found: found.score) for group in chosen]  # the best score ranks a group
        most = max([1.0, *(leader.score for leader in leaders)])  # boosts may lift scores above 1
        for (first, *others), leader in zip(chosen, leaders, strict=True):
            episode = whole.get(first.episode.episode_id)
            if episode is None:  # deleted a moment ago
                continue
            key, text = first.passage.passage_id, first.passage.passage.text
            explained = None
            if query.explain:
                explained = hit_explanation(
                    question, ranked, key, first.cosine, first.company, first.factors, first.reread
                )
            hits.append(
                Hit(
                    episode,
                    leader.score / most,
                    first.cosine,
                    first.passage,
                    tuple(other.episode.episode_id for other in others),
                    explained,
                    math.prod(leader.factors.values(), start=1.0),
                    first.second,
                    layer_of(first.episode, now),
                    self._ranker.confidence_in(question, ranked, episode, text, first.cosine),
                )
            )
        return self._with_sentences(question, hits) if query.sentences else hits

    def _with_sentences(self, question: Question, hits: Sequence[Hit]) -> list[Hit]:
        tokens = question.vectors.tokens if question.vectors is not None else None
        with self.times.of("sentences"):
            passages = [hit.passages for hit in hits[: question.query.sentences]]
            runs = self._sentences.runs(question.query.text, question.space, tokens, passages)
        read = [replace(hit, runs=its) for hit, its in zip(hits, runs, strict=False)]
        return [*read, *hits[len(runs) :]]


def _narrowed(query: SearchQuery, times: TimeReference, rest: str) -> SearchQuery:
    """Restrict the query to the time, without a threshold, if the rest of the question asks for nothing else."""
    if not asks_for_all(rest):
        return query
    session_id = query.where.session_id or times.session_id or None
    where = replace(query.where, since=times.since, until=times.until, session_id=session_id)
    return replace(query, where=where, profile=replace(query.profile, floor=-math.inf))


def _behind_sessions(told: list[Hit], hits: Sequence[Hit]) -> list[Hit]:
    """Return the sessions of a time, then the notes outside of them: no pieces of sessions, and no documents beside
    sessions.
    """
    notes = [hit for hit in hits if not is_logged(hit.episode) and not (told and hit.episode.kind in SECTION_KINDS)]
    least = told[-1].score if told else 1.0
    return told + [replace(note, score=note.score * least) for note in notes]


def _accompanied(found: list[_Found], share: float) -> list[_Found]:
    """Add the co-occurrence boost: a share of the other scores of the same conversation."""
    gained = [share * score for score in company([(each.episode, each.score) for each in found])]
    return [replace(f, score=f.score + more, company=more) for f, more in zip(found, gained, strict=True)]


def _rare_first(found: list[_Found], held: Mapping[int, int]) -> list[_Found]:
    """Move hits with more rare words before those with fewer."""
    if not held or not found:
        return found
    most = max(each.score for each in found)
    lifted = [replace(f, score=f.score + most * held.get(f.passage.passage_id, 0)) for f in found]
    return sorted(lifted, key=lambda f: -f.score)


def _newer_first(query: SearchQuery, found: list[_Found], late: Mapping[int, float]) -> list[_Found]:
    if not query.profile.newer_first or query.mode is Mode.EXACT or not asks_what_holds(query.text):
        return found
    statements = [
        Statement(
            f.passage.passage.text,
            f.episode.timestamp,
            f.episode.project,
            not f.episode.session_id,
            late.get(f.passage.passage_id),
            f.vector,
            CORRECTION in f.episode.tags,
        )
        for f in found
    ]
    ordered = [found[index] for index in newer_first(query.text, statements)]
    scores = itertools.accumulate((f.score for f in reversed(ordered)), max)  # no score below that of a later hit
    return [replace(f, score=score) for f, score in zip(ordered, reversed(list(scores)), strict=True)]


def _within_budget(query: SearchQuery, groups: Sequence[Sequence[_Found]]) -> list[list[_Found]]:
    """Return the first `top_k` groups that fit the budget, each with its shown candidate first."""
    chosen = []
    left = query.max_tokens if query.max_tokens is not None else sys.maxsize
    for group in groups[: query.top_k]:
        first, *others = sorted(group, key=lambda found: found.episode.status not in HOLDING)
        if first.second is not None and _tokens(first.episode, first.passages) > left:
            first = replace(first, second=None)
        cost = _tokens(first.episode, first.passages)
        if cost <= left:
            left -= cost
            chosen.append([first, *others])
    return chosen


def _tokens(episode: Episode | EpisodeHead, passages: Sequence[StoredPassage]) -> int:
    return (len(episode.summary) + sum(len(stored.passage.text) for stored in passages)) // CHARS_PER_TOKEN
