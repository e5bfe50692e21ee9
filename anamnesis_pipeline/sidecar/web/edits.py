"""Reversible edits of episodes: old and new field values are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from anamnesis_pipeline.errors import EpisodeConflict, EpisodeNotFound
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.services.schemas import EpisodeChanges
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.records.statuses import Cause

BY_A_PERSON = Cause("person")
"""Of a change of a status on a page."""
_CHANGES: TypeAdapter[EpisodeChanges] = TypeAdapter(EpisodeChanges)


@dataclass(frozen=True, slots=True)
class Edit:
    """Old and new values of some fields of an episode; both have the same names."""

    episode_id: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def read_episode(services: Services, episode_id: str) -> Episode:
    """Return the episode.

    :raises EpisodeNotFound: no such id.
    """
    episode = services.store.episodes.get([episode_id]).get(episode_id)
    if episode is None:
        raise EpisodeNotFound("no episode has this id")
    return episode


def edit(services: Services, episode: Episode, changes: Mapping[str, Any], cause: Cause = BY_A_PERSON) -> Edit:
    """Write some fields, as `PATCH` does.

    :param episode: its state when the user made the changes.
    :param cause: of a change of its status.
    :raises RequestValidationError: a value is invalid.
    :raises EpisodeConflict: it was edited meanwhile.
    """
    edited = services.poster.patch(episode.episode_id, _checked(changes), episode.content_hash, cause)
    return Edit(episode.episode_id, _fields(episode, changes), _fields(edited, changes))


def take_back(services: Services, done: Edit) -> None:
    """Restore the old values; other fields keep their current ones.

    :raises EpisodeNotFound: it is gone.
    :raises EpisodeConflict: one of the fields was edited again meanwhile.
    """
    episode = read_episode(services, done.episode_id)
    if _fields(episode, done.after) != done.after:
        raise EpisodeConflict(f"{done.episode_id} was edited again meanwhile, so that the edit before stays")
    services.poster.patch(done.episode_id, done.before, episode.content_hash, replace(BY_A_PERSON, reason="undone"))


def _checked(changes: Mapping[str, Any]) -> EpisodeChanges:
    try:
        return _CHANGES.validate_python(dict(changes))
    except ValidationError as exc:
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in exc.errors()]) from None


def _fields(episode: Episode, names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(episode, name) for name in names}
