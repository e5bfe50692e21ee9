"""The page of what happens, and the stream behind it."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from bs4 import BeautifulSoup
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.__main__ import _Server
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.event_feed import EventFeed
from anamnesis_pipeline.sidecar.pages.events import LABELS, PATH, ROWS_KEPT
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.sidecar.conftest import TestServices, wait_for
from anamnesis_tests.sidecar.pages.reading import SCRIPT, read
from anamnesis_tests.store.samples import DAY, put


def kinds_of(page: BeautifulSoup) -> list[str]:
    return [badge.text for badge in page.select("#rows .badge")]


def test_without_events_the_page_says_what_makes_them(client: TestClient):
    page = read(client, PATH)
    nothing = page.select_one("#nothing")
    assert nothing is not None
    assert "hidden" not in nothing.attrs
    assert nothing.select("code, a")


def test_the_newest_event_comes_first_with_its_project_and_a_way_to_the_episode(
    client: TestClient, post: Callable[..., dict[str, Any]]
):
    made = post("first words", project="acme/api")
    client.patch(f"/api/episodes/{made['episode_id']}", json={"summary": "other words"})
    page = read(client, PATH)
    assert kinds_of(page)[0] == LABELS[Happening.EDIT][0]
    row = page.select("#rows tr")[0]
    assert "acme/api" in row.text
    assert row.select("a")[0]["href"] == f"/dashboard/episodes/{made['episode_id']}"


def test_only_the_kinds_asked_for_are_shown(client: TestClient, post: Callable[..., dict[str, Any]]):
    made = post("first words")
    client.delete(f"/api/episodes/{made['episode_id']}")
    page = read(client, PATH, kind="forget")
    assert kinds_of(page) == ["Forgotten"]
    assert [box["value"] for box in page.select("#kinds input[checked]")] == ["forget"]
    table = page.select_one("#events")
    assert table is not None
    assert table["data-stream"] == f"{PATH}/stream?kind=forget"


def test_a_row_about_several_says_how_many_and_leads_to_their_list(
    client: TestClient, services: TestServices, post: Callable[..., dict[str, Any]]
):
    first, second = (post(f"words {n}", project="acme & co")["episode_id"] for n in range(2))
    services.store.episodes.track([first, second], DAY)
    row = read(client, PATH, kind="read").select("#rows tr")[0]
    name, others = row.select("a")
    assert name.text == first
    assert others.text == "first of 2"
    assert {str(box["value"]) for box in read(client, str(others["href"])).select("[name=ids]")} == {first, second}
    post("alone")
    assert len(read(client, PATH, kind="write").select("#rows tr")[0].select("a")) == 1


def test_a_kind_that_is_none_is_told(client: TestClient):
    reply = client.get(f"{PATH}?kind=nonsense", headers={"Accept": "text/html"})
    assert reply.status_code == 422
    assert "<h1>" in reply.text


def test_a_stored_script_stays_text(client: TestClient, post: Callable[..., dict[str, Any]]):
    post("words", project=SCRIPT, episode_id="<b>bold")
    page = read(client, PATH)
    assert not [script for script in page.select("script") if "alert" in script.text]
    assert SCRIPT in page.select("#rows tr")[0].text


def test_a_page_holds_at_most_two_hundred_rows(client: TestClient, services: TestServices):
    for n in range(ROWS_KEPT + 20):
        put(services.store, f"e{n}", "text", project=f"p{n}")
    page = read(client, PATH)
    assert len(page.select("#rows tr")) == ROWS_KEPT
    assert page.select("#rows a")[0].text == f"e{ROWS_KEPT + 19}"


# --- the stream, over a real connection -----------------------------------------------------------------------


@pytest.fixture
def served(services: TestServices) -> Iterator[tuple[str, EventFeed, _Server]]:
    """The address of a running service, its feed, and the server."""
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


def test_an_event_of_another_process_is_told_within_two_seconds_and_once(
    served: tuple[str, EventFeed, _Server], services: TestServices
):
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


def test_who_comes_back_is_told_what_happened_meanwhile(served: tuple[str, EventFeed, _Server], services: TestServices):
    address, _, _ = served
    put(services.store, "a", "text")
    seen = services.store.events.latest(1)[0].number
    put(services.store, "b", "text")
    headers = {"Last-Event-ID": str(seen)}
    with httpx.stream("GET", f"{address}{PATH}/stream?after=0", headers=headers, timeout=60) as reply:
        assert next_row(told(reply.iter_lines()))["episode_id"] == "b"


def test_a_number_to_come_back_with_stands_behind_a_batch_and_in_none(
    served: tuple[str, EventFeed, _Server], services: TestServices
):
    address, _, _ = served
    for name in ("a", "b"):
        put(services.store, name, "text", project=name)
    last = services.store.events.latest(1)[0].number
    with httpx.stream("GET", f"{address}{PATH}/stream?after=0&kind=write", timeout=60) as reply:
        fields = (line for line in reply.iter_lines() if line.startswith(("event: ", "id: ")))
        found = [next(fields) for _ in range(4)]
    assert sorted(found) == sorted(["event: row", "event: row", "event: heartbeat", f"id: {last}"])
    assert found[:2] == ["event: row", "event: row"]


def test_the_stream_tells_only_the_kinds_asked_for(served: tuple[str, EventFeed, _Server], services: TestServices):
    address, _, _ = served
    put(services.store, "a", "text")
    services.store.episodes.delete("a")
    with httpx.stream("GET", f"{address}{PATH}/stream?after=0&kind=forget", timeout=60) as reply:
        assert next_row(told(reply.iter_lines()))["kind"] == "forget"


def test_a_client_that_goes_away_is_let_go(served: tuple[str, EventFeed, _Server]):
    address, feed, _ = served
    with httpx.stream("GET", f"{address}{PATH}/stream", timeout=60) as reply:
        stream = told(reply.iter_lines())  # kept: the connection closes with it
        next(stream)
        assert feed.watchers == 1
    wait_for(lambda: feed.watchers == 0)


def test_the_server_stops_at_once_although_somebody_watches(served: tuple[str, EventFeed, _Server]):
    address, _, server = served
    with httpx.stream("GET", f"{address}{PATH}/stream", timeout=60) as reply:
        stream = told(reply.iter_lines())
        next(stream)
        at = time.monotonic()
        server.should_exit = True
        assert [name for name, _ in stream if name != "heartbeat"] == []
        assert time.monotonic() - at < 20, "by itself the stream goes on for ever"


def test_one_watcher_too_many_is_told_so(served: tuple[str, EventFeed, _Server], monkeypatch: pytest.MonkeyPatch):
    address, feed, _ = served
    monkeypatch.setattr(feed, "_most", 0)
    reply = httpx.get(f"{address}{PATH}/stream", timeout=60)
    assert reply.status_code == 429
    assert "0 pages" in reply.json()["detail"]
