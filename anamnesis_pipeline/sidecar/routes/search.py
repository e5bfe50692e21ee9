"""Search."""

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.services.schemas import SearchIn, SearchOut
from anamnesis_pipeline.services.searching import answer_question
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.query import keep_question
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["search"], responses=PROBLEMS)


@router.post("/api/episodes/search", response_model=SearchOut)
async def search_episodes(question: SearchIn, request: Request, services: Uses) -> Response:
    """Return the episodes that answer best, each with its best passage, verbatim.

    Filters apply before ranking. Words and meaning are searched together; while the model loads, only words, and
    `degraded` says so. If nothing answers well, the nearest hits are returned and `weak` is true.
    """
    admission: Admission = request.app.state.admission

    def answer() -> Response:
        found, body = answer_question(services.store, services.engine, question, services.settings.machine)
        reply = json_reply(body)
        if question.track:
            reply.background = BackgroundTask(keep_question, services, request.app.state.room, question, found)
        return reply

    return await admission.run(answer)
