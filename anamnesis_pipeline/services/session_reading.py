"""Sessions for display: one line each in a list, and their chunks in order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anamnesis_pipeline.errors import EpisodeNotFound, IdAmbiguous, InvalidEpisode
from anamnesis_pipeline.model import Episode, EpisodeFilter, Part, SegmentKind
from anamnesis_pipeline.pipeline.session_record import Gathered, record_of
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import EpisodePage
from anamnesis_pipeline.store.session_model import SESSION_KIND, SessionRecord, of_episode, to_episode

SAID_KINDS = ("exchange", "subagent", "compact_summary", "record")
"""Kinds that sessions consist of; where they are hidden, the session's record replaces them."""
SPOKEN = frozenset(SegmentKind) - {
    SegmentKind.THINKING,
    SegmentKind.TOOL_INPUT,
    SegmentKind.TOOL_RESULT,
    SegmentKind.TOOL_ERROR,
    SegmentKind.SKILL,
}
"""A conversation without thoughts, tool inputs and results, and skill instructions."""
CHUNK_CURSOR = r"^[0-9]{1,6}:(-?[0-9]{1,16}-([0-9a-f]{2}){0,800})?$"
"""Cursor in a session: the index of the joined session, and the cursor of its episodes."""
OPEN_AMONG = 200
"""Newest chunks that are checked for open sessions."""
RECORDS_AMONG = 100
"""Newest records loaded at once; most of the newest chunks belong to them."""
MIN_PREFIX = 4
"""Minimum characters of an abbreviated id."""
MATCHES_NAMED = 5
MAX_OPEN = 10
"""Max open sessions in a list."""


@dataclass(frozen=True, slots=True)
class SessionRow(SessionRecord):
    """A session in a list. `episode_id` is that of its record, or of its newest chunk where it has none yet. `is_open`:
    it went on since its record was written, or has none yet.
    """

    episode_id: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions by start time; `next_cursor` is None on the last page."""

    items: list[SessionRow]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """An episode of a session, and its part; None: a client posted it."""

    episode: Episode
    part: Part | None


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Chunks of one session, in order; `next_cursor` is None on the last page."""

    items: list[Chunk]
    next_cursor: str | None


def session_page(
    store: Store, where: EpisodeFilter, limit: int, cursor: str | None = None, *, oldest_first: bool = False
) -> SessionPage:
    """Return the sessions that pass a filter, newest first by default; open ones come first.

    :raises InvalidEpisode: the cursor is invalid.
    """
    page = timeline_page(store, replace(where, kinds=(SESSION_KIND,)), limit, cursor, oldest_first=oldest_first)
    return SessionPage([row for each in page.items if (row := row_of(each)) is not None], page.next_cursor)


def timeline_page(
    store: Store,
    where: EpisodeFilter,
    limit: int,
    cursor: str | None = None,
    skip: int = 0,
    *,
    oldest_first: bool = False,
) -> EpisodePage:
    """Return a timeline: one episode per session in place of its chunks, and everything else that passes the filter.

    An open session has no current record: its episode has the id of its newest chunk, and revision 0 if there is no
    record at all.

    :raises InvalidEpisode: the cursor is invalid.
    """
    still_open = [] if cursor is not None or skip or oldest_first else _open_sessions(store, where)[: limit - 1]
    hidden = tuple({*where.hidden_kinds, *SAID_KINDS})
    limit -= len(still_open)
    page = store.episodes.page(replace(where, hidden_kinds=hidden), limit, cursor, skip, oldest_first=oldest_first)
    shown = {episode.episode_id for episode in still_open}
    return EpisodePage([*still_open, *(e for e in page.items if e.episode_id not in shown)], page.next_cursor)


def neighbours(
    store: Store, engine: Engine, episode: Episode, most: int, among: EpisodeFilter, include_private: Sequence[str] = ()
) -> tuple[list[Episode], list[Episode]]:
    """Return the episodes just before and just after one, each oldest first, at most `most` of both.

    :param among: filter of possible neighbours, without times.
    """
    seen = engine.visible(among, include_private)
    before = store.episodes.page(replace(seen, until=episode.timestamp), most).items[::-1]
    after = store.episodes.page(replace(seen, since=episode.timestamp), most + 1, oldest_first=True).items
    return before, [each for each in after if each.episode_id != episode.episode_id][:most]


def row_of(episode: Episode) -> SessionRow | None:
    """Return the list row of a session record; None: the episode is no such record."""
    record = of_episode(episode)
    if record is None:
        return None
    fields = {name: getattr(record, name) for name in SessionRecord.__slots__}
    return SessionRow(**fields, episode_id=episode.episode_id, is_open=bool(episode.metadata.get("is_open")))


def find_session(store: Store, name: str, where: EpisodeFilter) -> SessionRow:
    """Return the session with this id, with a unique prefix of it, or joined with that session.

    :param where: filter of visible episodes.
    :raises EpisodeNotFound: there is none.
    :raises IdAmbiguous: several ids have this prefix.
    """
    ids = store.sessions.beginning_with(name, MATCHES_NAMED + 1) if len(name) >= MIN_PREFIX else [name]
    ids = [name] if name in ids else ids
    found: dict[str, SessionRow] = {}
    for session_id in ids:
        episode, _ = _recorded(store, session_id, replace(where, kinds=(SESSION_KIND,)))
        if episode is None:
            of_session = replace(where, session_id=session_id, include_superseded=True)
            chunks = store.episodes.page(of_session, OPEN_AMONG).items
            episode = _provisional(store, session_id, chunks) if chunks else None
        if episode is not None and (row := row_of(episode)) is not None:
            found.setdefault(row.session_id, row)
    if len(found) > 1:
        named = ", ".join([*found][:MATCHES_NAMED])
        raise IdAmbiguous(f"several sessions begin with {name}: {named}")
    if not found:
        raise EpisodeNotFound(f"no session has the id {name}, or begins so ({MIN_PREFIX} characters at the least)")
    return next(iter(found.values()))


def session_to_resume(store: Store, row: SessionRow) -> str:
    """Return the id by which Claude Code goes on with a session; empty: its log is gone."""
    last = row.session_ids[-1]
    return "" if store.sessions.without_log([last]) else last


def chunk_page(
    store: Store, row: SessionRecord, where: EpisodeFilter, limit: int, cursor: str | None = None
) -> ChunkPage:
    """Return the chunks of a session and those joined with it, from the beginning.

    :param where: filter of visible episodes.
    :param cursor: `next_cursor` of the previous page.
    :raises InvalidEpisode: the cursor is invalid.
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


def _open_sessions(store: Store, where: EpisodeFilter) -> list[Episode]:
    """Return the sessions without a current record, the most recently active first."""
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
        if len(found) == MAX_OPEN:
            break
        episode, record = known.get(session_id) or _recorded(store, session_id, records)
        if record is None:
            found.append(_provisional(store, session_id, its))
        elif episode is not None and its[0].timestamp > record.ended:
            found.append(replace(episode, metadata={**episode.metadata, "is_open": True}))
    return found


def _recorded(store: Store, session_id: str, records: EpisodeFilter) -> tuple[Episode | None, SessionRecord | None]:
    """Return the current record that includes a session, and its episode."""
    states = [state for state in store.sessions.states([session_id]) if state.session_id == session_id]
    for root in dict.fromkeys((*(state.root for state in states if state.root), session_id)):
        for episode in store.episodes.page(replace(records, session_id=root), 1).items:
            return episode, of_episode(episode)
    return None, None


def _provisional(store: Store, session_id: str, chunks: list[Episode]) -> Episode:
    """Return a provisional record, made of these chunks, newest first."""
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
