"""Why a memory is important, and how memories fade."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.services.fields import EpisodeId
from anamnesis_pipeline.services.importance import RetentionOut, ValueOut, retention_body, value_body
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["episodes"], responses=PROBLEMS)

HalfLife = Annotated[float, Query(ge=1, le=3_650, description="Half-life of what is fully trusted, in days")]
Trusted = Annotated[
    float, Query(ge=0, le=1, description="1: a person, 0.7: an instance, 0.6: a session, 0.5: a file, 0.4: derived")
]
Accesses = Annotated[int, Query(ge=0, le=1_000_000, description="How often it was shown")]
Days = Annotated[int, Query(ge=1, le=3_650, description="Last day of the curves")]


@router.get("/api/value", response_model=ValueOut)
async def get_value(
    request: Request,
    services: Uses,
    episode_id: Annotated[EpisodeId, Query(description="Episode to explain")],
) -> Response:
    """Explain how important an episode is: weight, value and contribution of nine factors, and who confirms it."""
    admission: Admission = request.app.state.admission
    return await admission.run(lambda: json_reply(value_body(services.store, services.engine.private(), episode_id)))


@router.get("/api/retention", response_model=RetentionOut)
def get_retention(
    half_life_days: HalfLife = 30.0, trust: Trusted = 1.0, accesses: Accesses = 0, days: Days = 180
) -> Response:
    """Return the curves of retention: the share of a memory that is retained after a time."""
    return json_reply(retention_body(half_life_days, trust, accesses, days))
