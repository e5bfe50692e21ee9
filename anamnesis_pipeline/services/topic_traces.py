"""What topic files, their former texts and indexes hold of episodes that are forgotten: files of a person, which only
the person edits, and indexes, which are made again.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from anamnesis_pipeline.errors import TopicRefused
from anamnesis_pipeline.knowledge.memory_index import listed_as
from anamnesis_pipeline.knowledge.topic_files import entries_from
from anamnesis_pipeline.knowledge.topic_store import FORMER, INDEX, TopicStore
from anamnesis_pipeline.knowledge.what_holds import MAX_SECTIONS, POINTER, TOPIC, topics_of
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.search.project_labels import ALL, Private
from anamnesis_pipeline.services.topics import indexed, write_indexes
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import PINNED

MAX_NAMED = 20
"""Lines that a report names; the others are counted."""
EDIT = "edit the file, and once it was read again, `anamnesis forget --path FILE --query WORDS` removes its former text"
DELETE = "a former text of a topic; delete the file, and undoing no longer brings it back"
WRITE_AGAIN = "an index; edit it, or `anamnesis topics PROJECT --write-index` writes it again"


class TopicTraces:
    """The traces of episodes in topic files.

    :param machine: name of this one.
    """

    def __init__(self, store: Store, topics: TopicStore, machine: str) -> None:
        self._store = store
        self._topics = topics
        self._machine = machine

    def remains(self, episodes: Sequence[Episode], private: Private) -> list[str]:
        """Return the lines of topic files, former texts and indexes that were written from episodes, and what to do.

        :param private: what is private: only the number of its lines is returned.
        """
        hidden = [each for each in episodes if private.holds(each)]
        shown = list(self._traces([each for each in episodes if not private.holds(each)], private))
        unnamed = len([place for place, _ in shown if not place])
        unnamed += len([*self._traces(hidden, private)] if hidden else [])
        named = [f"{place}: {advice}" for place, advice in shown if place]
        told = named[:MAX_NAMED]
        told += [f"{counted(len(named) - MAX_NAMED, 'more line')} of topic files"] if len(named) > MAX_NAMED else []
        return told + ([f"{counted(unnamed, 'line')} of topic files that are private"] if unnamed else [])

    def drop_indexes(self, episode_ids: Collection[str]) -> bool:
        """Remove the indexes in the home if one lists any of these episodes, and unfinished topic files. Return whether
        there were such indexes.
        """
        self._topics.sweep()
        heads = self._store.episodes.heads(sorted(episode_ids)).values()
        is_listed = any({PINNED, TOPIC} & {*head.tags} or head.kind == POINTER for head in heads)
        return is_listed and self._topics.drop_indexes()

    def write_indexes(self, private: Private) -> list[str]:
        """Write the indexes in the home again. Return what could not be done."""
        try:
            found = indexed(self._store, private, "", [ALL])
            write_indexes(self._store, self._topics, self._machine, found, into_memory=False)
        except TopicRefused as exc:
            return [f"{exc}; the asset `memory_index` writes the indexes again"]
        return []

    def _traces(self, episodes: Sequence[Episode], private: Private) -> Iterator[tuple[str, str]]:
        """Yield each line, empty if its file is private, and what to do."""
        ids = {each.episode_id for each in episodes}
        entries: dict[str, list[str]] = {}
        for each in self._store.proposals.accepted_from(ids):
            if each.change.topic is not None and each.applied is not None:
                entries.setdefault(each.applied.path, []).append(each.change.topic.entry)
        every = [entry for its in entries.values() for entry in its]
        listed = {line for each in episodes for line in listed_as(each)}
        for path, text in self._topics.texts():
            is_former = path.parent.name == FORMER
            found = list(_lines(path, text, ids, every if is_former else entries.get(str(path), ()), listed))
            is_open = is_former or not found or not self._is_private(path, private)
            yield from ((f"{path}{line}" if is_open else "", advice) for line, advice in found)
        where = EpisodeFilter(tags=(TOPIC,), kinds=("document",))
        for topic in topics_of(self._store.episodes.page(where, MAX_SECTIONS).items):
            if topic.machine not in {"", self._machine}:
                is_open = not any(map(private.holds, topic.sections))
                for entry in entries_from(topic.text, ids):
                    place = f"{topic.machine}:{topic.path}{_under(entry.heading)}"
                    yield (place if is_open else ""), EDIT

    def _is_private(self, path: Path, private: Private) -> bool:
        if not private:
            return False
        if path.parent.parent == self._topics.folder:
            return private.is_of(unquote(path.parent.name))
        folder = path.parent if path.name == INDEX else path.parent.parent
        memories = {Path(source.root, source.folder, folder.name): source for source in self._store.files.sources()}
        its = memories.get(folder)
        newest = self._store.episodes.page(EpisodeFilter(source=its.key), 1).items if its is not None else []
        return bool(private.around(str(folder), self._machine)) or any(map(private.holds, newest))


def _lines(
    path: Path, text: str | None, ids: Collection[str], written: Sequence[str], listed: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the place of each trace in a file, and what to do. Pure."""
    if text is None:
        yield ", which cannot be read", "look for it there"
        return
    is_former = path.parent.name == FORMER
    for entry in entries_from(text, ids, written):
        yield f", line {entry.lines[0] + 1}{_under(entry.heading)}", DELETE if is_former else EDIT
    if path.name == INDEX or is_former:
        for number, line in enumerate(text.splitlines(), 1):
            if any(line.startswith(each) for each in listed):
                yield f", line {number}", DELETE if is_former else WRITE_AGAIN


def _under(heading: str) -> str:
    return f", under {heading!r}" if heading else ""
