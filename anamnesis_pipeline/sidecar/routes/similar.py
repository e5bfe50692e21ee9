"""What is nearly the same as an episode."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.search.engine import HIDDEN_KINDS
from anamnesis_pipeline.services.fields import EpisodeId
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.similarity import Similar, similar_episodes
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses

router = APIRouter(tags=["search"], responses=PROBLEMS)


class SimilarItem(TypedDict):
    """An episode; `similarity_score` is the cosine of its nearest passage and what the episode asked for says."""

    episode_id: str
    similarity_score: float
    timestamp: str
    project: str
    kind: str
    summary: str


class SimilarOut(TypedDict):
    """The nearest first. `embedded`: whether the episode has vectors of `model_id` yet; without there are no items."""

    items: list[SimilarItem]
    embedded: bool
    model_id: str | None


@router.get("/api/similar", response_model=SimilarOut)
async def list_similar(
    request: Request,
    services: Uses,
    episode_id: Annotated[EpisodeId, Query(description="Episode to compare others with")],
    limit: Annotated[int, Query(ge=1, le=100, description="Max results")] = 5,
) -> Response:
    """List current episodes that say nearly the same as one, by its stored vectors. Private episodes are left out,
    unless the given one is private and of the same project or source.
    """
    admission: Admission = request.app.state.admission
    return await admission.run(lambda: json_reply(_body(services, episode_id, limit)))


def find_similar(services: Services, episode_id: str, most: int) -> list[Similar] | None:
    """As `similar_episodes`; None also where no space is active.

    :raises EpisodeNotFound: no such id.
    """
    head = services.store.episodes.heads([episode_id]).get(episode_id)
    if head is None:
        raise EpisodeNotFound("no episode has this id")
    space = services.store.spaces.active()
    if space is None:
        return None
    own = [head.project, head.source] if services.engine.private().holds(head) else []
    where = services.engine.visible(EpisodeFilter(), own)
    where = replace(where, hidden_kinds=HIDDEN_KINDS)
    return similar_episodes(services.store, space, episode_id, most, where)


def _body(services: Services, episode_id: str, limit: int) -> SimilarOut:
    found, space = find_similar(services, episode_id, limit), services.store.spaces.active()
    return {
        "items": [_item(each) for each in found or ()],
        "embedded": found is not None,
        "model_id": space.model_id if space else None,
    }


def _item(similar: Similar) -> SimilarItem:
    episode = similar.episode
    return {
        "episode_id": episode.episode_id,
        "similarity_score": round(similar.similarity, 4),
        "timestamp": utc_text(episode.timestamp),
        "project": episode.project,
        "kind": episode.kind,
        "summary": episode.summary,
    }
