"""The end of an answer: what is said is stored once, whatever comes between."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.llm_guard import Guard
from anamnesis_pipeline.sidecar.chat_background import ChatRecorder
from anamnesis_pipeline.sidecar.chat_stream import UNEXPECTED, TurnStream
from anamnesis_tests.sidecar.chat.asking import OWN_ID, SAID, events_of, kept, of, said
from anamnesis_tests.sidecar.conftest import TestServices, raising, wait_for
from anamnesis_tests.support.chat_services import ChatServer

ASKED = {"message": "Go on", "backend": "ollama", "session_id": OWN_ID}
LATE_S = 0.5


@pytest.fixture
def storing(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once an answer is being stored, which takes a while."""
    begun, keep = threading.Event(), ChatRecorder.keep

    def keep_late(*given: Any) -> Any:
        begun.set()
        time.sleep(LATE_S)
        return keep(*given)

    monkeypatch.setattr(ChatRecorder, "keep", keep_late)
    return begun


@contextmanager
def answering(client: httpx.Client) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """An answer that is being written; what is left of its events."""
    with client.stream("POST", "/api/chat/stream", json=ASKED) as reply:
        lines = events_of(reply)
        next(lines)
        yield lambda: list(lines)


def test_answer_being_stored_cannot_be_stopped(client: httpx.Client, storing: threading.Event) -> None:
    with answering(client) as rest:
        assert storing.wait(60)
        assert client.post(f"/api/chat/sessions/{OWN_ID}/stop").json() == {"stopped": False}
        last = rest()[-1]
    assert (last["done"], last["stopped"]) == (True, False)
    answer = kept(client, OWN_ID)[1]
    assert (answer["text"], answer["stopped"], answer["episode_id"]) == (SAID, False, last["episode_id"])


def test_forgotten_meanwhile_is_gone(client: httpx.Client, services: TestServices, storing: threading.Event) -> None:
    with answering(client) as rest:
        assert storing.wait(60)
        assert client.delete(f"/api/chat/sessions/{OWN_ID}?episodes=true").status_code == 204
        rest()
    assert client.get(f"/api/chat/sessions/{OWN_ID}").status_code == 404
    assert services.store.episodes.page(EpisodeFilter(), 10).items == []


def test_who_goes_away_finds_it_whole(client: httpx.Client, services: TestServices, storing: threading.Event) -> None:
    with answering(client):
        assert storing.wait(60)
    wait_for(lambda: client.get(f"/api/chat/sessions/{OWN_ID}").json()["message_count"] == 2, 60)
    wait_for(lambda: len(services.store.episodes.page(EpisodeFilter(), 10).items) == 1, 60)
    assert not kept(client, OWN_ID)[1]["stopped"]


def test_answer_not_stored_says_so(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = raising(ValueError("nobody foresaw this"))
    monkeypatch.setattr(TurnStream, "_message", fail)
    last = said(client, **ASKED)[-1]
    assert (last["done"], last["message_id"]) == (True, None)
    assert UNEXPECTED in last["problem"]


def test_unmade_call_costs_nothing(client: httpx.Client, server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, is_stopped, book = threading.Event(), threading.Event(), Guard.book_answer

    def book_late(*given: Any) -> Any:
        begun.set()
        assert is_stopped.wait(60)
        return book(*given)

    monkeypatch.setattr(Guard, "book_answer", book_late)
    with client.stream("POST", "/api/chat/stream", json={**ASKED, "backend": "anthropic"}) as reply:
        assert begun.wait(60)
        assert client.post(f"/api/chat/sessions/{OWN_ID}/stop").json() == {"stopped": True}
        is_stopped.set()
        assert reply.read()
    assert server.prompts == []
    used = client.get("/api/chat/balance").json()["used_today"]
    assert (used["input_tokens"], used["output_tokens"], used["dollars"]) == (0, 0, 0)


@pytest.mark.parametrize("backend", ["ollama", "openai", "anthropic"])
def test_character_cut_in_halves_is_whole_again(client: httpx.Client, server: ChatServer, backend: str) -> None:
    server.words = ("Lifted \ud83c", "\udfd7 on Thursday.")
    more = {"model": "local-model"} if backend == "openai" else {}
    events = said(client, **(ASKED | {"backend": backend}), **more)
    assert of(events, "token") == list(server.words)
    answer = kept(client, OWN_ID)[1]
    assert (answer["text"], answer["stopped"]) == ("Lifted \U0001f3d7 on Thursday.", False)
    assert "\U0001f3d7" in client.get(f"/api/episodes/{events[-1]['episode_id']}?include=raw").json()["raw_exchange"]
