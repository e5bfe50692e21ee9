"""Records of what was said in the chat: found in the background, whatever becomes of the first attempt."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from anamnesis_pipeline.chat_model import ChatMessage, ChatSession
from anamnesis_pipeline.sidecar import chat_running
from anamnesis_pipeline.sidecar.chat_records import FIRST_RETRY, GIVEN_UP, ChatRecorder, next_look
from anamnesis_pipeline.sidecar.chat_running import Chats
from anamnesis_pipeline.sidecar.extraction import TOO_MANY, TOO_SLOW, Extraction
from anamnesis_pipeline.steps.recording import Pair, Recorded, Recorder
from anamnesis_pipeline.wiring import effective_settings
from anamnesis_tests.sidecar.conftest import TestServices

NOW = datetime.now(UTC)
LONG = timedelta(days=9)


def counted() -> Counter:
    return Counter("failed", "attempts", registry=CollectorRegistry())


@pytest.fixture
def answered(services: TestServices) -> str:
    """The episode of a round trip that lacks its records."""
    services.store.settings.set("config.summarizer", "ollama")
    settings, chat = effective_settings(services.store), services.store.chat
    recorder = ChatRecorder(services, Extraction(), Chats(), counted())
    episode = recorder.keep(settings, Pair("Where is the crane?", "At pier 4.", "mac", "acme", NOW, "chat"))
    chat.put_session(ChatSession("s", "title", "ollama", "m", "acme", NOW, NOW))
    chat.add(ChatMessage("q", "s", "user", "Where is the crane?", NOW, episode_id=episode))
    chat.add(ChatMessage("a", "s", "assistant", "At pier 4.", NOW, episode_id=episode))
    recorder.want(settings, "a")
    return episode


def worked_off(services: TestServices, extraction: Any, chats: Chats | None = None) -> tuple[list[str], float]:
    """One pass of a service that has just begun: what is due now or later, and how many attempts failed."""
    failures = counted()

    async def look() -> None:
        is_over = asyncio.Event()

        class Once(ChatRecorder):
            async def _work_off(self) -> None:
                await super()._work_off()
                is_over.set()

        run = asyncio.create_task(Once(services, extraction, chats or Chats(), failures).run())
        await asyncio.wait_for(is_over.wait(), 60)
        run.cancel()
        await asyncio.wait([run])

    asyncio.run(look())
    return services.store.chat.records_due(datetime.now(UTC) + LONG, 9), failures._value.get()


def test_after_a_restart_what_was_left_is_worked_off_with_what_was_said(
    services: TestServices, answered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def extract(self: Recorder, part: Any) -> Recorded:
        asked.append((part.part_id, [each.text for each in part.segments]))
        return self.stored(part)

    monkeypatch.setattr(Recorder, "extract", extract)
    assert worked_off(services, Extraction()) == ([], 0)
    assert asked == [(answered, ["Where is the crane?", "At pier 4."])]
    assert worked_off(services, Extraction()) == ([], 0)
    assert len(asked) == 1


def test_while_an_answer_is_written_the_same_server_is_asked_for_nothing_else(
    services: TestServices, answered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats, beside = Chats(), list[bool]()
    chats.claim("another conversation")

    def extract(self: Recorder, part: Any) -> Recorded:
        beside.append("another conversation" in chats._running)
        return self.stored(part)

    monkeypatch.setattr(Recorder, "extract", extract)
    monkeypatch.setattr(chat_running, "LOOK_S", 0.02)
    threading.Timer(0.3, chats.release, ["another conversation"]).start()
    assert worked_off(services, Extraction(), chats) == ([], 0)
    assert beside == [False]


@pytest.mark.parametrize("waits", [TOO_MANY, TOO_SLOW])
def test_what_is_under_way_or_finds_no_room_is_no_failure_and_comes_up_again(
    services: TestServices, answered: str, waits: str
) -> None:
    class Busy(Extraction):
        async def run(self, name: str, work: Any) -> Recorded | str:
            return waits

    assert worked_off(services, Busy()) == (["a"], 0)


def test_a_failure_is_counted_and_tried_again_whatever_it_was(
    services: TestServices, answered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Recorded:
        raise ZeroDivisionError

    monkeypatch.setattr(Recorder, "extract", fail)
    assert worked_off(services, Extraction()) == (["a"], 1)


def test_of_what_was_deleted_nothing_is_looked_for(services: TestServices, answered: str) -> None:
    services.store.episodes.delete(answered)
    services.store.chat.want_records("a", NOW)
    assert worked_off(services, Extraction()) == ([], 0)


def test_without_an_llm_the_mark_waits_for_one(services: TestServices, answered: str) -> None:
    services.store.settings.set("config.summarizer", "none")
    assert worked_off(services, Extraction()) == (["a"], 0)


def test_attempts_come_ever_less_often_and_end() -> None:
    assert next_look(NOW, NOW) == NOW + FIRST_RETRY
    assert next_look(NOW, NOW + timedelta(hours=5)) == NOW + timedelta(hours=10)
    when, attempts = NOW, 0
    while (later := next_look(NOW, when)) is not None:
        when, attempts = later, attempts + 1
    assert attempts < 20
    assert when >= NOW + GIVEN_UP
