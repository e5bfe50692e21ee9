"""Work behind the chat: records of what was said are found later, and places for answers are given back."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from starlette.exceptions import HTTPException

from anamnesis_pipeline.model import ChatMessage, ChatSession
from anamnesis_pipeline.services.recording import Pair, Recorded, Recorder
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar import chat_running
from anamnesis_pipeline.sidecar.chat_background import FIRST_RETRY, GIVEN_UP, ChatRecorder, next_look
from anamnesis_pipeline.sidecar.chat_running import Chats, Running
from anamnesis_pipeline.sidecar.extraction import TOO_MANY, TOO_SLOW, Extraction
from anamnesis_tests.sidecar.conftest import TestServices, raising

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


def test_leftovers_are_done_on_restart(services: TestServices, answered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def extract(self: Recorder, part: Any) -> Recorded:
        asked.append((part.part_id, [each.text for each in part.segments]))
        return self.stored(part)

    monkeypatch.setattr(Recorder, "extract", extract)
    assert worked_off(services, Extraction()) == ([], 0)
    assert asked == [(answered, ["Where is the crane?", "At pier 4."])]
    assert worked_off(services, Extraction()) == ([], 0)
    assert len(asked) == 1


def test_records_wait_for_an_answer(services: TestServices, answered: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_finds_no_room_comes_up_again(services: TestServices, answered: str, waits: str) -> None:
    class Busy(Extraction):
        async def run(self, name: str, work: Any) -> Recorded | str:
            return waits

    assert worked_off(services, Busy()) == (["a"], 0)


def test_failure_counts_and_is_retried(services: TestServices, answered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail = raising(ZeroDivisionError())
    monkeypatch.setattr(Recorder, "extract", fail)
    assert worked_off(services, Extraction()) == (["a"], 1)


def test_deleted_needs_no_records_and_others_wait_for_an_llm(services: TestServices, answered: str) -> None:
    services.store.settings.set("config.summarizer", "none")
    assert worked_off(services, Extraction()) == (["a"], 0)
    services.store.settings.set("config.summarizer", "ollama")
    services.store.episodes.delete(answered)
    services.store.chat.want_records("a", NOW)
    assert worked_off(services, Extraction()) == ([], 0)


def test_attempts_come_ever_less_often_and_end() -> None:
    assert next_look(NOW, NOW) == NOW + FIRST_RETRY
    assert next_look(NOW, NOW + timedelta(hours=5)) == NOW + timedelta(hours=10)
    when, attempts = NOW, 0
    while (later := next_look(NOW, when)) is not None:
        when, attempts = later, attempts + 1
    assert attempts < 20
    assert when >= NOW + GIVEN_UP


def test_end_of_the_service_ends_and_stores_every_answer() -> None:
    stored: list[str] = []

    async def store_after(writing: "asyncio.Task[bool]", name: str) -> None:
        await asyncio.wait([writing])
        await asyncio.sleep(0.05)
        stored.append(name)

    async def run() -> None:
        chats = Chats(at_once=3)
        tasks = []
        for name in ("a", "b"):
            chats.claim(name)
            writing = asyncio.create_task(asyncio.Event().wait())
            tasks.append(asyncio.create_task(store_after(writing, name)))
            chats.begin(name, Running(writing, tasks[-1]))
        await asyncio.sleep(0)
        chats.stop_all()
        assert not chats.stop("a"), "it ends already"
        await asyncio.sleep(0)
        assert not chats.stop("a"), "it is over, and being stored"
        await asyncio.wait(tasks)

    asyncio.run(run())
    assert sorted(stored) == ["a", "b"]


def test_answer_stopped_while_prepared_ends_as_it_begins() -> None:
    async def run() -> None:
        chats = Chats()
        assert not chats.stop("a"), "there is none"
        chats.claim("a")
        assert chats.stop("a")
        assert not chats.stop("a"), "it ends already"
        writing = asyncio.create_task(asyncio.Event().wait())
        chats.begin("a", Running(writing, writing))  # type: ignore[arg-type]
        await asyncio.wait([writing])
        assert writing.cancelled()
        chats.claim("a")
        writing = asyncio.create_task(asyncio.sleep(0))
        chats.begin("a", Running(writing, writing))
        await writing  # the next one is not ended

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_conversation_has_one_answer_and_the_service_so_many() -> None:
    chats = Chats(at_once=2)
    chats.claim("a")
    with pytest.raises(HTTPException, match="stop it, or wait"):
        chats.claim("a")
    chats.claim("b")
    with pytest.raises(HTTPException, match="as many answers"):
        chats.claim("c")
    chats.release("a")
    chats.claim("c")
