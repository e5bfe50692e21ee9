"""Edits by a person on a page."""

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.services import editing
from anamnesis_pipeline.services.editing import Edit
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.records.statuses import Cause

BY_A_PERSON = Cause("person")
"""Of a change of a status on a page."""


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
    try:
        return editing.edit(services.poster, episode, changes, cause)
    except ValidationError as exc:
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in exc.errors()]) from None
