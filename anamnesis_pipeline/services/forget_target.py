"""Resolve requests to forget into everything to remove."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import (
    MAX_RECORDS,
    ChatMessage,
    ChatSession,
    EpisodeFilter,
    FileCursor,
    Part,
    Segment,
    SegmentKind,
    Source,
    record_id,
)
from anamnesis_pipeline.parsing.claude_logs.message_keys import forgotten_typed, section_key, typed_near
from anamnesis_pipeline.parsing.claude_logs.parser import FileState
from anamnesis_pipeline.parsing.code.sections import outline_without
from anamnesis_pipeline.parsing.documents.chats import CHANNEL, UNTITLED
from anamnesis_pipeline.parsing.text.file_names import composed
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.documents import BETWEEN_TITLES, holds_documents
from anamnesis_pipeline.pipeline.forgotten_lines import EMPTY_LINE, ForgottenText, file_key, text_of
from anamnesis_pipeline.pipeline.forgotten_sections import body_keys_of
from anamnesis_pipeline.pipeline.publish import SECTION_KINDS
from anamnesis_pipeline.search.project_labels import labels_of, with_labels
from anamnesis_pipeline.services.extract import is_below, names
from anamnesis_pipeline.sources.base import is_description, is_tool_output
from anamnesis_pipeline.sources.specs import SourceSpec, sources_named
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import PINNED
from anamnesis_pipeline.store.records.forgetting import Selection
from anamnesis_pipeline.store.records.session_notes import is_of_log
from anamnesis_pipeline.store.session_model import SESSION_KIND

File = tuple[str, str]
"""Source and path of a log."""
MAX_HITS = 100_000


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Filters of a request to forget: all that are given must match, and at least one must be given.

    `machine`: content read on it; `source`: a source's name, as in `sources list`. `query`: only content with every one
    of its words. `files` are removed whole, in addition to what the filters match.
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
    """Keep identical text of documents in other places, as `machine` and `source` do."""
    files: tuple[File, ...] = ()
    include_pinned: bool = False
    """Remove pinned episodes, too; else only those in `ids`."""

    @property
    def is_empty(self) -> bool:
        """Return whether no filter is given."""
        return replace(self, keeps_copies=False, include_pinned=False) == ForgetRequest()

    @property
    def names_something(self) -> bool:
        """Return whether it names its targets, and does not only describe them."""
        return bool(self.ids or self.session_id or self.project or self.path or self.source or self.files)

    @property
    def is_of_whole_files(self) -> bool:
        """Return whether matching files are removed whole, including what was never parsed."""
        bare = replace(self, session_id="", path="", machine="", source="", files=(), include_pinned=False)
        return bare.is_empty and not self.is_empty


class Target:
    """Everything to remove with some ids: chunks, message keys, archived files. Reads the store on access."""

    def __init__(
        self,
        store: Store,
        ids: Iterable[str],
        whole: Iterable[File] = (),
        kept: Iterable[str] = (),
        chat: Iterable[str] = (),
        spared: Iterable[str] = (),
    ) -> None:
        """:param kept: message keys without tombstones, since remaining content has the same text.
        :param chat: ids of messages of conversations here.
        :param spared: pinned episodes that match and stay.
        """
        self.chat, self.spared = frozenset(chat), frozenset(spared)
        self.ids, self.whole, self.kept = frozenset(ids), frozenset(whole), frozenset(kept)
        self._store = store

    @cached_property
    def parts(self) -> list[Part]:
        """Return the chunks of the ids."""
        return self._store.forgetting.parts(sorted(self.ids))

    @cached_property
    def said(self) -> ForgottenText:
        """Return the text of the chunks."""
        return text_of(self.parts)

    @cached_property
    def keys_of(self) -> dict[str, list[str]]:
        """Return id -> message keys, with the aliases that identify copies."""
        of_parts = {part.part_id: {segment.message_key for segment in part.segments} for part in self.parts}
        episodes = self._store.episodes.get(sorted(self.ids))
        keys = {key: of_parts.get(key, set()) for key in self.ids}
        for key, episode in episodes.items():
            keys[key] |= set(episode.message_keys)
        owner = {key: episode_id for episode_id, its in keys.items() for key in its}
        for alias, key in self._store.forgetting.aliases_of(sorted(owner)).items():
            keys[owner[key]].add(forgotten_typed(alias) if typed_near(alias) else alias)
        return {episode_id: sorted(its) for episode_id, its in keys.items()}

    @cached_property
    def keys(self) -> frozenset[str]:
        """Return all of these keys."""
        return frozenset(key for its in self.keys_of.values() for key in its)

    @cached_property
    def files(self) -> list[File]:
        """Return every log or document with a line of it: the messages' own, and those with copies."""
        keys = sorted(self.keys)
        copies = {(source, found.path) for source, found in self._store.messages.occurrences_of(keys)}
        own = {(part.source, part.path) for part in self.parts} | self._store.documents.files_of(sorted(self.ids))
        return sorted(own | copies | set(self._store.messages.owners(keys).values()) | self.whole)

    @cached_property
    def documents(self) -> list[File]:
        """Return the documents among these files."""
        sources = {source.key for source in self._store.files.sources() if holds_documents(source)}
        return [file for file in self.files if file[0] in sources]

    @cached_property
    def logs(self) -> list[File]:
        """Return the files with lines of JSON among these."""
        documents = set(self.documents)
        return [file for file in self.files if not is_tool_output(file[1]) and file not in documents]

    @cached_property
    def emptied(self) -> frozenset[File]:
        """Return files of which no message remains, so that the lines around messages are removed too."""
        left: set[File] = set()
        had: set[File] = set()
        for part in self._store.forgetting.parts_of_files(self.files):
            (had if part.part_id in self.ids else left).add((part.source, part.path))
        return frozenset((self.whole | (had - left)) - set(self.documents))

    @cached_property
    def tombstones(self) -> dict[str, list[str]]:
        """Return id -> keys to bury: of messages, of their texts, and of files of which nothing remains."""
        keys = {episode_id: [key for key in its if key not in self.kept] for episode_id, its in self.keys_of.items()}
        for part in self.parts:
            bodies = [key for key in body_keys_of(part) if key not in self.kept]
            keys[part.part_id] = [*keys[part.part_id], *sorted(text_of([part]).text_keys), *bodies]
        return keys | {key: [key] for key in (file_key(*file) for file in self.emptied)}

    @cached_property
    def neighbours(self) -> list[Part]:
        """Return remaining chunks of the same files that carry some of the text, as context or in titles."""
        others = self._store.forgetting.parts_of_files(self.files)
        return [p for p in others if p.part_id not in self.ids and self.without_context(p) != p]

    def without_context(self, part: Part) -> Part:
        """Return a remaining chunk without the text that it carries."""
        lead, prompt = ("" if self.said.holds(text) else text for text in (part.lead, part.prompt))
        title = self._title_left(part)
        if part.section is None or title is None:
            return replace(part, lead=lead, prompt=prompt)
        is_other = title != part.section.title
        return replace(
            part,
            lead=lead,
            prompt=BETWEEN_TITLES.join(title) if is_other else prompt,
            section=replace(part.section, title=title),
            segments=self._segments_left(part),
        )

    def _segments_left(self, part: Part) -> tuple[Segment, ...]:
        """Return the section's segments, its outline without removed sections."""
        gone = self._headings.get(part.exchange_id)
        if part.section is None or part.kind != "code" or not gone:
            return part.segments
        title = part.section.title
        segments = []
        for each in part.segments:
            text = outline_without(each.text, title, gone) if each.kind is SegmentKind.OUTLINE else each.text
            is_same = text == each.text
            segments.append(each if is_same else replace(each, text=text, message_key=section_key(text)))
        return tuple(segments)

    @cached_property
    def _talks(self) -> set[str]:
        """Return titled conversations of which some is removed, since titles may reveal it. Channel names do not."""
        its = {part.session_id for part in self.parts if part.section is not None and part.kind == "exchange"}
        return {session for session in its if session and not session.startswith(CHANNEL)}

    def _title_left(self, part: Part) -> tuple[str, ...] | None:
        """Return the section's new title; None: its title cannot reveal removed text."""
        gone = self._headings.get(part.exchange_id)
        if part.section is None:
            return None
        if part.kind == "exchange" and part.session_id in self._talks:
            return (part.section.title[0], UNTITLED)
        return without_headings(part.section.title, gone) if part.kind in SECTION_KINDS and gone else None

    @cached_property
    def _headings(self) -> dict[str, set[tuple[str, ...]]]:
        """Return document (`Part.exchange_id`) -> title paths of its removed sections, without the file name."""
        found: dict[str, set[tuple[str, ...]]] = {}
        for part in self.parts:
            if part.section is not None and part.kind in SECTION_KINDS:
                found.setdefault(part.exchange_id, set()).add(part.section.title[1:])
        return found


