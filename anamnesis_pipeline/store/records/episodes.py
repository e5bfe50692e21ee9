"""Episodes with their passages: what becomes of one that is written, given what is stored, and what goes with one that
is removed.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from anamnesis_pipeline.errors import EpisodeConflict, EpisodeNotFound
from anamnesis_pipeline.model import HOLDING, Episode, EpisodeFilter, EpisodeHead, Part, Passage, StoredPassage, Summary
from anamnesis_pipeline.store.contracts import Lacking, Native
from anamnesis_pipeline.store.gateway import Gateway, Row, Tables, batches, by_rows, can_be_stored
from anamnesis_pipeline.store.records import chat, documents, events, exclusion, links, queries, session_notes
from anamnesis_pipeline.store.records.entities import forget_mentions
from anamnesis_pipeline.store.records.events import Happening, kind_of_edit
from anamnesis_pipeline.store.records.links import Link
from anamnesis_pipeline.store.records.observations import drop_unfounded, forget_evidence, note_changed
from anamnesis_pipeline.store.records.parts import mark_published
from anamnesis_pipeline.store.records.settings import read_aliases, store_name
from anamnesis_pipeline.store.records.statuses import EDITED, STATUS_FIELDS, Cause, forget_history, set_status
from anamnesis_pipeline.store.records.subjects import (
    forget_subjects,
    note_subjects,
    pinned_ids,
    replaced_ids,
    settle_statement,
)
from anamnesis_pipeline.store.statements import statement_of
from anamnesis_pipeline.store.tables import NOT_EMPTY
from anamnesis_pipeline.store.values import (
    EPISODE_FIELDS,
    HEAD_FIELDS,
    LAST_CHARACTER,
    as_json,
    cursor_at,
    episode_of,
    head_of,
    instant,
    passage_of,
    read_cursor,
    sought,
    storable,
    storable_passages,
    stored_hash,
)

TRACKED_S = 2.0
"""How long an answer waits to be counted; a writer that was killed may hold the turn for a minute."""
_EDITED, _REWRITTEN = 1, 2
"""A client edited fields of the episode; a client edited its raw text, too."""

_FIRST: Row = {
    "superseded_at": None,
    "edited": 0,
    "retrieval_count": 0,
    "read_count": 0,
    "last_retrieved": None,
}
"""Fields of a new episode that later writes leave alone, as they do its status."""

Written = tuple[Episode, Sequence[Passage]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PutReport:
    """What became of the episodes of one `put`."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    tombstoned: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """Episodes made of a part and its summary, as they were read. `surplus`: ids of those that an earlier summary made
    and this one does not.
    """

    part: Part
    summary: Summary | None
    episodes: Sequence[Written]
    surplus: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EpisodePage:
    """One page; `next_cursor` is opaque, None at the end."""

    items: list[Episode]
    next_cursor: str | None


VALUE_FIELDS = ("value", "value_signals")
"""Metadata that is our judgement of a log's text, also of an episode that a client edited."""


