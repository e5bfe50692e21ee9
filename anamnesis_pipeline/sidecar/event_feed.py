"""Live feed of episode events: one poll of the store a second, for any number of watchers."""

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
"""Seconds between polls: an event of another process is sent within two seconds."""
MAX_WATCHERS = 32
MAX_AT_ONCE = 1_000
"""Events of one poll; the rest follows in the next."""
BEHIND = 16
"""Polls that a watcher may be behind. One further behind is disconnected, and resumes from its last event."""

log = logging.getLogger(__name__)

Batch = tuple[Event, ...]


def without_private(services: Services, events: Sequence[Event]) -> Batch:
    """Return the events with private ones masked: project `PRIVATE` and no id. Events of deleted episodes are masked
    too, unless their project has a stored episode that is not private.
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
    """The limit of watchers is reached."""


class EventFeed:
    """Sends each new event to all watchers. Without watchers the store is not polled."""

    def __init__(self, services: Services, every_s: float = EVERY_S, most: int = MAX_WATCHERS) -> None:
        """:param services: not used before `run`."""
        self._services, self._every_s, self._most = services, every_s, most
        self._watchers: dict[MemoryObjectSendStream[Batch], int] = {}  # and the last event each had when it connected
        self._wanted = anyio.Event()
        self._ended = False

    @property
    def most(self) -> int:
        """Maximum number of watchers."""
        return self._most

    @property
    def is_full(self) -> bool:
        """Whether the limit of watchers is reached."""
        return len(self._watchers) >= self._most

    @property
    def watchers(self) -> int:
        """Current number of watchers."""
        return len(self._watchers)

    @asynccontextmanager
    async def watching(self, after: int) -> AsyncIterator[AsyncIterator[Batch]]:
        """Yield batches of the events after number `after`: an empty batch after a second without any, and the end when
        the service stops or the watcher fell behind.

        :raises TooManyWatchersError: more than `MAX_WATCHERS`.
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
        """Disconnect all watchers for good: the server waits for them when it stops."""
        self._ended = True
        for watcher in list(self._watchers):
            self._drop(watcher)

    async def run(self) -> None:
        """Poll the store while there are watchers, until cancelled."""
        while True:
            if not self._watchers:
                self._wanted = anyio.Event()
                await self._wanted.wait()
            await self._tell_new()

    async def _tell_new(self) -> None:
        """Poll from the first watcher until the last one disconnects."""
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
            if len(found) < MAX_AT_ONCE:
                await anyio.sleep(self._every_s)

    async def _ask(self, after: int) -> Batch:
        def read() -> Batch:
            return without_private(self._services, self._services.store.events.since(after, MAX_AT_ONCE))

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
        """Yield the events missed before this watcher connected, then the feed's; none twice."""
        last = after
        while True:
            try:
                missed = await self._ask(last)
            except AnamnesisError:  # the watcher resumes from its last event
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
