"""What was asked of the memory: noted within bounds, and looked through for what was missed."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.search.floor import UNASKED_LEAST
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.search.query import Hit, Mode
from anamnesis_pipeline.search.telling import stage_of
from anamnesis_pipeline.search.time_expressions import asks_for_all, times_in
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.queries import AskedQuery, QueryCounts

MOST_CHARS = 1_000
"""Of a question; a pasted log is none."""
MOST_RESULTS = 20
LOOKED_AT = 5
"""Hits of another strategy of which one may answer."""

STEM_CHARS = 5
"""Of a word; what it ends in says little."""

Ask = Callable[[AskedQuery, Mode], Sequence[Hit]]
"""Asks a question anew, with its filters and without its floor, in another mode; the search explains itself."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A question that found nothing, and the hit that answers it in mode `found_by`."""

    asked: AskedQuery
    found_by: Mode
    hit: Hit


@dataclass(frozen=True, slots=True)
class QueryReport:
    """How questions fared. `unanswered`: those looked at that found nothing; `missed`: those of them that something
    stored answers.
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
    """Remember a question and what it found; False: it is about something private, and nothing is kept of it.

    :param asked: what else was said in it; its `project` may be a bare name.
    :param is_answered: False: what was found are merely the nearest.
    """
    if private.is_of(str(asked.get("project") or "")) or any(map(private.holds, found)):
        return False
    masked = " ".join(mask(query).split())[:MOST_CHARS]  # masked first: half a secret is not recognized
    answers = found[:MOST_RESULTS] if is_answered else ()
    store.queries.note(masked, asked, [episode.episode_id for episode in answers], now)
    return True


def marks_of(texts: Iterable[str]) -> set[str]:
    """Return what the words of texts are known by: their first characters, whatever their endings."""
    return {word[:STEM_CHARS] for text in texts for word in content_words(text)}


def forget_questions(store: Store, marks: AbstractSet[str]) -> None:
    """Forget the questions that may name removed texts, which had these marks: half of their words or more were there,
    or one that is nowhere else, or they were asked of a project that is gone.
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
    """How questions fared, with the latest `limit` that found nothing asked anew in every other way. What is private by
    now is no answer, nor is it asked for.
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
    """What answers it: an episode with all its words, one that is near enough in meaning, or what is there by now. No
    text answers a question for nothing but a time, and none that is merely near one for literal text.
    """
    times = times_in(asked.query, asked.asked_at, UTC)
    if times is not None and asks_for_all(asked.query.replace(times.words, " ")):
        return None
    words = set(content_words(asked.query))
    tests: dict[Mode, Callable[[Hit], bool]] = {
        Mode.EXACT: lambda hit: words <= set(content_words(" ".join(p.passage.text for p in hit.passages))),
        Mode.SEMANTIC: lambda hit: (sure := stage_of(hit, "confidence")) is not None and sure >= UNASKED_LEAST,
    }
    if asked.asked.get("mode") == Mode.EXACT.value:
        del tests[Mode.SEMANTIC]
    for mode, answers in tests.items():
        hit = next((hit for hit in ask(asked, mode)[:LOOKED_AT] if answers(hit)), None)
        if hit is not None:
            return Missed(asked, mode, hit)
    return None
