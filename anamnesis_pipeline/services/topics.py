"""Topics, lessons, pointers and the index of a project: what is shown of them, and where they are written."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from typing_extensions import TypedDict

from anamnesis_pipeline.errors import TopicRefused
from anamnesis_pipeline.knowledge.memory_index import render, with_index
from anamnesis_pipeline.knowledge.topic_files import Ref, diff_of, lessons_of, with_entry
from anamnesis_pipeline.knowledge.topic_store import INDEX, TopicStore, plain_name, topic_name
from anamnesis_pipeline.knowledge.what_holds import (
    EVERYWHERE,
    MAX_SECTIONS,
    TOPIC,
    Held,
    Pointer,
    Topic,
    by_project,
    read_held,
    topics_of,
)
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.pipeline.source_specs import private_sources
from anamnesis_pipeline.runtime.crawler_wiring import built_in
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.specs import LOGS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import TopicEdit

MAX_HISTORY = 50
"""Former sections of a topic that are listed, the latest."""
HISTORY_AMONG = 1_000


class SourceOut(TypedDict):
    """A source of a statement: an episode, and its day; empty: unknown."""

    episode_id: str
    day: str


class FormerOut(TypedDict):
    """A text that a topic does not have any more: since when, and what took its place; null: nothing."""

    episode_id: str
    summary: str
    timestamp: str
    superseded_at: str | None
    superseded_by: str | None


class TopicOut(TypedDict):
    """A topic file as it was crawled last. `machine` and `path`: where it is; `age_days`: since its last change;
    `episode_id`: its first section. `text` and `history` are null in a list.
    """

    project: str
    name: str
    title: str
    purpose: str
    machine: str
    path: str
    updated_at: str
    age_days: int
    headings: list[str]
    entries: int
    sources: list[SourceOut]
    episode_id: str
    text: str | None
    history: list[FormerOut] | None


class LessonOut(TypedDict):
    """What went wrong, how to notice it, what fixed it, and what to check before similar work; empty: unknown."""

    project: str
    goes_wrong: str
    notice: str
    fixed_by: str
    check: str
    sources: list[SourceOut]
    machine: str
    path: str


class PinnedOut(TypedDict):
    """A pinned preference."""

    project: str
    episode_id: str
    text: str
    timestamp: str


class PointerOut(TypedDict):
    """Where something is. A pointer of the project `general` holds in every project."""

    project: str
    keyword: str
    description: str
    category: str
    machine: str
    path: str
    extra: dict[str, Any]
    instance: str
    episode_id: str
    timestamp: str


class TopicsOut(TypedDict):
    """What holds. `index`: the `MEMORY.md` of the project, where one project is asked for; else null."""

    topics: list[TopicOut]
    lessons: list[LessonOut]
    pinned: list[PinnedOut]
    pointers: list[PointerOut]
    index: str | None


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A change of a topic file. `former`: its text; None: there is no file yet. `is_here`: this machine has it, so that
    accepting can write it; else `diff` is to be applied there.
    """

    machine: str
    path: Path
    former: str | None
    new: str
    diff: str
    is_here: bool


def open_topics(settings: Settings) -> TopicStore:
    """Return the folders with topics on this machine."""
    return TopicStore(settings.topics_dir, [Path(spec.root) for spec in built_in(settings) if spec.kind == LOGS])


def logs_of(store: Store, project: str, machine: str) -> list[tuple[str, str]]:
    """Return root and folder of a project's logs on a machine, those used last first."""
    found: list[tuple[datetime, str, str]] = []
    for source in store.files.sources():
        if source.kind == LOGS and source.machine == machine:
            newest = store.episodes.page(EpisodeFilter(source=source.key), 1).items
            if newest and newest[0].project == project:
                found.append((newest[0].timestamp, source.root, source.folder))
    return [(root, folder) for _, root, folder in sorted(found, reverse=True)]


