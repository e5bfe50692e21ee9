"""Background work of the chat: searches ahead of the next message, and extraction of records from exchanges.

Cached are searches for questions that are known before a message comes: the standing queries and the topic of the last
reply, which cost more than the one for the message itself. Exchanges without records are marked in the store, so that a
slow model, a full queue or a restart loses nothing.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectSendStream
from prometheus_client import Counter
from starlette.concurrency import run_in_threadpool

from anamnesis_pipeline.errors import AnamnesisError, EpisodeNotFound
from anamnesis_pipeline.model import Part
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Hit, SearchAnswer, SearchQuery
from anamnesis_pipeline.services.recording import RECORDS_DELETED, Pair, Recorder
from anamnesis_pipeline.services.wiring import effective_settings, open_recorder
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.cache import TtlCache
from anamnesis_pipeline.sidecar.chat_running import Chats
from anamnesis_pipeline.sidecar.extraction import TOO_MANY, TOO_SLOW, Extraction
from anamnesis_pipeline.sidecar.services import Services

KEPT_S = 300.0
MAX_KEPT = 100
"""Queries: two per active project, and one per answer."""
AHEAD = 32
"""Queries queued for prefetching; further ones run when they are needed."""
AT_ONCE = 2
"""Concurrent LLM extractions of chat exchanges; leaves capacity for pairs that clients post."""
LOOK_S = 30.0
"""Seconds between polls for due exchanges, and before a retry while an LLM still works on one."""
FIRST_RETRY = timedelta(minutes=1)
GIVEN_UP = timedelta(days=3)
"""After this age, an exchange without records keeps only its episode."""

log = logging.getLogger(__name__)


class KnownAnswers:
    """The cached search results of one application. Thread-safe."""

    def __init__(self, services: Services) -> None:
        """:param services: not used before the first search."""
        self._services = services
        self._answers: TtlCache[Asked, SearchAnswer] = TtlCache(self._search, KEPT_S, MAX_KEPT)
        self._ahead: MemoryObjectSendStream[SearchQuery] | None = None

    def hits(self, query: SearchQuery, private: Private) -> Sequence[Hit]:
        """Return recent hits with the current state of their episodes. Search again if an episode changed or was
        deleted, or the privacy rules changed.

        :param private: the current privacy rules.
        """
        asked = Asked(query, private)
        answer = self._answers.get(asked)
        if answer.degraded:  # without the model, as just after startup, the result is not worth caching
            self._answers.drop(asked)
            return answer.hits
        found = answer.hits
        held = self._services.store.episodes.get([hit.episode.episode_id for hit in found])
        now = [replace(hit, episode=held[name]) for hit in found if (name := hit.episode.episode_id) in held]
        if [_said(hit) for hit in now] == [_said(hit) for hit in found]:
            return now
        self._answers.drop(asked)
        return self._answers.get(asked).hits

    def look_ahead(self, queries: Iterable[SearchQuery]) -> None:
        """Queue these queries for prefetching. Event loop only."""
        if self._ahead is not None:
            with suppress(anyio.WouldBlock):
                for each in queries:
                    self._ahead.send_nowait(each)

    async def run(self, admission: Admission) -> None:
        """Run queued queries one at a time until cancelled."""
        self._ahead, wanted = anyio.create_memory_object_stream[SearchQuery](AHEAD)
        try:
            async for each in wanted:
                try:
                    await admission.run(partial(self._ask_ahead, each))
                except Exception as exc:  # a later search for it reports its error
                    log.warning("a question of the chat was not asked ahead: %s", type(exc).__name__)
        finally:
            self._ahead.close()
            wanted.close()
            self._ahead = None

    def _ask_ahead(self, query: SearchQuery) -> None:
        self.hits(query, self._services.engine.private())

    def _search(self, asked: "Asked") -> SearchAnswer:
        return self._services.engine.search(asked.query)


class Asked(NamedTuple):
    """The cache key: what a result depends on besides the episodes."""

    query: SearchQuery
    private: Private


def _said(hit: Hit) -> tuple[str, str]:
    return hit.episode.content_hash, hit.episode.status


def next_look(said_at: datetime, now: datetime) -> datetime | None:
    """Return when to retry after a failure: after its age again, at least `FIRST_RETRY`. None: give up. Pure."""
    age = now - said_at
    return now + max(age, FIRST_RETRY) if age < GIVEN_UP else None


class ChatRecorder:
    """Turns chat exchanges into episodes; `run` extracts their records."""

    def __init__(self, services: Services, extraction: Extraction, chats: Chats, failures: Counter) -> None:
        """:param failures: counts failed attempts."""
        self._services, self._extraction, self._chats, self._failures = services, extraction, chats, failures
        self._noted: anyio.Event | None = None

    def keep(self, settings: Settings, pair: Pair) -> str:
        """Store an exchange as an episode and return its id."""
        return open_recorder(settings, self._services.store, self._services.poster).keep(pair)[0].part_id

    def want(self, settings: Settings, message_id: str) -> None:
        """Mark an answer's exchange for extraction, if an LLM is configured."""
        if settings.summarizer != "none":
            self._services.store.chat.want_records(message_id, datetime.now(UTC))

    def note(self) -> None:
        """Wake `run`, since an exchange may be due. Event loop only."""
        if self._noted is not None:
            self._noted.set()

    async def run(self) -> None:
        """Extract from due exchanges, including those left by a previous run of the service, until cancelled."""
        while True:
            self._noted = anyio.Event()
            try:
                await self._work_off()
            except AnamnesisError as exc:
                log.warning("records of the chat are looked for again later: %s", exc)
            with anyio.move_on_after(LOOK_S):
                await self._noted.wait()

    async def _work_off(self) -> None:
        store = self._services.store
        settings = await run_in_threadpool(effective_settings, store)
        if settings.summarizer == "none":
            return
        while due := await run_in_threadpool(store.chat.records_due, datetime.now(UTC), AT_ONCE):
            if settings.summarizer == "ollama":  # it may be the chat model too, and would have to reload
                await self._chats.idle()
            await asyncio.gather(*(self._look_for(settings, message_id) for message_id in due))

    async def _look_for(self, settings: Settings, message_id: str) -> None:
        """Try once, and store when to retry."""
        store = self._services.store
        recorder = await run_in_threadpool(open_recorder, settings, store, self._services.poster)
        kept = await run_in_threadpool(self._kept, recorder, message_id)
        again = await self._extract(recorder, *kept) if kept else None
        await run_in_threadpool(store.chat.want_records, message_id, again)

    async def _extract(self, recorder: Recorder, part: Part, said_at: datetime) -> datetime | None:
        """Return when to retry; None: it is done, or will never succeed."""
        try:
            found = await self._extraction.run(part.part_id, lambda: recorder.extract(part))
        except EpisodeNotFound:
            return None
        except Exception as exc:  # an unexpected error must not end the work on the others
            problem = type(exc).__name__
        else:
            problem = found if isinstance(found, str) else found.problem
        if problem in ("", RECORDS_DELETED):
            return None
        now = datetime.now(UTC)
        if problem in (TOO_MANY, TOO_SLOW):  # no failure: it is running or queued
            log.info("records of a round trip of the chat are to come")
            return now + timedelta(seconds=LOOK_S)
        self._failures.inc()
        again = next_look(said_at, now)
        log.warning(
            "no records of a round trip of the chat, %s: %s", "to be tried again" if again else "given up", problem
        )
        return again

    def _kept(self, recorder: Recorder, message_id: str) -> tuple[Part, datetime] | None:
        """Return an answer's exchange and its time; None: it is deleted."""
        store = self._services.store
        answer = store.chat.message(message_id)
        if answer is None or not answer.episode_id:
            return None
        episode = store.episodes.get([answer.episode_id]).get(answer.episode_id)
        said = {
            each.role: each.text
            for each in store.chat.messages(answer.session_id)
            if each.episode_id == answer.episode_id
        }
        if episode is None or "user" not in said:
            return None
        return recorder.kept(episode, said["user"], answer.text), answer.at
