"""Is it alive, is it ready, how is it doing."""

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.services.embedding_control import ModelPool, coverage
from anamnesis_pipeline.services.schemas import CoverageOut, HealthOut, ReadyOut
from anamnesis_pipeline.services.wiring import store_place
from anamnesis_pipeline.sidecar.admission import Room
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.observation import Metrics
from anamnesis_pipeline.sidecar.problems import json_reply, problem
from anamnesis_pipeline.sidecar.services import Services, Uses

router = APIRouter(tags=["service"], responses=PROBLEMS)
open_router = APIRouter(tags=["service"], responses=PROBLEMS)
"""Wants no token."""


def package_version() -> str:
    """Of the installed package."""
    try:
        return version("anamnesis")
    except PackageNotFoundError:
        return "0+not-installed"


@open_router.get("/health")
async def health() -> HealthOut:
    """Return 200 while the process lives. This route requires no token."""
    return {"status": "ok", "service": "anamnesis", "version": package_version()}


@router.get("/ready", response_model=ReadyOut)
def ready(request: Request, services: Uses) -> Response:
    """Return 200 if the store and the model are ready and the store has free space, else 503 with what is missing.
    Coverage is never a reason for 503.
    """
    room: Room = request.app.state.room
    store_problem, covered = _look_at_store(services)
    if store_problem is None and (full := room.problem(services.store)):
        store_problem = f"store: {full}"
    place = store_place(services.settings)
    missing = [text for text in (store_problem, _model_problem(services.pool)) if text]
    if missing:
        return problem(503, "not ready: " + "; ".join(missing), missing=missing, coverage=covered, store=place)
    return json_reply({"status": "ready", "missing": [], "coverage": covered, "store": place})


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request) -> Response:
    """Return requests, latencies, episodes, passages, coverage and queue in Prometheus text format."""
    collected: Metrics = request.app.state.metrics
    return Response(generate_latest(collected.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _look_at_store(services: Services) -> tuple[str | None, CoverageOut | None]:
    try:
        return None, coverage(services.store)
    except AnamnesisError as exc:
        return f"store: {exc}", None


def _model_problem(pool: ModelPool) -> str | None:
    if pool.ready:
        return None
    if pool.failure:
        return f"model: {pool.failure}"
    return f"model: {pool.model_id} is loading" if pool.model_id else "model: none is loaded; see ANAMNESIS_MODEL"
