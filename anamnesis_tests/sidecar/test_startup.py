"""The order in which the service starts, read from its log: settings, address, store, requests, model.

What fails late leaves what came before it in use; what fails early ends the start before anything is answered.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.sidecar.test_process import COMMAND, DRAFT, answers, environment, free_port

STARTS, STARTED = "Started server process", "Application startup complete"
NO_MODEL = "no embedding model"
ABSENT_MODEL = "BAAI/bge-small-en-v1.5"


@contextmanager
def sidecar(home: Path, **settings: str) -> Iterator[tuple[str, Path]]:
    """A service of this home, once it answers; its address and its log."""
    home.mkdir(exist_ok=True)
    port, log = free_port(), home / f"log-{time.monotonic_ns()}"
    with log.open("wb") as output:
        process = subprocess.Popen(COMMAND, env=environment(home, port, **settings), stdout=output, stderr=output)
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}"), 30)
        yield f"http://127.0.0.1:{port}", log
    finally:
        process.terminate()
        process.wait(30)


def test_a_model_that_will_not_load_comes_last_and_takes_nothing_of_the_memory_along(tmp_path: Path) -> None:
    with sidecar(tmp_path, ANAMNESIS_MODEL=ABSENT_MODEL) as (base, log):
        wait_for(lambda: NO_MODEL in log.read_text(), 30)
        assert httpx.post(f"{base}/api/episodes", json=DRAFT, timeout=60).status_code == 201
        assert [each["summary"] for each in httpx.get(f"{base}/api/episodes", timeout=60).json()["items"]] == [
            DRAFT["summary"]
        ]
        found = httpx.post(f"{base}/api/episodes/search", json={"query": "zeppelin"}, timeout=60).json()
        assert [hit["summary"] for hit in found["results"]] == [DRAFT["summary"]]
        ready = httpx.get(f"{base}/ready", timeout=60)
        assert (ready.status_code, ABSENT_MODEL in ready.json()["detail"]) == (503, True)
        text = log.read_text()
    assert text.index(STARTS) < text.index(STARTED) < text.index("GET /api/episodes 200")
    assert text.index(STARTS) < text.index(NO_MODEL)


def test_a_store_that_will_not_open_ends_the_start_before_anything_is_answered_or_loaded(tmp_path: Path) -> None:
    (tmp_path / "anamnesis.db").write_bytes(b"this is no database" * 1000)
    done = subprocess.run(
        COMMAND, env=environment(tmp_path, free_port(), ANAMNESIS_MODEL=ABSENT_MODEL),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "anamnesis.db" in done.stderr
    assert STARTS not in done.stderr
    assert NO_MODEL not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_address_ends_the_start_before_the_store_is_made(tmp_path: Path) -> None:
    with sidecar(tmp_path / "first") as (base, _):
        port = int(base.rpartition(":")[2])
        env = environment(tmp_path / "second", port)
        done = subprocess.run(COMMAND, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert not (tmp_path / "second/anamnesis.db").exists()