def without_headings(title: tuple[str, ...], gone: Set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return a section's title path (file name first) without the headings of enclosing sections that are removed.
    Pure.
    """
    last = len(title) - 1
    return tuple(name for n, name in enumerate(title) if n in {0, last} or title[1 : n + 1] not in gone)


def stays_with(keys_of: Mapping[str, Set[str]], stays: Set[str]) -> set[str]:
    """Return the chunks with a message of one that stays: it is removed only as a whole. Pure.

    :param keys_of: chunk -> keys of its messages.
    """
    needed = {key for part_id in stays for key in keys_of.get(part_id, ())}
    return {part_id for part_id, keys in keys_of.items() if part_id not in stays and not needed.isdisjoint(keys)}


class Choice:
    """Resolve requests against the store.

    :param sources: all that are stored.
    :param specs: the configured ones.
    """

    def __init__(self, store: Store, sources: Iterable[Source], specs: Sequence[SourceSpec]) -> None:
        self._store, self._sources, self._specs = store, tuple(sources), specs

    def target(self, request: ForgetRequest) -> Target:
        """Return everything that a request means.

        :raises GiveUp: no filter is given.
        """
        if request.is_empty:
            raise GiveUp("say what to forget: an id, a session, a project, a path, a time or words to look for")
        whole = self._whole_files(request)
        ids = [part.part_id for part in self._store.forgetting.parts_of_files(request.files)]
        if not replace(request, files=()).is_empty:
            ids += self._filtered(request)
        own = {*ids, *self._store.documents.seen_in(sorted(whole))}
        same = self._store.documents.same_text(sorted(own)) | self._other_versions(own)
        if not (request.machine or request.source or request.keeps_copies):
            return self._without_pinned(request, Target(self._store, self._with_records(sorted(own | same)), whole))
        own -= self._seen_elsewhere(own, whole, self.chosen(request))
        kept = {s.message_key for part in self._store.forgetting.parts(sorted(same - own)) for s in part.segments}
        # text under other headings is not searched, so its bodies stay allowed
        kept |= {key for part in self._store.forgetting.parts(sorted(own)) for key in body_keys_of(part)}
        return self._without_pinned(request, Target(self._store, self._with_records(sorted(own)), whole, kept))

    def _without_pinned(self, request: ForgetRequest, target: Target) -> Target:
        """Return the target without pinned episodes that the request does not name, and without what they need: the
        chunk of a pinned record and the records of a pinned chunk, chunks with the same messages or text, and their
        files as a whole.
        """
        if request.include_pinned:
            return target
        heads = self._store.episodes.heads(sorted(target.ids))
        pinned = {key for key, head in heads.items() if PINNED in head.tags} - set(request.ids)
        if not pinned:
            return target
        keys_of = {part.part_id: {segment.message_key for segment in part.segments} for part in target.parts}
        stays = self._with_records(sorted(pinned))
        while more := stays_with(keys_of, stays):
            stays |= self._with_records(sorted(more))
        parts = [part for part in target.parts if part.part_id in stays]
        keys = {key for part in parts for key in keys_of[part.part_id]}
        files = {(part.source, part.path) for part in parts} | self._store.documents.files_of(sorted(stays))
        files |= set(self._store.messages.owners(sorted(keys)).values())
        sessions = {part.session_id for part in parts} - {""}
        whole = {
            (source, path)
            for source, path in target.whole - files
            if not (is_tool_output(path) and any(names(path, session) for session in sessions))
        }
        bodies = {key for part in parts for key in body_keys_of(part)}
        return Target(self._store, target.ids - stays, whole, target.kept | keys | bodies, spared=pinned)

    def _other_versions(self, ids: Set[str]) -> set[str]:
        """Return turns of imported conversations that share messages with these: former versions, other exports."""
        chosen = [p for p in self._store.forgetting.parts(sorted(ids)) if p.section is not None and p.session_id]
        keys = {segment.message_key for part in chosen for segment in part.segments if segment.uuid}
        sessions = {part.session_id for part in chosen}
        every = [key for one in sorted(sessions) for key in self._store.forgetting.matching(Selection(session_id=one))]
        return {p.part_id for p in self._store.forgetting.parts(every) if keys & {s.message_key for s in p.segments}}

    def _filtered(self, request: ForgetRequest) -> list[str]:
        projects = (
            with_labels(self._store, EpisodeFilter(projects=(request.project,))).projects if request.project else ()
        )
        what = Selection(
            request.ids or None,
            request.session_id,
            request.path,
            self.chosen(request),
            projects,
            request.since,
            request.until,
        )
        ids = self._store.forgetting.matching(what)
        # episodes of a conversation here name no session
        messages = self._store.chat.messages(what.session_id) if what.session_id else []
        made = {each.episode_id for each in messages if each.episode_id}
        if of_chat := tuple(made if what.ids is None else made & set(what.ids)):
            ids += self._store.forgetting.matching(replace(what, ids=of_chat, session_id=""))
        hits = self._hits(request.query) if request.query else set(ids)
        heads = {} if request.ids else self._store.episodes.heads(ids)
        told = {
            key for key, head in heads.items() if head.kind == SESSION_KIND and is_of_log(head.source, head.session_id)
        }
        return [key for key in ids if key in hits and key not in told]  # a session record is removed with its session

    def _seen_elsewhere(self, ids: Set[str], whole: Set[File], chosen: Sequence[str] | None) -> set[str]:
        """Return those of `ids` that also occur in a document of another source, such as another clone of a repository.

        :param chosen: the requested sources, even if the chunks are another clone's; None: the chunks' sources.
        """
        documents, sources = self._store.documents, {source for source, _ in whole} | set(chosen or ())
        if chosen is None:
            sources |= {part.source for part in self._store.forgetting.parts(sorted(ids))}
        others = {file for file in documents.files_of(sorted(ids)) if file[0] not in sources}
        return documents.seen_in(sorted(others)) & ids

    def chosen(self, request: ForgetRequest) -> tuple[str, ...] | None:
        """Return keys of the requested sources; None: every one."""
        if not (request.machine or request.source):
            return None
        sources = sources_named(request.source, self._sources, self._specs) if request.source else self._sources
        return tuple(source.key for source in sources if request.machine in {"", source.machine})

    def _hits(self, query: str) -> set[str]:
        """Return ids of the episodes that hold every word; none for a query without words."""
        where = EpisodeFilter(include_superseded=True)
        found = [
            {hit.episode_id for hit in self._store.text.matching([word], MAX_HITS, where, analyzer="exact")}
            for word in composed(query).split()
        ]
        return set.intersection(*found) if found else set()

    def _with_records(self, ids: Sequence[str]) -> set[str]:
        """Return the ids, the chunks that records among them come from, and all present and future records of both."""
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


def cleared_state(cursor: FileCursor, target: Target) -> str:
    """Return the parser's state of a file (`FileCursor.parser_state`) without forgotten text."""
    if is_description(cursor.path):
        return EMPTY_LINE if (cursor.source, cursor.path) in target.whole else cursor.parser_state
    state = FileState.from_json(cursor.parser_state)
    if state is None:  # another version's state, which is not used
        return FileState(generation=cursor.generation, line=max(cursor.parsed_lines, 0)).to_json()
    exchange, trail = state.exchange, state.trail
    if exchange is not None and target.said.holds(exchange.prompt):
        exchange = replace(exchange, prompt="")
    if target.said.holds(trail.lead):
        trail = replace(trail, lead="")
    return replace(state, exchange=exchange, trail=trail).to_json()


Turn = Sequence[ChatMessage]
SESSIONS_AT_ONCE = 100


def messages_to_forget(
    store: Store, request: ForgetRequest, chosen: Sequence[str] | None, episode_ids: Set[str]
) -> frozenset[str]:
    """Return ids of the messages to remove.

    :param chosen: keys of the requested sources; None: every one.
    :param episode_ids: the episodes to remove.
    """
    # An answered turn is an episode, and is removed with it. One whose answer failed, was stopped or stays private is
    # stored in its conversation only.
    has_filter = request.session_id or request.project or request.since or request.until or request.query or chosen
    is_filtered = bool(has_filter) and (chosen is None or "chat" in chosen)
    return frozenset(
        message.message_id
        for session in _chat_sessions(store)
        for turn in turns_of(store.chat.messages(session.session_id))
        for its_turn in [is_filtered and is_meant(request, session, turn)]
        for message in turn
        if (message.episode_id in episode_ids if message.episode_id else its_turn)
    )


def turns_of(messages: Sequence[ChatMessage]) -> list[Turn]:
    """Return each question with the messages after it. Pure."""
    turns: list[list[ChatMessage]] = []
    for message in messages:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return list(turns)


def is_meant(request: ForgetRequest, session: ChatSession, turn: Turn) -> bool:
    """Return whether a request's filters match a turn without an episode; its time is that of its question. Pure."""
    if request.ids or request.path:
        return False
    text = "\n".join(each.text for each in turn).casefold()
    at = turn[0].at
    return (
        request.session_id in ("", session.session_id)
        and (request.project in ("", session.project) or bool(labels_of(request.project, [session.project])))
        and (request.since is None or at >= request.since)
        and (request.until is None or at < request.until)
        and all(word.casefold() in text for word in request.query.split())
    )


def _chat_sessions(store: Store) -> Iterator[ChatSession]:
    page = store.chat.sessions(SESSIONS_AT_ONCE)
    yield from page.items
    while page.next_cursor is not None:
        page = store.chat.sessions(SESSIONS_AT_ONCE, page.next_cursor)
        yield from page.items
