"""Lessons and procedures for a prompt: the nearest ones, or why there is none; and in the context of a session."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_tests.sidecar.conftest import Post, TestServices, know_the_unrelated, problem
from anamnesis_tests.support.samples import put

WHY = "why did the quagga retry charge twice"
LESSON = "The quagga retry did charge twice, since no key was sent."


@pytest.fixture(autouse=True)
def measured(services: TestServices) -> None:
    know_the_unrelated(services.store)


def skills(client: TestClient, query: str, **asked: Any) -> dict[str, Any]:
    reply = client.get("/api/skills", params={"query": query, **asked})
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def put_lessons(services: TestServices, *entries: str, project: str = "acme") -> None:
    """A `lessons.md` as it is crawled: one section, a passage of each entry."""
    text = "\n".join(["# Lessons", "", *entries])
    put(
        services.store,
        "lessons",
        "# Lessons",
        *entries,
        kind="document",
        source="box--memory",
        project=project,
        path="/home/dev/.claude/projects/-acme/memory/topics/lessons.md",
        summary="Lessons",
        raw_exchange=text,
        tags=("document", "markdown", "curated", "topic"),
        metadata={"title": ["lessons.md", "Lessons"], "lines": [1, 2 + len(entries)], "trust": "curated"},
    )
    services.poster.embed(["lessons"])


def test_skills_that_apply_come_with_type_confidence_and_why(client: TestClient, post: Post) -> None:
    post(LESSON, kind="lesson", episode_id="l")
    post("The zebra report is printed on Mondays.", kind="procedure", episode_id="p")
    post("The quagga retry did charge twice, again.", episode_id="note")
    (item,) = skills(client, WHY, project="acme")["items"]
    assert (item["episode_id"], item["type"], item["text"]) == ("l", "lesson", LESSON)
    assert 0.5 < item["confidence"] <= 1
    assert item["why"] == "it says quagga, retry, charge, twice"


def test_skills_are_at_most_three(client: TestClient, post: Post) -> None:
    for number in range(5):
        post(f"{LESSON} It was in run{number} of {'abcde'[number] * 5}.", kind="procedure")
    assert 0 < len(skills(client, WHY)["items"]) <= 3
    assert len(skills(client, WHY, max=1)["items"]) == 1
    problem(client.get("/api/skills", params={"query": WHY, "max": 4}))


def test_no_skill_has_a_reason(client: TestClient, post: Post) -> None:
    post(LESSON, episode_id="note")
    assert skills(client, WHY) == {"items": [], "reason": "no lesson and no procedure is known"}
    post(LESSON, kind="lesson", episode_id="l")
    assert skills(client, "xylophone tuning for beginners")["reason"] == "nothing known is near enough"
    assert skills(client, "go on")["reason"] == "the prompt is too short to say what it is about"
    assert skills(client, WHY, project="other")["reason"] == "no lesson and no procedure is known"


def test_skills_of_private_projects_stay_there(client: TestClient, services: TestServices, post: Post) -> None:
    services.store.settings.set("config.private_projects", ["acme", "general"])
    post(LESSON, kind="lesson", episode_id="l")
    post(LESSON, kind="lesson", episode_id="g", project="general")
    post("Something else.", project="shop")
    assert skills(client, WHY)["items"] == []
    assert skills(client, WHY, project="shop")["items"] == []
    assert [item["episode_id"] for item in skills(client, WHY, project="acme")["items"]] == ["l"]


def test_skills_of_a_private_source_are_not_general(client: TestClient, services: TestServices, post: Post) -> None:
    put_lessons(services, f"- {LESSON}", project="general")
    post("Something else.", project="shop")
    assert skills(client, WHY, project="shop")["items"] != []
    removed = Source("box--memory", "box", "/home/dev", kind=DOCUMENTS, spec="memory")
    services.store.files.put_sources([removed])
    assert services.engine.private().keys == {removed.key}
    assert skills(client, WHY, project="shop")["items"] == []


def test_skills_of_general_apply_everywhere(client: TestClient, post: Post) -> None:
    post(LESSON, kind="procedure", episode_id="g", project="general")
    post("Something else.", project="shop")
    assert [item["episode_id"] for item in skills(client, WHY, project="shop")["items"]] == ["g"]


def test_lesson_of_a_file_is_its_entry(client: TestClient, services: TestServices) -> None:
    entry = "- Why did the quagga retry charge twice\n  - Fixed by: a key"
    put_lessons(services, "- Zebras are late", entry, "- Slow tests")
    (item,) = skills(client, WHY, project="acme")["items"]
    assert (item["type"], item["text"]) == ("lesson", "Why did the quagga retry charge twice - Fixed by: a key")


def test_record_of_an_llm_is_labelled_by_its_type(client: TestClient, services: TestServices) -> None:
    put(
        services.store,
        "r",
        LESSON,
        kind="record",
        project="acme",
        summary=LESSON,
        raw_exchange=LESSON,
        tags=("lesson",),
        metadata={"type": "lesson"},
    )
    services.poster.embed(["r"])
    assert [item["type"] for item in skills(client, WHY)["items"]] == ["lesson"]
    text = client.post("/api/context", json={"query": WHY, "project": "acme"}).json()["text"]
    assert "(lesson, source summary)" in text


def test_context_has_skills_labelled_and_once(client: TestClient, services: TestServices, post: Post) -> None:
    put_lessons(services, f"- {LESSON}", "- Slow tests")
    post("If the quagga retry did charge twice, send a key.", kind="procedure", episode_id="p")
    asked = {"query": WHY, "project": "acme", "session_id": "s1"}
    body = client.post("/api/context", json=asked).json()
    told = body["text"].split("Lessons and procedures for this:")[1]
    assert told.count("(lesson, file lessons.md, machine main, source file, trust curated): \u201c" + LESSON) == 1
    assert "\u201cIf the quagga retry" in told
    assert "Slow tests" not in body["text"]
    assert body["no_skills"] is None
    assert body["tokens"] <= 800
    assert client.post("/api/context", json=asked).json()["text"] == ""


def test_context_says_why_it_has_no_skill(client: TestClient, post: Post) -> None:
    post(LESSON, episode_id="note")
    body = client.post("/api/context", json={"query": WHY, "project": "acme"}).json()
    assert (body["episodes"], body["no_skills"]) == (["note"], "no lesson and no procedure is known")
    assert client.post("/api/context", json={"project": "acme"}).json()["no_skills"] is None


def test_start_tells_the_latest_lessons(client: TestClient, services: TestServices) -> None:
    dated = [f"- Lesson {n} <!-- sources: e{n} 2026-03-{20 - n:02} -->" for n in range(7)]
    put_lessons(services, *dated)
    body = client.post("/api/context", json={"project": "acme", "session_id": "s1"}).json()
    told = body["text"].split("Went wrong before; check before similar work:")[1]
    assert [n for n in range(7) if f"\u201cLesson {n}\u201d" in told] == [0, 1, 2, 3, 4]
    assert "7 lessons, to read before similar work" in body["text"]
    again = {"query": "what about lesson 0 of lessons", "project": "acme", "session_id": "s1"}
    assert "\u201cLesson 0\u201d" not in client.post("/api/context", json=again).json()["text"]
    handoff = client.get("/api/handoff", params={"project": "acme"}).json()
    assert [each["text"] for each in handoff["lessons"]][:2] == ["Lesson 0", "Lesson 1"]
