"""The tail of the sidecar's own log over HTTP."""

import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.log_tail import LONGEST, LogTail, is_telling, tailing
from anamnesis_tests.sidecar.conftest import problem

log = logging.getLogger("anamnesis_pipeline.somewhere")
SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def lines(client: TestClient, **query: Any) -> dict[str, Any]:
    reply = client.get("/api/logs", params=query)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def texts(body: dict[str, Any]) -> list[str]:
    return [line["text"] for line in body["lines"] if line["logger"] == log.name]


def test_tail_goes_on_behind_a_number_by_level_and_limit(client: TestClient) -> None:
    log.info("first")
    log.warning("second %s", SECRET)
    before = lines(client)
    first, second = texts(before)
    assert (first, SECRET in second, "[REDACTED:" in second) == ("first", False, True)
    assert texts(lines(client, level="warning")) == [second]
    assert lines(client, since=before["last"])["lines"] == []
    log.error("third")
    after = lines(client, since=before["last"])
    assert [(line["text"], line["level"]) for line in after["lines"]] == [("third", "error")]
    assert after["last"] == after["lines"][-1]["number"] > before["last"]
    assert after["lost"] is False
    for n in range(5):
        log.info("number %d", n)
    page = lines(client, since=after["last"], limit=3)
    assert texts(page) == ["number 0", "number 1", "number 2"]
    assert texts(lines(client, since=page["last"], limit=3)) == ["number 3", "number 4"]
    assert texts(lines(client, limit=2)) == ["number 3", "number 4"], "without a number: the latest"


def test_only_so_many_are_kept_and_who_comes_late_is_told() -> None:
    tail = LogTail(lambda text: text, kept=3)
    start = tail.last
    assert start > 1_700_000_000_000, "numbers grow from one process to the next"
    with tailing(tail):
        for n in range(5):
            log.info("line %d", n)
    log.info("after the end")
    assert [line.text for line in tail.latest(10)] == ["line 2", "line 3", "line 4"]
    assert (tail.lost(start), tail.lost(start + 2)) == (True, False)


def test_long_or_broken_line_harms_nobody(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.info("x" * (3 * LONGEST))
    log.info("%d", "no number")
    assert [len(text) for text in texts(lines(client))] == [LONGEST]


def test_small_talk_is_left_out() -> None:
    for name, level, args, is_kept in (
        ("httpx", logging.INFO, (), False),
        ("httpx", logging.WARNING, (), True),
        ("paramiko.transport", logging.INFO, (), False),
        ("anamnesis_pipeline.pipeline", logging.INFO, (), True),
        ("anamnesis.access", logging.INFO, ("GET", "/api/logs", 200, 1.0), False),
        ("anamnesis.access", logging.INFO, ("GET", "/api/logs", 503, 1.0), True),
        ("anamnesis.access", logging.INFO, ("POST", "/api/episodes", 201, 1.0), True),
    ):
        record = logging.LogRecord(name, level, "", 0, "%s %s %d %.1f ms", args, None)
        assert is_telling(record) is is_kept, (name, level, args)


def test_what_cannot_be_asked_is_refused(client: TestClient) -> None:
    for query in ({"limit": 0}, {"limit": 2_001}, {"since": -1}, {"level": "loud"}):
        problem(client.get("/api/logs", params=query))