class EpisodeRecords:
    """Episodes with their passages and tombstones."""

    def __init__(self, gateway: Gateway, native: Native) -> None:
        self._gateway = gateway
        self._native = native

    def put(self, episodes: Sequence[Written], *, only_new: bool = False) -> PutReport:
        """Create or replace by id. A passage whose ordinal, text, context and ids are unchanged keeps its key (and so
        its vectors); any other is deleted and, if wanted, inserted under a new key. Counters, status and
        `superseded_by` of an existing row stay as they are, and so does what `replace` edited: summary, tags, project,
        instance, kind, timestamp, metadata and passages without message ids. An episode whose `raw_exchange` was edited
        is not written any more. Tombstoned ids and episodes all of whose `message_keys` are tombstoned are counted and
        not written.

        :param only_new: an existing id is kept and counts as unchanged.
        """
        outcomes = Counter[str]()
        for batch in by_rows(_storable(episodes), _rows):
            self._native.prepare(self._changed_texts(batch))
            outcomes.update(self._gateway.write(partial(self._put, written=batch, only_new=only_new)))
        return PutReport(**outcomes)

    def publish(self, publications: Sequence[Publication]) -> PutReport:
        """`put` the episodes of each, remove its surplus without a tombstone, and note its part as published, in one
        transaction. Nothing is done, or counted, of a part that is stored otherwise by now, or not at all, or whose
        summary is another: what it was made of may have been forgotten, or masked again, meanwhile.
        """
        outcomes = Counter[str]()
        ready = [replace(each, episodes=_storable(each.episodes)) for each in publications]
        for batch in by_rows(ready, lambda each: sum(map(_rows, each.episodes))):
            self._native.prepare(self._changed_texts([written for each in batch for written in each.episodes]))
            outcomes.update(self._gateway.write(partial(self._publish, publications=batch)))
        return PutReport(**outcomes)

    def create(self, episode: Episode, passages: Sequence[Passage], replaces: str | None = None) -> bool:
        """Write a new episode. Return True when it was created, False when the id exists with an equal `content_hash`.
        An id that was deleted with a tombstone may be created again by this explicit call, which lifts the tombstone.
        Former statements on its subject, and the episode that it `replaces`, are superseded by it.

        :raises EpisodeConflict: the id exists with other content.
        :raises EpisodeNotFound: what it replaces is not stored.
        """
        written = storable(episode), storable_passages(passages)
        episode_id = written[0].episode_id

        def work(tables: Tables) -> bool:
            stored = tables["episodes"].one({"episode_id": episode_id}, ["content_hash"])
            if stored is not None and stored["content_hash"] == written[0].content_hash:
                return False
            if stored is not None:
                raise EpisodeConflict(f"episode {episode_id} exists with other content; edit it, or choose another id")
            exclusion.lift_episode(tables, episode_id)
            write_episodes(tables, self._native, [written])
            settle_statement(tables, written[0], replaces, written[0].instance)
            events.note(tables, Happening.WRITE, [episode_id])
            return True

        return self._gateway.write(work)

    def replace(self, episode: Episode, passages: Sequence[Passage], expected_hash: str, cause: Cause = EDITED) -> None:
        """Write an edited episode (status and `superseded_by` included) if its stored hash is `expected_hash`.

        :param cause: of a change of its status.
        :raises EpisodeNotFound: no such id.
        :raises EpisodeConflict: it changed meanwhile.
        """
        episode, passages = storable(episode), storable_passages(passages)
        match = {"episode_id": episode.episode_id}

        def work(tables: Tables) -> None:
            row = tables["episodes"].one(match, (*EPISODE_FIELDS, "number", "edited"))
            if row is None:
                raise EpisodeNotFound(f"no episode {episode.episode_id}; it may have been deleted meanwhile")
            held = episode_of(row)
            if held.content_hash != expected_hash:
                raise EpisodeConflict(f"episode {episode.episode_id} changed meanwhile; read it again, then edit")
            edited = _EDITED if held.raw_exchange == episode.raw_exchange else _REWRITTEN
            write_episodes(tables, self._native, [(episode, passages)])
            if edited == _REWRITTEN and session_notes.is_told(held.kind):
                drop_session_records(tables, self._native, [(held.source, held.session_id)])
            now = tables["episodes"].one(match, STATUS_FIELDS) or row
            set_status(tables, [now], {episode.episode_id: (episode.status, episode.superseded_by)}, cause)
            tables["episodes"].update(match, {"edited": max(edited, row["edited"])})
            if statement_of(held.metadata).subject != statement_of(episode.metadata).subject:
                settle_statement(tables, episode, None, cause.by)
            if held.status not in HOLDING and episode.status in HOLDING:
                links.undo(tables, [episode.episode_id])
            events.note(tables, kind_of_edit(held, episode), [episode.episode_id])

        self._gateway.write(work)

    def get(self, episode_ids: Sequence[str]) -> dict[str, Episode]:
        """Return id -> episode, for those that exist."""
        with self._gateway.read() as tables:
            rows = tables["episodes"].among("episode_id", episode_ids, EPISODE_FIELDS)
            return {row["episode_id"]: episode_of(row) for row in rows}

    def heads(self, episode_ids: Sequence[str]) -> dict[str, EpisodeHead]:
        """Return what `get` does, without the texts: what it costs does not grow with them."""
        with self._gateway.read() as tables:
            rows = tables["episodes"].among("episode_id", episode_ids, HEAD_FIELDS)
            return {row["episode_id"]: head_of(row) for row in rows}

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        """Return the ids that begin with `prefix`, the first `limit` in their order."""
        match = {"episode_id": {"$gte": sought(prefix), "$lt": sought(prefix) + LAST_CHARACTER}}
        with self._gateway.read() as tables:
            rows = tables["episodes"].find(match, ["episode_id"], order=["episode_id"], limit=limit)
        return [row["episode_id"] for row in rows]

    def superseded_by(self, episode_id: str, limit: int) -> list[str]:
        """Return the ids of episodes that this one stands for, by id."""
        match = {"superseded_by": {"$eq": sought(episode_id), **NOT_EMPTY}}
        with self._gateway.read() as tables:
            rows = tables["episodes"].find(match, ["episode_id"], order=["episode_id"], limit=limit)
        return [row["episode_id"] for row in rows]

    def replaced_by(self, episode: Episode, replaces: str | None) -> list[str]:
        """Return the ids of the episodes whose place `create` would give to this one.

        :raises EpisodeNotFound: what it replaces is not stored.
        """
        with self._gateway.read() as tables:
            return replaced_ids(tables, storable(episode), replaces)

    def pinned_beside(self, episode: Episode) -> list[str]:
        """Return the ids of the pinned former statements that hold on its project and subject: none replaces them."""
        with self._gateway.read() as tables:
            return pinned_ids(tables, storable(episode))

    def delete(self, episode_id: str, *, tombstone: bool = True) -> bool:
        """Remove episode, passages, full-text rows and vectors of every space; the tombstone keeps the id and its
        message keys away from later ingests. Return False when there is no such id.
        """

        def work(tables: Tables) -> bool:
            stored = tables["episodes"].one({"episode_id": sought(episode_id)}, ["project", "message_keys"])
            if stored is None:
                return False
            events.note(tables, Happening.FORGET, [episode_id], stored["project"])
            if tombstone:
                exclusion.bury_episode(tables, episode_id, stored["message_keys"])
            else:  # the next ingest publishes it again
                tables["parts"].update({"part_id": episode_id}, {"published_hash": None})
            remove_episodes(tables, self._native, [episode_id])
            return True

        return self._gateway.write(work)

    def page(
        self, where: EpisodeFilter, limit: int, cursor: str | None = None, skip: int = 0, *, oldest_first: bool = False
    ) -> EpisodePage:
        """Return a page by (timestamp, id), newest first unless asked otherwise; a cursor belongs to the order it was
        got in.

        :raises InvalidEpisode: the cursor is not one of ours.
        """
        after = None
        if cursor is not None:
            when, episode_id = read_cursor(cursor)
            after = instant(when), episode_id
        with self._gateway.read() as tables:
            rows = self._native.page(tables, where, limit + 1, after, skip, oldest_first=oldest_first)
        items = [episode_of(row) for row in rows[:limit]]
        last = items[-1] if items and len(rows) > limit else None
        return EpisodePage(items, cursor_at(last.timestamp, last.episode_id) if last else None)

    def count(self, where: EpisodeFilter) -> int:
        """Count the episodes that pass the filter."""
        with self._gateway.read() as tables:
            return self._native.count(tables, where)

    def preceding(self, instance: str, project: str, before: datetime, since: datetime, limit: int) -> list[Episode]:
        """Return active episodes of source `direct` of the same instance and project with since <= timestamp < before
        (by timestamp, then insertion), the nearest last; typed records, which repeat another one, are left out.
        """
        match = {
            "instance": sought(instance),
            "project": sought(project),
            "timestamp": {"$gte": instant(since), "$lt": instant(before)},
            "source": "direct",
            "status": "active",
            "kind": {"$ne": "record"},
        }
        with self._gateway.read() as tables:
            rows = tables["episodes"].find(match, EPISODE_FIELDS, order=["-timestamp", "-number"], limit=limit)
        return [episode_of(row) for row in reversed(rows)]

    def passages(self, passage_ids: Sequence[int]) -> dict[int, StoredPassage]:
        """Return key -> passage, for those that are live."""
        with self._gateway.read() as tables:
            return {row["passage_id"]: passage_of(row) for row in tables["passages"].among("passage_id", passage_ids)}

    def passages_of(self, episode_id: str) -> list[StoredPassage]:
        """Return all passages of one episode, by ordinal."""
        with self._gateway.read() as tables:
            rows = tables["passages"].find({"episode_id": sought(episode_id)}, order=["ordinal"])
        return [passage_of(row) for row in rows]

    def track(self, episode_ids: Sequence[str], when: datetime, *, read: bool = False) -> None:
        """Count one retrieval of each, or (`read`) that each was read, opened or cited.

        :raises StoreBusy: others wrote for longer than an answer may wait to be counted.
        """
        counter = "read_count" if read else "retrieval_count"

        def work(tables: Tables, batch: Sequence[str]) -> None:
            match, change = {"episode_id": {"$in": list(batch)}}, {"last_retrieved": instant(when)}
            held = batch
            if tables["episodes"].update(match, change, add={counter: 1}) < len(batch):
                found = {row["episode_id"] for row in tables["episodes"].find(match, ["episode_id"])}
                held = [episode_id for episode_id in batch if episode_id in found]
            events.note(tables, Happening.READ, held)

        for batch in batches(list(filter(can_be_stored, dict.fromkeys(episode_ids)))):
            self._gateway.write(partial(work, batch=batch), within_s=TRACKED_S)

    def _changed_texts(self, written: Sequence[Written]) -> Iterator[str]:
        """Yield the texts of passages of those episodes that are stored otherwise. Nothing is read before the first."""
        ids = [episode.episode_id for episode, _ in written]
        with self._gateway.read() as tables:
            rows = tables["episodes"].among("episode_id", ids, ["episode_id", "stored_hash"])
            held = {row["episode_id"]: row["stored_hash"] for row in rows}
        for episode, passages in written:
            if held.get(episode.episode_id) != stored_hash(episode, passages):
                yield from (passage.text for passage in passages)

    def _put(self, tables: Tables, written: Sequence[Written], *, only_new: bool) -> list[str]:
        outcomes = put_episodes(tables, self._native, written, only_new=only_new)
        _note_written(tables, written, outcomes)
        return outcomes

    def _publish(self, tables: Tables, publications: Sequence[Publication]) -> list[str]:
        written: list[Written] = []
        outcomes: list[str] = []
        for run in _without_repeats(publications, lambda each: each.part.part_id):
            marked = mark_published(tables, [(each.part, each.summary) for each in run])
            current = [each for each in run if each.part.part_id in marked]
            remove_episodes(tables, self._native, [key for each in current for key in each.surplus])
            its = [one for each in current for one in each.episodes]
            done = put_episodes(tables, self._native, its)
            left = iter(done)
            outcomes_of = {each.part.part_id: [next(left) for _ in each.episodes] for each in current}
            sections = [each.part.part_id for each in current if each.part.section is not None]
            documents.note_new_episodes(tables, [key for key in sections if "created" in outcomes_of[key]])
            written, outcomes = [*written, *its], [*outcomes, *done]
        _note_written(tables, written, outcomes)
        return outcomes


