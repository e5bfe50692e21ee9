"""What sessions were shown, and the latest of a project, in MongoDB."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.store import context_base
from anamnesis_pipeline.store.context_base import SESSION_EXPIRES, SessionMemory, Shown
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.episode_docs import EPISODE_FIELDS, read_episode
from anamnesis_pipeline.store.values import clean, indexed, instant, moment

_NEWEST_FIRST = (("timestamp", -1), ("_id", -1))


class MongoContext:
    """See `ContextRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def session(self, session_id: str) -> SessionMemory:
        """See `ContextRecords.session`."""
        of_session = {"session_id": clean(session_id)}

        def work(tables: Tables) -> SessionMemory:
            known = tables["context_sessions"].one(of_session, ["restarted_at"])
            shown = tables["context_shown"].find(of_session, ["episode_id", "passage_id"], order=[("number", 1)])
            return SessionMemory(
                tuple(Shown(each["episode_id"], each["passage_id"]) for each in shown),
                moment(known["restarted_at"]) if known and known["restarted_at"] else None,
            )

        return self._database.snapshot(work)

    def show(self, session_id: str, items: Sequence[Shown], when: datetime) -> set[str]:
        """See `ContextRecords.show`."""
        session_id, wanted = clean(session_id), dict[str, Shown]()
        for item in items:
            wanted.setdefault(clean(item.episode_id), item)

        def work(tables: Tables) -> set[str]:
            _note_session(tables, session_id, when)
            new = _note_shown(tables, session_id, wanted)
            _expire(tables, when)
            return {item.episode_id for item in new}

        return self._database.write(work)

    def restart(self, session_id: str, when: datetime) -> None:
        """See `ContextRecords.restart`."""
        session_id = clean(session_id)

        def work(tables: Tables) -> None:
            _note_session(tables, session_id, when, restarted_at=instant(when))
            tables["context_shown"].delete({"session_id": session_id})
            _expire(tables, when)

        self._database.write(work)

    def has_project(self, project: str) -> bool:
        """See `ContextRecords.has_project`."""
        return self._database.read(lambda tables: tables["episodes"].has({"project": indexed(project)}))

    def newest(self, project: str, kind: str, limit: int, before: datetime | None = None) -> list[Episode]:
        """See `ContextRecords.newest`."""
        earlier = {"timestamp": {"$lt": instant(before)}} if before is not None else {}
        where = {"project": indexed(project), "kind": clean(kind), "status": "active", **earlier}
        return self._database.read(lambda tables: _newest(tables, where, limit))

    def newest_tagged(self, project: str, tag: str, limit: int) -> list[Episode]:
        """See `ContextRecords.newest_tagged`."""
        tagged = {"tags": clean(tag)}
        wanted = {**tagged, "project": indexed(project), "status": "active"}

        def work(tables: Tables) -> list[Episode]:
            episodes = tables["episodes"]
            beyond = episodes.find(tagged, ["number"], order=[("number", -1)], skip=context_base.TAGGED_AMONG, limit=1)
            lately = {"number": {"$gt": beyond[0]["number"]}} if beyond else {}
            found = episodes.find({**wanted, **lately}, ["_id"], order=_NEWEST_FIRST, limit=limit)
            return _newest(tables, {"_id": {"$in": [each["_id"] for each in found]}}, limit)

        return self._database.snapshot(work)


def _newest(tables: Tables, where: Mapping[str, Any], limit: int) -> list[Episode]:
    return list(map(read_episode, tables["episodes"].find(where, EPISODE_FIELDS, order=_NEWEST_FIRST, limit=limit)))


def _note_session(tables: Tables, session_id: str, when: datetime, **fields: str) -> None:
    change: dict[str, Any] = {"$set": {"seen_at": instant(when), **fields}}
    if not fields:
        change["$setOnInsert"] = {"restarted_at": None}
    tables["context_sessions"].upsert({"session_id": session_id}, change)


def _note_shown(tables: Tables, session_id: str, wanted: Mapping[str, Shown]) -> list[Shown]:
    """Remember what of this the session has not seen, and forget its oldest; returns what is new."""
    shown = tables["context_shown"]
    seen = {each["episode_id"]: each["number"] for each in shown.find({"session_id": session_id})}
    last = max(seen.values(), default=0)
    new = [(episode_id, item) for episode_id, item in wanted.items() if episode_id not in seen]
    shown.insert(
        [
            {"session_id": session_id, "episode_id": episode_id, "number": number, "passage_id": item.passage_id}
            for number, (episode_id, item) in enumerate(new, last + 1)
        ]
    )
    last_to_go = last + len(new) - context_base.SHOWN_KEPT
    shown.delete({"session_id": session_id, "number": {"$lte": last_to_go}})
    return [item for _, item in new]


def _expire(tables: Tables, when: datetime) -> None:
    sessions = tables["context_sessions"]
    old = sessions.find({"seen_at": {"$lt": instant(when - SESSION_EXPIRES)}}, ["session_id"])
    more = sessions.find({}, ["session_id"], order=[("seen_at", -1)], skip=context_base.SESSIONS_KEPT)
    if gone := sorted({each["session_id"] for each in (*old, *more)}):
        for name in ("context_sessions", "context_shown"):
            tables[name].delete({"session_id": {"$in": gone}})
