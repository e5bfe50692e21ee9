"""What the memory answers to questions of the chat that are known before a message comes, kept for some minutes: what
is asked before every answer, and what the last reply was about. They cost more than the message's own question.
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
from anamnesis_pipeline.sidecar.kept import Kept
from anamnesis_pipeline.sidecar.services import Services

KEPT_S = 300.0
MOST_KEPT = 100
"""Questions: two of each project that is talked about, and one of each answer."""
AHEAD = 32
"""Questions that may wait to be asked ahead; those beyond are asked when they are wanted."""

log = logging.getLogger(__name__)


class KnownAnswers:
    """The answers of one application. Safe to share between threads."""

    def __init__(self, services: Services) -> None:
        """:param services: not looked at before something is asked."""
        self._services = services
        self._answers: Kept[Asked, SearchAnswer] = Kept(self._search, KEPT_S, MOST_KEPT)
        self._ahead: MemoryObjectSendStream[SearchQuery] | None = None

    def hits(self, query: SearchQuery, private: Private) -> Sequence[Hit]:
        """What was found lately, with the episodes as they are now; anew where one of them says something else, or
        nothing any more, or something else is private.

        :param private: what is private now.
        """
        asked = Asked(query, private)
        answer = self._answers.get(asked)
        if answer.degraded:  # without the model, as it is in the first seconds, it is no answer to keep
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
        """Have the answers to these at hand soon. On the event loop only."""
        if self._ahead is not None:
            with suppress(anyio.WouldBlock):
                for each in queries:
                    self._ahead.send_nowait(each)

    async def run(self, admission: Admission) -> None:
        """Ask what is to be at hand, one question after the other, until cancelled."""
        self._ahead, wanted = anyio.create_memory_object_stream[SearchQuery](AHEAD)
        try:
            async for each in wanted:
                try:
                    await admission.run(partial(self._ask_ahead, each))
                except Exception as exc:  # whoever wants the answer asks, and is told
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
    """What an answer depends on beside the episodes."""

    query: SearchQuery
    private: Private


def _said(hit: Hit) -> tuple[str, str]:
    return hit.episode.content_hash, hit.episode.status
