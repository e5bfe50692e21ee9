"""Which sessions changed since their record was written, and which are one record, as documents."""

import re
from collections import Counter
from collections.abc import Collection, Iterable

from pymongo import UpdateOne

from anamnesis_pipeline.session_model import SESSION_KIND, episode_id_of
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.session_base import is_of_log
from anamnesis_pipeline.store.values import as_json

SESSION_FIELDS = ("source", "session_id", "noted", "root", "revision", "until", "branch")
FIRST = {"root": "", "revision": 0, "until": "", "branch": ""}
"""What a new one begins with."""

Key = tuple[str, str]
"""Source and session."""


def note(tables: Tables, sessions: Iterable[Key]) -> None:
    """Something of these sessions came, changed or went, as often as each is named."""
    counted = Counter(key for key in sessions if is_of_log(*key))
    tables["session_notes"].write([
        UpdateOne(_of(key), {"$inc": {"noted": times}, "$setOnInsert": FIRST}, upsert=True)
        for key, times in sorted(counted.items())
    ])  # fmt: skip


def in_record_with(tables: Tables, sessions: Collection[Key]) -> list[Document]:
    """The sessions that are in a record with any of these, and these, as far as they are known, with their machines."""
    if not sessions:
        return []
    machines = {each["key"]: each["machine"] for each in tables["sources"].find({}, ("key", "machine"))}
    found = tables["session_notes"].find({"$or": list(map(_of, sorted(sessions)))}, SESSION_FIELDS)
    records = {(machines.get(each["source"], ""), each["root"]) for each in found if each["root"]}
    others = tables["session_notes"].among("root", sorted({root for _, root in records}), SESSION_FIELDS)
    together = [each for each in others if (machines.get(each["source"], ""), each["root"]) in records]
    all_of_them = {(each["source"], each["session_id"]): each for each in (*found, *together)}
    return [each | {"machine": machines.get(each["source"], "")} for each in all_of_them.values()]


def record_ids(sessions: Iterable[Document], further: int = 0) -> list[str]:
    """Ids of the revisions of the records that begin in these sessions, which are as `in_record_with` has them.

    :param further: revisions beside those that were written.
    """
    return [
        episode_id_of(each["machine"], each["session_id"], number)
        for each in sessions
        for number in range(1, each["revision"] + 1 + further)
    ]


def imported_ids(tables: Tables, sessions: Iterable[Key]) -> list[str]:
    """Ids of records of sessions, with one of these among them, that are of a source which is no log."""
    return [
        each["_id"]
        for source, session_id in sorted(sessions)
        if session_id
        for each in tables["episodes"].find(
            {"source": source, "kind": SESSION_KIND, "metadata": {"$regex": re.escape(as_json(session_id))}}, ("_id",)
        )
    ]


def unfinished_sources(tables: Tables) -> set[str]:
    """Sources of logs with a session that is noted and of which no part grows."""
    noted = tables["session_notes"].aggregate([
        {"$match": {"noted": {"$gt": 0}}},
        {"$group": {"_id": "$source", "sessions": {"$addToSet": "$session_id"}}},
    ])  # fmt: skip
    logs = {each["key"] for each in tables["sources"].find({"kind": {"$regex": "^claude"}}, ("key",))}
    return {
        each["_id"]
        for each in noted
        if each["_id"] in logs
        and not set(each["sessions"]) <= set(tables["parts"].values("session_id", {"source": each["_id"], "closed": 0}))
    }


def _of(key: Key) -> dict[str, str]:
    return {"source": key[0], "session_id": key[1]}
