"""A briefing tells what is known within its budget, what it is about, what to ask next, and what it lacks."""

from typing import Any

from starlette.testclient import TestClient

from anamnesis_pipeline.search.token_estimate import cost
from anamnesis_tests.sidecar.conftest import Post, TestServices
from anamnesis_tests.support.page_reading import read

HANGARS = (
    "The zeppelin hangar needs a helium valve before spring",
    "The zeppelin hangar got its helium delivery late",
    "We decided that the zeppelin hangar closes at night",
    "The zeppelin hangar roof leaks over the helium tank",
)


def brief(client: TestClient, query: str, **more: Any) -> dict[str, Any]:
    reply = client.get("/api/brief", params={"query": query, **more})
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def fill(post: Post) -> None:
    for number, text in enumerate(HANGARS):
        kind = "decision" if "decided" in text else "note"
        post(text, episode_id=f"h{number}", project="air", kind=kind, timestamp=f"2026-03-0{number + 1}T12:00:00Z")
    for number in range(6):
        post(f"The lighthouse keeper number {number} sleeps", episode_id=f"l{number}", project="sea")


def test_a_briefing_tells_what_recurs_and_what_is_missing(client: TestClient, post: Post) -> None:
    fill(post)
    told = brief(client, "zeppelin hangar balloon", project="air")
    ids = {each["episode_id"] for each in told["memories"]}
    assert {"h0", "h1", "h2"} <= ids <= {"h0", "h1", "h2", "h3"}
    assert told["projects"] == [{"value": "air", "episodes": len(ids)}]
    assert told["types"] == [{"value": "decision", "episodes": 1}]
    assert "helium" in {each["term"] for each in told["terms"]}
    assert "zeppelin hangar helium" in told["follow_ups"]
    assert 0 < len(told["follow_ups"]) <= 6
    assert "No text has: balloon." in told["lacks"]
    assert client.get("/api/episodes/h0").json()["retrieval_count"] == 0


def test_a_briefing_keeps_its_budget(client: TestClient, post: Post) -> None:
    fill(post)
    for number in range(5):
        post("The zeppelin hangar. " + "It is long and wide. " * 60, episode_id=f"long{number}")
    whole = brief(client, "zeppelin hangar", max_tokens=5000)
    small = brief(client, "zeppelin hangar", max_tokens=60)
    for told, most in ((whole, 5000), (small, 60)):
        spent = sum(cost(each["title"]) + cost(each["text"]) for each in told["memories"])
        assert spent == told["total_tokens"] <= most
    assert 0 < len(small["memories"]) < len(whole["memories"])
    assert any("did not fit into 60 tokens" in note for note in small["lacks"])


def test_what_nothing_answers_is_said(client: TestClient) -> None:
    told = brief(client, "cinnamon")
    assert (told["looked_at"], told["memories"], told["follow_ups"]) == (0, [], [])
    assert told["lacks"][0] == "Nothing stored answers this."


def test_two_questions_are_compared(client: TestClient, post: Post) -> None:
    for name, text in (("a", "zeppelin"), ("b", "zeppelin harbour"), ("c", "harbour")):
        post(f"The {text}", episode_id=name)
    body = client.get("/api/brief/compare", params={"a": "zeppelin", "b": "harbour"}).json()
    ids = {name: {each["episode_id"] for each in body[name]} for name in ("both", "only_a", "only_b")}
    assert "b" in ids["both"]
    assert not ids["both"] & (ids["only_a"] | ids["only_b"])
    same = client.get("/api/brief/compare", params={"a": "zeppelin", "b": "zeppelin"}).json()
    assert (same["only_a"], same["only_b"]) == ([], [])


def test_hints_are_short_and_read_by_their_ids(client: TestClient, post: Post) -> None:
    post("The zeppelin hangar " + "needs a valve for its helium " * 10, episode_id="a")
    (hint,) = client.get("/api/search/hints", params={"query": "zeppelin", "top_k": 1}).json()["hints"]
    assert len(hint["hint"]) <= 60
    assert hint["hint"].startswith("The zeppelin hangar")
    assert client.get(f"/api/episodes/{hint['short_id']}").json()["episode_id"] == "a"


def test_hotspots_count_searches_and_reads(client: TestClient, services: TestServices, post: Post) -> None:
    services.store.settings.set("config.private_projects", ["secret"])
    fill(post)
    post("The safe", episode_id="p", project="secret")
    for _ in range(2):
        client.post("/api/episodes/search", json={"query": "zeppelin valve helium", "top_k": 1})
    client.get("/api/episodes/l1")
    client.get("/api/episodes/p")
    body = client.get("/api/hotspots", params={"hours": 1}).json()
    assert [each["episode_id"] for each in body["episodes"]] == ["h0", "l1"]
    assert (body["episodes"][0]["queries"], body["episodes"][1]["reads"]) == (2, 1)
    assert [each["project"] for each in body["projects"]] == ["air", "sea"]
    assert client.get("/api/hotspots", params={"limit": 1}).json()["episodes"][0]["episode_id"] == "h0"


def test_page_briefs_compares_and_goes_on(client: TestClient, post: Post) -> None:
    fill(post)
    link = read(client, "/dashboard/search?q=zeppelin+hangar&project=air").select_one("#briefing")
    assert link["href"] == "/dashboard/brief?q=zeppelin+hangar&project=air"
    soup = read(client, str(link["href"]))
    assert len(soup.select("#memories li")) == 4
    following = str(soup.select_one("#next-title ~ ul a")["href"])
    assert "project=air" in following
    assert read(client, following).select("#memories li")
    both = read(client, "/dashboard/brief?q=zeppelin&with=hangar")
    assert both.select_one("#both-title")
    assert not read(client, "/dashboard/brief").select("#memories")
