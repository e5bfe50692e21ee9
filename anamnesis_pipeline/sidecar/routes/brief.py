"""Briefings: what is known of a question, two questions compared, hints, and what was used lately."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.services.briefing import (
    BriefOut,
    BriefRequest,
    ComparedOut,
    HintsOut,
    HotspotsOut,
    brief_body,
    compared_body,
    hints_body,
    hotspots_body,
)
from anamnesis_pipeline.services.fields import QueryText
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES, IncludePrivate, OfProject
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(prefix="/api", tags=["search"], responses=PROBLEMS)

Question = Annotated[QueryText, Query(description="Question, or words")]


@router.get("/brief", response_model=BriefOut)
async def brief(
    request: Request,
    services: Uses,
    query: Question,
    project: OfProject = None,
    max_tokens: Annotated[int, Query(ge=50, le=10_000, description="Max tokens of all memories together")] = 800,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Brief on a question: key memories within a budget; the projects, sessions, types and layers that most of the
    first 30 hits have; rare terms that recur; up to six questions to ask next; and what it lacks. No LLM is asked, and
    nothing counts as retrieved.
    """
    wanted = BriefRequest(query, project, max_tokens, tuple(include_private))
    admission: Admission = request.app.state.admission
    return await admission.run(
        lambda: json_reply(brief_body(services.store, services.engine, wanted, datetime.now(UTC)))
    )


@router.get("/brief/compare", response_model=ComparedOut)
async def compare(
    request: Request,
    services: Uses,
    a: Question,
    b: Question,
    project: OfProject = None,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Compare the first eight hits of two questions: what both find, and what each finds alone."""
    asked = [BriefRequest(each, project, include_private=tuple(include_private)) for each in (a, b)]
    admission: Admission = request.app.state.admission
    return await admission.run(lambda: json_reply(compared_body(services.engine, *asked)))


@router.get("/search/hints", response_model=HintsOut)
async def hints(
    request: Request,
    services: Uses,
    query: Question,
    top_k: Annotated[int, Query(ge=1, le=100, description="Max hints")] = 10,
    project: OfProject = None,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Return the hits of a question in at most 60 characters each, with their ids: enough to recognize one and read it.
    Nothing counts as retrieved.
    """
    wanted = BriefRequest(query, project, include_private=tuple(include_private))
    admission: Admission = request.app.state.admission
    return await admission.run(lambda: json_reply(hints_body(services.store, services.engine, wanted, top_k)))


@router.get("/hotspots", response_model=HotspotsOut)
def hotspots(
    services: Uses,
    hours: Annotated[int, Query(ge=1, le=2_160, description="How far to look back")] = 72,
    limit: Annotated[int, Query(ge=1, le=100, description="Max episodes, and max projects")] = 8,
) -> Response:
    """Return the episodes that were found by searches or opened most often lately, and their projects."""
    since = datetime.now(UTC) - timedelta(hours=hours)
    return json_reply(hotspots_body(services.store, services.engine, since, limit))
