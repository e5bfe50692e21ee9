"""What became of an episode over time."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.services.fields import EpisodeId
from anamnesis_pipeline.services.rendering import history_body
from anamnesis_pipeline.services.schemas import HistoryOut
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["episodes"], responses=PROBLEMS)


@router.get("/api/history", response_model=HistoryOut)
def get_history(
    services: Uses,
    episode_id: Annotated[EpisodeId, Query(description="Episode whose history it is")],
    limit: Annotated[int, Query(ge=1, le=500, description="Max changes, the latest ones")] = 100,
) -> Response:
    """List the changes of an episode's status, oldest first: what it was, what it became, why, by whom and when."""
    if not services.store.episodes.heads([episode_id]):
        raise EpisodeNotFound("no episode has this id")
    return json_reply(history_body(services.store.statuses.history(episode_id, limit)))
