"""Sessions that go on are read soon, and never so often that it harms."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.defs.summaries import is_by_hand
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sidecar.notifications import GAP_S, MAX_PATHS, Nudges, Pace, holds
from anamnesis_tests.sidecar.conftest import TestServices


@pytest.fixture
def transcripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """Makes the folder of a project with a transcript in it; returns the transcript's path."""
    logs = tmp_path / "logs"
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(logs))

    def make(project: str) -> str:
        (logs / project).mkdir(parents=True)
        transcript = logs / project / "5e551011.jsonl"
        transcript.touch()
        return str(transcript)

    return make


def run_until(nudges: Nudges, done: Callable[[], bool], seconds: float = 30.0) -> None:
    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(nudges.run)
            with anyio.move_on_after(seconds):
                while not done():
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    anyio.run(run)


def test_a_source_is_read_at_once_and_then_only_after_the_gap() -> None:
    pace = Pace(gap_s=100)
    assert pace.due({"a", "b"}, 0) == {"a", "b"}
    assert pace.due({"a", "c"}, 10) == {"c"}
    assert pace.wait_s(10) == 90
    assert pace.due((), 99) == set()
    assert pace.due((), 100) == {"a"}
    assert pace.wait_s(100) == float("inf")


def test_many_nudges_are_one_run(services: TestServices, transcripts: Callable[[str], str]) -> None:
    paths = [transcripts("-home-ann-shop"), transcripts("-home-ann-other")]
    nudges = Nudges(services, settle_s=0.05)
    for path in [*paths * 20, "/nowhere/x.jsonl"]:
        assert nudges.note(path)
    run_until(nudges, lambda: bool(services.dagster.ingests))
    ((keys, title),) = services.dagster.ingests
    assert len(keys) == 2
    assert "session" in title
    assert not is_by_hand(services.dagster.ingest_tags[0]), "a paid LLM keeps to its budget"
    assert {source.key for source in services.store.files.sources()} >= set(keys)
    nudges.note(paths[0])
    run_until(nudges, lambda: len(services.dagster.ingests) > 1, seconds=0.3)
    assert len(services.dagster.ingests) == 1


def test_without_dagster_nothing_is_lost_but_time(services: TestServices, transcripts: Callable[[str], str]) -> None:
    services.dagster.up = False
    path = transcripts("-home-ann-shop")
    nudges = Nudges(services, settle_s=0.01, gap_s=0.02)
    nudges.note(path)
    run_until(nudges, lambda: False, seconds=0.3)
    services.dagster.up = True
    nudges.note(path)
    run_until(nudges, lambda: bool(services.dagster.ingests))
    assert len(services.dagster.ingests) == 1


def test_what_is_noted_is_bounded(services: TestServices) -> None:
    nudges = Nudges(services)
    assert all(nudges.note(f"/x/{number}") for number in range(MAX_PATHS))
    assert (nudges.note("/x/more"), nudges.note("/x/0")) == (False, True)
    assert GAP_S >= 60


def test_transcript_belongs_to_the_folder_it_is_in() -> None:
    of_folder = {
        "/logs/-a/s.jsonl": True,
        "/logs/-a/s/subagents/agent-1.jsonl": True,
        "/logs/-a-b/s.jsonl": False,
        "/logs/-a": False,
        "": False,
    }
    assert {path: holds(Source("k", "mac", "/logs", "-a"), path) for path in of_folder} == of_folder


def test_the_route_takes_a_path_and_nothing_else(client: TestClient) -> None:
    reply = client.post("/api/jsonl/nudge", json={"transcript_path": "/home/ann/.claude/projects/-x/s.jsonl"})
    assert (reply.status_code, reply.json()) == (202, {"noted": True})
    for body in ({}, {"transcript_path": ""}, {"transcript_path": 7}, {"transcript_path": "/x", "more": 1}, []):
        assert client.post("/api/jsonl/nudge", json=body).status_code == 422
