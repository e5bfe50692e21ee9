"""Which project a folder belongs to."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.services import folder_project
from anamnesis_pipeline.services.fields import WORDED_PATTERN
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["projects"], responses=PROBLEMS)

Folder = Annotated[str, Query(max_length=4096, pattern=WORDED_PATTERN, description="A folder of this machine")]


class CurrentProjectOut(TypedDict):
    """The project of a folder; null where none is named. `known`: something of it is stored. `private_sources`: keys of
    the private sources that the folder is in.
    """

    project: str | None
    known: bool
    private_sources: list[str]


@router.get("/api/projects/current", response_model=CurrentProjectOut)
def current_project(services: Uses, cwd: Folder | None = None) -> Response:
    """Return the project of a folder (`cwd`), and whether anything of it is stored."""
    private, machine = services.engine.private(), services.settings.machine
    return json_reply(asdict(folder_project.current_project(services.store, cwd, machine, private)))
