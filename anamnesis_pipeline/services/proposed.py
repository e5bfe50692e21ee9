"""Replies about proposals, as HTTP, pages and the command line have them."""

from dataclasses import asdict
from typing import Literal, cast

from typing_extensions import TypedDict

from anamnesis_pipeline.services.proposals import DreamReport, Proposals, Waiting, last_run
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Proposal, State

KindName = Literal[
    "merge",
    "supersede",
    "contradiction",
    "promote",
    "lesson",
    "stale_topic",
    "drift",
    "pattern",
    "doubt",
    "archive",
]
StateName = Literal["open", "accepted", "rejected", "expired", "undone"]
AnyState = Literal[StateName, "all"]


class EvidenceOut(TypedDict):
    """A verbatim quote of an episode."""

    episode_id: str
    quote: str
    message_id: str
    at: str | None


class StatusEditOut(TypedDict):
    """The status that an episode gets, and the one that stands for it from then on."""

    episode_id: str
    status: str
    superseded_by: str | None


class ProposalChangeOut(TypedDict):
    """What accepting does: statuses of episodes, an entry of a topic file, a note that is posted. `machine`, `path` and
    `diff` are of the topic file of an open proposal; one on another machine is changed there by hand.
    """

    statuses: list[StatusEditOut]
    topic: str | None
    heading: str | None
    entry: str | None
    record_type: str | None
    machine: str | None
    path: str | None
    diff: str | None


class ProposalOut(TypedDict):
    """A proposed change of what holds. `decided_at`, `decided_by` and `reason` are of the last decision; `reopens` is
    the id of an earlier one, rejected before there was all of this evidence.
    """

    proposal_id: str
    kind: KindName
    state: StateName
    project: str
    title: str
    change: ProposalChangeOut
    evidence: list[EvidenceOut]
    confidence: float
    detector: str
    created_at: str
    decided_at: str | None
    decided_by: str
    reason: str
    reopens: str | None


class ProposedOut(TypedDict):
    """What became of what a detector found: new, with more evidence than an open or a rejected one, or known."""

    new: int
    renewed: int
    reopened: int
    known: int


class DreamOut(TypedDict):
    """What a run did. `observed`: sessions, notes and texts that no ingest had observed; `waiting`: those left;
    `observations`: new ones. `proposed` and `problems` are by detector.
    """

    observed: int
    waiting: int
    observations: int
    proposed: dict[str, ProposedOut]
    problems: dict[str, str]
    started_at: str
    seconds: float


class WaitingOut(TypedDict):
    """Proposals that wait for a decision, since when, and the last run; null: none yet."""

    open: int
    since: str | None
    last_run: DreamOut | None


def proposal_body(proposals: Proposals, proposal: Proposal) -> ProposalOut:
    """Return a proposal, of an open one with the diff of the topic file that it changes."""
    change, file = proposal.change, proposals.file_change(proposal)
    return {
        "proposal_id": proposal.proposal_id,
        "kind": proposal.kind.value,
        "state": proposal.state.value,
        "project": proposal.project,
        "title": proposal.title,
        "change": {
            "statuses": [
                {"episode_id": each.episode_id, "status": each.status.value, "superseded_by": each.successor}
                for each in change.statuses
            ],
            "topic": change.topic.name if change.topic else None,
            "heading": change.topic.heading if change.topic else None,
            "entry": change.topic.entry if change.topic else change.record.text if change.record else None,
            "record_type": change.record.type if change.record else None,
            "machine": file.machine if file else None,
            "path": str(file.path) if file else None,
            "diff": file.diff if file else None,
        },
        "evidence": [
            {
                "episode_id": each.episode_id,
                "quote": each.quote,
                "message_id": each.message_id,
                "at": utc_text(each.at) if each.at else None,
            }
            for each in proposal.evidence
        ],
        "confidence": round(proposal.confidence, 2),
        "detector": proposal.detector,
        "created_at": utc_text(proposal.created_at),
        "decided_at": utc_text(proposal.decided_at) if proposal.decided_at else None,
        "decided_by": proposal.decided_by,
        "reason": proposal.reason,
        "reopens": proposal.reopens or None,
    }


def state_of(name: AnyState) -> State | None:
    """Return the state that a list is limited to; None: `all`."""
    return None if name == "all" else State(name)


def dream_body(report: DreamReport) -> DreamOut:
    """Return what a run did."""
    return cast(DreamOut, asdict(report))


def waiting_body(store: Store, waiting: Waiting) -> WaitingOut:
    """Return what waits."""
    last = last_run(store)
    return {
        "open": waiting.open,
        "since": utc_text(waiting.since) if waiting.since else None,
        "last_run": dream_body(last) if last else None,
    }
