"""Field changes of an action on an episode's page. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.errors import InvalidEpisode
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.sidecar.web.episode_view import NOTES
from anamnesis_pipeline.store.memory_layers import PINNED

MAX_NOTES = 100


def differing(episode: Episode, given: Mapping[str, str], tags: str) -> dict[str, Any]:
    """Return the fields that differ from the episode. Forms change white space, so that is ignored.

    :param tags: one per line.
    """
    changes: dict[str, Any] = {
        name: value.strip() for name, value in given.items() if _plain(value) != _plain(getattr(episode, name))
    }
    wanted = [tag.strip() for tag in tags.splitlines() if tag.strip()]
    if wanted != [_plain(tag) for tag in episode.tags]:
        changes["tags"] = list(dict.fromkeys(wanted))
    return changes


def pinned_or_not(episode: Episode) -> tuple[list[str], bool]:
    """Return the tags after toggling the pin, and whether it is pinned then."""
    if PINNED in episode.tags:
        return [tag for tag in episode.tags if tag != PINNED], False
    return [*episode.tags, PINNED], True


def with_note(episode: Episode, text: str) -> dict[str, Any]:
    """Return the metadata with one more note.

    :raises InvalidEpisode: there are too many, or its metadata uses the name for something else.
    """
    notes = _notes(episode)
    if len(notes) >= MAX_NOTES:
        raise InvalidEpisode("note", f"an episode has at most {MAX_NOTES} notes; remove one first")
    note = {"at": utc_text(datetime.now(UTC)), "text": text}
    return {"metadata": {**episode.metadata, NOTES: [*notes, note]}}


def without_note(episode: Episode, number: int) -> dict[str, Any]:
    """Return the metadata without one note, counted from 0.

    :raises InvalidEpisode: there is no such number.
    """
    notes = _notes(episode)
    if number >= len(notes):
        raise InvalidEpisode("number", "there is no such note")
    left = [note for n, note in enumerate(notes) if n != number]
    others = {name: value for name, value in episode.metadata.items() if name != NOTES}
    return {"metadata": {**others, NOTES: left} if left else others}


def _notes(episode: Episode) -> list[Any]:
    notes = episode.metadata.get(NOTES, [])
    if not isinstance(notes, list):
        raise InvalidEpisode("note", "a client keeps something else as `notes` in the metadata of this episode")
    return list(notes)


def _plain(text: str) -> str:
    return " ".join(text.split())
