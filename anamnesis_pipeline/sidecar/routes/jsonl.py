"""Reading logs: how it is doing, starting and stopping it, and the settings of schedule and LLM."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.services.log_ingest import (
    IngestIn,
    JsonlChanges,
    JsonlControl,
    JsonlSettingsOut,
    LlmModelsOut,
    NudgedOut,
    NudgeIn,
    StartedRunsOut,
    StatusOut,
    StoppedOut,
    known_llm_models,
)
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.notifications import Nudges
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.embedding import refusing
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(prefix="/api/jsonl", tags=["logs"], responses=PROBLEMS)


async def control_of(_: Request, services: Uses) -> JsonlControl:
    """What reads logs, over the services of the application that answers."""
    return JsonlControl(services.store, services.dagster)


Control = Annotated[JsonlControl, Depends(control_of)]


@router.get("/status", response_model=StatusOut)
def status(control: Control) -> Response:
    """Return current runs, the last one and the last interrupted one, episodes ingested, the next scheduled run,
    counters, summaries by model, LLM use of the day, and open circuit breakers.
    """
    return json_reply(control.status())


@router.post("/ingest", response_model=StartedRunsOut, status_code=202)
def ingest(control: Control, wish: IngestIn | None = None) -> Response:
    """Read all sources, or those in `sources`, now: one run per source, with its link in the Dagster UI; of more than
    20 the rest as a backfill. These runs may use a paid LLM without a budget, since a person starts them.
    """
    with refusing("sources"):
        return json_reply(control.start(wish.sources if wish else ()), 202)


@router.post("/nudge", response_model=NudgedOut, status_code=202)
async def nudge(wish: NudgeIn, request: Request) -> Response:
    """Notify that a session has new messages in the log `transcript_path`. Return at once; a source is read every two
    minutes at most. The plugin's hooks call this.
    """
    nudges: Nudges = request.app.state.nudges
    return json_reply({"noted": nudges.note(wish["transcript_path"])}, 202)


@router.post("/stop", response_model=StoppedOut)
def stop(control: Control) -> Response:
    """End the current runs. Nothing is lost; the next tick continues."""
    return json_reply(control.stop())


@router.get("/settings", response_model=JsonlSettingsOut)
def get_settings(control: Control) -> Response:
    """Return summarizer, schedule and budgets with the origin of each."""
    return json_reply(control.settings())


@router.put("/settings", response_model=JsonlSettingsOut)
def put_settings(changes: JsonlChanges, control: Control) -> Response:
    """Store settings; they apply from the next run and survive restarts. `warnings` lists what does not work with
    them. Changed times, LLM or budgets reload Dagster's definitions; `reload` reports the result.
    """
    try:
        reload = control.change_settings(changes)
    except BadSetting as exc:
        with refusing(next((name for name in changes if name in str(exc)), "summarizer")):
            raise
    return json_reply(control.settings(reload))


@router.get("/models", response_model=LlmModelsOut)
def list_models() -> Response:
    """List the LLMs known by name, with their prices."""
    return json_reply({"models": known_llm_models()})
