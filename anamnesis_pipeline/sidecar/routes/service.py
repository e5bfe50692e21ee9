"""Is it alive, is it ready, how is it doing."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.services.schemas import HealthOut, ReadyOut
from anamnesis_pipeline.services.wiring import store_place
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.mcp.handshake import package_version
from anamnesis_pipeline.sidecar.observation import Metrics
from anamnesis_pipeline.sidecar.problems import json_reply, problem
from anamnesis_pipeline.sidecar.services import Uses, readiness

router = APIRouter(tags=["service"], responses=PROBLEMS)
open_router = APIRouter(tags=["service"], responses=PROBLEMS)
"""Wants no token."""


@open_router.get("/health")
async def health() -> HealthOut:
    """Return 200 while the process lives. This route requires no token."""
    return {"status": "ok", "service": "anamnesis", "version": package_version()}


@router.get("/ready", response_model=ReadyOut)
def ready(request: Request, services: Uses) -> Response:
    """Return 200 if the store and the model are ready and the store has free space, else 503 with what is missing.
    Coverage is never a reason for 503.
    """
    found, place = readiness(services, request.app.state.room), store_place(services.settings)
    if found.missing:
        reason = "not ready: " + "; ".join(found.missing)
        return problem(503, reason, missing=found.missing, coverage=found.coverage, store=place)
    return json_reply({"status": "ready", "missing": [], "coverage": found.coverage, "store": place})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request) -> Response:
    """Return requests, latencies, episodes, passages, coverage and queue in Prometheus text format."""
    collected: Metrics = request.app.state.metrics
    return Response(generate_latest(collected.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
