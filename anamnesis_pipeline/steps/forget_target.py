"""What is asked to be forgotten, and everything that goes with it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from anamnesis_pipeline.message_keys import forgotten_typed, typed_near
from anamnesis_pipeline.model import Episode, Part
from anamnesis_pipeline.sources.base import is_tool_output
from anamnesis_pipeline.steps.documents import holds_documents
from anamnesis_pipeline.steps.forgotten_lines import ForgottenText, file_key, text_of
from anamnesis_pipeline.store.base import Store

File = tuple[str, str]
"""Source and path of a log."""


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What a client asks to forget: all filters given must hold, and at least one must be given.

    `machine`: what was read on it; `source`: the name of a configured source. `query`: only what holds every one of its
    words.
    """

    ids: tuple[str, ...] = ()
    session_id: str = ""
    project: str = ""
    path: str = ""
    machine: str = ""
    source: str = ""
    since: datetime | None = None
    until: datetime | None = None
    query: str = ""
    keeps_copies: bool = False
    """Whether the very same text of a document stays where else it stands, as it does for `machine` and `source`."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return replace(self, keeps_copies=False) == ForgetRequest()

    @property
    def is_of_whole_files(self) -> bool:
        """Whether the files that it names go as a whole, with what was never parsed."""
        bare = replace(self, session_id="", path="", machine="", source="")
        return bare.is_empty and not self.is_empty


class Target:
    """Everything that goes with some ids: parts, message keys, archived files. Reads what is stored when asked."""

    def __init__(self, store: Store, ids: Iterable[str], whole: Iterable[File] = (), kept: Iterable[str] = ()) -> None:
        """:param kept: message keys that get no tombstone, since something that stays says the same."""
        self.ids, self.whole, self.kept = frozenset(ids), frozenset(whole), frozenset(kept)
        self._store = store

    @cached_property
    def parts(self) -> list[Part]:
        """Those of the ids."""
        return self._store.forgetting.parts(sorted(self.ids))

    @cached_property
    def said(self) -> ForgottenText:
        """What they say."""
        return text_of(self.parts)

    @cached_property
    def keys_of(self) -> dict[str, list[str]]:
        """Id -> message keys, with the further ones by which copies are known."""
        of_parts = {part.part_id: {segment.message_key for segment in part.segments} for part in self.parts}
        episodes = self._store.episodes.get(sorted(self.ids))
        keys = {key: of_parts.get(key, set()) | set(_keys(episodes.get(key))) for key in self.ids}
        owner = {key: episode_id for episode_id, its in keys.items() for key in its}
        for alias, key in self._store.forgetting.aliases_of(sorted(owner)).items():
            keys[owner[key]].add(forgotten_typed(alias) if typed_near(alias) else alias)
        return {episode_id: sorted(its) for episode_id, its in keys.items()}

    @cached_property
    def keys(self) -> frozenset[str]:
        """All of these keys."""
        return frozenset(key for its in self.keys_of.values() for key in its)

    @cached_property
    def files(self) -> list[File]:
        """Every log or document with a line of it: the messages' own, and those that hold copies."""
        keys = sorted(self.keys)
        copies = {(source, found.path) for source, found in self._store.ingest.occurrences_of(keys)}
        own = {(part.source, part.path) for part in self.parts} | self._store.documents.files_of(sorted(self.ids))
        return sorted(own | copies | set(self._store.ingest.owners(keys).values()) | self.whole)

    @cached_property
    def documents(self) -> list[File]:
        """Those of these files that are documents."""
        sources = {source.key for source in self._store.ingest.sources() if holds_documents(source)}
        return [file for file in self.files if file[0] in sources]

    @cached_property
    def logs(self) -> list[File]:
        """Those of these files that hold lines of JSON."""
        documents = set(self.documents)
        return [file for file in self.files if not is_tool_output(file[1]) and file not in documents]

    @cached_property
    def emptied(self) -> frozenset[File]:
        """Files of which nothing that was said stays, so that what surrounds it goes too."""
        left: set[File] = set()
        had: set[File] = set()
        for part in self._store.forgetting.parts_of_files(self.files):
            (had if part.part_id in self.ids else left).add((part.source, part.path))
        return frozenset((self.whole | (had - left)) - set(self.documents))

    @cached_property
    def tombstones(self) -> dict[str, list[str]]:
        """Id -> keys to bury: of messages, of their texts, and of files of which nothing stays."""
        keys = {episode_id: [key for key in its if key not in self.kept] for episode_id, its in self.keys_of.items()}
        for part in self.parts:
            keys[part.part_id] = [*keys[part.part_id], *sorted(text_of([part]).text_keys)]
        return keys | {key: [key] for key in (file_key(*file) for file in self.emptied)}

    @cached_property
    def neighbours(self) -> list[Part]:
        """Parts of the same files that stay and carry some of the text as their context."""
        others = self._store.forgetting.parts_of_files(self.files)
        return [
            p for p in others if p.part_id not in self.ids and (self.said.holds(p.lead) or self.said.holds(p.prompt))
        ]


def _keys(episode: Episode | None) -> tuple[str, ...]:
    return episode.message_keys if episode else ()
