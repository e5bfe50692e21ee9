"""The whole system as a user runs it: `anamnesis up` on a temporary home with the example logs."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis_tests.support.live_system import System, left_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

IN_THE_EXAMPLES = "customers were charged twice when the payment webhook was retried"
POSTED = {
    "summary": "The greenhouse thermostat reboots when its clock crosses midnight.",
    "instance": "test",
    "project": "greenhouse",
    "raw_exchange": "Q: why does it reboot? A: an overflow in the minute counter.",
}


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    system = System(tmp_path)
    yield system
    system.end()


def test_words_are_found_early_and_memory_survives_kill_9(system: System) -> None:
    started = time.monotonic()
    system.start()
    system.wait_until("keyword search answers", lambda: system.answers("/health"))
    system.search("anything", mode="exact")
    assert time.monotonic() - started < 30  # 5 s on a machine of its own; this one may be shared
    system.wait_until("the sidecar is ready", system.is_ready)
    system.wait_until("an example episode is found", lambda: system.search(IN_THE_EXAMPLES))
    assert "webhook" in system.search(IN_THE_EXAMPLES)[0]["excerpt"].lower()
    posted = system.http.post("/api/episodes", json=POSTED)
    assert posted.status_code == 201, posted.text
    posted_id = posted.json()["episode_id"]
    assert system.search("thermostat reboots at midnight")[0]["episode_id"] == posted_id

    system.wait_until("Dagster lists its assets", lambda: assets_of(system))
    expected = {"crawled_files", "exchanges", "summaries", "episodes", "embeddings", "vector_index"}
    assert expected <= assets_of(system)
    system.wait_until("all passages are embedded", system.is_covered)
    system.wait_until("up says where to go", lambda: f"http://127.0.0.1:{system.port}" in system.output.read_text())
    again = system.run("up")
    assert again.returncode == 0
    assert "already running" in again.stdout
    assert f"http://127.0.0.1:{system.port}" in again.stdout
    assert f"http://127.0.0.1:{system.dagster_port}" in again.stdout

    asked_for = system.http.post("/api/jsonl/ingest").json()
    wanted = set(asked_for["sources"])
    system.wait_until("each run names its source", lambda: sources_asked_for(system) >= wanted)

    before = episode_ids(system)
    system.kill_9()

    second = system.start()
    system.wait_until("the sidecar is ready again", system.is_ready)
    assert episode_ids(system) >= before
    assert system.search(IN_THE_EXAMPLES)
    assert system.search("thermostat reboots at midnight")[0]["episode_id"] == posted_id
    system.wait_until("Dagster lists its assets again", lambda: assets_of(system))

    life = system.life
    second.send_signal(signal.SIGTERM)
    assert second.wait(timeout=60) == 0, system.traces()
    system.process = None
    system.wait_until("no process is left after SIGTERM", lambda: not left_of(life), timeout_s=30)


def test_port_in_use_is_named_and_nothing_is_started(system: System) -> None:
    with socket.create_server(("127.0.0.1", system.dagster_port)):
        refused = system.run("up")
    assert refused.returncode == 1
    assert f"port {system.dagster_port}" in refused.stderr
    assert f"process {os.getpid()}" in refused.stderr
    assert "ANAMNESIS_DAGSTER_PORT" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (system.home / "logs" / "sidecar.log").exists()


def assets_of(system: System) -> set[str]:
    nodes = system.graphql("{ assetNodes { assetKey { path } } }").get("assetNodes") or []
    return {"/".join(node["assetKey"]["path"]) for node in nodes}


def sources_asked_for(system: System) -> set[str]:
    """What the tag that limits runs says, on those that were asked for."""
    query = """{ runsOrError(filter: {tags: [{key: "anamnesis/ingest", value: "asked-for"}]}) {
        ... on Runs { results { tags { key value } } } } }"""
    runs = system.graphql(query)["runsOrError"]["results"]
    return {tag["value"] for run in runs for tag in run["tags"] if tag["key"] == "dagster/partition"}


def episode_ids(system: System) -> set[str]:
    ids: set[str] = set()
    cursor = None
    while True:
        parameters = {"limit": 100} | ({"cursor": cursor} if cursor else {})
        page = system.http.get("/api/episodes", params=parameters).json()
        ids |= {item["episode_id"] for item in page["items"]}
        if not (cursor := page["next_cursor"]):
            return ids
