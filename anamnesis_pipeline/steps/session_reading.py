"""Sessions as people read them: one line each in a list, and their chunks from top to bottom."""

from dataclasses import dataclass, replace

from anamnesis_pipeline.errors import EpisodeNotFound, IdAmbiguous, InvalidEpisode
from anamnesis_pipeline.model import Episode, Part, SegmentKind, Where
from anamnesis_pipeline.session_model import SESSION_KIND, SessionRecord, of_episode, to_episode
from anamnesis_pipeline.steps.session_record import Gathered, record_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import EpisodePage

SAID_KINDS = ("exchange", "subagent", "compact_summary", "record")
"""Kinds of what sessions are made of; where they are hidden, the record of a session stands for them."""
SPOKEN = frozenset(SegmentKind) - {
    SegmentKind.THINKING,
    SegmentKind.TOOL_INPUT,
    SegmentKind.TOOL_RESULT,
    SegmentKind.TOOL_ERROR,
    SegmentKind.SKILL,
}
"""Of a conversation all but thoughts, what tools were given and answered, and instructions of skills."""
CHUNK_CURSOR = r"^[0-9]{1,6}:(-?[0-9]{1,16}-([0-9a-f]{2}){0,800})?$"
"""A place in a session, as text: the number of the joined session, and the cursor of its episodes."""
OPEN_AMONG = 200
"""Of the newest chunks it is looked whether their session has a record."""
RECORDS_AMONG = 100
"""The newest records, which most of the newest chunks belong to."""
LEAST_PREFIX = 4
"""Characters of an id that stand for the whole one."""
MATCHES_NAMED = 5
MOST_OPEN = 10
"""Open sessions in a list."""


@dataclass(frozen=True, slots=True)
class SessionRow(SessionRecord):
    """A session in a list. `episode_id` is that of its record, or of its newest chunk where it has none yet. `is_open`:
    it went on since its record was written, or has none yet.
    """

    episode_id: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions by the time at which they began; `next_cursor` is None on the last page."""

    items: list[SessionRow]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """An episode of a session, and the part it is made of; None: somebody posted it."""

    episode: Episode
    part: Part | None


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Chunks of one session in their order; `next_cursor` is None on the last page."""

    items: list[Chunk]
    next_cursor: str | None


def session_page(
    store: Store, where: Where, limit: int, cursor: str | None = None, *, oldest_first: bool = False
) -> SessionPage:
    """The sessions that pass a filter, newest first unless asked otherwise; open ones come before all others.

    :raises InvalidEpisode: the cursor is not one of ours.
    """
    page = timeline_page(store, replace(where, kinds=(SESSION_KIND,)), limit, cursor, oldest_first=oldest_first)
    return SessionPage([row for each in page.items if (row := row_of(each)) is not None], page.next_cursor)


def timeline_page(
    store: Store, where: Where, limit: int, cursor: str | None = None, skip: int = 0, *, oldest_first: bool = False
) -> EpisodePage:
    """What happened, one episode a session in place of its chunks, and everything else that passes the filter.

    A session that is open has no record of its present state: the episode that stands for it has the id of its newest
    chunk, and revision 0 where there is no record at all.

    :raises InvalidEpisode: the cursor is not one of ours.
    """
    still_open = [] if cursor is not None or skip or oldest_first else _open_sessions(store, where)[: limit - 1]
    hidden = tuple({*where.hidden_kinds, *SAID_KINDS})
    limit -= len(still_open)
    page = store.episodes.page(replace(where, hidden_kinds=hidden), limit, cursor, skip, oldest_first=oldest_first)
    shown = {episode.episode_id for episode in still_open}
    return EpisodePage([*still_open, *(e for e in page.items if e.episode_id not in shown)], page.next_cursor)


def row_of(episode: Episode) -> SessionRow | None:
    """A session as it is listed; None: the episode is no record of one."""
    record = of_episode(episode)
    if record is None:
        return None
    fields = {name: getattr(record, name) for name in SessionRecord.__slots__}
    return SessionRow(**fields, episode_id=episode.episode_id, is_open=bool(episode.metadata.get("is_open")))


def find_session(store: Store, name: str, where: Where) -> SessionRow:
    """The session of this id, of a unique beginning of it, or of a session that is joined to it.

    :param where: what is visible.
    :raises EpisodeNotFound: there is none.
    :raises IdAmbiguous: several begin so.
    """
    ids = store.sessions.beginning_with(name, MATCHES_NAMED + 1) if len(name) >= LEAST_PREFIX else [name]
    ids = [name] if name in ids else ids
    found: dict[str, SessionRow] = {}
    for session_id in ids:
        if (row := _session_of(store, session_id, where)) is not None:
            found.setdefault(row.session_id, row)
    if len(found) > 1:
        named = ", ".join([*found][:MATCHES_NAMED])
        raise IdAmbiguous(f"several sessions begin with {name}: {named}")
    if not found:
        raise EpisodeNotFound(f"no session has the id {name}, or begins so ({LEAST_PREFIX} characters at the least)")
    return next(iter(found.values()))


