"""Work beside the requests: what fails begins again, is told, and takes nothing else along."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar import background
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.chat_records import ChatRecorder
from anamnesis_pipeline.sidecar.pages.undo import Undo
from anamnesis_tests.sidecar.conftest import BASE, TestServices, wait_for

NOTE = {"episode_id": "gone", "summary": "To be deleted soon", "instance": "mac", "project": "acme"}
FAILED = "records of the chat"


def test_a_failure_that_nobody_foresaw_ends_no_other_work_and_not_even_its_own(
    services: TestServices, monkeypatch: pytest.MonkeyPatch
) -> None:
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
