"""Notes of a service that detectors find something in, and a lesson as they make it of logs."""

from datetime import UTC, datetime
from typing import Any

import httpx
import httpx2

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Change, Evidence, Kind, NewRecord, Proposal

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
    text = store.episodes.get([episode_id])[episode_id].raw_exchange
    at = datetime(2026, 3, 1, 10, tzinfo=UTC)
    proposal = Proposal(
        Kind.PATTERN,
        project,
        f"pattern of {episode_id}",
        "Procedure: build, ship",
        Change(record=NewRecord("procedure", STEPS)),
        (Evidence(episode_id, text, at=at),),
        0.9,
        "repeated_steps",
        at,
    )
    assert store.proposals.propose(proposal).new == 1
    return proposal
