"""Bounded log of queries, and a report of answers that search missed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from typing_extensions import TypedDict

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.search.best_sentences import excerpt_of
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.floor import MIN_UNASKED
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.search.query import Hit, Mode
from anamnesis_pipeline.search.telling import stage_of
from anamnesis_pipeline.search.time_expressions import asks_for_all, times_in
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.schemas import SearchIn
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.queries import AskedQuery, QueryCounts

MAX_CHARS = 1_000
"""Max characters of a query; a pasted log is no query."""
MAX_RESULTS = 20
LOOKED_AT = 5
"""Hits of another mode that are checked for an answer."""

STEM_CHARS = 5
"""Characters that identify a word; endings are ignored."""

Ask = Callable[[AskedQuery, Mode], Sequence[Hit]]
"""Repeat a query in another mode, with its filters, without the relevance threshold, and with explanations."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A query without results, and the hit that answers it in mode `found_by`."""

    asked: AskedQuery
    found_by: Mode
    hit: Hit


@dataclass(frozen=True, slots=True)
class QueryReport:
    """Query statistics. `unanswered`: checked queries without results; `missed`: those that a stored episode
    answers.
    """

    counts: QueryCounts
    unanswered: int
    missed: tuple[Missed, ...]


def note_query(
    store: Store,
    query: str,
    asked: Mapping[str, Any],
    found: Sequence[Episode],
    *,
    is_answered: bool = True,
    mask: Callable[[str], str],
    private: Private,
    now: datetime,
) -> bool:
    """Store a query and its results. Return False, and store nothing, if it concerns something private.

    :param asked: other request fields; its `project` may be a bare name.
    :param is_answered: False: the results are merely the nearest.
    """
    if private.is_of(str(asked.get("project") or "")) or any(map(private.holds, found)):
        return False
    masked = " ".join(mask(query).split())[:MAX_CHARS]  # mask before truncating: half a secret is not recognized
    answers = found[:MAX_RESULTS] if is_answered else ()
    store.queries.note(masked, asked, [episode.episode_id for episode in answers], now)
    return True


def marks_of(texts: Iterable[str]) -> set[str]:
    """Return the stems of the words in some texts: their first characters."""
    return {word[:STEM_CHARS] for text in texts for word in content_words(text)}


def forget_questions(store: Store, marks: AbstractSet[str]) -> None:
    """Forget queries that may name removed texts with these stems: at least half of their words were in the texts, or
    one that is nowhere else, or their project is gone.
    """
    questions = store.queries.every()
    projects = {name for own, called, _ in store.projects.names() for name in (own, called)}

    words = {number: content_words(asked.query) for number, asked in questions.items()}
    named = {number: [word for word in its if not marks.isdisjoint(marks_of([word]))] for number, its in words.items()}
    only_there = set(store.text.unknown(sorted({word for its in named.values() for word in its})))
    going = [
        number
        for number, asked in questions.items()
        if 2 * len(named[number]) >= max(1, len(words[number]))
        or not only_there.isdisjoint(named[number])
        or _is_of_gone_project(asked, projects)
    ]
    store.queries.remove(going)


def _is_of_gone_project(asked: AskedQuery, projects: Collection[str]) -> bool:
    project = str(asked.asked.get("project") or "")
    return bool(project) and not any(name == project or name.endswith(f"/{project}") for name in projects)


def query_report(store: Store, ask: Ask, limit: int, private: Private = NOTHING_PRIVATE) -> QueryReport:
    """Return query statistics, and the latest `limit` queries without results repeated in every other mode. Private
    projects are neither queried nor reported.
    """
    unanswered = [
        asked for asked in store.queries.unanswered(limit) if not private.is_of(str(asked.asked.get("project") or ""))
    ]
    missed = [
        found
        for asked in unanswered
        if (found := _missed(asked, ask)) is not None and not private.holds(found.hit.episode)
    ]
    return QueryReport(store.queries.counts(), len(unanswered), tuple(missed))


def _missed(asked: AskedQuery, ask: Ask) -> Missed | None:
    """Return the hit that answers a query: an episode with all its words, or one above the semantic threshold. No text
    answers a query for a time alone, and a merely similar one does not answer an exact query.
    """
    times = times_in(asked.query, asked.asked_at, UTC)
    if times is not None and asks_for_all(asked.query.replace(times.words, " ")):
        return None
    words = set(content_words(asked.query))
    tests: dict[Mode, Callable[[Hit], bool]] = {
        Mode.EXACT: lambda hit: words <= set(content_words(" ".join(p.passage.text for p in hit.passages))),
        Mode.SEMANTIC: lambda hit: (sure := stage_of(hit, "confidence")) is not None and sure >= MIN_UNASKED,
    }
    if asked.asked.get("mode") == Mode.EXACT.value:
        del tests[Mode.SEMANTIC]
    for mode, answers in tests.items():
        hit = next((hit for hit in ask(asked, mode)[:LOOKED_AT] if answers(hit)), None)
        if hit is not None:
            return Missed(asked, mode, hit)
    return None


EXCERPT_CHARS = 300


class MissedOut(TypedDict):
    """A question that found nothing, `times` times, and the episode that answers it: it holds all its words (`found_by`
    is `exact`), or is near in meaning (`semantic`).
    """

    query: str
    mode: str
    project: str | None
    asked_at: str
    times: int
    found_by: str
    episode_id: str
    similarity_score: float | None
    excerpt: str


class QueriesOut(TypedDict):
    """Questions that are remembered, how many found something, and of how many something found was read soon after.
    `unanswered`: those looked at that found nothing; `missed`: those of them that something stored answers.
    """

    queries: int
    answered: int
    used: int
    unanswered: int
    missed: list[MissedOut]


def queries_body(store: Store, engine: Engine, limit: int) -> QueriesOut:
    """The report as JSON."""

    def ask(asked: AskedQuery, mode: Mode) -> Sequence[Hit]:
        body = {
            **asked.asked,
            "query": asked.query,
            "mode": mode.value,
            "lists": [],  # of another mode, maybe
            "track": False,
            "top_k": LOOKED_AT,
            "explain": True,
            "min_score": 0.0 if mode is Mode.EXACT else None,  # a question need not stand there to the letter
        }
        question = SearchIn.model_validate(body).question()
        return engine.search(replace(question, now=asked.asked_at)).hits  # `yesterday` is the day before that

    report = query_report(store, ask, limit, engine.private())
    counts = report.counts
    return {
        "queries": counts.queries,
        "answered": counts.answered,
        "used": counts.used,
        "unanswered": report.unanswered,
        "missed": [
            {
                "query": each.asked.query,
                "mode": each.asked.asked.get("mode", Mode.HYBRID.value),
                "project": each.asked.asked.get("project"),
                "asked_at": utc_text(each.asked.asked_at),
                "times": each.asked.times,
                "found_by": each.found_by.value,
                "episode_id": each.hit.episode.episode_id,
                "similarity_score": None if each.hit.similarity is None else round(each.hit.similarity, 4),
                "excerpt": excerpt_of(each.hit.passages)[0][:EXCERPT_CHARS],
            }
            for each in report.missed
        ],
    }
