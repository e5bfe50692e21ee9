"""Notes of a service that detectors find something in, and proposals as they make them of logs."""

from datetime import UTC, datetime
from typing import Any

import httpx
import httpx2

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Change, Evidence, Kind, NewRecord, Proposal, TopicEdit

NOTES = {
    "port": "The staging database runs on port 5433",
    "port-again": "Now the staging database runs on port 5433",
    "friday": "We deploy on Fridays",
    "monday": "We deploy on Mondays",
}
STEPS = "Steps that worked in 2 sessions:\n1. `make build`\n2. `make ship`"
Client = httpx.Client | httpx2.Client


def tell(client: Client, project: str = "shop") -> None:
    """Post notes, of which two say the same, and one corrects another."""
    for number, (name, text) in enumerate(NOTES.items()):
        note: dict[str, Any] = {"summary": text, "raw_exchange": text, "kind": "decision", "instance": "mac"}
        at = f"2026-03-01T10:0{number}:00Z"
        reply = client.post("/api/episodes", json={**note, "episode_id": name, "project": project, "timestamp": at})
        assert reply.status_code == 201, reply.text


def dream(client: Client) -> None:
    """Let the detectors propose."""
    reply = client.post("/api/dream")
    assert reply.status_code == 200, reply.text


def propose_procedure(store: Store, episode_id: str = "port", project: str = "shop") -> Proposal:
    """Propose a procedure, as detectors do when the same commands succeeded twice."""
    change = Change(record=NewRecord("procedure", STEPS))
    return _propose(store, Kind.PATTERN, "Procedure: build, ship", change, episode_id, project)


def propose_lesson(store: Store, episode_id: str = "port", project: str = "shop") -> Proposal:
    """Propose a lesson, for a file that is not there yet."""
    change = Change(topic=TopicEdit("lessons", "Errors", "Start the database before migrating."))
    return _propose(store, Kind.LESSON, "Repeated error: refused", change, episode_id, project)


def _propose(store: Store, kind: Kind, title: str, change: Change, episode_id: str, project: str) -> Proposal:
    episode = store.episodes.get([episode_id])[episode_id]
    text = episode.raw_exchange or episode.summary
    at = datetime(2026, 3, 1, 10, tzinfo=UTC)
    evidence = (Evidence(episode_id, text, at=at),)
    proposal = Proposal(kind, project, f"{kind} of {episode_id}", title, change, evidence, 0.9, "by_hand", at)
    assert store.proposals.propose(proposal).new == 1
    return proposal
