"""What was asked of the memory: noted within bounds, and looked through for what was missed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.search.floor import UNASKED_LEAST
from anamnesis_pipeline.search.project_labels import is_private
from anamnesis_pipeline.search.query import Hit, Mode
from anamnesis_pipeline.search.telling import stage_of
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.query_base import AskedQuery, QueryCounts

MOST_CHARS = 1_000
"""Of a question; a pasted log is none."""
MOST_RESULTS = 20
LOOKED_AT = 5
"""Hits of another strategy of which one may answer."""

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
    mask: Callable[[str], str],
    private: Sequence[str],
    now: datetime,
) -> bool:
    """Remember a question and what it found; False: it is about a private project, and nothing is kept of it.

    :param asked: what else was said in it; its `project` may be a bare name.
    """
    projects = {str(asked.get("project") or ""), *(episode.project for episode in found)}
    if any(is_private(project, private) for project in projects):
        return False
    masked = " ".join(mask(query).split())[:MOST_CHARS]  # masked first: half a secret is not recognized
    store.queries.note(masked, asked, [episode.episode_id for episode in found[:MOST_RESULTS]], now)
    return True


def query_report(store: Store, ask: Ask, limit: int) -> QueryReport:
    """How questions fared, with the latest `limit` that found nothing asked anew in every other way."""
    unanswered = store.queries.unanswered(limit)
    missed = [found for asked in unanswered if (found := _missed(asked, ask)) is not None]
    return QueryReport(store.queries.counts(), len(unanswered), tuple(missed))


def _missed(asked: AskedQuery, ask: Ask) -> Missed | None:
    """What answers it: an episode with all its words, one that is near enough in meaning, or what is there by now."""
    words = set(content_words(asked.query))
    tests: dict[Mode, Callable[[Hit], bool]] = {
        Mode.EXACT: lambda hit: words <= set(content_words(" ".join(p.passage.text for p in hit.passages))),
        Mode.SEMANTIC: lambda hit: (sure := stage_of(hit, "confidence")) is not None and sure >= UNASKED_LEAST,
    }
    for mode, answers in tests.items():
        hit = next((hit for hit in ask(asked, mode)[:LOOKED_AT] if answers(hit)), None)
        if hit is not None:
            return Missed(asked, mode, hit)
    return None
