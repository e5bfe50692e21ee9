"""The code of projects, as it was crawled."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.services.codebase import MAX_TOKENS, CodebaseOut, codebases_of
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses

router = APIRouter(tags=["search"], responses=PROBLEMS)


class CodebasesOut(TypedDict):
    """One overview for each crawled folder of the project that has code."""

    items: list[CodebaseOut]


@router.get("/api/codebase", response_model=CodebasesOut)
async def get_codebase(
    request: Request,
    services: Uses,
    project: Annotated[Name, Query(min_length=1, description="Project; `api` also matches `acme/api`")],
    max_tokens: Annotated[int, Query(ge=100, le=MAX_TOKENS, description="Max tokens of one overview")] = 20_000,
) -> Response:
    """Give an overview of a project's code, as it was last crawled: tree of files, signatures, what it imports, and the
    scripts and targets that it has. It takes a tenth of the code's tokens at most, and tells less of each file if it
    would take more.
    """
    admission: Admission = request.app.state.admission
    return await admission.run(lambda: json_reply(_body(services, project, max_tokens)))


def _body(services: Services, project: str, max_tokens: int) -> CodebasesOut:
    where = services.engine.visible(EpisodeFilter(projects=(project,)), ())
    return {"items": codebases_of(services.store, where, max_tokens)}