def change_of(
    store: Store, topics: TopicStore, machine: str, project: str, edit: TopicEdit, sources: Sequence[Ref]
) -> TopicChange:
    """Return what a proposed edit changes: the project's topic of this name, here or on the machine that has it; a new
    one here if there is none.

    :param machine: name of this one.
    :param edit: its `name` may be the id of an episode: a section of the topic, or of another text with authority,
        which is not edited; its topic is called like that file.
    :raises TopicRefused: see `with_entry` and `TopicStore.path_of`; or a source is private, which topics are not.
    """
    private = {source.key for source in private_sources(store, machine)}
    quoted = store.episodes.heads([each.episode_id for each in sources]) if private else {}
    if any(head.source in private for head in quoted.values()):
        raise TopicRefused(
            "it quotes a private source, and topics are read by every session of the project; write it yourself, in a "
            "file of that source"
        )
    section = store.episodes.get([edit.name]).get(edit.name)
    if section is not None and TOPIC in section.tags:
        its = [each for each in _topics(store, section.project) if _is_of(each, section.machine, section.path)]
        if not its:
            raise TopicRefused(f"{edit.name} is no section of a topic any more; the proposal is made again")
        name, path, where = its[0].name, Path(its[0].path), its[0].machine or machine
        former = topics.read(path) if where == machine else its[0].text
    else:
        stem = PurePosixPath(section.path).stem if section else edit.name
        name, where = topic_name("notes" if section and f"{stem}.md" == INDEX else stem), machine
        path = topics.path_of(project, name, logs_of(store, project, machine))
        former = topics.read(path)
        if former is None:
            for each in _topics(store, project):
                if plain_name(each.name) == name and each.machine not in {"", machine}:
                    former, path, where = each.text, Path(each.path), each.machine
    new = with_entry(former or "", name, edit.heading, edit.entry, sources)
    return TopicChange(where, path, former, new, diff_of(former or "", new, path.name), where == machine)


def _topics(store: Store, project: str) -> list[Topic]:
    where = EpisodeFilter(projects=(project,), tags=(TOPIC,), kinds=("document",))
    return topics_of(store.episodes.page(where, MAX_SECTIONS).items)


def _is_of(topic: Topic, machine: str, path: str) -> bool:
    return (topic.machine, topic.path) == (machine, path)


def held_of(store: Store, private: Private, project: str, included: Collection[str] = ()) -> Held:
    """Return what holds of a project, or of all that may be shown.

    :param project: empty: all; a bare name also means `acme/<name>`.
    :param included: private projects and sources to include without a project; `*`: all.
    """
    where = EpisodeFilter(projects=(project,) if project else ())
    return read_held(store, private.visible(store, where, included))


def topics_body(store: Store, held: Held, here: str, now: datetime, project: str = "", name: str = "") -> TopicsOut:
    """Return what holds.

    :param held: of this project; empty: of several.
    :param name: of one topic, which comes with text and history; empty: all, without.
    """
    topics = [each for each in (*held.topics, *held.lessons) if not name or each.name == name]
    projects = {*by_project(held)} - {EVERYWHERE}
    return {
        "topics": [topic_body(each, now, former_of(store, each) if name else None) for each in topics],
        "lessons": [lesson for each in held.lessons for lesson in lesson_bodies(each)],
        "pinned": [_pinned(each) for each in held.pinned],
        "pointers": [pointer_body(each) for each in held.pointers],
        "index": render(projects.pop(), held, here) if project and len(projects) == 1 else None,
    }


def topic_body(topic: Topic, now: datetime, former: Sequence[Episode] | None = None) -> TopicOut:
    """Return a topic; with `former`, its text and history as well."""
    return {
        "project": topic.project,
        "name": topic.name,
        "title": topic.title,
        "purpose": topic.purpose,
        "machine": topic.machine,
        "path": topic.path,
        "updated_at": utc_text(topic.updated),
        "age_days": max(0, (now - topic.updated).days),
        "headings": list(topic.headings),
        "entries": len(topic.entries),
        "sources": _sources(topic.sources),
        "episode_id": topic.episode_id,
        "text": None if former is None else topic.text,
        "history": None if former is None else [_former(each) for each in former],
    }