# --- within a transaction --------------------------------------------------------------------------------


def put_episodes(tables: Tables, native: Native, written: Sequence[Written], *, only_new: bool = False) -> list[str]:
    """Do what `EpisodeRecords.put` does, without an event. Return the field of each in `PutReport`."""
    runs = _without_repeats(written, lambda each: each[0].episode_id)
    return [outcome for run in runs for outcome in _put(tables, native, run, only_new=only_new)]


def _put(tables: Tables, native: Native, written: Sequence[Written], *, only_new: bool) -> list[str]:
    """Write episodes that differ in their ids."""
    ids = [episode.episode_id for episode, _ in written]
    gone = exclusion.tombstoned(tables, [episode for episode, _ in written])
    stored = {
        row["episode_id"]: row
        for row in tables["episodes"].among("episode_id", ids, ["episode_id", "stored_hash", "edited"])
    }
    left = {*gone, *stored} if only_new else gone
    edited = [key for key, row in stored.items() if row["edited"] == _EDITED and key not in left]
    if edited:
        written = _with_edits(tables, written, edited)
    changed: list[Written] = []
    for episode, passages in written:
        row = stored.get(episode.episode_id)
        is_written = row is not None and (
            row["edited"] == _REWRITTEN or row["stored_hash"] == stored_hash(episode, passages)
        )
        if episode.episode_id not in left and not is_written:
            changed.append((episode, passages))
    if changed:
        write_episodes(tables, native, changed)
    are_written = {episode.episode_id for episode, _ in changed}
    outcomes: list[str] = []
    for key in ids:
        if key in are_written:
            outcomes.append("updated" if key in stored else "created")
        else:
            outcomes.append("tombstoned" if key in gone else "unchanged")
    return outcomes


