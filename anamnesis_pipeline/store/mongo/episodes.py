"""Episodes, their passages and tombstones in MongoDB."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from anamnesis_pipeline.errors import EpisodeConflict
from anamnesis_pipeline.model import Episode, EpisodeHead, Passage, StoredPassage, Where
from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.base import EpisodePage, Publication, PutReport
from anamnesis_pipeline.store.batching import batches, by_rows
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.engine import MongoTables
from anamnesis_pipeline.store.mongo.episode_docs import (
    CHANGED_FIELDS,
    EPISODE_FIELDS,
    HEAD_FIELDS,
    change,
    read_episode,
    read_head,
    set_fields,
)
from anamnesis_pipeline.store.mongo.episode_puts import publish_parts, put_episodes, replace_episode
from anamnesis_pipeline.store.mongo.episode_writes import Written, remove_episode, write_episode
from anamnesis_pipeline.store.mongo.facets import of_episodes
from anamnesis_pipeline.store.mongo.passage_docs import PASSAGE_FIELDS, read_passage, terms_of
from anamnesis_pipeline.store.paging import cursor_after, read_cursor
from anamnesis_pipeline.store.records import events, forgetting
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.values import LAST_CHARACTER, instant, sought

EPISODES_PER_RENAME = 100
"""Episodes that one transaction gives another project: their passages and vectors are written with them."""
TRACKED_S = 2.0
"""How long an answer waits to be counted; a writer that was killed may hold the turn for a minute."""


class MongoEpisodes:
    """See `EpisodeRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, episodes: Sequence[Written], *, only_new: bool = False) -> PutReport:
        """See `EpisodeRecords.put`."""
        outcomes: Counter[str] = Counter()
        for batch in by_rows(_storable(episodes), _rows):
            self._prepare(batch)
            outcomes.update(self._database.write(partial(put_episodes, written=batch, only_new=only_new)))
        return PutReport(**outcomes)

    def publish(self, publications: Sequence[Publication]) -> PutReport:
        """See `EpisodeRecords.publish`."""
        outcomes: Counter[str] = Counter()
        ready = [replace(each, episodes=_storable(each.episodes)) for each in publications]
        for batch in by_rows(ready, lambda each: sum(map(_rows, each.episodes))):
            self._prepare([written for each in batch for written in each.episodes])
            outcomes.update(self._database.write(partial(publish_parts, publications=batch)))
        return PutReport(**outcomes)

    def create(self, episode: Episode, passages: Sequence[Passage]) -> bool:
        """See `EpisodeRecords.create`."""
        episode, passages = episode_values.storable(episode), episode_values.storable_passages(passages)

        def work(tables: Tables) -> bool:
            stored = tables["episodes"].one({"_id": episode.episode_id}, ("content_hash",))
            if stored is not None and stored["content_hash"] == episode.content_hash:
                return False
            if stored is not None:
                raise EpisodeConflict(
                    f"episode {episode.episode_id} exists with other content; edit it, or choose another id"
                )
            forgetting.lift(MongoTables(tables), episode.episode_id)
            write_episode(tables, episode, passages)
            events.note(MongoTables(tables), Happening.WRITE, [episode.episode_id])
            return True

        return self._database.write(work)

    def replace(self, episode: Episode, passages: Sequence[Passage], expected_hash: str) -> None:
        """See `EpisodeRecords.replace`."""
        episode, passages = episode_values.storable(episode), episode_values.storable_passages(passages)
        self._database.write(lambda tables: replace_episode(tables, episode, passages, expected_hash))

    def get(self, episode_ids: Sequence[str]) -> dict[str, Episode]:
        """See `EpisodeRecords.get`."""
        return {found["_id"]: read_episode(found) for found in self._find(episode_ids, EPISODE_FIELDS)}

    def heads(self, episode_ids: Sequence[str]) -> dict[str, EpisodeHead]:
        """See `EpisodeRecords.heads`."""
        return {found["_id"]: read_head(found) for found in self._find(episode_ids, HEAD_FIELDS)}

    def beginning_with(self, prefix: str, limit: int) -> list[str]:
        """See `EpisodeRecords.beginning_with`."""
        where = {"_id": {"$gte": sought(prefix), "$lt": sought(prefix) + LAST_CHARACTER}}
        rows = self._database.read(
            lambda tables: tables["episodes"].find(where, ["_id"], order=[("_id", 1)], limit=limit)
        )
        return [row["_id"] for row in rows]

    def superseded_by(self, episode_id: str, limit: int) -> list[str]:
        """See `EpisodeRecords.superseded_by`."""
        where = {"superseded_by": {"$eq": sought(episode_id), "$gt": ""}}  # as the index is defined
        rows = self._database.read(
            lambda tables: tables["episodes"].find(where, ["_id"], order=[("_id", 1)], limit=limit)
        )
        return [row["_id"] for row in rows]

    def delete(self, episode_id: str, *, tombstone: bool = True) -> bool:
        """See `EpisodeRecords.delete`."""
        return self._database.write(lambda tables: _delete(tables, episode_id, tombstone=tombstone))

    def page(
        self, where: Where, limit: int, cursor: str | None = None, skip: int = 0, *, oldest_first: bool = False
    ) -> EpisodePage:
        """See `EpisodeRecords.page`."""
        way = 1 if oldest_first else -1
        wanted = {"$and": [of_episodes(where), _beyond(cursor, "$gt" if oldest_first else "$lt")]}
        order = [("timestamp", way), ("_id", way)]
        found = self._database.read(
            lambda tables: tables["episodes"].find(wanted, EPISODE_FIELDS, order=order, limit=limit + 1, skip=skip)
        )
        items = [read_episode(document) for document in found[:limit]]
        return EpisodePage(items, cursor_after(items[-1]) if len(found) > limit and items else None)

    def sessions_beginning(self, prefix: str, limit: int) -> list[str]:
        """See `EpisodeRecords.sessions_beginning`."""
        first = sought(prefix)
        stages: list[Document] = [
            {"$match": {"session_id": {"$gte": first, "$lt": first + LAST_CHARACTER}}},
            {"$group": {"_id": "$session_id"}},
            {"$sort": {"_id": 1}},
            {"$limit": limit},
        ]
        return [each["_id"] for each in self._database.read(lambda tables: tables["episodes"].aggregate(stages))]

    def count(self, where: Where) -> int:
        """See `EpisodeRecords.count`."""
        wanted = of_episodes(where)
        return self._database.read(lambda tables: tables["episodes"].count(wanted))

    def projects(self) -> list[str]:
        """See `EpisodeRecords.projects`."""
        return self._database.read(lambda tables: tables["episodes"].values("project", {}))

    def project_names(self) -> list[tuple[str, str, int]]:
        """See `EpisodeRecords.project_names`."""
        names = {"own": "$own_project", "called": "$project"}
        stages: list[Document] = [
            {"$match": {"own_project": {"$gte": ""}}},
            {"$group": {"_id": names, "episodes": {"$sum": 1}}},
        ]
        found = self._database.read(lambda tables: tables["episodes"].aggregate(stages))
        return sorted((each["_id"]["own"], each["_id"]["called"], each["episodes"]) for each in found)

    def call_project(self, own: str, name: str) -> int:
        """See `EpisodeRecords.call_project`."""
        return self._set_project("project", own, name)

    def rename_project(self, own: str, name: str) -> int:
        """See `EpisodeRecords.rename_project`."""
        return self._set_project("own_project", own, name)

    def _set_project(self, field: str, own: str, name: str) -> int:
        def work(tables: Tables) -> int:
            others = {"$and": [{"own_project": own}, {field: {"$ne": name}}]}
            ids = [found["_id"] for found in tables["episodes"].find(others, ("_id",), limit=EPISODES_PER_RENAME)]
            return set_fields(tables, {"_id": {"$in": ids}}, {field: name}) if ids else 0

        changed, last = 0, EPISODES_PER_RENAME
        while last == EPISODES_PER_RENAME:
            last = self._database.write(work)
            changed += last
        return changed

    def preceding(self, instance: str, project: str, before: datetime, since: datetime, limit: int) -> list[Episode]:
        """See `EpisodeRecords.preceding`."""
        where = {
            "instance": sought(instance),
            "project": sought(project),
            "timestamp": {"$gte": instant(since), "$lt": instant(before)},
            "source": "direct",
            "status": "active",
            "kind": {"$ne": "record"},
        }
        order = [("timestamp", -1), ("number", -1)]
        found = self._database.read(
            lambda tables: tables["episodes"].find(where, EPISODE_FIELDS, order=order, limit=limit)
        )
        return [read_episode(document) for document in reversed(found)]

    def passages(self, passage_ids: Sequence[int]) -> dict[int, StoredPassage]:
        """See `EpisodeRecords.passages`."""
        found = self._database.read(lambda tables: list(tables["passages"].among("_id", passage_ids, PASSAGE_FIELDS)))
        return {stored.passage_id: stored for stored in map(read_passage, found)}

    def passages_of(self, episode_id: str) -> list[StoredPassage]:
        """See `EpisodeRecords.passages_of`."""
        order = [("ordinal", 1)]
        found = self._database.read(
            lambda tables: tables["passages"].find({"episode_id": sought(episode_id)}, PASSAGE_FIELDS, order=order)
        )
        return list(map(read_passage, found))

    def track(self, episode_ids: Sequence[str], when: datetime, *, read: bool = False) -> None:
        """See `EpisodeRecords.track`."""
        for batch in batches(sorted(set(episode_ids))):
            self._database.write(partial(_track, episode_ids=batch, when=instant(when), read=read), within_s=TRACKED_S)

    def _prepare(self, written: Sequence[Written]) -> None:
        """Work out the terms of what will be written, as far as can be told before the turn."""
        held = {found["_id"]: found["stored_hash"] for found in self._find(_ids(written), ("_id", "stored_hash"))}
        for episode, passages in written:
            if held.get(episode.episode_id) != episode_values.stored_hash(episode, passages):
                for passage in passages:
                    terms_of(passage.text)

    def _find(self, episode_ids: Sequence[str], fields: Sequence[str]) -> list[Document]:
        return self._database.read(lambda tables: list(tables["episodes"].among("_id", episode_ids, fields)))


def _storable(episodes: Sequence[Written]) -> list[Written]:
    return [
        (episode_values.storable(episode), episode_values.storable_passages(passages)) for episode, passages in episodes
    ]


def _ids(written: Sequence[Written]) -> list[str]:
    return [episode.episode_id for episode, _ in written]


def _rows(written: Written) -> int:
    """Rows of an episode."""
    return 1 + len(written[1])


def _delete(tables: Tables, episode_id: str, *, tombstone: bool) -> bool:
    if not tables["episodes"].has({"_id": sought(episode_id)}):
        return False
    events.note(MongoTables(tables), Happening.FORGET, [episode_id])
    if tombstone:
        forgetting.bury_episode(MongoTables(tables), episode_id)
    else:  # the next ingest publishes it again
        MongoTables(tables)["parts"].update({"part_id": episode_id}, {"published_hash": None})
    remove_episode(tables, episode_id)
    return True


def _track(tables: Tables, episode_ids: Sequence[str], when: str, *, read: bool) -> None:
    counter = "read_count" if read else "retrieval_count"
    held = sorted(tables["episodes"].among("_id", episode_ids, CHANGED_FIELDS), key=lambda each: str(each["_id"]))
    change(tables, held, lambda each: {counter: each[counter] + 1, "last_retrieved": when})
    events.note(MongoTables(tables), Happening.READ, [each["_id"] for each in held])


def _beyond(cursor: str | None, operator: str) -> Filter:
    """What lies behind a cursor, in the order that goes with `$gt` or `$lt`."""
    if cursor is None:
        return {}
    when, episode_id = read_cursor(cursor)
    at = instant(when)
    return {
        "timestamp": {f"{operator}e": at},
        "$or": [{"timestamp": {operator: at}}, {"timestamp": at, "_id": {operator: episode_id}}],
    }
