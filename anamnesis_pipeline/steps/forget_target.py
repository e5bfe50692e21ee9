"""What is asked to be forgotten, and everything that goes with it."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from anamnesis_pipeline.documents.chats import CHANNEL, UNTITLED
from anamnesis_pipeline.documents.code import outline_without
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.exchanges.parsing import FileState
from anamnesis_pipeline.file_names import composed
from anamnesis_pipeline.message_keys import forgotten_typed, section_key, typed_near
from anamnesis_pipeline.model import Episode, FileCursor, Part, Segment, SegmentKind, Source, Where, record_id
from anamnesis_pipeline.search.project_labels import with_labels
from anamnesis_pipeline.session_model import SESSION_KIND
from anamnesis_pipeline.sources.base import is_description, is_tool_output
from anamnesis_pipeline.sources.specs import SourceSpec, sources_named
from anamnesis_pipeline.steps.crawl import folder_of
from anamnesis_pipeline.steps.documents import BETWEEN_TITLES, holds_documents
from anamnesis_pipeline.steps.episodes import SECTION_KINDS
from anamnesis_pipeline.steps.extract import is_below, names
from anamnesis_pipeline.steps.forgotten_lines import EMPTY_LINE, ForgottenText, file_key, text_of
from anamnesis_pipeline.steps.forgotten_sections import body_keys_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.forgetting import Selection
from anamnesis_pipeline.store.records.session_notes import is_of_log
from anamnesis_pipeline.summary_model import MAX_RECORDS

File = tuple[str, str]
"""Source and path of a log."""
MOST_HITS = 100_000


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """What a client asks to forget: all filters given must hold, and at least one must be given.

    `machine`: what was read on it; `source`: the name of a source, as `sources list` shows it. `query`: only what holds
    every one of its words. `files` go as a whole, beside what the filters mean.
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
    files: tuple[File, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked for."""
        return replace(self, keeps_copies=False) == ForgetRequest()

    @property
    def names_something(self) -> bool:
        """Whether it names what is to go, and does not only describe it."""
        return bool(self.ids or self.session_id or self.project or self.path or self.source or self.files)

    @property
    def is_of_whole_files(self) -> bool:
        """Whether the files that it names go as a whole, with what was never parsed."""
        bare = replace(self, session_id="", path="", machine="", source="", files=())
        return bare.is_empty and not self.is_empty


class Target:
    """Everything that goes with some ids: parts, message keys, archived files. Reads what is stored when asked."""

    def __init__(
        self,
        store: Store,
        ids: Iterable[str],
        whole: Iterable[File] = (),
        kept: Iterable[str] = (),
        chat: Iterable[str] = (),
    ) -> None:
        """:param kept: message keys that get no tombstone, since something that stays says the same.
        :param chat: ids of messages of conversations here.
        """
        self.chat = frozenset(chat)
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
        copies = {(source, found.path) for source, found in self._store.messages.occurrences_of(keys)}
        own = {(part.source, part.path) for part in self.parts} | self._store.documents.files_of(sorted(self.ids))
        return sorted(own | copies | set(self._store.messages.owners(keys).values()) | self.whole)

    @cached_property
    def documents(self) -> list[File]:
        """Those of these files that are documents."""
        sources = {source.key for source in self._store.files.sources() if holds_documents(source)}
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
            bodies = [key for key in body_keys_of(part) if key not in self.kept]
            keys[part.part_id] = [*keys[part.part_id], *sorted(text_of([part]).text_keys), *bodies]
        return keys | {key: [key] for key in (file_key(*file) for file in self.emptied)}

    @cached_property
    def neighbours(self) -> list[Part]:
        """Parts of the same files that stay and carry some of the text, as their context or in their titles."""
        others = self._store.forgetting.parts_of_files(self.files)
        return [p for p in others if p.part_id not in self.ids and self.without_context(p) != p]

    def without_context(self, part: Part) -> Part:
        """A part that stays without what it carries of the text."""
        lead, prompt = ("" if self.said.holds(text) else text for text in (part.lead, part.prompt))
        title = self._title_left(part)
        if part.section is None or title is None:
            return replace(part, lead=lead, prompt=prompt)
        is_other = title != part.section.title
        return replace(
            part, lead=lead, prompt=BETWEEN_TITLES.join(title) if is_other else prompt,
            section=replace(part.section, title=title), segments=self._segments_left(part),
        )  # fmt: skip

    def _segments_left(self, part: Part) -> tuple[Segment, ...]:
        """What the section says, its outline without what goes."""
        gone = self._headings.get(part.exchange_id)
        if part.section is None or part.kind != "code" or not gone:
            return part.segments
        title = part.section.title
        return tuple(
            _said_anew(s, outline_without(s.text, title, gone)) if s.kind is SegmentKind.OUTLINE else s
            for s in part.segments
        )

    @cached_property
    def _talks(self) -> set[str]:
        """Conversations with a title of which some goes: it may tell what was said. A channel is no title."""
        its = {part.session_id for part in self.parts if part.section is not None and part.kind == "exchange"}
        return {session for session in its if session and not session.startswith(CHANNEL)}

    def _title_left(self, part: Part) -> tuple[str, ...] | None:
        """What the section is called now; None: nothing of its title can be of what goes."""
        gone = self._headings.get(part.exchange_id)
        if part.section is None:
            return None
        if part.kind == "exchange" and part.session_id in self._talks:
            return (part.section.title[0], UNTITLED)
        return without_headings(part.section.title, gone) if part.kind in SECTION_KINDS and gone else None

    @cached_property
    def _headings(self) -> dict[str, set[tuple[str, ...]]]:
        """Document (`Part.exchange_id`) -> the ways to its sections that go, without the name of the file."""
        found: dict[str, set[tuple[str, ...]]] = {}
        for part in self.parts:
            if part.section is not None and part.kind in SECTION_KINDS:
                found.setdefault(part.exchange_id, set()).add(part.section.title[1:])
        return found


def without_headings(title: tuple[str, ...], gone: Set[tuple[str, ...]]) -> tuple[str, ...]:
    """The way to a section, the name of the file first, without the headings of sections around it that are gone. Pure.

    :param gone: the ways to these, without the name of the file.
    """
    last = len(title) - 1
    return tuple(name for n, name in enumerate(title) if n in {0, last} or title[1 : n + 1] not in gone)


class Choice:
    """What requests mean, of what is stored.

    :param sources: all that are stored.
    :param specs: the configured ones.
    """

    def __init__(self, store: Store, sources: Iterable[Source], specs: Sequence[SourceSpec]) -> None:
        self._store, self._sources, self._specs = store, tuple(sources), specs

    def target(self, request: ForgetRequest) -> Target:
        """Everything that a request means.

        :raises GiveUp: nothing is asked for.
        """
        if request.is_empty:
            raise GiveUp("say what to forget: an id, a session, a project, a path, a time or words to look for")
        ids, whole = self._ids(request), self._whole_files(request)
        own = {*ids, *self._store.documents.seen_in(sorted(whole))}
        same = self._store.documents.same_text(sorted(own)) | self._other_versions(own)
        if not (request.machine or request.source or request.keeps_copies):
            return Target(self._store, self._with_records(sorted(own | same)), whole)
        own -= self._seen_elsewhere(own, whole, self.chosen(request))
        kept = {s.message_key for part in self._store.forgetting.parts(sorted(same - own)) for s in part.segments}
        # what others say under another heading is not looked for, so no body is forbidden to them
        kept |= {key for part in self._store.forgetting.parts(sorted(own)) for key in body_keys_of(part)}
        return Target(self._store, self._with_records(sorted(own)), whole, kept)

    def _other_versions(self, ids: Set[str]) -> set[str]:
        """Turns of imported conversations with a message of theirs: former versions, and those of other exports."""
        chosen = [p for p in self._store.forgetting.parts(sorted(ids)) if p.section is not None and p.session_id]
        keys = {segment.message_key for part in chosen for segment in part.segments if segment.uuid}
        sessions = {part.session_id for part in chosen}
        every = [key for one in sorted(sessions) for key in self._store.forgetting.matching(Selection(session_id=one))]
        return {p.part_id for p in self._store.forgetting.parts(every) if keys & {s.message_key for s in p.segments}}

    def _ids(self, request: ForgetRequest) -> list[str]:
        own = [part.part_id for part in self._store.forgetting.parts_of_files(request.files)]
        return own if replace(request, files=()).is_empty else [*own, *self._filtered(request)]

    def _filtered(self, request: ForgetRequest) -> list[str]:
        projects = with_labels(self._store, Where(projects=(request.project,))).projects if request.project else ()
        what = Selection(
            request.ids or None, request.session_id, request.path, self.chosen(request), projects, request.since,
            request.until,
        )  # fmt: skip
        ids = self._store.forgetting.matching(what) + self._of_chat(what)
        hits = self._hits(request.query) if request.query else set(ids)
        heads = {} if request.ids else self._store.episodes.heads(ids)
        told = {
            key for key, head in heads.items() if head.kind == SESSION_KIND and is_of_log(head.source, head.session_id)
        }
        return [key for key in ids if key in hits and key not in told]  # a record goes with what it tells of

    def _of_chat(self, what: Selection) -> list[str]:
        """The episodes of a conversation here, which name no session."""
        messages = self._store.chat.messages(what.session_id) if what.session_id else []
        made = {each.episode_id for each in messages if each.episode_id}
        ids = tuple(made if what.ids is None else made & set(what.ids))
        return self._store.forgetting.matching(replace(what, ids=ids, session_id="")) if ids else []

    def _seen_elsewhere(self, ids: Set[str], whole: Set[File], chosen: Sequence[str] | None) -> set[str]:
        """Those of `ids` that stand in a document of another source too, such as another clone of a repository.

        :param chosen: the sources that are asked for, whichever clone's the parts are; None: those of the parts.
        """
        documents, sources = self._store.documents, {source for source, _ in whole} | set(chosen or ())
        if chosen is None:
            sources |= {part.source for part in self._store.forgetting.parts(sorted(ids))}
        others = {file for file in documents.files_of(sorted(ids)) if file[0] not in sources}
        return documents.seen_in(sorted(others)) & ids

    def chosen(self, request: ForgetRequest) -> tuple[str, ...] | None:
        """Keys of the sources that are asked for; None: every one."""
        if not (request.machine or request.source):
            return None
        sources = sources_named(request.source, self._sources, self._specs) if request.source else self._sources
        return tuple(source.key for source in sources if request.machine in {"", source.machine})

    def _hits(self, query: str) -> set[str]:
        """Ids of the episodes that hold every word."""
        where = Where(include_superseded=True)
        found = [
            {hit.episode_id for hit in self._store.text.matching([word], MOST_HITS, where, analyzer="exact")}
            for word in composed(query).split()
        ]
        return set.intersection(*found) if found else set()

    def _with_records(self, ids: Sequence[str]) -> set[str]:
        """The ids, with what records were drawn from, and every record that these may have or get."""
        episodes = self._store.episodes.get(ids)
        parts = {
            str(e.metadata["part_id"]) for e in episodes.values() if e.kind == "record" and "part_id" in e.metadata
        }
        every = {*ids, *parts}
        return every | {record_id(key, number) for key in every for number in range(MAX_RECORDS)}

    def _whole_files(self, request: ForgetRequest) -> set[File]:
        if request.files or not request.is_of_whole_files:
            return set(request.files)
        chosen = self.chosen(request)
        return {
            (source.key, path)
            for source in self._sources
            if chosen is None or source.key in chosen
            for path in self._store.files.cursors(source.key)
            if (not request.session_id or names(path, request.session_id))
            and (not request.path or is_below(f"{folder_of(source)}/{path}", request.path))
        }


def _said_anew(segment: Segment, text: str) -> Segment:
    if text == segment.text:
        return segment
    return replace(segment, text=text, message_key=section_key(text))


def _keys(episode: Episode | None) -> tuple[str, ...]:
    return episode.message_keys if episode else ()


def cleared_state(cursor: FileCursor, target: Target) -> str:
    """What the parser remembers of a file (`FileCursor.parser_state`) without anything that is forgotten."""
    if is_description(cursor.path):
        return EMPTY_LINE if (cursor.source, cursor.path) in target.whole else cursor.parser_state
    state = FileState.from_json(cursor.parser_state)
    if state is None:  # of another version: nobody reads it
        return FileState(generation=cursor.generation, line=max(cursor.parsed_lines, 0)).to_json()
    exchange, trail = state.exchange, state.trail
    if exchange is not None and target.said.holds(exchange.prompt):
        exchange = replace(exchange, prompt="")
    if target.said.holds(trail.lead):
        trail = replace(trail, lead="")
    return replace(state, exchange=exchange, trail=trail).to_json()
