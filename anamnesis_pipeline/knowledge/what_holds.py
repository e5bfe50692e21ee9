"""What holds of a project, read from the store: its topics with their lessons, pinned preferences and pointers.

Topics of other machines are read in the same way: they are crawled documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from anamnesis_pipeline.knowledge.topic_files import LESSONS, Entry, Lesson, Ref, lessons_of, read_topic
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import PINNED

TOPIC, POINTER = "topic", "pointer"
"""The tag of topics; the kind of pointers."""
EVERYWHERE = "general"
"""Project of pointers that hold in every project."""
PREFERENCES = ("preference", "correction")
"""What a pinned episode states, to be in the index."""
MAX_SECTIONS = 5_000
"""Sections of topics that are read at once, the newest."""
MAX_PINNED, MAX_PINNED_READ = 10, 500
"""Pinned preferences in an index, and those that are read."""
MAX_POINTERS = 1_000


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic file as it was crawled last. `sections`: its episodes, in the order of the text."""

    name: str
    title: str
    purpose: str
    project: str
    machine: str
    path: str
    updated: datetime
    text: str
    headings: tuple[str, ...]
    entries: tuple[Entry, ...]
    sections: tuple[Episode, ...]

    @property
    def episode_id(self) -> str:
        """Id of its first section."""
        return self.sections[0].episode_id

    @property
    def sources(self) -> tuple[Ref, ...]:
        """The episodes that its entries name, each once."""
        return tuple(dict.fromkeys(source for entry in self.entries for source in entry.sources))

    @property
    def is_lessons(self) -> bool:
        """Whether its entries are lessons."""
        return self.name == LESSONS

    @property
    def is_for(self) -> str:
        """What it is for; else what its sections are about."""
        return self.purpose or ", ".join(self.headings)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where something is that no session says: a keyword, its machine and path there."""

    keyword: str
    description: str
    category: str
    machine: str
    path: str
    extra: dict[str, Any]
    episode: Episode


@dataclass(frozen=True, slots=True)
class Held:
    """What holds of some projects."""

    topics: tuple[Topic, ...] = ()
    """Without those with lessons, by title."""
    lessons: tuple[Topic, ...] = ()
    pinned: tuple[Episode, ...] = ()
    """Preferences, the newest first."""
    pointers: tuple[Pointer, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is anything."""
        return bool(self.topics or self.lessons or self.pinned or self.pointers)


def read_held(store: Store, where: EpisodeFilter) -> Held:
    """Return what holds among the episodes that pass a filter by projects and sources; of projects that it names, with
    the pointers that hold everywhere.
    """
    sections = store.episodes.page(replace(where, tags=(TOPIC,), kinds=("document",)), MAX_SECTIONS).items
    pinned = store.episodes.page(replace(where, tags=(PINNED,), types=PREFERENCES), MAX_PINNED_READ).items
    everywhere = (*where.projects, EVERYWHERE) if where.projects else ()
    posted = store.episodes.page(replace(where, projects=everywhere, kinds=(POINTER,)), MAX_POINTERS).items
    topics = topics_of(sections)
    return Held(
        tuple(each for each in topics if not each.is_lessons),
        tuple(each for each in topics if each.is_lessons),
        tuple(pinned),
        tuple(pointers_of(posted)),
    )


def by_project(held: Held) -> dict[str, Held]:
    """Return project -> what holds of it, with the pointers that hold everywhere; by name. Pure."""
    projects = {each.project for each in (*held.topics, *held.lessons)}
    projects |= {each.project for each in (*held.pinned, *(pointer.episode for pointer in held.pointers))}
    return {
        project: Held(
            tuple(each for each in held.topics if each.project == project),
            tuple(each for each in held.lessons if each.project == project),
            tuple(each for each in held.pinned if each.project == project),
            tuple(each for each in held.pointers if each.episode.project in {project, EVERYWHERE}),
        )
        for project in sorted(projects)
    }


def topics_of(sections: Sequence[Episode]) -> list[Topic]:
    """Return the topics that these sections are of, by title. Pure."""
    files: dict[tuple[str, str], list[Episode]] = {}
    for episode in sections:
        files.setdefault((episode.machine, episode.path), []).append(episode)
    topics = [_topic(sorted(its, key=_place)) for its in files.values()]
    return sorted(topics, key=lambda each: (each.title.casefold(), each.machine, each.path))


def pointers_of(posted: Sequence[Episode]) -> list[Pointer]:
    """Return the pointers among episodes, by category and keyword. Pure."""
    pointers = [pointer for each in posted if (pointer := pointer_of(each)) is not None]
    return sorted(pointers, key=lambda each: (each.category, each.keyword.casefold(), each.episode.episode_id))


def pointer_of(episode: Episode) -> Pointer | None:
    """Return the pointer that an episode is; None: it is none."""
    facts, extra = episode.metadata, episode.metadata.get("extra")
    texts = [facts.get(name) for name in ("keyword", "description", "category", "machine", "path")]
    if episode.kind != POINTER or not texts[0] or not all(isinstance(text, str) for text in texts):
        return None
    keyword, description, category, machine, path = map(str, texts)
    return Pointer(keyword, description, category, machine, path, extra if isinstance(extra, dict) else {}, episode)


def lessons_in(held: Held) -> list[Lesson]:
    """Return the lessons of some projects."""
    return [lesson for topic in held.lessons for lesson in lessons_of(topic.text)]


def _place(episode: Episode) -> int:
    lines = episode.metadata.get("lines")
    return int(lines[0]) if isinstance(lines, list) and lines else 0


def _topic(sections: Sequence[Episode]) -> Topic:
    first = sections[0]
    file = PurePosixPath(first.path.replace("\\", "/"))
    text = "\n\n".join(each.raw_exchange.strip("\n") for each in sections)
    said, titles = read_topic(text), first.metadata.get("title")
    outer = str(titles[1]) if isinstance(titles, list) and len(titles) > 1 else ""
    return Topic(
        name=file.stem,
        title=said.title or outer or file.stem.replace("-", " ").capitalize(),
        purpose=said.purpose,
        project=first.project,
        machine=first.machine,
        path=first.path,
        updated=max(each.timestamp for each in sections),
        text=f"{text}\n",
        headings=said.headings,
        entries=said.entries,
        sections=tuple(sections),
    )
