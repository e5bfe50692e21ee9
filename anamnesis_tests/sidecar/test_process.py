"""The real process over TCP, and the order in which it starts: settings, address, store, requests, model."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def sidecar(home: Path, **settings: str) -> Iterator[tuple[str, Path]]:
    """A service of this home, once it answers; its address and its log."""
    home.mkdir(exist_ok=True)
    port, log = free_port(), home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(COMMAND, env=environment(home, port, **settings), stdout=output, stderr=output)
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}"), STARTS_S)
        yield f"http://127.0.0.1:{port}", log
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running sidecar; its address."""
    with sidecar(tmp_path_factory.mktemp("home")) as (base, log):
        yield base
    text = log.read_text()
    assert "Traceback" not in text
    assert "hunter2" not in text


def refused_start(home: Path, port: int, **settings: str) -> str:
    """What a start that fails says."""
    env = environment(home, port, **settings)
    done = subprocess.run(COMMAND, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    return done.stderr


def answers(base: str) -> bool:
    try:
        return httpx.get(f"{base}/health", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_words_are_found_before_the_model_and_meaning_after(base: str) -> None:
    def found(**asked: Any) -> dict[str, Any]:
        return httpx.post(f"{base}/api/episodes/search", json=asked, timeout=60).json()

    assert httpx.post(f"{base}/api/episodes", json=DRAFT, timeout=60).status_code == 201
    assert found(query="zeppelin hunter2")["results"][0]["summary"] == DRAFT["summary"]
    wait_for(lambda: httpx.get(f"{base}/ready", timeout=60).status_code == 200, 90)
    assert httpx.post(f"{base}/api/episodes", json={**DRAFT, "summary": "A dog barked"}, timeout=60).status_code == 201
    late = found(query="noisy puppy", mode="semantic", top_k=1)
    assert [hit["summary"] for hit in late["results"]] == ["A dog barked"]
    assert all("no vectors yet" in note for note in late["degraded"])


def test_an_answer_is_sent_at_once(base: str) -> None:
    def seconds(client: httpx.Client) -> float:
        started = time.perf_counter()
        client.post("/api/episodes/search", json={"query": ""})
        return time.perf_counter() - started

    with httpx.Client(base_url=base, timeout=60) as client:
        # Nagle's algorithm would add 40 ms to every one; on a busy machine it takes many to see one without a delay
        wait_for(lambda: min(seconds(client) for _ in range(50)) < 0.03, 60)


def test_body_of_two_megabytes_gets_its_answer(base: str) -> None:
    headers = {"Content-Type": "application/json"}
    for content in (b"x" * 2_000_000, (b"x" * 100_000 for _ in range(20))):
        assert httpx.post(f"{base}/api/episodes", content=content, headers=headers, timeout=60).status_code == 413


def test_taken_or_open_address_ends_the_start(base: str, tmp_path: Path) -> None:
    port = int(base.rpartition(":")[2])
    told = refused_start(tmp_path, port)
    assert "ANAMNESIS_PORT" in told
    assert str(port) in told
    assert "ANAMNESIS_API_TOKEN" in refused_start(tmp_path, free_port(), ANAMNESIS_BIND="0.0.0.0")
    assert not (tmp_path / "anamnesis.db").exists(), "the store is not made before"


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


STARTS, STARTED = "Started server process", "Application startup complete"
NO_MODEL = "no embedding model"
ABSENT_MODEL = "BAAI/bge-small-en-v1.5"


def test_model_that_will_not_load_comes_last(tmp_path: Path) -> None:
    with sidecar(tmp_path, ANAMNESIS_MODEL=ABSENT_MODEL) as (base, log):
        wait_for(lambda: NO_MODEL in log.read_text(), 30)
        assert httpx.post(f"{base}/api/episodes", json=DRAFT, timeout=60).status_code == 201
        listed = httpx.get(f"{base}/api/episodes", timeout=60).json()["items"]
        found = httpx.post(f"{base}/api/episodes/search", json={"query": "zeppelin"}, timeout=60).json()["results"]
        assert [each["summary"] for each in (*listed, *found)] == [DRAFT["summary"]] * 2, "the memory is in use"
        ready = httpx.get(f"{base}/ready", timeout=60)
        assert (ready.status_code, ABSENT_MODEL in ready.json()["detail"]) == (503, True)
        text = log.read_text()
    assert text.index(STARTS) < text.index(STARTED) < text.index("GET /api/episodes 200")
    assert text.index(STARTS) < text.index(NO_MODEL)


def test_store_that_will_not_open_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "anamnesis.db").write_bytes(b"this is no database" * 1000)
    told = refused_start(tmp_path, free_port(), ANAMNESIS_MODEL=ABSENT_MODEL)
    assert "anamnesis.db" in told
    assert STARTS not in told
    assert NO_MODEL not in told
