import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_tests.sidecar.conftest import TestServices, wait_for


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


def test_no_more_run_at_once_than_allowed_and_those_in_line_follow() -> None:
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


def test_who_comes_when_the_line_is_full_is_sent_away_at_once() -> None:
    async def rush() -> list[Any]:
        admission, work = Admission(at_once=1, waiting=2, patience_s=60), Turnstile()
        return await gather([lambda: admission.run(work)] * 6, 3, work.let_go)

    assert sorted(map(str, anyio.run(rush))) == ["429"] * 3 + ["done"] * 3


def test_nobody_waits_longer_than_the_patience() -> None:
    async def rush() -> list[Any]:
        admission, work = Admission(at_once=1, waiting=5, patience_s=0.05), Turnstile()
        return await gather([lambda: admission.run(work)] * 2, 1, work.let_go)

    assert sorted(map(str, anyio.run(rush))) == ["429", "done"]


def test_a_place_is_free_again_after_work_that_failed() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def twice() -> None:
        admission = Admission(at_once=1, waiting=0, patience_s=60)
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await admission.run(fail)

    anyio.run(twice)


def test_a_rush_of_searches_is_told_to_come_back_and_keeps_no_other_call_waiting(
    client: TestClient, services: TestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Turnstile()
    search = services.engine.search
    monkeypatch.setattr(services.engine, "search", lambda query: (work(), search(query))[1])
    client.app.state.admission = Admission(at_once=1, waiting=0)  # type: ignore[attr-defined]
    statuses: list[int] = []
    first = threading.Thread(
        target=lambda: statuses.append(client.post("/api/episodes/search", json={"query": "q"}).status_code)
    )
    first.start()
    try:
        wait_for(lambda: work.inside == 1)
        refused = client.post("/api/episodes/search", json={"query": "q"})
        assert client.get("/api/episodes").status_code == 200
    finally:
        work.let_go()
        first.join()
    assert statuses == [200]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["content-type"] == "application/problem+json"
