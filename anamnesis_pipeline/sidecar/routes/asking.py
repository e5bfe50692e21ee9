"""Questions by thing: who changed a file, what ended an error, how something is run."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from anamnesis_pipeline.services.asking import DEFAULT_ITEMS, MAX_ITEMS, Asked, Asking, BlameOut, FixOut, HowOut
from anamnesis_pipeline.services.fields import WORDED_PATTERN, Name, QueryText
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES
from anamnesis_pipeline.sidecar.routes.topics import IncludePrivate
from anamnesis_pipeline.sidecar.services import Services, Uses

router = APIRouter(tags=["things"], responses=PROBLEMS)

ThingName = Annotated[str, Field(max_length=1_000, pattern=WORDED_PATTERN)]
OnlyProject = Annotated[Name | None, Query(description="Project, also without its owner; default: all")]
AtMost = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="Max items")]


@router.get("/api/blame", response_model=BlameOut)
def get_blame(
    *,
    services: Uses,
    path: Annotated[ThingName, Query(description="A path, the end of one, or the name of a function or class")],
    project: OnlyProject = None,
    limit: AtMost = DEFAULT_ITEMS,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Return the sessions that changed a file or symbol, newest first, with what they were asked, what was decided and
    what was rejected there, verbatim; then those that only decided about it.
    """
    return _answered(services, Asked.BLAME, path, project, limit, include_private)


@router.get("/api/fix", response_model=FixOut)
def get_fix(
    *,
    services: Uses,
    error: Annotated[QueryText, Query(description="An error, or an output that has one")],
    project: OnlyProject = None,
    limit: AtMost = DEFAULT_ITEMS,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Return the sessions in which an error occurred, those that ended it first: the command that failed, what was
    tried in vain, and what ended it. Times, paths and numbers that differ from run to run do not count.
    """
    return _answered(services, Asked.FIX, error, project, limit, include_private)


@router.get("/api/how", response_model=HowOut)
def get_how(
    *,
    services: Uses,
    task: Annotated[QueryText, Query(description="A command, or a task in words")],
    project: OnlyProject = None,
    limit: AtMost = DEFAULT_ITEMS,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Return how a command or task was run with success, with folder and flags, the most fitting first; and which runs
    never succeeded.
    """
    return _answered(services, Asked.HOW, task, project, limit, include_private)


def _answered(
    services: Services, kind: Asked, asked: str, project: str | None, limit: int, included: list[str]
) -> Response:
    asking = Asking(services.store, services.engine.private(), services.settings.machine)
    return json_reply(asking.answer(kind, asked, asking.where(project, included), limit))
