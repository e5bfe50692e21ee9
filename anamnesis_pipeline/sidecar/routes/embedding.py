"""Models, spaces and cores: what embeds now, and changing it while everything runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import BadSetting, UnknownModel
from anamnesis_pipeline.services.embedding_control import (
    CpuIn,
    EmbeddingChanges,
    EmbeddingControl,
    EmbeddingOut,
    ModelIn,
    SpacesOut,
    StartedOut,
)
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(prefix="/api/embedding", tags=["embedding"], responses=PROBLEMS)


async def control_of(request: Request, services: Uses) -> EmbeddingControl:
    """What changes models and cores, over the services of the application that answers."""
    return EmbeddingControl(services.store, services.dagster, services.pool)


Control = Annotated[EmbeddingControl, Depends(control_of)]
SpaceKey = Annotated[str, Path(max_length=200, pattern=r"^[A-Za-z0-9._-]+$", description="Key of a space")]


@contextmanager
def refusing(field: str) -> Iterator[None]:
    """A value that this machine cannot do is a 422 that names the field, with the choices in its text."""
    try:
        yield
    except (BadSetting, UnknownModel) as exc:
        error = {"type": "value_error", "loc": ("body", field), "ctx": {"error": exc}}
        raise RequestValidationError([error]) from exc


def started_reply(started: StartedOut) -> Response:
    """200 when the space answers already, 202 when work was asked for."""
    return json_reply(started, 200 if started["active"] else 202)


@router.get("/config", response_model=EmbeddingOut)
def get_config(control: Control) -> Response:
    """Return model, precision and cores with the origin of each setting, every space with its coverage, and the known
    models.
    """
    return json_reply(control.config())


@router.put(
    "/config", response_model=EmbeddingOut, responses={202: {"model": EmbeddingOut, "description": "Work was started"}}
)
def put_config(changes: EmbeddingChanges, control: Control) -> Response:
    """Change model, cores, or both; stored, so that it survives restarts. 202 if everything has to be embedded with
    the model first.
    """
    started, plan = None, {}
    if changes.cores or "cpu_pct" in changes.model_fields_set:
        plan = _planned(control, changes)
    if changes.model_id:
        with refusing("model_id"):
            started = control.use_model(changes.model_id)
    control.set_cores(plan)
    body: EmbeddingOut = {**control.config(), "started": started}
    return json_reply(body, 200 if started is None or started["active"] else 202)


@router.post("/model", response_model=StartedOut, status_code=202, responses={200: {"model": StartedOut}})
def post_model(wish: ModelIn, control: Control) -> Response:
    """Use a model: 200 if its space is complete and answers searches now, else 202 and a re-embed starts. The active
    model ends a re-embed.

    Until the new space is complete, the active model answers searches.
    """
    with refusing("model_id"):
        return started_reply(control.use_model(wish.model_id))


@router.post("/cpu", response_model=EmbeddingOut)
def post_cpu(wish: CpuIn, control: Control) -> Response:
    """Pin embedding to `cpu_pct` % of the cores, or to `cores`, at once, in the service and in every run. No model is
    loaded again.
    """
    control.set_cores(_planned(control, wish))
    return json_reply(control.config())


def _planned(control: EmbeddingControl, wish: CpuIn | EmbeddingChanges) -> dict[str, Any]:
    with refusing("cores" if wish.cores else "cpu_pct"):
        return control.plan_cores(wish.cores, wish.cpu_pct)


@router.get("/spaces", response_model=SpacesOut)
def list_spaces(control: Control) -> Response:
    """List spaces with model, status and coverage, oldest first."""
    return json_reply({"spaces": control.list_spaces()})


@router.post("/spaces/{key}/use", response_model=StartedOut, status_code=202, responses={200: {"model": StartedOut}})
def use_space(key: SpaceKey, control: Control) -> Response:
    """Answer searches from this space: 200 at once if it is complete, else 202 and it is filled first."""
    with refusing("key"):
        return started_reply(control.use_space(key))


@router.delete("/spaces/{key}", status_code=204)
def drop_space(key: SpaceKey, control: Control) -> Response:
    """Delete a space with its vectors; not the active one. A re-embed into it ends."""
    with refusing("key"):
        control.drop(key)
    return Response(status_code=204)
