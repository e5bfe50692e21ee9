"""What happens, told to whoever watches: in rows of two seconds, with one look at the store a second."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import anyio
import pytest

from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.sidecar import event_feed
from anamnesis_pipeline.sidecar.event_feed import Batch, EventFeed, TooManyWatchersError
from anamnesis_pipeline.sidecar.event_windows import Windows
from anamnesis_pipeline.store.records.events import Event, EventRecords, Happening
from anamnesis_tests.sidecar.conftest import TestServices
from anamnesis_tests.support.samples import DAY, put


def event(number: int, second: float = 0, **fields: Any) -> Event:
    given = {"kind": Happening.READ, "process": 7, "episode_id": f"e{number}", "episodes": 2, "project": "acme"}
    return Event(number=number, at=DAY + timedelta(seconds=second), **(given | fields))


def numbered(*events: Event) -> list[tuple[int, int]]:
    return [(row.number, row.events) for row in Windows().add(events)]


def test_same_of_one_process_within_two_seconds_is_one_row():
    (row,) = Windows().add([event(1), event(2, 1), event(3, 1.9)])
    assert (row.number, row.events, row.episodes, row.episode_id) == (1, 3, 6, "e1")
    one = {"episode_id": "e", "episodes": 1}
    (row,) = Windows().add([event(1, **one), event(2, 1, **one), event(3, 1, episodes=1)])
    assert (row.events, row.episodes) == (3, 2), "an episode that is touched twice is one"
    assert numbered(event(1), event(2, 1.5), event(3, 2.5)) == [(1, 2), (3, 1)], "a window does not move"
    assert numbered(event(1, 5), event(2, 1)) == [(1, 1), (2, 1)], "the clock of a machine may be behind"


@pytest.mark.parametrize("other", [{"kind": Happening.EDIT}, {"process": 8}, {"project": "other"}])
def test_what_differs_has_a_row_of_its_own(other: dict[str, Any]):
    assert numbered(event(1), event(2, 0.1, **other), event(3, 0.2)) == [(1, 2), (2, 1)]


def test_a_row_goes_on_over_several_batches_and_is_told_each_time():
    windows = Windows()
    assert [row.events for row in windows.add([event(1)])] == [1]
    assert [(row.number, row.events) for row in windows.add([event(2, 1)])] == [(1, 2)]
    assert windows.add([]) == []


@dataclass
class Counting:
    """The records of a store, and how often they were asked."""

    records: EventRecords
    asked: int = 0
    away: bool = False

    def since(self, number: int, limit: int) -> list[Event]:
        self.asked += 1
        if self.away:
            raise StoreBusy("the store does not answer")
        return self.records.since(number, limit)


def counting(services: TestServices) -> tuple[TestServices, Counting]:
    records = Counting(services.store.events)
    return replace(services, store=replace(services.store, events=records)), records  # type: ignore[arg-type]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(120):
            await work()

    anyio.run(bounded)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await anyio.sleep(0.01)


@asynccontextmanager
async def running(feed: EventFeed) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        yield
        tasks.cancel_scope.cancel()


async def first(batches: AsyncIterator[Batch]) -> Batch:
    async for batch in batches:
        if batch:
            return batch
    return ()


def test_watcher_is_told_each_event_once(services: TestServices):
    async def work() -> None:
        put(services.store, "a", "text")
        feed = EventFeed(services, 0.05)
        async with running(feed), feed.watching(0) as batches:
            assert [each.episode_id for each in await first(batches)] == ["a"]
            await anyio.to_thread.run_sync(put, services.store, "b", "text")
            assert [each.episode_id for each in await first(batches)] == ["b"]

    run(work)


def test_watchers_cost_one_look_at_a_time_and_none_without(services: TestServices):
    watched, records = counting(services)

    async def work() -> None:
        feed, began = EventFeed(watched, 0.2), anyio.current_time()
        async with running(feed), anyio.create_task_group() as tasks:
            await anyio.sleep(0.5)
            assert records.asked == 0, "nobody watches"

            async def watch() -> None:
                async with feed.watching(0) as batches:
                    await first(batches)

            for _ in range(20):
                tasks.start_soon(watch)
            await until(lambda: feed.watchers == 20 and records.asked >= 24)
            assert records.asked <= 20 + 2 + 5 * (anyio.current_time() - began)  # each one's first look, five a second
            await anyio.to_thread.run_sync(put, services.store, "a", "text")
            await until(lambda: feed.watchers == 0)
            await until(lambda: not feed._wanted.is_set())  # the last look is over
            asked = records.asked
            await anyio.sleep(0.5)
            assert records.asked == asked

    run(work)


def test_a_store_that_is_away_for_a_while_loses_nobody_anything(services: TestServices):
    watched, records = counting(services)

    async def work() -> None:
        feed = EventFeed(watched, 0.05)
        async with running(feed), feed.watching(0) as batches:
            assert await anext(batches) == ()
            records.away = True
            await anyio.to_thread.run_sync(put, services.store, "a", "text")
            asked = records.asked
            await until(lambda: records.asked > asked)
            records.away = False
            assert [each.episode_id for each in await first(batches)] == ["a"]

    run(work)


def test_no_more_may_watch_than_is_said(services: TestServices):
    async def work() -> None:
        feed = EventFeed(services, 0.05, most=1)
        async with running(feed), feed.watching(0):
            assert feed.is_full
            with pytest.raises(TooManyWatchersError, match="1 pages"):
                async with feed.watching(0):
                    pass
        assert not feed.is_full

    run(work)


def test_who_falls_behind_is_let_go_and_holds_nobody_up(services: TestServices, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_feed, "BEHIND", 1)

    async def work() -> None:
        feed = EventFeed(services, 0.02)
        async with running(feed), feed.watching(0) as slow:
            assert await anext(slow) == ()
            (watcher,) = feed._watchers
            await anyio.to_thread.run_sync(put, services.store, "a", "text")
            await until(lambda: watcher.statistics().current_buffer_used == 1)
            await anyio.to_thread.run_sync(put, services.store, "b", "text")
            await until(lambda: feed.watchers == 0)
            assert [batch[0].episode_id async for batch in slow if batch] == ["a"]

    run(work)


def test_all_watchers_are_let_go_when_the_service_ends(services: TestServices):
    async def work() -> None:
        feed = EventFeed(services, 5.0)
        async with running(feed), feed.watching(0) as batches:
            feed.end()
            assert [batch async for batch in batches if batch] == []
            async with feed.watching(0) as later:
                assert [batch async for batch in later if batch] == []

    run(work)
