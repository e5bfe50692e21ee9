"""Rolling episodes: notes that a session adds to."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.services.fields import WORDED_PATTERN, Name, Tags
from anamnesis_pipeline.services.rolling import MAX_DELTA_CHARS, MAX_HANDLE_CHARS, Delta, Rolled, upsert
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(prefix="/api/episodes/rolling", tags=["episodes"], responses=PROBLEMS)

Handle = Annotated[str, Field(max_length=MAX_HANDLE_CHARS, pattern=WORDED_PATTERN)]


class DeltaIn(BaseModel):
    """What a session adds to its notes."""

    model_config = ConfigDict(extra="forbid", strict=True)

    handle: Annotated[Handle, Field(description="Author or subject; part of the episode's id")]
    session_id: Annotated[Name, Field(description="Id of the session")]
    delta: Annotated[str, Field(max_length=MAX_DELTA_CHARS, pattern=WORDED_PATTERN, description="Text to append")]
    machine: Annotated[Handle | None, Field(description="Default: the setting `machine`")] = None
    project: Annotated[Name | None, Field(description="Default: the project in which the session began, if known")] = (
        None
    )
    tags: Annotated[Tags, Field(description="Tags to add")] = []


class RolledOut(TypedDict):
    """The current rolling episode. `appended` is false when it already ended with this delta; `closed` is the id of
    the episode that its oldest text went into with this call.
    """

    episode_id: str
    created: bool
    appended: bool
    chars: int
    tags: list[str]
    closed: str | None


@router.post("/upsert", response_model=RolledOut, status_code=200, responses={201: {"model": RolledOut}})
def upsert_rolling(wanted: DeltaIn, services: Uses) -> Response:
    """Append `delta` to the rolling notes of a session, one episode (`ep_rolling_<machine>_<handle>_<first 8 of the
    session>`) that grows and keeps what a compaction would lose. Its oldest text moves into closed episodes. 201 if
    created, 200 if it existed, 409 if another session has the id. The next search finds the text.
    """
    delta = Delta(
        handle=wanted.handle,
        session_id=wanted.session_id,
        text=wanted.delta,
        machine=wanted.machine or services.settings.machine,
        tags=tuple(wanted.tags),
        project=wanted.project or "",
    )
    rolled = upsert(services.store, services.poster, delta, lambda: datetime.now(UTC))
    return json_reply(_body(rolled), 201 if rolled.created else 200)


def _body(rolled: Rolled) -> RolledOut:
    return {
        "episode_id": rolled.episode.episode_id,
        "created": rolled.created,
        "appended": rolled.appended,
        "chars": len(rolled.episode.raw_exchange),
        "tags": list(rolled.episode.tags),
        "closed": rolled.closed,
    }
