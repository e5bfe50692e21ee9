"""Session summaries whose text is stored no longer.

Forgetting removes the record of a session of a log together with its text. What is left then are records that came by
an import, or were posted, while the text of their sessions is not here, or was deleted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.pipeline.publish import delete_episode
from anamnesis_pipeline.search.project_labels import ALL, Private
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SESSION_KIND, of_episode

PAGE = 200


@dataclass(frozen=True, slots=True)
class Stranded:
    """A session summary without the text that it was made of."""

    episode_id: str
    session_ids: tuple[str, ...]
    timestamp: datetime
    project: str
    title: str


def stranded(store: Store, private: Private, *, with_private: bool = False) -> Iterator[Stranded]:
    """Yield the session summaries, former revisions too, of whose sessions no text is stored, newest first. One that
    names no session is left out: nothing tells what it was made of.
    """
    wanted = EpisodeFilter(kinds=(SESSION_KIND,), include_superseded=True)
    where, cursor = private.visible(store, wanted, [ALL] if with_private else []), None
    while True:
        page = store.episodes.page(where, PAGE, cursor)
        for episode in page.items:
            record = of_episode(episode)
            ids = record.session_ids if record else tuple(filter(None, [episode.session_id]))
            if ids and not any(_has_text(store, session_id) for session_id in ids):
                yield Stranded(episode.episode_id, ids, episode.timestamp, episode.project, title_of(episode))
        if (cursor := page.next_cursor) is None:
            return


def remove(store: Store, found: Stranded) -> bool:
    """Remove a summary, unless text of its sessions came back meanwhile. It has no tombstone: if that text comes back
    later, so does its summary. Return whether it was removed.
    """
    if any(_has_text(store, session_id) for session_id in found.session_ids):
        return False
    return delete_episode(store, found.episode_id, tombstone=False)


def _has_text(store: Store, session_id: str) -> bool:
    said = EpisodeFilter(session_id=session_id, hidden_kinds=(SESSION_KIND, "record"), include_superseded=True)
    return bool(store.episodes.page(said, 1).items)
