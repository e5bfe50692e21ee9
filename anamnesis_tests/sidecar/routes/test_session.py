"""Sessions over HTTP and on their pages."""

from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.model import SegmentKind
from anamnesis_pipeline.parsing.text.transcripts import transcript
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SessionRecord, to_episode
from anamnesis_tests.services.test_session_reading import BASE, FIRST
from anamnesis_tests.sidecar.conftest import Post, TestServices
from anamnesis_tests.support.page_reading import SCRIPT, read
from anamnesis_tests.support.samples import episode, parsed, part, put, segment

RECORD: SessionRecord = replace(
    BASE,
    title=f"Why is {SCRIPT} red?",
    commits=("abc1234 Wait for the answer",),
    files=("tests/test_login.py",),
    decisions=("We keep the old route.",),
    open_items=("Measure the slow start",),
    tests=("pytest: 12 passed",),
)


def session(store: Store) -> str:
    """A session of one chunk, with its record; the id of the chunk."""
    said = (
        replace(segment("m1", "Why is the build red?"), kind=SegmentKind.PROMPT),
        replace(segment("m2", "Look at the log first"), kind=SegmentKind.THINKING),
        segment("m3", f"A test waited {SCRIPT} too short."),
    )
    chunk = part(*said, session_id=FIRST)
    parsed(store, chunk)
    made = replace(
        episode(chunk.part_id),
        kind="exchange",
        session_id=FIRST,
        source="logs",
        path="/logs/s.jsonl",
        raw_exchange=transcript(chunk.segments),
        summary="Why the build was red",
    )
    store.episodes.put([(made, []), (to_episode(RECORD, "logs"), [])])
    return chunk.part_id


def test_sessions_are_listed_with_their_record(client: TestClient, services: TestServices) -> None:
    session(services.store)
    body = client.get("/api/sessions").json()
    (row,) = body["items"]
    assert (row["session_id"], row["title"], row["outcome"]) == (FIRST, RECORD.title, RECORD.outcome)
    assert (row["commits"], row["is_open"], row["started"]) == (list(RECORD.commits), False, "2026-03-01T12:00:00Z")
    assert body["next_cursor"] is None
    assert client.get("/api/sessions", params={"project": "other"}).json()["items"] == []
    assert client.get("/api/sessions", params={"since": "2026-03-02"}).json()["items"] == []
    assert client.get("/api/sessions", params={"limit": 501}).status_code == 422


def test_session_is_read_by_a_beginning_of_its_id(client: TestClient, services: TestServices) -> None:
    chunk_id = session(services.store)
    body = client.get(f"/api/sessions/{FIRST[:8]}").json()
    (chunk,) = body["chunks"]
    assert (chunk["episode_id"], chunk["path"]) == (chunk_id, "/logs/s.jsonl")
    assert [said["kind"] for said in chunk["said"]] == ["prompt", "statement"]
    whole = client.get(f"/api/sessions/{FIRST}", params={"tools": True}).json()["chunks"][0]["said"]
    assert [said["who"] for said in whole] == ["User", "Claude, thinking", "Claude"]
    assert client.get("/api/sessions/eeee").status_code == 404
    assert client.get(f"/api/sessions/{FIRST}", params={"cursor": "9:"}).status_code == 422


def test_episodes_by_session_have_one_record_a_session(client: TestClient, services: TestServices, post: Post) -> None:
    session(services.store)
    post("A note", episode_id="note", timestamp="2026-03-01T11:00:00Z")
    listed = client.get("/api/episodes", params={"by_session": True}).json()["items"]
    assert [each["kind"] for each in listed] == ["session", "note"]


@pytest.mark.parametrize("path", ["/dashboard/sessions", "/dashboard/timeline", "/dashboard"])
def test_pages_show_one_line_a_session(client: TestClient, services: TestServices, path: str) -> None:
    session(services.store)
    soup = read(client, path)
    links = [a for a in soup.select("a") if a.get("href") == f"/dashboard/sessions/{FIRST}"]
    assert links[0].text == RECORD.title
    assert "Why the build was red" not in soup.text


def test_a_session_unfolds_to_its_chunks(client: TestClient, services: TestServices) -> None:
    chunk_id = session(services.store)
    unfolding = read(client, "/dashboard/timeline").select_one("summary[hx-get]")
    lines = read(client, str(unfolding["hx-get"]))
    assert [a["href"] for a in lines.select(".lines a")] == [f"/dashboard/episodes/{chunk_id}"]


def test_page_of_a_session_reads_from_top_to_bottom(client: TestClient, services: TestServices) -> None:
    session(services.store)
    soup = read(client, f"/dashboard/sessions/{FIRST}")
    notes = [p.text for p in soup.select(".run .note")]
    assert notes == ["Why is the build red?", f"A test waited {SCRIPT} too short."]
    assert soup.select_one("article details pre").text == "Look at the log first"
    for told in (*RECORD.decisions, *RECORD.open_items, *RECORD.commits, *RECORD.tests, *RECORD.files, "/logs/s.jsonl"):
        assert told in soup.text
    assert f"claude --resume {FIRST}" in soup.text
    read(client, "/dashboard/sessions/none-of-that-id", 404)


def test_session_keeps_what_it_said_in_a_private_project(client: TestClient, services: TestServices) -> None:
    session(services.store)
    put(services.store, "vault", "wombat", session_id=FIRST, project="x/vault", kind="exchange", summary="The wombat")
    services.store.settings.set("config.private_projects", ["x/vault"])
    paths = (f"/api/sessions/{FIRST}", f"/dashboard/sessions/{FIRST}", f"/dashboard/sessions/lines?session_id={FIRST}")
    for path in paths:
        assert "wombat" not in client.get(path).text, path
    services.store.settings.set("config.private_projects", [])
    assert "The wombat" in client.get(f"/api/sessions/{FIRST}").text
