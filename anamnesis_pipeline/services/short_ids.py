"""Short forms of ids: unique prefixes, and their resolution."""

import re
from collections.abc import Iterable

from anamnesis_pipeline.errors import EpisodeNotFound, IdAmbiguous
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.services.extract import names
from anamnesis_pipeline.store.base import Store

CONTENT_ID = re.compile(r"[0-9a-f]{32}")
"""Only these ids are shortened: ids of posts begin with their day, so their prefixes would soon be ambiguous."""
LENGTHS = (6, 8, 12, 16)
"""Lengths of a short form, tried in order; shorter ones would soon be ambiguous."""
SHORTEST = 4
"""Shorter texts match only an identical id."""


def short_ids(store: Store, episode_ids: Iterable[str]) -> dict[str, str]:
    """Return id -> its short form, which `whole_id` resolves until a new id has the same prefix; else the id itself."""
    shortened = {}
    for episode_id in episode_ids:
        lengths = LENGTHS if CONTENT_ID.fullmatch(episode_id) else ()
        unique = (n for n in lengths if store.episodes.beginning_with(episode_id[:n], 2) == [episode_id])
        shortened[episode_id] = episode_id[: next(unique, len(episode_id))]
    return shortened


def whole_id(store: Store, text: str) -> str:
    """Return the id that is or begins with `text`; `text` itself if there is none.

    :raises IdAmbiguous: several ids begin with it, and none equals it.
    """
    found = store.episodes.beginning_with(text, 2) if len(text) >= SHORTEST else []
    if len(found) > 1 and found[0] != text:
        raise IdAmbiguous(f"several ids begin with {text!r}, such as {found[0]} and {found[1]}; give more of it")
    return found[0] if found else text


def whole_session_id(store: Store, text: str) -> str:
    """Return the session id that is or begins with `text`; `text` itself if there is none, or a log has just that name.

    :raises IdAmbiguous: several ids begin with it, and none equals it.
    """
    found = store.sessions.beginning_with(text, 2) if len(text) >= SHORTEST else []
    paths = (path for source in store.files.sources() for path in store.files.cursors(source.key))
    if not found or found[0] == text or any(names(path, text) for path in paths):
        return text
    if len(found) > 1:
        raise IdAmbiguous(f"several sessions begin with {text!r}, such as {found[0]} and {found[1]}; give more of it")
    return found[0]


def find_episode(store: Store, text: str) -> Episode:
    """Return the episode whose id is or begins with `text`.

    :raises EpisodeNotFound: there is none.
    :raises IdAmbiguous: there are several.
    """
    episode_id = whole_id(store, text)
    episode = store.episodes.get([episode_id]).get(episode_id)
    if episode is None:
        raise EpisodeNotFound("no episode has this id")
    return episode
