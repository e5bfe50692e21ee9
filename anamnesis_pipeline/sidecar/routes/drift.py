"""Drift: what texts claim of projects, and their files do not hold."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from anamnesis_pipeline.services.drift import DriftOut, drift_body, drift_of
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES
from anamnesis_pipeline.sidecar.routes.topics import IncludePrivate
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["topics"], responses=PROBLEMS)


@router.get("/api/drift", response_model=DriftOut)
def get_drift(
    *,
    services: Uses,
    project: Annotated[Name | None, Query(description="Project, also without its owner; default: all")] = None,
    functions: Annotated[bool, Query(description="Also check functions and classes")] = True,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Check paths, functions, commands, packages and variables that curated texts, notes and records name against the
    files of their project: on this machine's disk, else as crawled. Return a score and findings per project.
    """
    private, now = services.engine.private(), datetime.now(UTC)
    reports = drift_of(services.store, private, now, project or "", include_private, functions=functions)
    return json_reply(drift_body(reports))