def write_episodes(tables: Tables, native: Native, written: Sequence[Written]) -> None:
    """Insert or update by id, each id once, leaving status and counters of those that are stored alone. A merged
    episode goes when a text that it quotes becomes another, sessions are noted, and what was hidden stays so.
    """
    known = _drop_outdated_merges(tables, native, written)
    write_rows(tables, native, written)
    links.note(tables, [(episode.source, episode.session_id) for episode, _ in written])
    session_notes.note(tables, [(e.source, e.session_id) for e, _ in written if session_notes.is_told(e.kind)])
    if known:
        links.hide_again(tables, known.values())


def rewrite_episode(tables: Tables, native: Native, episode: Episode, passages: Sequence[Passage]) -> None:
    """Write an episode that is stored. A merged episode goes that quotes another text of it."""
    _drop_outdated_merges(tables, native, [(episode, passages)])
    write_rows(tables, native, [(episode, passages)])


def _drop_outdated_merges(tables: Tables, native: Native, written: Sequence[Written]) -> dict[str, Link]:
    """Remove merged episodes that quote another text than is about to be written. Return what links these had."""
    known = links.links_of(tables, [episode.episode_id for episode, _ in written])
    if known:
        merged = links.outdated(tables, known, {e.episode_id: e.raw_exchange for e, _ in written})
        remove_episodes(tables, native, merged)
        links.forget_merges(tables, merged)
    return known