def chunk_page(store: Store, row: SessionRecord, where: Where, limit: int, cursor: str | None = None) -> ChunkPage:
    """What was said and done in a session and all that is joined to it, from its beginning.

    :param where: what is visible of it.
    :param cursor: `next_cursor` of the page before: the number of a joined session, and a place in it.
    :raises InvalidEpisode: the cursor is not one of ours.
    """
    at, _, after = (cursor or "0:").partition(":")
    if not at.isdecimal() or int(at) >= len(row.session_ids):
        raise InvalidEpisode("cursor", f"{cursor!r} is none of ours; take it from `next_cursor`")
    number, episodes, rest = int(at), list[Episode](), after or None
    while True:
        seen = replace(where, session_id=row.session_ids[number], include_superseded=True, hidden_kinds=(SESSION_KIND,))
        page = store.episodes.page(seen, limit - len(episodes), rest, oldest_first=True)
        episodes += page.items
        number, rest = (number, page.next_cursor) if page.next_cursor else (number + 1, None)
        if len(episodes) >= limit or number >= len(row.session_ids):
            break
    parts = {part.part_id: part for part in store.forgetting.parts([episode.episode_id for episode in episodes])}
    chunks = [Chunk(episode, parts.get(episode.episode_id)) for episode in episodes]
    return ChunkPage(chunks, f"{number}:{rest or ''}" if number < len(row.session_ids) else None)


def _open_sessions(store: Store, where: Where) -> list[Episode]:
    """Sessions that went on since their record was written, or have none yet; the one that was talked in last first."""
    chunks: dict[str, list[Episode]] = {}
    said = replace(where, kinds=("exchange", "subagent"))
    for chunk in store.episodes.page(said, OPEN_AMONG).items:
        if chunk.session_id:
            chunks.setdefault(chunk.session_id, []).append(chunk)
    if not chunks:
        return []
    records = replace(where, kinds=(SESSION_KIND,), since=None, until=None)
    newest = store.episodes.page(records, RECORDS_AMONG).items
    known = {name: (each, record) for each in newest if (record := of_episode(each)) for name in record.session_ids}
    found: list[Episode] = []
    for session_id, its in chunks.items():
        if len(found) == MOST_OPEN:
            break
        episode, record = known.get(session_id) or _recorded(store, session_id, records)
        if record is None:
            found.append(_provisional(store, session_id, its))
        elif episode is not None and its[0].timestamp > record.ended:
            found.append(replace(episode, metadata={**episode.metadata, "is_open": True}))
    return found


def _session_of(store: Store, session_id: str, where: Where) -> SessionRow | None:
    """The record of a session, or of those it is joined with; without one, what is known of it."""
    episode, _ = _recorded(store, session_id, replace(where, kinds=(SESSION_KIND,)))
    if episode is None:
        chunks = store.episodes.page(replace(where, session_id=session_id, include_superseded=True), OPEN_AMONG).items
        episode = _provisional(store, session_id, chunks) if chunks else None
    return row_of(episode) if episode is not None else None


def _recorded(store: Store, session_id: str, records: Where) -> tuple[Episode | None, SessionRecord | None]:
    """The current record that a session is in, and its episode."""
    states = [state for state in store.sessions.states([session_id]) if state.session_id == session_id]
    for root in dict.fromkeys((*(state.root for state in states if state.root), session_id)):
        for episode in store.episodes.page(replace(records, session_id=root), 1).items:
            return episode, of_episode(episode)
    return None, None


def _provisional(store: Store, session_id: str, chunks: list[Episode]) -> Episode:
    """What is known of a session that has no record, as far as these chunks tell; the newest comes first."""
    last = chunks[0]
    parts = {part.part_id: part for part in store.forgetting.parts([chunk.episode_id for chunk in chunks])}
    gathered = Gathered(last.source, session_id, last.path, last.project, last.metadata.get("cwd", ""))
    for chunk in reversed(chunks):
        if chunk.episode_id in parts:
            gathered.add(parts[chunk.episode_id])
    gathered.started = gathered.started or chunks[-1].timestamp
    gathered.ended = gathered.ended or last.timestamp
    episode = to_episode(record_of([gathered.end()], last.machine, {}, revision=0), last.source, last.path)
    return replace(episode, episode_id=last.episode_id, metadata={**episode.metadata, "is_open": True})
