"""Cache of search results for chat questions that are known before a message comes: the standing queries and the topic
of the last reply. These searches cost more than the one for the message itself.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Hit, SearchAnswer, SearchQuery
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.cache import Kept
from anamnesis_pipeline.sidecar.services import Services

KEPT_S = 300.0
MOST_KEPT = 100
"""Queries: two per active project, and one per answer."""
AHEAD = 32
"""Queries queued for prefetching; further ones run when they are needed."""

log = logging.getLogger(__name__)


class KnownAnswers:
    """The cached search results of one application. Thread-safe."""

    def __init__(self, services: Services) -> None:
        """:param services: not used before the first search."""
        self._services = services
        self._answers: Kept[Asked, SearchAnswer] = Kept(self._search, KEPT_S, MOST_KEPT)
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
