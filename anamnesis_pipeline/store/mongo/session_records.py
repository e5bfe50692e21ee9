"""Sessions and their records in MongoDB."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from pymongo import DeleteOne, UpdateOne

from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.episode_docs import set_status
from anamnesis_pipeline.store.mongo.episode_puts import put_episodes
from anamnesis_pipeline.store.mongo.episode_writes import drop_session_records, remove_episodes
from anamnesis_pipeline.store.mongo.session_docs import FIRST, SESSION_FIELDS, in_record_with, record_ids
from anamnesis_pipeline.store.session_base import File, NewRecord, SessionState
from anamnesis_pipeline.store.values import clean


class MongoSessions:
    """See `SessionRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def changed(self, source: str, after: str, limit: int) -> list[str]:
        """See `SessionRecords.changed`."""

        def work(tables: Tables) -> list[str]:
            still_open = tables["parts"].values("session_id", {"source": source, "closed": 0})
            where = {"source": source, "noted": {"$gt": 0}, "session_id": {"$gt": after, "$nin": still_open}}
            order = [("session_id", 1)]
            return [
                each["session_id"]
                for each in tables["session_notes"].find(where, ("session_id",), order=order, limit=limit)
            ]

        return self._database.read(work)

    def states(self, session_ids: Iterable[str]) -> list[SessionState]:
        """See `SessionRecords.states`."""
        return self._database.snapshot(partial(_states, session_ids=list(session_ids)))

    def told(self, source: str, session_id: str) -> list[str]:
        """See `SessionRecords.told`."""

        def work(tables: Tables) -> list[str]:
            where = {"session_id": session_id, "source": source, "held_by": None}
            order = [("started_at", 1), ("path", 1), ("ordinal", 1), ("part_id", 1)]
            ids = [part["part_id"] for part in tables["parts"].find(where, ("part_id",), order=order)]
            published = {
                each["_id"] for each in tables["episodes"].among("_id", ids, ("_id", "edited")) if each["edited"] < 2
            }
            return [part_id for part_id in ids if part_id in published]

        return self._database.snapshot(work)

    def copied(self, files: Iterable[File], limit: int) -> list[str]:
        """See `SessionRecords.copied`."""

        def work(tables: Tables) -> list[str]:
            found: list[str] = []
            for source, path in sorted(set(files)):
                where = {"source": source, "path": path, "message_key": {"$regex": "^(f:)?u:"}}
                rows = tables["occurrences"].find(
                    where, ("message_key",), order=[("line", 1)], limit=limit - len(found)
                )
                found += [row["message_key"] for row in rows]
            return found

        return self._database.read(work)

    def sessions_of(self, files: Iterable[File]) -> dict[File, set[str]]:
        """See `SessionRecords.sessions_of`."""

        def work(tables: Tables) -> dict[File, set[str]]:
            return {
                file: set(tables["parts"].values("session_id", {"source": file[0], "path": file[1], "agent_id": ""}))
                for file in set(files)
            }

        return self._database.read(work)

    def note_branches(self, source: str, branches: Mapping[str, str]) -> None:
        """See `SessionRecords.note_branches`."""
        first = {name: value for name, value in FIRST.items() if name != "branch"} | {"noted": 0}
        for batch in batches(sorted(branches.items())):
            writes = [
                UpdateOne(
                    {"source": source, "session_id": session_id},
                    {"$set": {"branch": clean(branch)}, "$setOnInsert": first},
                    upsert=True,
                )
                for session_id, branch in batch
            ]
            self._database.write(partial(_write, writes=writes))

    def join(self, members: Sequence[SessionState], root: str) -> bool:
        """See `SessionRecords.join`."""

        def work(tables: Tables) -> bool:
            if not _are_as_they_were(tables, members):
                return False
            own = {member.key for member in members}
            left = {(each["source"], each["session_id"]) for each in in_record_with(tables, own)} - own
            if left:
                drop_session_records(tables, [member.key for member in members])
                _change(tables, left, {"$set": {"root": ""}, "$inc": {"noted": 1}})
            _change(tables, [member.key for member in members], {"$set": {"root": root}})
            return True

        return self._database.write(work)

    def settle(self, members: Sequence[SessionState], record: NewRecord | None, gone: Sequence[SessionState]) -> bool:
        """See `SessionRecords.settle`."""

        def work(tables: Tables) -> bool:
            if not _are_as_they_were(tables, [*members, *gone]):
                return False
            if record is not None:
                _write_record(tables, members, record)
            if gone:
                remove_episodes(tables, _records_of(tables, gone))
            tables["session_notes"].write([DeleteOne(_of(member.key)) for member in gone])
            _change(tables, [member.key for member in members], {"$set": {"noted": 0}})
            return True

        return self._database.write(work)


def _states(tables: Tables, session_ids: Sequence[str]) -> list[SessionState]:
    own = list(tables["session_notes"].among("session_id", session_ids, SESSION_FIELDS))
    roots = {each["root"] for each in own} - {""}
    found = {
        (each["source"], each["session_id"]): each
        for each in (*own, *tables["session_notes"].among("root", roots, SESSION_FIELDS))
    }
    still_open = {
        (part["source"], part["session_id"])
        for part in tables["parts"].among("source", {source for source, _ in found}, ("source", "session_id"), closed=0)
    }
    return [SessionState(**each, is_open=key in still_open) for key, each in sorted(found.items())]


def _are_as_they_were(tables: Tables, members: Sequence[SessionState]) -> bool:
    """Whether nothing happened to these since they were read."""
    if not members:
        return True
    found: list[Document] = tables["session_notes"].find(
        {"$or": [_of(member.key) for member in members]}, ("source", "session_id", "noted", "branch")
    )
    held = {(each["source"], each["session_id"]): (each["noted"], each["branch"]) for each in found}
    return all(held.get(member.key) == (member.noted, member.branch) for member in members)


def _write_record(tables: Tables, members: Sequence[SessionState], record: NewRecord) -> None:
    episode = episode_values.storable(record.episode)
    (outcome,) = put_episodes(tables, [(episode, episode_values.storable_passages(record.passages))])
    former = [key for key in _records_of(tables, members) if key != episode.episode_id]
    if outcome != "tombstoned" and former:
        set_status(tables, {"_id": {"$in": former}, "status": "active"}, "superseded", episode.episode_id)
    _change(tables, [record.root.key], {"$set": {"revision": record.revision, "until": record.until}})


def _records_of(tables: Tables, members: Sequence[SessionState]) -> list[str]:
    """Ids of the revisions of the records that begin in these."""
    own = {member.key for member in members}
    return record_ids(each for each in in_record_with(tables, own) if (each["source"], each["session_id"]) in own)


def _change(tables: Tables, keys: Iterable[tuple[str, str]], change: Document) -> None:
    _write(tables, [UpdateOne(_of(key), change) for key in keys])


def _write(tables: Tables, writes: Sequence[UpdateOne]) -> None:
    tables["session_notes"].write(writes)


def _of(key: tuple[str, str]) -> dict[str, str]:
    return {"source": key[0], "session_id": key[1]}
