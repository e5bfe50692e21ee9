"""What the whole system is for: what one session said and did, another one finds."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from anamnesis_tests.sidecar.mcp.conftest import Client
from anamnesis_tests.support.archived_logs import record
from anamnesis_tests.support.live_system import System

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SESSION = "7d1f0c52-6a9b-4a3f-9a51-0d6f3f1f2b10"
ASKED = "The payment webhook of the gnome shop charges some cards twice. Find out why and mend it."
ANSWERED = (
    "The gateway sends an event again when we answer late, and the handler was not idempotent. It keeps the ids of "
    "events in the table payment_events now, and skips those that it knows."
)
ELSE = [
    ("Which colours do the gnomes have?", "Red and green; blue ones are sold out until spring."),
    ("Rename the folder of the pictures.", "Done: assets/img is assets/pictures now."),
]
SEARCHED = "customers were billed two times"
"""No word of it is in the transcript, so that a model has to find it."""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    logs = tmp_path / "projects"
    logs.mkdir()
    system = System(
        tmp_path, ANAMNESIS_LOG_ROOTS=str(logs), ANAMNESIS_CRAWL_INTERVAL_S="30", ANAMNESIS_MODEL="all-MiniLM-L6-v2"
    )
    monkeypatch.setenv("ANAMNESIS_HOME", str(system.home))  # of the MCP server that a client starts
    yield system
    system.end()


def write_transcript(system: System) -> Path:
    """What Claude Code writes of a session, while it runs."""
    file = Path(system.environment["ANAMNESIS_LOG_ROOTS"]) / "-code-shop" / f"{SESSION}.jsonl"
    file.parent.mkdir()
    turns = [(ASKED, ANSWERED), *ELSE]
    with file.open("w", encoding="utf-8") as log:
        for number, (question, answer) in enumerate(turns):
            for place, (role, text) in enumerate((("user", question), ("assistant", answer))):
                said = record(role, text, 10 * number + place, session=SESSION)
                log.write(json.dumps(said) + "\n")
                log.flush()
    return file


def first_id(answer: str) -> str:
    """The id of the best hit, as a session reads it."""
    return (re.findall(r"^1\. \[\w+ (\S+)\]", answer, re.MULTILINE) or [""])[0]


def test_what_a_session_said_is_found_by_the_next_one(system: System) -> None:
    system.start()
    system.wait_until("the sidecar is ready", system.is_ready)
    system.wait_until("the sensors look", lambda: system.graphql("{ version }"))
    second = Client("stdio", system.port, folder=str(system.home.parent))
    assert not first_id(second.call("search", query=SEARCHED))

    file = write_transcript(system)
    system.wait_until("the crawler has it", lambda: system.search("payment_events"))
    system.wait_until("all of it is embedded", system.is_covered)
    episode = first_id(second.call("search", query=SEARCHED))
    whole = second.call("read", ids=[episode])
    assert ASKED in whole
    assert "skips those that it knows" in " ".join(whole.replace("\n>", " ").split())
    stored = system.http.get(f"/api/episodes/{episode}").json()
    assert (stored["source"]["session_id"], stored["source"]["path"]) == (SESSION, str(file))

    third = Client("http", system.port)
    kept = third.call("remember", text=ANSWERED, type="decision", why=ASKED, project=stored["project"])
    (note,) = re.findall(r"id (ep_note_\w+)", kept)
    assert note in second.call("search", query=SEARCHED)
    assert first_id(third.call("search", query=SEARCHED)) in {note, episode}
    system.terminate()
