"""Short forms of ids: a beginning that no other id has, and the id that a beginning means."""

import re
from collections.abc import Iterable

from anamnesis_pipeline.errors import EpisodeNotFound, IdAmbiguous
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.steps.extract import names
from anamnesis_pipeline.store.base import Store

CONTENT_ID = re.compile(r"[0-9a-f]{32}")
"""Other ids are not shortened: those of posts begin with their day, so that the next one would soon begin the same."""
LENGTHS = (6, 8, 12, 16)
"""Characters of a short form; the first in which it is the only one. A shorter one would soon mean several."""
SHORTEST = 4
"""Fewer characters mean no id but the one that is exactly so."""


def short_ids(store: Store, episode_ids: Iterable[str]) -> dict[str, str]:
    """Id -> its short form, which `whole_id` understands as long as no new id begins so; else the id itself."""
    shortened = {}
    for episode_id in episode_ids:
        lengths = LENGTHS if CONTENT_ID.fullmatch(episode_id) else ()
        unique = (n for n in lengths if store.episodes.beginning_with(episode_id[:n], 2) == [episode_id])
        shortened[episode_id] = episode_id[: next(unique, len(episode_id))]
    return shortened


def whole_id(store: Store, text: str) -> str:
    """The id that is or begins with `text`; `text` itself if there is none.

    :raises IdAmbiguous: it is none, and several begin so.
    """
    found = store.episodes.beginning_with(text, 2) if len(text) >= SHORTEST else []
    if len(found) > 1 and found[0] != text:
        raise IdAmbiguous(f"several ids begin with {text!r}, such as {found[0]} and {found[1]}; give more of it")
    return found[0] if found else text


def whole_session_id(store: Store, text: str) -> str:
    """The session that is or begins with `text`; `text` itself if there is none, or if a log of just that name is read.

    :raises IdAmbiguous: it is none, and several begin so.
    """
    found = store.sessions.beginning_with(text, 2) if len(text) >= SHORTEST else []
    paths = (path for source in store.files.sources() for path in store.files.cursors(source.key))
    if not found or found[0] == text or any(names(path, text) for path in paths):
        return text
    if len(found) > 1:
        raise IdAmbiguous(f"several sessions begin with {text!r}, such as {found[0]} and {found[1]}; give more of it")
    return found[0]


def find_episode(store: Store, text: str) -> Episode:
    """The episode whose id is or begins with `text`.

    :raises EpisodeNotFound: there is none.
    :raises IdAmbiguous: there are several.
    """
    episode_id = whole_id(store, text)
    episode = store.episodes.get([episode_id]).get(episode_id)
    if episode is None:
        raise EpisodeNotFound("no episode has this id")
    return episode
