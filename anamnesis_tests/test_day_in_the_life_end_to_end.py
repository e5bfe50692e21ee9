"""A day in the life: what three sessions met, decided and told holds for the fourth, once a person has reviewed it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anamnesis_tests.support.archived_logs import record
from anamnesis_tests.support.live_system import System
from anamnesis_tests.support.worked_sessions import REFUSED, migration

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

FIRST, SECOND, THIRD = (f"{digit * 8}-6a9b-4a3f-9a51-0d6f3f1f2b10" for digit in "123")
DAY = 24 * 60
FRIDAYS = "We decided to deploy on Fridays because the whole team is there."
MONDAYS = "We decided to deploy on Mondays because the shop broke on two weekends."
FACT = "Remember that the staging host of the shop is stg-2.example.com."


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    logs = tmp_path / "projects"
    logs.mkdir()
    system = System(
        tmp_path, ANAMNESIS_LOG_ROOTS=str(logs), ANAMNESIS_CRAWL_INTERVAL_S="30", ANAMNESIS_MODEL="all-MiniLM-L6-v2"
    )
    yield system
    system.end()


def write(system: System, session: str, lines: list[dict[str, Any]]) -> None:
    file = Path(system.environment["ANAMNESIS_LOG_ROOTS"]) / "-code-shop" / f"{session}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def accept(system: System, kind: str, quote: str) -> dict[str, Any]:
    """Accept the open proposal of a kind that quotes something."""
    listed = system.http.get("/api/proposals", params={"kind": kind}).json()["items"]
    (found,) = [each for each in listed if quote in {evidence["quote"] for evidence in each["evidence"]}]
    done = system.http.post(f"/api/proposals/{found['proposal_id']}/accept", json={"by": "Ada"})
    assert done.status_code == 200, done.text
    answer: dict[str, Any] = done.json()
    assert answer["state"] == "accepted", answer
    return answer


def start_block(system: System) -> str:
    """What a session that starts in the project is told."""
    asked = {"session_id": "44444444-6a9b-4a3f-9a51-0d6f3f1f2b10", "cwd": "/code/shop", "source": "clear"}
    answer = system.http.post("/api/context", json=asked)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


def test_what_sessions_learned_holds_for_the_next_one(system: System) -> None:
    system.start()
    system.wait_until("the sidecar is ready", system.is_ready)
    write(system, FIRST, migration(FIRST, 1, FRIDAYS))
    write(system, SECOND, migration(SECOND, 10 * DAY, "Thanks."))
    write(system, THIRD, [record("user", text, 20 * DAY + n, THIRD) for n, text in enumerate((MONDAYS, FACT))])
    system.wait_until("the crawler has them", lambda: system.search("stg-2.example.com"))
    system.wait_until("all of it is embedded", system.is_covered)

    assert system.http.post("/api/dream", timeout=120).json()["problems"] == {}
    again = system.http.post("/api/dream", timeout=120).json()
    assert again["observed"] == 0
    assert not any(each["new"] for each in again["proposed"].values())

    accept(system, "lesson", REFUSED)
    accept(system, "promote", FACT)
    reversed_ = accept(system, "supersede", FRIDAYS)
    (old,) = reversed_["change"]["statuses"]
    former = system.http.get(f"/api/episodes/{old['episode_id']}").json()
    assert (former["status"], former["superseded_by"]) == ("challenged", old["superseded_by"])
    assert MONDAYS in system.http.get(f"/api/episodes/{old['superseded_by']}?include=raw").text

    topics = system.home / "topics"
    system.wait_until("the lessons are written", lambda: list(topics.rglob("lessons.md")))
    system.wait_until(
        "the next session is told", lambda: REFUSED in start_block(system) and "facts" in start_block(system), 180
    )
    hits = system.search("what is the staging host of the shop")
    assert any(hit["authority"] == "authoritative" for hit in hits), hits
    system.terminate()