def write_rows(tables: Tables, native: Native, written: Sequence[Written]) -> None:
    """Insert or update episodes with their passages by id, each id once; what is known of consolidation stays."""
    ids = [episode.episode_id for episode, _ in written]
    fields = ("episode_id", "number", "project", "own_project", "content_hash")
    held = {row["episode_id"]: row for row in tables["episodes"].among("episode_id", ids, fields)}
    aliases = read_aliases(tables)
    new: list[Row] = []
    changed: list[Row] = []
    for episode, passages in written:
        before = held.get(episode.episode_id)
        # one that is written back under the name that it is called keeps its own
        keeps = aliases and before is not None and before["project"] == episode.project
        own = before["own_project"] if before is not None and keeps else episode.project
        row = {
            "episode_id": episode.episode_id,
            "source": episode.source,
            "timestamp": instant(episode.timestamp),
            "instance": episode.instance,
            "own_project": own,
            "project": store_name(aliases, own),
            "kind": episode.kind,
            "summary": episode.summary,
            "raw_exchange": episode.raw_exchange,
            "tags": list(episode.tags),
            "machine": episode.machine,
            "path": episode.path,
            "session_id": episode.session_id,
            "message_ids": list(episode.message_ids),
            "message_keys": list(episode.message_keys),
            "metadata": as_json(dict(episode.metadata)),
            "passages": len(passages),
            "content_hash": episode.content_hash,
            "stored_hash": stored_hash(episode, passages),
        }
        if before is None:
            status = {"status": episode.status, "superseded_by": episode.superseded_by}
            new.append({**row, **status, **_FIRST})
        else:
            changed.append(row | {"number": before["number"]})
    first = tables["episodes"].insert(new)
    tables["episodes"].put(changed)
    note_subjects(tables, [episode for episode, _ in written], held.keys())
    number_of = {row["episode_id"]: first + place for place, row in enumerate(new)}
    number_of |= {row["episode_id"]: row["number"] for row in changed}
    wanted = {episode.episode_id: passages for episode, passages in written if episode.episode_id in held}
    kept: dict[str, dict[int, int]] = {}  # episode -> ordinal -> key
    gone: list[int] = []
    for stored in map(passage_of, tables["passages"].among("episode_id", wanted)):
        if stored.passage in wanted[stored.episode_id]:
            kept.setdefault(stored.episode_id, {})[stored.passage.ordinal] = stored.passage_id
        else:
            gone.append(stored.passage_id)
    if gone:
        tables["passages"].delete({"passage_id": {"$in": gone}})
    tables["passages"].insert(
        [
            {
                "episode_id": episode.episode_id,
                "ordinal": passage.ordinal,
                "text": passage.text,
                "context": passage.context,
                "message_ids": list(passage.message_ids),
            }
            for episode, passages in written
            for passage in passages
            if passage.ordinal not in kept.get(episode.episode_id, {})
        ]
    )
    lacking: list[Lacking] = []
    for episode, passages in written:
        old = list(kept.get(episode.episode_id, {}).values())
        lacking.append(
            Lacking(
                number_of[episode.episode_id],
                episode.episode_id,
                episode.source,
                instant(episode.timestamp),
                old,
                len(passages) - len(old),
            )
        )
    native.note_lacking(tables, lacking)
    note_changed(tables, [*new, *changed])
    other = [e for e, _ in written if e.episode_id in held and held[e.episode_id]["content_hash"] != e.content_hash]
    if other:
        texts = {episode.episode_id: f"{episode.summary}\n{episode.raw_exchange}" for episode in other}
        remove_episodes(tables, native, drop_unfounded(tables, texts))


