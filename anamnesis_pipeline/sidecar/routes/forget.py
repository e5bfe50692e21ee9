"""Forgetting for good."""

from dataclasses import asdict
from typing import Annotated, Any, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response

from anamnesis_pipeline.services.fields import EpisodeId, Name, QueryText, Time
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.wiring import effective_settings, open_forgetter
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["forget"], responses=PROBLEMS)


class ForgetIn(BaseModel):
    """What to forget: all filters given must hold, and at least one must be given."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"minProperties": 1})

    ids: Annotated[list[EpisodeId], Field(max_length=1_000, description="Ids of episodes")] = []
    session_id: Annotated[Name | None, Field(description="Id of a session, or a unique prefix")] = None
    project: Annotated[Name | None, Field(description="Name of a project")] = None
    path: Annotated[
        Annotated[str, Field(max_length=4_096)] | None, Field(description="File or folder, also as `machine:/path`")
    ] = None
    machine: Annotated[Name | None, Field(description="Only what was read on this machine; copies elsewhere stay")] = (
        None
    )
    source: Annotated[Name | None, Field(description="Only what was read of this source; copies elsewhere stay")] = None
    since: Annotated[Time | None, Field(description="Start time, inclusive")] = None
    until: Annotated[Time | None, Field(description="End time, exclusive")] = None
    query: Annotated[QueryText | None, Field(description="Only texts that contain all of these words")] = None
    include_pinned: Annotated[
        bool, Field(description="Remove pinned episodes, too; else only those that `ids` names")
    ] = False
    dry_run: Annotated[bool, Field(description="Only report what would be removed")] = True

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.request().is_empty:
            raise ValueError(
                "say what to forget: ids, session_id, project, path, machine, source, since, until or query"
            )
        return self

    def request(self) -> ForgetRequest:
        """The same as the forgetter takes it."""
        return ForgetRequest(
            ids=tuple(self.ids),
            session_id=self.session_id or "",
            project=self.project or "",
            path=self.path or "",
            machine=self.machine or "",
            source=self.source or "",
            since=self.since,
            until=self.until,
            query=self.query or "",
            include_pinned=self.include_pinned,
        )


class ShownOut(BaseModel):
    """An episode, to be recognized by."""

    episode_id: str
    timestamp: str
    machine: str
    project: str
    kind: str
    summary: str


class ForgetOut(BaseModel):
    """What goes, or went, and where else it may still be. `spared`: pinned episodes that match and stay."""

    dry_run: bool
    episodes: int
    messages: int
    sections: int
    lines: int
    files: int
    shown: list[ShownOut]
    remains: list[str]
    problems: list[str]
    spared: int


@router.post("/api/forget", response_model=ForgetOut)
def forget(body: ForgetIn, services: Uses) -> Response:
    """Report what would be removed; with `"dry_run": false` remove it for good, with everything made of it and all
    copies.
    """
    forgetter = open_forgetter(effective_settings(services.store), services.store)
    request = body.request()
    report: dict[str, Any] = asdict(forgetter.preview(request) if body.dry_run else forgetter.forget(request))
    return json_reply(report)
