"""The page of what happens, and the stream behind it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from bs4 import BeautifulSoup
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.__main__ import _Server
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.event_feed import EventFeed
from anamnesis_pipeline.sidecar.web.events import LABELS, PATH, ROWS_KEPT
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.sidecar.conftest import Post, TestServices, problem, wait_for
from anamnesis_tests.support.page_reading import read
from anamnesis_tests.support.samples import DAY, put

Served = tuple[str, EventFeed, _Server]
"""The address of a running service, its feed, and the server."""


def kinds_of(page: BeautifulSoup) -> list[str]:
    return [badge.text for badge in page.select("#rows .badge")]


def test_page_without_events_says_what_makes_them(client: TestClient):
    nothing = read(client, PATH).select_one("#nothing")
    assert "hidden" not in nothing.attrs
    assert nothing.select("code, a")
    read(client, PATH, 422, kind="nonsense")


def test_newest_event_comes_first_and_kinds_alone(client: TestClient, post: Post):
    name = post("first words", project="acme/api")["episode_id"]
    client.patch(f"/api/episodes/{name}", json={"summary": "other words"})
    page = read(client, PATH)
    assert kinds_of(page)[0] == LABELS[Happening.EDIT][0]
    row = page.select("#rows tr")[0]
    assert "acme/api" in row.text
    assert row.select("a")[0]["href"] == f"/dashboard/episodes/{name}"
    client.delete(f"/api/episodes/{name}")
    page = read(client, PATH, kind="forget")
    assert kinds_of(page) == ["Forgotten"]
    assert [box["value"] for box in page.select("#kinds input[checked]")] == ["forget"]
    assert page.select_one("#events")["data-stream"] == f"{PATH}/stream?kind=forget"


def test_row_about_several_leads_to_them(client: TestClient, services: TestServices, post: Post):
    first, second = (post(f"words {n}", project="acme & co")["episode_id"] for n in range(2))
    services.store.episodes.track([first, second], DAY)
    row = read(client, PATH, kind="read").select("#rows tr")[0]
    name, others = row.select("a")
    assert name.text == first
    assert others.text == "first of 2"
    assert {str(box["value"]) for box in read(client, str(others["href"])).select("[name=ids]")} == {first, second}
    post("alone")
    assert len(read(client, PATH, kind="write").select("#rows tr")[0].select("a")) == 1


def test_a_page_holds_at_most_two_hundred_rows(client: TestClient, services: TestServices):
    for n in range(ROWS_KEPT + 20):
        put(services.store, f"e{n}", "text", project=f"p{n}")
    page = read(client, PATH)
    assert len(page.select("#rows tr")) == ROWS_KEPT
    assert page.select("#rows a")[0].text == f"e{ROWS_KEPT + 19}"


@pytest.fixture
def served(services: TestServices) -> Iterator[Served]:
    app = create_app(services)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=30)
        server = _Server(config, app.state.event_feed.end)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_for(lambda: server.started, 60)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.event_feed, server
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def told(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(event, data) of a stream."""
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def next_row(stream: Iterator[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    return next(data for name, data in stream if name == "row")


def test_event_of_another_process_is_told_soon_and_once(served: Served, services: TestServices):
    address, _, _ = served
    other = open_sqlite(services.settings.database, services.settings.index_dir)  # as another process would
    with httpx.stream("GET", f"{address}{PATH}/stream", timeout=60) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        stream = told(reply.iter_lines())
        assert next(stream)[0] == "heartbeat"
        put(other, "from afar", "text", project="acme")
        before = []
        while not before or before[-1][0] == "heartbeat":
            before.append(next(stream))
        assert len(before) <= 3, "a heartbeat is a second"
        name, row = before[-1]
        assert name == "row"
        assert (row["episode_id"], row["kind"], row["events"]) == ("from afar", "write", 1)
        assert [next(stream)[0] for _ in range(3)] == ["heartbeat"] * 3
    other.close()


def test_stream_goes_on_behind_a_number_and_by_kind(served: Served, services: TestServices):
    address, _, _ = served
    for name in ("a", "b"):
        put(services.store, name, "text", project=name)
    last = services.store.events.latest(1)[0].number
    with httpx.stream("GET", f"{address}{PATH}/stream?after=0&kind=write", timeout=60) as reply:
        fields = (line for line in reply.iter_lines() if line.startswith(("event: ", "id: ")))
        found = [next(fields) for _ in range(4)]
    assert found[:2] == ["event: row", "event: row"], "a number stands behind a batch and in none"
    assert sorted(found[2:]) == ["event: heartbeat", f"id: {last}"]
    put(services.store, "c", "text")
    services.store.episodes.delete("c")
    for query, number, kind in (("", last, "write"), ("&kind=forget", 0, "forget")):
        headers = {"Last-Event-ID": str(number)} if number else {}
        with httpx.stream("GET", f"{address}{PATH}/stream?after=0{query}", headers=headers, timeout=60) as reply:
            row = next_row(told(reply.iter_lines()))
            assert (row["episode_id"], row["kind"]) == ("c", kind)


def test_client_that_goes_away_is_let_go(served: Served, monkeypatch: pytest.MonkeyPatch):
    address, feed, _ = served
    with httpx.stream("GET", f"{address}{PATH}/stream", timeout=60) as reply:
        stream = told(reply.iter_lines())  # kept: the connection closes with it
        next(stream)
        assert feed.watchers == 1
    wait_for(lambda: feed.watchers == 0)
    monkeypatch.setattr(feed, "_most", 0)
    assert "0 pages" in problem(httpx.get(f"{address}{PATH}/stream", timeout=60), 429)["detail"]


def test_the_server_stops_at_once_although_somebody_watches(served: Served):
    address, _, server = served
    with httpx.stream("GET", f"{address}{PATH}/stream", timeout=60) as reply:
        stream = told(reply.iter_lines())
        next(stream)
        at = time.monotonic()
        server.should_exit = True
        assert [name for name, _ in stream if name != "heartbeat"] == []
        assert time.monotonic() - at < 20, "by itself the stream goes on for ever"
