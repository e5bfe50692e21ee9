"""How the questions that were asked of the memory fared."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic_core import to_jsonable_python
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError, StoreFull
from anamnesis_pipeline.search.query import SearchAnswer
from anamnesis_pipeline.services.query_log import QueriesOut, note_query, queries_body
from anamnesis_pipeline.services.schemas import SearchIn
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.admission import Admission, DiskSpace
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses

_NOT_KEPT = {"query", "query_text", "track", "include", "explain", "quote_tokens"}

log = logging.getLogger(__name__)
router = APIRouter(tags=["search"], responses=PROBLEMS)


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


def keep_question(services: Services, room: DiskSpace, question: SearchIn, answer: SearchAnswer) -> None:
    """Note a question that was answered, unless the user wants none noted. Raises nothing: the answer was sent. Without
    posts, this is the write that notices a full store.
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
