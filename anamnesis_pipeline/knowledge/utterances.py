"""What was said and done in a session, message by message, with the episode that has the words verbatim."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from anamnesis_pipeline.model import Episode, EpisodeFilter, Part, SegmentKind, said_at
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import batches
from anamnesis_pipeline.store.records.session_notes import is_of_log

PARTS_AT_ONCE = 50
"""Chunks in memory at once, of at most 4,000 characters each."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A message, or the piece of one that an episode has."""

    episode_id: str
    project: str
    session_id: str
    message_id: str
    key: str
    """The key of the message."""
    kind: SegmentKind
    text: str
    at: datetime | None
    is_agents: bool = False
    folder: str = ""
    """The working directory."""


def utterances_of(store: Store, session_id: str) -> Iterator[Utterance]:
    """Yield what was said in a session of a log, in order, with the projects of its episodes."""
    heads = heads_of_session(store, session_id)
    for source in sorted({head.source for head in heads.values() if is_of_log(head.source, session_id)}):
        for batch in batches(store.sessions.told(source, session_id), PARTS_AT_ONCE):
            parts = {part.part_id: part for part in store.forgetting.parts(batch)}
            for part_id in batch:
                if part_id in parts and part_id in heads:
                    yield from _of_part(parts[part_id], heads)


def heads_of_session(store: Store, session_id: str) -> dict[str, Episode]:
    """Return id -> episode, for those of a session, of every status."""
    found: dict[str, Episode] = {}
    cursor, is_more = None, True
    while is_more:
        page = store.episodes.page(EpisodeFilter(session_id=session_id, include_superseded=True), 200, cursor)
        found |= {episode.episode_id: episode for episode in page.items}
        cursor, is_more = page.next_cursor, page.next_cursor is not None
    return found


def _of_part(part: Part, heads: Mapping[str, Episode]) -> Iterator[Utterance]:
    for _, segments in groupby(part.segments, key=lambda segment: segment.message_key):
        pieces = list(segments)
        yield Utterance(
            part.part_id,
            heads[part.part_id].project,
            part.session_id,
            pieces[0].uuid,
            pieces[0].message_key,
            pieces[0].kind,
            "".join(piece.text for piece in pieces),
            said_at(pieces[0].timestamp),
            is_agents=bool(part.agent_id),
            folder=part.cwd,
        )