def remove_episodes(tables: Tables, native: Native, episode_ids: Iterable[str]) -> None:
    """Remove those of these episodes that are stored, with their passages, vectors, and the questions that found them;
    no tombstone stays. What they stood for is active again, and merged episodes that quote them go.
    """
    fields = ("episode_id", "number", "session_id", "source", "kind")
    held = list(tables["episodes"].among("episode_id", episode_ids, fields))
    if not held:
        return
    ids = [row["episode_id"] for row in held]
    if merged := links.quoting(tables, ids):
        remove_episodes(tables, native, merged)
        links.forget_merges(tables, merged)
    links.note(tables, [(row["source"], row["session_id"]) for row in held])
    told = [(row["source"], row["session_id"]) for row in held if session_notes.is_told(row["kind"])]
    drop_session_records(tables, native, told)
    tables["episodes"].delete({"number": {"$in": [row["number"] for row in held]}})
    links.release(tables, ids)
    forget_history(tables, ids)
    forget_subjects(tables, ids)
    note_changed(tables, held)
    forget_mentions(tables, ids)
    remove_episodes(tables, native, forget_evidence(tables, ids))
    queries.remove_queries_of(tables, ids)
    chat.forget_messages_of(tables, ids)


def drop_session_records(tables: Tables, native: Native, of_sessions: Iterable[tuple[str, str]]) -> None:
    """Remove every revision of the records that these sessions (source, id) are in, with what an LLM said of them, and
    note all sessions that are in them: some of what the records tell is to be found no longer. Records that were
    imported go, too.
    """
    remove_episodes(tables, native, session_notes.withdraw_records(tables, of_sessions))


def _note_written(tables: Tables, written: Sequence[Written], outcomes: Sequence[str]) -> None:
    """Note one event about those that were created or updated."""
    pairs = zip(written, outcomes, strict=True)
    changed = [episode.episode_id for (episode, _), done in pairs if done in ("created", "updated")]
    events.note(tables, Happening.WRITE, changed)


def _with_edits(tables: Tables, written: Sequence[Written], edited: Sequence[str]) -> list[Written]:
    """Return what a log says now, with what a client edited of some: the fields, and the passages without a message."""
    rows = tables["episodes"].among("episode_id", edited, EPISODE_FIELDS)
    held = {row["episode_id"]: episode_of(row) for row in rows}
    said: dict[str, list[Passage]] = {}
    for row in sorted(tables["passages"].among("episode_id", edited), key=lambda row: int(row["ordinal"])):
        if not row["message_ids"]:
            said.setdefault(row["episode_id"], []).append(passage_of(row).passage)
    found: list[Written] = []
    for episode, passages in written:
        if (before := held.get(episode.episode_id)) is None:
            found.append((episode, passages))
            continue
        texts = {passage.text for passage in passages}
        both = [*passages, *(each for each in said.get(episode.episode_id, []) if each.text not in texts)]
        kept = replace(
            episode,
            summary=before.summary,
            tags=before.tags,
            project=before.project,
            instance=before.instance,
            kind=before.kind,
            timestamp=before.timestamp,
            metadata={**before.metadata, **{n: episode.metadata[n] for n in VALUE_FIELDS if n in episode.metadata}},
        )
        found.append((kept, [replace(passage, ordinal=n) for n, passage in enumerate(both)]))
    return found


def _storable(episodes: Sequence[Written]) -> list[Written]:
    return [(storable(episode), storable_passages(passages)) for episode, passages in episodes]


def _rows(written: Written) -> int:
    return 1 + len(written[1])


def _without_repeats(items: Sequence[T], key_of: Callable[[T], Hashable]) -> Iterator[list[T]]:
    """Yield runs of items that differ in their keys: the second of a key is to meet what the first one left."""
    run: dict[Hashable, T] = {}
    for item in items:
        if key_of(item) in run:
            yield list(run.values())
            run = {}
        run[key_of(item)] = item
    if run:
        yield list(run.values())
