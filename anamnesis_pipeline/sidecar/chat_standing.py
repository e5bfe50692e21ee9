"""What the memory answers to the questions that are asked before every answer of the chat, kept for some minutes: they
cost as much as the questions of a turn, and their answers hardly change.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from anamnesis_pipeline.search.query import Hit, SearchAnswer, SearchQuery
from anamnesis_pipeline.sidecar.kept import Kept
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.wiring import effective_settings

KEPT_S = 300.0
MOST_KEPT = 50
"""Questions: two of each project that is talked about."""


class Standing:
    """The answers of one application. Safe to share between threads."""

    def __init__(self, services: Services) -> None:
        """:param services: not looked at before something is asked."""
        self._services = services
        self._answers: Kept[Asked, SearchAnswer] = Kept(self._search, KEPT_S, MOST_KEPT)

    def hits(self, query: SearchQuery) -> Sequence[Hit]:
        """What was found lately, with the episodes as they are now; anew where one of them says something else, or
        nothing any more, or other projects are private.
        """
        asked = Asked(query, tuple(effective_settings(self._services.store).private_projects))
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

    def _search(self, asked: "Asked") -> SearchAnswer:
        return self._services.engine.search(asked.query)


class Asked(NamedTuple):
    """What an answer depends on beside the episodes."""

    query: SearchQuery
    private: tuple[str, ...]


def _said(hit: Hit) -> tuple[str, str]:
    return hit.episode.content_hash, hit.episode.status
