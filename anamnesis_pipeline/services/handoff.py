"""Read the content of a project's hand-off. The cost does not grow with the store."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from anamnesis_pipeline.knowledge.topic_files import lessons_of, read_topic
from anamnesis_pipeline.knowledge.what_holds import Held, Topic, read_held
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.search.context_items import Item, SourceClass, class_of
from anamnesis_pipeline.search.handoff import ENDS, MAX_ITEMS, SESSIONS, Handoff, Work, handoff_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SESSION_KIND, of_episode

HANDOFF_TOKENS = 2_000
"""Maximum length of a project's hand-off."""
RECORDS = 40
REMEMBERED = 10
"""Maximum episodes of each kind that clients post."""
CURATED = 40
TOPICS, LESSON_FILES, POINTERS = 6, 2, 4
"""Maximum lines of each in the index."""
TALK = 60
"""Exchanges per read; a long session may fill several."""
TALK_READS = 4
TOLD = 150
"""Number of newest exchanges whose messages are read."""
_POSTED_KINDS = ("decision", "correction", "preference", "procedure", "lesson", "fact", "error")
_NOTE_KINDS = ("note", "rolling")


def read_handoff(store: Store, projects: Sequence[str], without: str = "", hidden: Collection[str] = ()) -> Handoff:
    """Return one hand-off of these projects; empty without projects.

    :param without: the requesting session; what it said itself is left out.
    :param hidden: keys of sources that are left out.
    """
    if not projects:
        return Handoff()

    def shown(episodes: Iterable[Episode]) -> list[Episode]:
        return [each for each in episodes if each.source not in hidden]

    talk = shown(e for e in _talk(store, projects) if not without or e.session_id != without)
    recent = [episode.episode_id for episode in (*talk[:TOLD], *_last_of_sessions(talk))]
    parts = {part.part_id: part for part in store.forgetting.parts(list(dict.fromkeys(recent)))}
    work = Work(
        records=shown(
            _newest(store, projects, ("record",), RECORDS) + _newest(store, projects, _POSTED_KINDS, REMEMBERED)
        ),
        curated=shown(
            _sorted(e for project in projects for e in store.context.newest_tagged(project, "curated", CURATED))
        ),
        notes=shown(_newest(store, projects, _NOTE_KINDS, REMEMBERED)),
        documents=shown(_newest(store, projects, ("document",), REMEMBERED)),
        talk=talk,
        parts=parts,
        sessions=[
            (episode, record)
            for episode in _newest(store, projects, (SESSION_KIND,), SESSIONS)
            if (record := of_episode(episode)) is not None
        ],
    )
    held = read_held(store, EpisodeFilter(projects=tuple(projects), hidden_sources=tuple(hidden)))
    topics, pinned = tuple(_index(held)), tuple(Item(e, e.summary, class_of(e)) for e in held.pinned[:MAX_ITEMS])
    lessons, entries = _latest(held.lessons, "lesson"), _latest(held.topics, "topic")
    told = {item.episode.episode_id for item in (*topics, *pinned, *lessons, *entries)}
    found = handoff_of(work)
    facts = tuple(item for item in found.facts if item.episode.episode_id not in told)
    return replace(found, topics=topics, pinned=pinned, lessons=lessons, entries=entries, facts=facts)


def _index(held: Held) -> Iterator[Item]:
    """Yield what the topics are for, how many lessons there are, and the pointers; no content."""
    for topic in held.topics[:TOPICS]:
        about = f": {topic.is_for}" if topic.is_for else ""
        yield Item(topic.sections[0], f"{topic.title}{about}", SourceClass.FILE, is_index=True)
    for topic in held.lessons[:LESSON_FILES]:
        number = counted(len(lessons_of(topic.text)), "lesson")
        yield Item(topic.sections[0], f"{number}, to read before similar work", SourceClass.FILE, is_index=True)
    for pointer in held.pointers[:POINTERS]:
        place = f"{pointer.machine}:{pointer.path}" if pointer.machine else pointer.path
        about = f": {pointer.description}" if pointer.description else ""
        yield Item(pointer.episode, f"{pointer.keyword} → {place}{about}", class_of(pointer.episode), is_index=True)


def _latest(topics: Sequence[Topic], called: str) -> tuple[Item, ...]:
    """Return the latest entries of topics, by the days of their sources, then by their place in the file."""
    entries = [
        (entry, section)
        for topic in topics
        for section in topic.sections
        for entry in read_topic(section.raw_exchange).entries
    ]
    latest = sorted(entries, key=lambda each: max((ref.day for ref in each[0].sources), default=""))[-MAX_ITEMS:]
    return tuple(Item(of, entry.text, SourceClass.FILE, called=called, is_entry=True) for entry, of in reversed(latest))


def _talk(store: Store, projects: Sequence[str]) -> list[Episode]:
    """Return the newest exchanges, read until they cover enough sessions, without gaps down to the oldest."""
    found: dict[str, Episode] = {}
    before: datetime | None = None
    for _ in range(TALK_READS):
        pages = [store.context.newest(project, "exchange", TALK, before) for project in projects]
        found |= {episode.episode_id: episode for page in pages for episode in page}
        before = max((page[-1].timestamp for page in pages if len(page) == TALK), default=None)
        whole = [e for e in found.values() if before is None or e.timestamp >= before]  # of each project
        if before is None or len({e.session_id for e in whole}) > SESSIONS:
            break
    return _sorted(whole)


def _last_of_sessions(talk: Sequence[Episode]) -> list[Episode]:
    """Return the last exchanges of each session: how it ended."""
    ends: dict[str, list[Episode]] = {}
    for episode in talk:
        ends.setdefault(episode.session_id, []).append(episode)
    return [episode for session in ends.values() if session[0].session_id for episode in session[:ENDS]]


def _newest(store: Store, projects: Sequence[str], kinds: Sequence[str], limit: int) -> list[Episode]:
    return _sorted(e for project in projects for kind in kinds for e in store.context.newest(project, kind, limit))


def _sorted(episodes: Iterable[Episode]) -> list[Episode]:
    return sorted(episodes, key=lambda episode: (episode.timestamp, episode.episode_id), reverse=True)
