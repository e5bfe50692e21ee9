"""How the questions that were asked of the memory fared."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic_core import to_jsonable_python
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.errors import AnamnesisError, StoreFull
from anamnesis_pipeline.runtime.wiring import effective_settings
from anamnesis_pipeline.search.best_sentences import excerpt_of
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import Hit, Mode, SearchAnswer
from anamnesis_pipeline.services.query_log import LOOKED_AT, Missed, note_query, query_report
from anamnesis_pipeline.sidecar.admission import Admission, Room
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.rendering import json_reply, utc_text
from anamnesis_pipeline.sidecar.schemas import SearchIn
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.queries import AskedQuery

EXCERPT_CHARS = 300
_NOT_KEPT = {"query", "query_text", "track", "include", "explain", "quote_tokens"}

log = logging.getLogger(__name__)
router = APIRouter(tags=["search"], responses=PROBLEMS)


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


@router.get("/api/queries", response_model=QueriesOut)
async def list_queries(
    request: Request,
    services: Uses,
    limit: Annotated[int, Query(ge=1, le=100, description="Max searches without a result that are tried again")] = 20,
) -> Response:
    """Report how the searches of the last 90 days fared, and which of those without a result another way of searching
    answers.
    """
    admission: Admission = request.app.state.admission
    return await admission.run(lambda: json_reply(queries_body(services.store, services.engine, limit)))


def queries_body(store: Store, engine: Engine, limit: int) -> QueriesOut:
    """The report as JSON."""

    def ask(asked: AskedQuery, mode: Mode) -> Sequence[Hit]:
        body = {
            **asked.asked,
            "query": asked.query,
            "mode": mode.value,
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
        "missed": [_missed_body(missed) for missed in report.missed],
    }


def _missed_body(missed: Missed) -> MissedOut:
    asked, hit = missed.asked, missed.hit
    return {
        "query": asked.query,
        "mode": asked.asked.get("mode", Mode.HYBRID.value),
        "project": asked.asked.get("project"),
        "asked_at": utc_text(asked.asked_at),
        "times": asked.times,
        "found_by": missed.found_by.value,
        "episode_id": hit.episode.episode_id,
        "similarity_score": None if hit.similarity is None else round(hit.similarity, 4),
        "excerpt": excerpt_of(hit.passages)[0][:EXCERPT_CHARS],
    }


def keep_question(services: Services, room: Room, question: SearchIn, answer: SearchAnswer) -> None:
    """Note a question that was answered, unless the user wants none noted. Raises nothing: the answer is out. Where
    nobody posts, this is the write that meets a full store.
    """
    try:
        settings = effective_settings(services.store)
        if settings.query_log:
            note_query(
                services.store,
                question.query or question.query_text,
                to_jsonable_python(question.model_dump(exclude=_NOT_KEPT, exclude_defaults=True)),
                [hit.episode for hit in answer.hits],
                is_answered=not answer.weak,
                mask=services.poster.masked,
                private=services.engine.private(),
                now=datetime.now(UTC),
            )
    except AnamnesisError as exc:
        if isinstance(exc, StoreFull):
            room.refused()
        log.warning("a question is not noted: %s", exc)


def keep_opened(services: Services, episode_ids: Sequence[str]) -> None:
    """Count that a client opened or cited these episodes. Raises nothing: they are out."""
    try:
        services.store.episodes.track(episode_ids, datetime.now(UTC), read=True)
    except AnamnesisError as exc:
        log.warning("what was opened is not counted: %s", exc)


def keep_reading(services: Services, episode_id: str) -> None:
    """Note that an episode was read. Raises nothing: it is out."""
    try:
        services.store.queries.use(episode_id, datetime.now(UTC))
    except AnamnesisError as exc:
        log.warning("what was read is not noted: %s", exc)