def lesson_bodies(topic: Topic) -> list[LessonOut]:
    """Return the lessons of a file."""
    return [
        {
            "project": topic.project,
            "goes_wrong": each.goes_wrong,
            "notice": each.notice,
            "fixed_by": each.fixed_by,
            "check": each.check,
            "sources": _sources(each.sources),
            "machine": topic.machine,
            "path": topic.path,
        }
        for each in lessons_of(topic.text)
    ]


def pointer_body(pointer: Pointer) -> PointerOut:
    """Return a pointer."""
    return {
        "project": pointer.episode.project,
        "keyword": pointer.keyword,
        "description": pointer.description,
        "category": pointer.category,
        "machine": pointer.machine,
        "path": pointer.path,
        "extra": pointer.extra,
        "instance": pointer.episode.instance,
        "episode_id": pointer.episode.episode_id,
        "timestamp": utc_text(pointer.episode.timestamp),
    }


def former_of(store: Store, topic: Topic) -> list[Episode]:
    """Return the sections that a topic does not have any more, the latest first."""
    where = EpisodeFilter(projects=(topic.project,), tags=(TOPIC,), kinds=("document",), only_superseded=True)
    found = store.episodes.page(where, HISTORY_AMONG).items
    its = [each for each in found if _is_of(topic, each.machine, each.path)]
    never = datetime.min.replace(tzinfo=UTC)
    return sorted(its, key=lambda each: each.superseded_at or never, reverse=True)[:MAX_HISTORY]


def indexed(store: Store, private: Private, project: str = "", included: Collection[str] = ()) -> dict[str, Held]:
    """Return project -> what its index lists: what a session in that project is shown, without other private content.

    :param project: as of `held_of`; empty: all that may be shown.
    :param included: as of `held_of`; `*`: the indexes of private projects, too.
    """
    every = by_project(held_of(store, private, project, included))
    if not private:
        return every
    found: dict[str, Held] = {}
    for name in every:
        where = private.visible(store, EpisodeFilter(projects=(name,)), [name])
        if its := by_project(read_held(store, where)).get(name):
            found[name] = its
    return found


def write_indexes(
    store: Store, topics: TopicStore, machine: str, indexes: Mapping[str, Held], *, into_memory: bool
) -> dict[str, Path]:
    """Write the index of every project with something that holds; return project -> its file.

    :param indexes: project -> what its index lists, as `indexed` returns it.
    :param into_memory: into Claude Code's memory of the project, if there is one: a marked block of its MEMORY.md, the
        rest of which is kept; else to the home, where the indexes of other projects are removed.
    :raises TopicRefused: a file cannot be written, or has no room.
    """
    written: dict[str, Path] = {}
    for project, its in indexes.items():
        if project == EVERYWHERE and not (its.topics or its.lessons or its.pinned):
            continue
        memory = topics.memory_of(logs_of(store, project, machine)) if into_memory else None
        text = render(project, its, machine)
        if memory is not None:
            text = with_index(topics.read_index(memory) or "", project, its, machine)
        written[project] = topics.write_index(project, text, memory)
    if not into_memory:
        topics.drop_indexes(kept=written.values())
    return written


def _pinned(episode: Episode) -> PinnedOut:
    return {
        "project": episode.project,
        "episode_id": episode.episode_id,
        "text": episode.summary,
        "timestamp": utc_text(episode.timestamp),
    }


def _former(episode: Episode) -> FormerOut:
    return {
        "episode_id": episode.episode_id,
        "summary": episode.summary,
        "timestamp": utc_text(episode.timestamp),
        "superseded_at": utc_text(episode.superseded_at) if episode.superseded_at else None,
        "superseded_by": episode.superseded_by,
    }


def _sources(refs: Sequence[Ref]) -> list[SourceOut]:
    return [{"episode_id": each.episode_id, "day": each.day} for each in refs]
