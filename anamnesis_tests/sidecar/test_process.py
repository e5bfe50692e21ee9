"""The real process over TCP."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from anamnesis_tests.sidecar.conftest import wait_for

COMMAND = [sys.executable, "-m", "anamnesis_pipeline.sidecar"]
DRAFT = {"summary": "The zeppelin hangar needs new doors", "instance": "mac", "project": "acme"}
STARTS_S = 90
"""On a busy machine, before it is given up."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(home: Path, port: int, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANAMNESIS_")}
    return {**kept, "ANAMNESIS_HOME": str(home), "ANAMNESIS_PORT": str(port), "ANAMNESIS_LOCAL_ONLY": "1", **more}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running sidecar; its address."""
    port = free_port()
    home = tmp_path_factory.mktemp("home")
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(COMMAND, env=environment(home, port), stdout=log, stderr=log)
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}"), STARTS_S)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
        text = (home / "log").read_text()
        assert "Traceback" not in text
        assert "hunter2" not in text
    finally:
        process.kill()
        process.wait()


def answers(base: str) -> bool:
    try:
        return httpx.get(f"{base}/health", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_words_are_found_before_the_model_is_there_and_meaning_after(base: str) -> None:
    assert httpx.post(f"{base}/api/episodes", json=DRAFT, timeout=60).status_code == 201
    early = httpx.post(f"{base}/api/episodes/search", json={"query": "zeppelin hunter2"}, timeout=60).json()
    assert early["results"][0]["summary"] == DRAFT["summary"]
    wait_for(lambda: httpx.get(f"{base}/ready", timeout=60).status_code == 200, 90)
    assert httpx.post(f"{base}/api/episodes", json={**DRAFT, "summary": "A dog barked"}, timeout=60).status_code == 201
    late = httpx.post(
        f"{base}/api/episodes/search", json={"query": "noisy puppy", "mode": "semantic", "top_k": 1}, timeout=60
    )
    assert [hit["summary"] for hit in late.json()["results"]] == ["A dog barked"]
    assert all("no vectors yet" in note for note in late.json()["degraded"])


def test_an_answer_is_sent_at_once(base: str) -> None:
    def seconds(client: httpx.Client) -> float:
        started = time.perf_counter()
        client.post("/api/episodes/search", json={"query": ""})
        return time.perf_counter() - started

    with httpx.Client(base_url=base, timeout=60) as client:
        # Nagle's algorithm would add 40 ms to every one; on a busy machine it takes many to see one without a delay
        wait_for(lambda: min(seconds(client) for _ in range(50)) < 0.03, 60)


def test_a_body_of_two_megabytes_gets_its_answer_over_the_wire(base: str) -> None:
    reply = httpx.post(
        f"{base}/api/episodes", content=b"x" * 2_000_000, headers={"Content-Type": "application/json"}, timeout=60
    )
    assert reply.status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    reply = httpx.post(
        f"{base}/api/episodes", content=pieces(), headers={"Content-Type": "application/json"}, timeout=60
    )
    assert reply.status_code == 413


def test_a_second_server_on_the_port_names_the_setting_to_change(base: str, tmp_path: Path) -> None:
    port = int(base.rpartition(":")[2])
    done = subprocess.run(
        COMMAND, env=environment(tmp_path, port), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "ANAMNESIS_PORT" in done.stderr
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr


def test_an_open_address_without_a_token_is_refused_at_the_start(tmp_path: Path) -> None:
    env = environment(tmp_path, free_port(), ANAMNESIS_BIND="0.0.0.0")
    done = subprocess.run(COMMAND, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "ANAMNESIS_API_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_process_multiplies_matrices_in_one_thread(tmp_path: Path) -> None:
    code = (
        "from threadpoolctl import threadpool_info\n"
        "from anamnesis_pipeline.sidecar.__main__ import main\n"
        "assert main() == 1\n"
        "print([each['num_threads'] for each in threadpool_info() if each['user_api'] == 'blas'])"
    )
    given = environment(tmp_path, 0, ANAMNESIS_PORT="none", OPENBLAS_NUM_THREADS="2")
    told = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    assert set(json.loads(told.stdout)) == {1}
