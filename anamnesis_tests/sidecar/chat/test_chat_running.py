"""Places for answers: taken once, given back by the end of what writes, whatever ends it."""

import asyncio

import pytest
from starlette.exceptions import HTTPException

from anamnesis_pipeline.sidecar.chat_running import Chats, Running


def test_the_end_of_the_service_ends_every_answer_and_each_stores_what_it_has() -> None:
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


def test_an_answer_that_is_stopped_while_it_is_prepared_ends_as_it_begins() -> None:
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
