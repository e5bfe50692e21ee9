"""Re-embedding: start, pause, resume and progress."""

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.responses import Response

from anamnesis_pipeline.services.embedding_control import ReembedIn, ReembedOut, StartedOut
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.embedding import Control, refusing, started_reply

router = APIRouter(prefix="/api/episodes/reembed", tags=["embedding"], responses=PROBLEMS)


@router.post("", response_model=StartedOut, status_code=202, responses={200: {"model": StartedOut}})
def reembed(control: Control, wish: ReembedIn | None = None) -> Response:
    """Embed every passage with another model, or again with the active one; the active space answers searches
    meanwhile.

    202 with the backfill in the Dagster UI; 200 if the model's space is complete and answers now; 409 while another
    re-embed runs or is paused. A model that is not on this disk is downloaded before the reply.
    """
    with refusing("model_id"):
        return started_reply(control.start_reembed(wish.model_id if wish else None))


@router.post("/pause", response_model=ReembedOut)
def pause(control: Control) -> Response:
    """Pause the re-embed within one checkpoint (25 episodes by default). Embedded passages are kept, and new episodes
    are still embedded in the active space.
    """
    return json_reply(control.pause())


@router.post("/resume", response_model=ReembedOut)
def resume(control: Control) -> Response:
    """Continue a paused re-embed."""
    return json_reply(control.resume())


@router.get("/status", response_model=ReembedOut)
def status(control: Control) -> Response:
    """Return state, counts, rate, time left, errors, last checkpoint, and the backfill's link in Dagster's UI."""
    return json_reply(control.reembed_status())


@router.api_route("", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/pause", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/resume", methods=["GET", "PATCH", "DELETE"], include_in_schema=False)
@router.api_route("/status", methods=["PATCH", "DELETE"], include_in_schema=False)
async def refuse_method() -> None:
    """These are addresses, not ids of episodes."""
    raise HTTPException(405)
