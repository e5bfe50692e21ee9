"""What is known before a message comes is searched once in a while, and never tells what is not so any more."""

import json
from datetime import UTC, datetime

import httpx
import pytest

from anamnesis_pipeline.model import ChatMessage, ChatSession
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import SearchAnswer, SearchQuery
from anamnesis_pipeline.services.chat import standing_of
from anamnesis_pipeline.sidecar import chat_background
from anamnesis_pipeline.sidecar.chat_background import KnownAnswers
from anamnesis_tests.sidecar.chat.asking import NOTE, SAID, of, said
from anamnesis_tests.sidecar.conftest import Post, TestServices, wait_for
from anamnesis_tests.support.chat_services import ChatServer, ollama
from anamnesis_tests.support.loopback import Answer

ASKED = standing_of("")[1]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that are searched."""
    texts: list[str] = []
    search = Engine.search

    def noting(self: Engine, query: SearchQuery) -> SearchAnswer:
        texts.append(query.text)
        return search(self, query)

    monkeypatch.setattr(Engine, "search", noting)
    return texts


@pytest.fixture
def known(services: TestServices, client: httpx.Client, post: Post) -> KnownAnswers:
    post("Preferences and standing instructions: tabs, never spaces", episode_id="tabs", kind="preference")
    return KnownAnswers(services)


def found(known: KnownAnswers, *private: str) -> list[str]:
    return [hit.episode.summary for hit in known.hits(ASKED, Private(projects=private))]


def test_it_is_searched_once_in_a_while(
    services: TestServices, known: KnownAnswers, post: Post, searched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    post("Preferences and standing instructions are asked for", episode_id="said", kind="exchange")
    expected = ["Preferences and standing instructions: tabs, never spaces"]
    assert [found(known) for _ in range(3)] == [expected] * 3, "what was merely said is nothing that stands"
    assert searched == [ASKED.text]
    monkeypatch.setattr(chat_background, "KEPT_S", 0.0)
    short = KnownAnswers(services)
    assert found(short) == found(short) == expected
    assert len(searched) == 3


def test_what_was_edited_since_is_searched_anew(known: KnownAnswers, client: httpx.Client, searched: list[str]) -> None:
    found(known)
    client.patch("/api/episodes/tabs", json={"summary": "Preferences: spaces, never tabs"})
    assert found(known) == ["Preferences: spaces, never tabs"]
    client.delete("/api/episodes/tabs")
    assert found(known) == []
    assert len(searched) == 3


def test_what_became_private_is_told_no_more(known: KnownAnswers, services: TestServices, searched: list[str]) -> None:
    assert len(found(known)) == 1
    services.store.settings.set("config.private_projects", ["acme"])
    assert found(known, "acme") == []
    assert len(searched) == 2


def test_answer_without_the_model_is_not_kept(known: KnownAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as loading:
        loading.setattr(Engine, "search", lambda *_: SearchAnswer([], 1.0, None, ["dense: no model"], 0, None))
        assert found(known) == []
    assert len(found(known)) == 1


ALWAYS = {each.text for each in standing_of("")}


@pytest.mark.parametrize("project", ["", "acme"])
def test_next_turns_questions_are_asked_ahead(
    client: httpx.Client, server: ChatServer, searched: list[str], project: str
) -> None:
    client.post("/api/episodes", json=NOTE)
    session = said(client, backend="ollama", **({"project": project} if project else {}))[0]["session"]["session_id"]
    wait_for(lambda: {SAID, *(each.text for each in standing_of(project))} <= set(searched), 60)
    del searched[:]
    said(client, "And the other one?", session_id=session)
    assert searched == ["And the other one?"]


def test_failed_answer_is_not_asked_ahead(client: httpx.Client, server: ChatServer, searched: list[str]) -> None:
    cut = json.dumps({"message": {}, "done": True, "done_reason": "length"}).encode() + b"\n"
    server.respond(Answer(200, (*ollama(("Half of it",), ())[:-1], cut)))
    assert of(said(client, backend="ollama"), "error")
    said(client, backend="ollama")
    wait_for(lambda: SAID in searched, 60)
    assert "Half of it" not in searched


def test_opening_the_chat_asks_ahead(client: httpx.Client, services: TestServices, searched: list[str]) -> None:
    assert client.get("/chat").status_code == 200
    wait_for(lambda: set(searched) == ALWAYS, 60)
    now = datetime.now(UTC)
    services.store.chat.put_session(ChatSession("s1", "The crane", "ollama", "m", "", now, now))
    services.store.chat.add(ChatMessage("m1", "s1", "user", "Where?", now))
    services.store.chat.add(ChatMessage("m2", "s1", "assistant", "At the quay.", now))
    assert client.get("/chat/s1").status_code == 200
    wait_for(lambda: {"At the quay.", *ALWAYS} == set(searched), 60)


def test_failing_question_holds_up_no_other(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def failing(_: Engine, query: SearchQuery) -> SearchAnswer:
        asked.append(query.text)
        raise RuntimeError("it quotes a secret")

    monkeypatch.setattr(Engine, "search", failing)
    assert client.get("/chat").status_code == 200
    wait_for(lambda: set(asked) == ALWAYS, 60)
    wait_for(lambda: caplog.text.count("not asked ahead: RuntimeError") == 2, 60)
    assert "secret" not in caplog.text
