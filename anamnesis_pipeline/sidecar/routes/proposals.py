"""Proposals: what detectors propose to change, what people decide, and the run that finds them."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.parsing.text.wording import one_line
from anamnesis_pipeline.services.fields import Name, Text
from anamnesis_pipeline.services.proposals import Proposals
from anamnesis_pipeline.services.proposed import (
    AnyState,
    DreamOut,
    ProposalOut,
    WaitingOut,
    dream_body,
    proposal_body,
    state_of,
    waiting_body,
)
from anamnesis_pipeline.services.topic_edits import TopicEdits
from anamnesis_pipeline.services.topics import open_topics
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.store.knowledge_model import Kind

router = APIRouter(tags=["proposals"], responses=PROBLEMS)

ProposalId = Annotated[
    str, InPath(min_length=4, max_length=64, pattern="^[0-9a-f]+$", description="Id, or its beginning")
]


class DecisionIn(BaseModel):
    """Who decides, and why."""

    model_config = ConfigDict(extra="forbid", strict=True)

    by: Annotated[Name, Field(description="Who decides; kept with the proposal")] = "request"
    reason: Annotated[Text, Field(max_length=1_000, description="Why; kept with the proposal")] = ""


class AcceptanceIn(DecisionIn):
    """Who accepts, why, and with which text."""

    entry: Annotated[
        Text | None, Field(max_length=20_000, description="Text to write in place of the proposed one")
    ] = None


class ProposalsOut(TypedDict):
    """Proposals, newest first."""

    items: list[ProposalOut]


@router.get("/api/proposals", response_model=ProposalsOut)
def list_proposals(
    services: Uses,
    state: Annotated[AnyState, Query(description="State")] = "open",
    kind: Annotated[Kind | None, Query(description="Only of this kind")] = None,
    project: Annotated[str, Query(max_length=500, description="Only of this project")] = "",
    limit: Annotated[int, Query(ge=1, le=200, description="Max proposals")] = 50,
) -> Response:
    """List proposals with their evidence and what accepting changes; private ones if their project is named."""
    proposals = proposals_of(services)
    return json_reply(
        {"items": [proposal_body(proposals, e) for e in proposals.listed(state_of(state), kind, project, limit)]}
    )


@router.get("/api/proposals/{proposal_id}", response_model=ProposalOut)
def get_proposal(proposal_id: ProposalId, services: Uses) -> Response:
    """Return one proposal."""
    proposals = proposals_of(services)
    return json_reply(proposal_body(proposals, proposals.find(proposal_id)))


@router.post("/api/proposals/{proposal_id}/accept", response_model=ProposalOut)
def accept_proposal(proposal_id: ProposalId, services: Uses, wanted: AcceptanceIn | None = None) -> Response:
    """Do what an open proposal would change. It expires if that is otherwise by now; `state` and `reason` say so."""
    wanted, proposals = wanted or AcceptanceIn(), proposals_of(services)
    done = proposals.accept(proposal_id, wanted.by, one_line(wanted.reason), wanted.entry)
    return json_reply(proposal_body(proposals, done))


@router.post("/api/proposals/{proposal_id}/reject", response_model=ProposalOut)
def reject_proposal(proposal_id: ProposalId, services: Uses, wanted: DecisionIn | None = None) -> Response:
    """Reject an open proposal. It returns with new evidence only."""
    wanted, proposals = wanted or DecisionIn(), proposals_of(services)
    return json_reply(proposal_body(proposals, proposals.reject(proposal_id, wanted.by, one_line(wanted.reason))))


@router.post("/api/proposals/{proposal_id}/undo", response_model=ProposalOut)
def undo_proposal(proposal_id: ProposalId, services: Uses, wanted: DecisionIn | None = None) -> Response:
    """Take back what accepting changed, or open a rejected proposal again."""
    wanted, proposals = wanted or DecisionIn(), proposals_of(services)
    return json_reply(proposal_body(proposals, proposals.undo(proposal_id, wanted.by, one_line(wanted.reason))))


@router.get("/api/dream", response_model=WaitingOut)
def get_dream(services: Uses) -> Response:
    """Tell how many proposals wait, since when, and what the last run of the detectors did."""
    return json_reply(waiting_body(services.store, proposals_of(services).waiting()))


@router.post("/api/dream", response_model=DreamOut)
def run_dream(services: Uses) -> Response:
    """Observe what came since the last run, and let the detectors propose. Nothing that holds is changed, unless the
    setting `dream_auto` says so.
    """
    report = proposals_of(services).dream(effective_settings(services.store), services.pool.pool)
    return json_reply(dream_body(report))


def proposals_of(services: Services) -> Proposals:
    """Return the proposals of the application's store."""
    settings = services.settings
    topics = TopicEdits(services.store, open_topics(settings), settings.machine)
    return Proposals(services.store, services.poster, topics, services.engine.private())
