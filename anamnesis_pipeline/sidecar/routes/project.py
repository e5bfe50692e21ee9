"""Which project a folder belongs to."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.parsing.claude_logs.projects import project_label, resolved_project
from anamnesis_pipeline.services.fields import WORDED_PATTERN
from anamnesis_pipeline.services.folder_project import projects_of_folder
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
    stored = projects_of_folder(services.store, cwd, machine, is_here=True, private=private) if cwd else ()
    named = (resolved_project(cwd) or project_label(cwd)) if cwd else None
    around = private.around(cwd, machine) if cwd else ()
    return json_reply(
        {"project": stored[0] if stored else named, "known": bool(stored), "private_sources": list(around)}
    )
