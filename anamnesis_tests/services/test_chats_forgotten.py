"""Forgetting reaches what conversations here hold and no episode does: answers that failed or were stopped."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.model import FORGOTTEN, ChatMessage, ChatSession
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.forget import JOB
from anamnesis_tests.support.archived_logs import Home, unmasked
from anamnesis_tests.support.samples import put

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.say("What does the okapi eat, and when?", "Leaves, at dawn.")
    home.ingest(unmasked)
    yield home
    home.close()


def converse(home: Home, session_id: str = "talk", project: str = "acme/zoo") -> None:
    """Three turns: an episode, a stopped answer, a failed one without a word."""
    chat, count = home.store.chat, iter(range(9))
    chat.put_session(ChatSession(session_id, "About the zanzibar plan", "ollama", "m", project, NOW, NOW))
    put(home.store, f"episode-of-{session_id}", "the zanzibar plan", project=project, source="chat")

    def say(text: str, role: Any = "user", **fields: Any) -> None:
        number = next(count)
        at = NOW + timedelta(minutes=number)
        chat.add(replace(ChatMessage(f"{session_id}-{number}", session_id, role, text, at), **fields))

    say("The zanzibar plan?", episode_id=f"episode-of-{session_id}")
    say("It is set.", "assistant", episode_id=f"episode-of-{session_id}")
    say("And the quagga?", files=("quagga.txt",))
    say("Half of the wal", "assistant", stopped=True)
    say("The pelican?")
    say("", "assistant", problem="ollama cannot be reached")


def told(home: Home, session_id: str = "talk") -> list[str]:
    return [each.text for each in home.store.chat.messages(session_id)]


@pytest.mark.parametrize("fields", [{"session_id": "talk"}, {"project": "acme/zoo"}, {"project": "zoo"}])
def test_a_forgotten_project_or_session_takes_its_conversation(home: Home, fields: dict[str, str]) -> None:
    converse(home)
    converse(home, "other", "acme/park")
    report = home.preview(**fields)
    assert (report.episodes, report.messages) == (1, 6)
    assert len(told(home)) == 6, "a preview changes nothing"
    home.forget(**fields)
    assert home.store.chat.session("talk") is None
    assert told(home) == []
    assert home.store.episodes.get(["episode-of-talk", "episode-of-other"]).keys() == {"episode-of-other"}
    assert len(told(home, "other")) == 6
    assert FORGOTTEN not in told(home, "other")


def test_a_turn_is_forgotten_by_its_words_and_by_its_time(home: Home) -> None:
    converse(home)
    assert home.forget(query="quagga wal").messages == 2
    assert told(home) == ["The zanzibar plan?", "It is set.", FORGOTTEN, FORGOTTEN, "The pelican?", ""]
    assert home.store.chat.messages("talk")[2].files == ()
    session = home.store.chat.session("talk")
    assert session.title == "About the zanzibar plan"
    home.forget(since=NOW + timedelta(minutes=4), project="zoo")
    assert told(home) == ["The zanzibar plan?", "It is set.", FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN]
    assert home.store.episodes.get(["episode-of-talk"])


def test_what_is_asked_of_logs_leaves_conversations(home: Home) -> None:
    converse(home)
    for fields in ({"path": "/home"}, {"machine": "nowhere"}, {"ids": ("x",)}, {"session_id": "nothing"}):
        assert home.forget(**fields).messages == 0
    assert len(told(home)) == 6


def test_a_run_that_died_is_finished_by_the_next(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    converse(home)
    with monkeypatch.context() as patched:
        patched.setattr(home.store.chat, "forget", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            home.forget(project="zoo")
    assert len(told(home)) == 6
    wiring.open_forgetter(home.settings, home.store).resume()
    assert told(home) == []
    assert home.store.settings.get(JOB) is None
