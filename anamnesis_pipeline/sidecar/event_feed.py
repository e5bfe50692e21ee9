"""What happens to episodes, told to whoever watches: one look at the store a second, however many watch."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.search.project_labels import PRIVATE
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.records.events import Event

EVERY_S = 1.0
"""Between two looks: an event of another process is told within two seconds."""
MOST_WATCHERS = 32
MOST_AT_ONCE = 1_000
"""Events of one look; more come with the next one."""
BEHIND = 16
"""Looks that a watcher may be behind. One that is further behind is let go; it asks again from where it was."""

log = logging.getLogger(__name__)

Batch = tuple[Event, ...]


def without_private(services: Services, events: Sequence[Event]) -> Batch:
    """The events; those of what is private have `PRIVATE` as their project, and no id. So have those of what is gone,
    unless something of their project is stored that is not private.
    """
    private, store = services.engine.private(), services.store
    if not private:
        return tuple(events)
    heads = store.episodes.heads(sorted({event.episode_id for event in events}))
    is_any_gone = any(event.episode_id not in heads for event in events)
    known = frozenset(private.open_projects(store)) if is_any_gone else frozenset[str]()

    def is_private(event: Event) -> bool:
        head = heads.get(event.episode_id)
        is_hidden = event.project not in known if head is None else private.holds(head)
        return is_hidden or private.is_of(event.project)

    return tuple(replace(e, project=PRIVATE, episode_id="") if is_private(e) else e for e in events)


class TooManyWatchersError(Exception):
    """Nobody else may watch now."""


class EventFeed:
    """Hands each new event to all watchers. Without watchers the store is not asked."""

    def __init__(self, services: Services, every_s: float = EVERY_S, most: int = MOST_WATCHERS) -> None:
        """:param services: not looked at before `run`."""
        self._services, self._every_s, self._most = services, every_s, most
        self._watchers: dict[MemoryObjectSendStream[Batch], int] = {}  # and what each has seen when it came
        self._wanted = anyio.Event()
        self._ended = False

    @property
    def most(self) -> int:
        """How many may watch."""
        return self._most

    @property
    def is_full(self) -> bool:
        """Whether nobody else may watch now."""
        return len(self._watchers) >= self._most

    @property
    def watchers(self) -> int:
        """How many watch now."""
        return len(self._watchers)

    @asynccontextmanager
    async def watching(self, after: int) -> AsyncIterator[AsyncIterator[Batch]]:
        """Batches of the events behind number `after`, as they come; an empty batch where nothing came for a second,
        and the end when the service ends or the watcher fell behind.

        :raises TooManyWatchersError: see `MOST_WATCHERS`.
        """
        if self.is_full:
            raise TooManyWatchersError(f"{self._most} pages watch already; close one, or ask again later")
        send, receive = anyio.create_memory_object_stream[Batch](BEHIND)
        if self._ended:
            send.close()
        else:
            self._watchers[send] = after
            self._wanted.set()
        try:
            yield self._batches(receive, after)
        finally:
            self._drop(send)
            receive.close()

    def end(self) -> None:
        """Let all watchers go, for good: the server waits for them when it stops."""
        self._ended = True
        for watcher in list(self._watchers):
            self._drop(watcher)

    async def run(self) -> None:
        """Look at the store as long as somebody watches, until cancelled."""
        while True:
            if not self._watchers:
                self._wanted = anyio.Event()
                await self._wanted.wait()
            await self._tell_new()

    async def _tell_new(self) -> None:
        """From the first watcher to the last one that goes."""
        last = min(self._watchers.values())
        while self._watchers:
            found: Batch = ()
            try:
                found = await self._ask(last)
            except AnamnesisError as exc:
                log.info("what happens to episodes cannot be told now: %s", exc)
            if found:
                last = found[-1].number
                self._hand_out(found)
            if len(found) < MOST_AT_ONCE:
                await anyio.sleep(self._every_s)

    async def _ask(self, after: int) -> Batch:
        def read() -> Batch:
            return without_private(self._services, self._services.store.events.since(after, MOST_AT_ONCE))

        return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)

    def _hand_out(self, found: Batch) -> None:
        for watcher in list(self._watchers):
            try:
                watcher.send_nowait(found)
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                self._drop(watcher)

    def _drop(self, watcher: MemoryObjectSendStream[Batch]) -> None:
        self._watchers.pop(watcher, None)
        with suppress(anyio.ClosedResourceError):
            watcher.close()

    async def _batches(self, receive: MemoryObjectReceiveStream[Batch], after: int) -> AsyncIterator[Batch]:
        """What the feed told others before this watcher came, then what it tells; nothing twice."""
        last = after
        while True:
            try:
                missed = await self._ask(last)
            except AnamnesisError:  # whoever watches asks again from where it was
                return
            if not missed:
                break
            yield missed
            last = missed[-1].number
        while True:
            batch: Batch = ()
            try:
                with anyio.move_on_after(self._every_s):
                    batch = await receive.receive()
            except anyio.EndOfStream:
                return
            new = tuple(event for event in batch if event.number > last)
            yield new
            last = new[-1].number if new else last
