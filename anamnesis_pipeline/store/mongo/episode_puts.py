"""What becomes of an episode that is written, given what is there: tombstones, an equal one, one that was edited."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from anamnesis_pipeline.errors import EpisodeConflict, EpisodeNotFound
from anamnesis_pipeline.model import Episode, Passage, StoredPassage
from anamnesis_pipeline.store.base import Publication
from anamnesis_pipeline.store.episode_values import stored_hash
from anamnesis_pipeline.store.mongo import consolidation_docs
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.episode_docs import EPISODE_FIELDS, read_episode, set_status
from anamnesis_pipeline.store.mongo.episode_writes import (
    Written,
    drop_session_records,
    remove_episodes,
    write_episode,
    write_episodes,
)
from anamnesis_pipeline.store.mongo.passage_docs import passages_of
from anamnesis_pipeline.store.records import documents, events, forgetting
from anamnesis_pipeline.store.records.events import Happening, kind_of_edit
from anamnesis_pipeline.store.records.parts import mark_published
from anamnesis_pipeline.store.session_base import is_told

_EDITED, _REWRITTEN = 1, 2
"""A client edited fields of the episode; a client edited its raw text, too."""

T = TypeVar("T")


def put_episodes(tables: Tables, written: Sequence[Written], *, only_new: bool = False) -> list[str]:
    """Write episodes, or those of them whose ids are new; returns their fields in the report."""
    outcomes = _put_all(tables, written, only_new=only_new)
    _note_written(tables, written, outcomes)
    return outcomes


def publish_parts(tables: Tables, publications: Sequence[Publication]) -> list[str]:
    """Write the episodes of parts that are still what they were made of; returns the episodes' fields in the report."""
    written: list[Written] = []
    outcomes: list[str] = []
    for run in _without_repeats(publications, lambda each: each.part.part_id):
        marked = mark_published(MongoTables(tables), [(each.part, each.summary) for each in run])
        current = [each for each in run if each.part.part_id in marked]
        remove_episodes(tables, [episode_id for each in current for episode_id in each.surplus])
        its = [one for each in current for one in each.episodes]
        done = _put_all(tables, its)
        _note_sections(tables, current, done)
        written, outcomes = [*written, *its], [*outcomes, *done]
    _note_written(tables, written, outcomes)
    return outcomes


def replace_episode(tables: Tables, episode: Episode, passages: Sequence[Passage], expected_hash: str) -> None:
    """See `EpisodeRecords.replace`."""
    stored = tables["episodes"].one({"_id": episode.episode_id}, (*EPISODE_FIELDS, "edited"))
    if stored is None:
        raise EpisodeNotFound(f"no episode {episode.episode_id}; it may have been deleted meanwhile")
    held = read_episode(stored)
    if held.content_hash != expected_hash:
        raise EpisodeConflict(f"episode {episode.episode_id} changed meanwhile; read it again, then edit")
    edited = _EDITED if held.raw_exchange == episode.raw_exchange else _REWRITTEN
    write_episode(tables, episode, passages)
    if edited == _REWRITTEN and is_told(held.kind):
        drop_session_records(tables, [(held.source, held.session_id)])
    this = {"_id": episode.episode_id}
    set_status(tables, this, episode.status, episode.superseded_by)
    if (held.status, episode.status) == ("superseded", "active"):
        consolidation_docs.undo(tables, [episode.episode_id])
    tables["episodes"].update(this, {"$set": {"edited": max(edited, stored["edited"])}})
    events.note(MongoTables(tables), kind_of_edit(held, episode), [episode.episode_id])


def _put_all(tables: Tables, written: Sequence[Written], *, only_new: bool = False) -> list[str]:
    runs = _without_repeats(written, lambda each: each[0].episode_id)
    return [outcome for run in runs for outcome in _put(tables, run, only_new=only_new)]


def _put(tables: Tables, written: Sequence[Written], *, only_new: bool) -> Iterator[str]:
    """Write episodes that differ in their ids; yields their fields in the report."""
    gone = forgetting.tombstoned(MongoTables(tables), [episode for episode, _ in written])
    ids = [episode.episode_id for episode, _ in written]
    stored = {
        found["_id"]: found
        for found in tables["episodes"].find({"_id": {"$in": ids}}, ("_id", "stored_hash", "edited"))
    }
    left = {*gone, *stored} if only_new else gone
    edited = [key for key, found in stored.items() if found["edited"] == _EDITED and key not in left]
    wanted = _with_edits(tables, written, edited) if edited else written
    changed = [
        (episode, passages)
        for episode, passages in wanted
        if episode.episode_id not in left and _differs(stored.get(episode.episode_id), episode, passages)
    ]
    if changed:
        write_episodes(tables, changed)
    are_written = {episode.episode_id for episode, _ in changed}
    for key in ids:
        if key in are_written:
            yield "updated" if key in stored else "created"
        else:
            yield "tombstoned" if key in gone else "unchanged"


def _differs(stored: Document | None, episode: Episode, passages: Sequence[Passage]) -> bool:
    """Whether an episode is to be written over what is stored."""
    if stored is None:
        return True
    return bool(stored["edited"] != _REWRITTEN and stored["stored_hash"] != stored_hash(episode, passages))


def _note_written(tables: Tables, written: Sequence[Written], outcomes: Sequence[str]) -> None:
    """One event about those that were created or updated."""
    pairs = zip(written, outcomes, strict=True)
    ids = [episode.episode_id for (episode, _), done in pairs if done in ("created", "updated")]
    events.note(MongoTables(tables), Happening.WRITE, ids)


def _note_sections(tables: Tables, published: Sequence[Publication], outcomes: Sequence[str]) -> None:
    """Of documents, parts that have a new episode are to be settled."""
    left = iter(outcomes)
    for each in published:
        its = [next(left) for _ in each.episodes]
        if each.part.section is not None and "created" in its:
            documents.note_published(MongoTables(tables), each.part.part_id)


def _with_edits(tables: Tables, written: Sequence[Written], edited: Sequence[str]) -> list[Written]:
    """What a log says now, with what a client edited of some: the fields, and the passages that no message has."""
    held = {
        found["_id"]: read_episode(found) for found in tables["episodes"].find({"_id": {"$in": edited}}, EPISODE_FIELDS)
    }
    said = passages_of(tables, edited)
    return [
        _with_edit(held[key], said.get(key, []), episode, passages)
        if (key := episode.episode_id) in held
        else (episode, passages)
        for episode, passages in written
    ]


def _with_edit(
    held: Episode, stored: Sequence[StoredPassage], episode: Episode, passages: Sequence[Passage]
) -> Written:
    texts = {passage.text for passage in passages}
    said = [each.passage for each in stored if not each.passage.message_ids]
    both = [*passages, *(passage for passage in said if passage.text not in texts)]
    kept = replace(
        episode, summary=held.summary, tags=held.tags, project=held.project, instance=held.instance, kind=held.kind,
        timestamp=held.timestamp, metadata=held.metadata,
    )  # fmt: skip
    return kept, [replace(passage, ordinal=n) for n, passage in enumerate(both)]


def _without_repeats(items: Sequence[T], key_of: Callable[[T], Hashable]) -> Iterator[list[T]]:
    """Runs of items that differ in their keys: the second of a key is to meet what the first one left."""
    run: dict[Hashable, T] = {}
    for item in items:
        if key_of(item) in run:
            yield list(run.values())
            run = {}
        run[key_of(item)] = item
    if run:
        yield list(run.values())


# FIX
