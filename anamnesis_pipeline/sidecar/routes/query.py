"""How the questions that were asked of the memory fared."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.search.query import SearchAnswer
from anamnesis_pipeline.services.query_log import QueriesOut, queries_body
from anamnesis_pipeline.services.schemas import SearchIn
from anamnesis_pipeline.services.searching import note_question
from anamnesis_pipeline.sidecar.admission import Admission, DiskSpace
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses

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
    """Note a question that was answered; a full store refuses posts from then on."""
    if not note_question(services.store, services.engine, services.poster, question, answer):
        room.refused()
