"""Work in threads and beside the requests: bounded, begun again when it fails, and its memory given back."""

import asyncio
import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.search.levels import stored_level
from anamnesis_pipeline.sidecar import background
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.background import measure_if_due, trim
from anamnesis_pipeline.sidecar.chat_background import ChatRecorder
from anamnesis_pipeline.sidecar.web.undo import Undo
from anamnesis_tests.sidecar.conftest import BASE, SPACE, Post, TestServices, problem, raising, wait_for


class Turnstile:
    """Work that stays inside until it is let go, and counts."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._lock = threading.Lock()
        self._go = threading.Event()

    def __call__(self) -> str:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self._go.wait(60)
        with self._lock:
            self.inside -= 1
        return "done"

    def let_go(self) -> None:
        self._go.set()


async def gather(calls: list[Callable[[], Any]], refused: int = 0, then: Callable[[], None] | None = None) -> list[Any]:
    """What each returned, or the status it was refused with; once so many were refused, do something `then`."""
    results: list[Any] = [None] * len(calls)

    async def run(number: int) -> None:
        try:
            results[number] = await calls[number]()
        except HTTPException as exc:
            results[number] = exc.status_code
            if then is not None and sum(isinstance(each, int) for each in results) == refused:
                then()

    async with anyio.create_task_group() as group:
        for number in range(len(calls)):
            group.start_soon(run, number)
    return results


def test_no_more_run_at_once_than_allowed() -> None:
    async def rush() -> tuple[list[Any], int]:
        admission, work = Admission(at_once=2, waiting=10, patience_s=60), Turnstile()
        threading.Thread(target=let_go_late, args=(work,)).start()
        return await gather([lambda: admission.run(work)] * 6), work.most

    def let_go_late(work: Turnstile) -> None:
        wait_for(lambda: work.inside == 2)
        time.sleep(0.2)  # in which a third would come in, if it could
        work.let_go()

    results, most = anyio.run(rush)
    assert results == ["done"] * 6
    assert most == 2


@pytest.mark.parametrize(
    ("waiting", "patience_s", "calls", "refused"),
    [(2, 60, 6, 3), (5, 0.05, 2, 1)],
    ids=["the line is full", "patience is over"],
)
def test_who_finds_no_place_is_sent_away(waiting: int, patience_s: float, calls: int, refused: int) -> None:
    async def rush() -> list[Any]:
        admission, work = Admission(at_once=1, waiting=waiting, patience_s=patience_s), Turnstile()
        return await gather([lambda: admission.run(work)] * calls, refused, work.let_go)

    assert sorted(map(str, anyio.run(rush))) == ["429"] * refused + ["done"] * (calls - refused)


def test_a_place_is_free_again_after_work_that_failed() -> None:
    fail = raising(ValueError("no"))

    async def twice() -> None:
        admission = Admission(at_once=1, waiting=0, patience_s=60)
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await admission.run(fail)

    anyio.run(twice)


def test_rush_of_calls_is_refused(client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    work, search = Turnstile(), services.engine.search
    monkeypatch.setattr(services.engine, "search", lambda query: (work(), search(query))[1])
    client.app.state.admission = Admission(at_once=1, waiting=0)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(client.post, "/api/episodes/search", json={"query": "q"})
        try:
            wait_for(lambda: work.inside == 1)
            refused = client.post("/api/episodes/search", json={"query": "q"})
            assert client.get("/api/episodes").status_code == 200, "no other call waits"
        finally:
            work.let_go()
        assert first.result().status_code == 200
    problem(refused, 429)
    assert int(refused.headers["retry-after"]) > 0


NOTE = {"episode_id": "gone", "summary": "To be deleted soon", "instance": "mac", "project": "acme"}
FAILED = "records of the chat"


def test_unforeseen_failure_ends_no_work(services: TestServices, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def fail(_: ChatRecorder) -> None:
        nonlocal tries
        tries += 1
        raise ValueError("of a row that no code expected")

    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(ChatRecorder, "_work_off", fail)
    app = create_app(services)
    app.state.undo = Undo(services, wait_s=0.1)
    with TestClient(app, base_url=BASE) as client:
        wait_for(lambda: tries > 2, 60)
        client.post("/api/episodes", json=NOTE).raise_for_status()
        client.post("/dashboard/episode/delete", data={"episode_id": "gone"}).raise_for_status()
        wait_for(lambda: client.get("/api/episodes/gone").status_code == 404, 60)
        for page in ("/dashboard", "/dashboard/health/checks"):
            text = client.get(page).text
            assert FAILED in text, page
            assert "failed unforeseen: ValueError" in text
            assert "no code expected" not in text, "it may quote what is private"
        counted = f'anamnesis_background_failures_total{{work="{FAILED}"}}'
        assert counted in client.get("/metrics").text


def test_a_failure_is_told_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.01)
    now, failed = 0.0, False

    async def work() -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise KeyError("once")

    kept = background.Background(Counter("failures", "", ["work"], registry=CollectorRegistry()), lambda: now)
    asyncio.run(kept.keep("some work", work))
    assert [(each.ok, each.name) for each in kept.findings()] == [(False, "some work")]
    now = background.TOLD_FOR_S
    assert kept.findings() == []


def test_space_is_measured_once_it_has_grown_or_after_a_failure(
    services: TestServices, client: TestClient, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not measure_if_due(services)
    post("The quagga retry did charge twice, since no idempotency key was sent.")
    busy = raising(StoreBusy("another process writes; try again"))
    with monkeypatch.context() as patched:
        patched.setattr(services.store.text, "unknown", busy)
        assert not measure_if_due(services)
    assert measure_if_due(services)
    assert stored_level(services.store, SPACE) is not None
    assert not measure_if_due(services)
    post("The zebra report is printed on Mondays.")
    assert measure_if_due(services)


def test_nothing_is_measured_before_the_model_is_there(services: TestServices) -> None:
    assert not measure_if_due(services)


BLOCKS, BLOCK_BYTES = 64_000, 1_000


def own_kb() -> int:
    """What this process holds of its own memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_what_was_freed_behind_a_block_in_use_goes_back() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    *freed, held = [libc.malloc(BLOCK_BYTES) for _ in range(BLOCKS)]
    for block in (*freed, held):
        ctypes.memset(block, 1, BLOCK_BYTES)
    for block in freed:
        libc.free(block)
    before = own_kb()
    trim()
    assert before - own_kb() > BLOCKS * BLOCK_BYTES / 1024 / 2
    libc.free(held)
