"""Conversations in MongoDB."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from anamnesis_pipeline.chat_model import FORGOTTEN, ChatMessage, ChatSession
from anamnesis_pipeline.store.chat_base import (
    MESSAGE_FIELDS,
    SESSION_FIELDS,
    Cited,
    FeedbackCounts,
    SessionPage,
    cited_of,
    cut,
    message_row,
    messages_of,
    renamed,
    session_of,
    session_row,
)
from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.paging import cursor_at, read_cursor
from anamnesis_pipeline.store.values import instant, moment, sought

SESSIONS, MESSAGES = "chat_sessions", "chat_messages"
_CHANGE = ("backend", "model", "worker_url", "project", "updated_at")


class MongoChat:
    """See `ChatRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put_session(self, session: ChatSession) -> None:
        """See `ChatRecords.put_session`."""
        row = session_row(session)
        change = {name: row.pop(name) for name in _CHANGE}
        del row["session_id"]
        key = {"session_id": session.session_id}
        self._database.write(lambda tables: tables[SESSIONS].upsert(key, {"$set": change, "$setOnInsert": row}))

    def session(self, session_id: str) -> ChatSession | None:
        """See `ChatRecords.session`."""
        found = self._sessions({"session_id": session_id}, 1)
        return session_of(found[0], found[0]["messages"]) if found else None

    def sessions(self, limit: int, cursor: str | None = None, words: str = "") -> SessionPage:
        """See `ChatRecords.sessions`."""
        terms: list[Filter] = [{"title": {"$regex": re.escape(words), "$options": "i"}}] if words else []
        if cursor is not None:
            when, name = read_cursor(cursor)
            at = instant(when)
            terms.append({"$or": [{"updated_at": {"$lt": at}}, {"updated_at": at, "session_id": {"$lt": name}}]})
        rows, last = cut(self._sessions({"$and": terms} if terms else {}, limit + 1), limit)
        items = [session_of(row, row["messages"]) for row in rows]
        return SessionPage(items, cursor_at(moment(last[0]), last[1]) if last else None)

    def rename(self, session_id: str, title: str, when: datetime) -> bool:
        """See `ChatRecords.rename`."""
        key = {"session_id": session_id}

        def work(tables: Tables) -> bool:
            row = tables[SESSIONS].one(key, ("title", "name_history"))
            if row is not None and (change := renamed(row, title, when)):
                tables[SESSIONS].update(key, {"$set": change})
            return row is not None

        return self._database.write(work)

    def rewrite(self, session: ChatSession) -> None:
        """See `ChatRecords.rewrite`."""
        row = session_row(session)
        change = {name: row[name] for name in ("title", "project", "name_history")}
        self._database.write(
            lambda tables: tables[SESSIONS].update({"session_id": session.session_id}, {"$set": change})
        )

    def delete(self, session_id: str) -> bool:
        """See `ChatRecords.delete`."""

        def work(tables: Tables) -> bool:
            tables[MESSAGES].delete({"session_id": session_id})
            return tables[SESSIONS].delete({"session_id": session_id}) > 0

        return self._database.write(work)

    def add(self, message: ChatMessage) -> None:
        """See `ChatRecords.add`."""
        row = message_row(message)
        key, of_session = {"message_id": row.pop("message_id")}, {"session_id": message.session_id}

        def work(tables: Tables) -> None:
            if not tables[SESSIONS].has(of_session):
                return
            last = tables[MESSAGES].one(of_session, ("number",), order=[("number", -1)])
            first = {"number": (last["number"] if last else 0) + 1, "records_at": ""}
            tables[MESSAGES].upsert(key, {"$set": row, "$setOnInsert": first})
            tables[SESSIONS].update(of_session, {"$max": {"updated_at": row["at"]}})

        self._database.write(work)

    def forget(self, message_ids: Iterable[str]) -> None:
        """See `ChatRecords.forget`."""
        of_these = {"message_id": {"$in": sorted(message_ids)}}

        def work(tables: Tables) -> None:
            for session_id in _forget(tables, of_these):
                if not tables[MESSAGES].has({"session_id": session_id, "text": {"$ne": FORGOTTEN}}):
                    tables[MESSAGES].delete({"session_id": session_id})
                    tables[SESSIONS].delete({"session_id": session_id})

        self._database.write(work)

    def want_records(self, message_id: str, when: datetime | None) -> None:
        """See `ChatRecords.want_records`."""
        change = {"records_at": instant(when) if when else ""}
        self._database.write(lambda tables: tables[MESSAGES].update({"message_id": message_id}, {"$set": change}))

    def records_due(self, now: datetime, limit: int) -> list[str]:
        """See `ChatRecords.records_due`."""
        due = {"records_at": {"$gt": "", "$lte": instant(now)}}
        order = [("records_at", 1), ("message_id", 1)]

        def work(tables: Tables) -> list[str]:
            return [
                each["message_id"] for each in tables[MESSAGES].find(due, ("message_id",), order=order, limit=limit)
            ]

        return self._database.read(work)

    def messages(self, session_id: str) -> list[ChatMessage]:
        """See `ChatRecords.messages`."""
        return self._messages({"session_id": session_id}, [("number", 1)])

    def message(self, message_id: str) -> ChatMessage | None:
        """See `ChatRecords.message`."""
        found = self._messages({"message_id": message_id})
        return found[0] if found else None

    def rate(self, message_id: str, value: int) -> bool:
        """See `ChatRecords.rate`."""
        key = {"message_id": message_id, "role": "assistant"}

        def work(tables: Tables) -> bool:
            tables[MESSAGES].update(key, {"$set": {"feedback": value}})
            return tables[MESSAGES].has(key)

        return self._database.write(work)

    def feedback(self) -> FeedbackCounts:
        """See `ChatRecords.feedback`."""

        def work(tables: Tables) -> FeedbackCounts:
            return FeedbackCounts(*(tables[MESSAGES].count({"feedback": value}) for value in (1, -1)))

        return self._database.read(work)

    def cited_by(self, episode_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """See `ChatRecords.cited_by`."""
        wanted = {"episode_id": {"$in": list(map(sought, episode_ids))}}
        return cited_of(self._database.read(lambda tables: tables[MESSAGES].find(wanted, ("episode_id", "details"))))

    def rated(self, limit: int, after: ChatMessage | None = None) -> list[ChatMessage]:
        """See `ChatRecords.rated`."""
        behind: Filter = {}
        if after is not None:
            at = instant(after.at)
            behind = {"$or": [{"at": {"$lt": at}}, {"at": at, "message_id": {"$lt": after.message_id}}]}
        return self._messages({"feedback": {"$in": [1, -1]}, **behind}, [("at", -1), ("message_id", -1)], limit)

    def _sessions(self, where: Filter, limit: int) -> list[Document]:
        def work(tables: Tables) -> list[Document]:
            order = [("updated_at", -1), ("session_id", -1)]
            found = tables[SESSIONS].find(where, SESSION_FIELDS, order=order, limit=limit)
            of_these = {"$match": {"session_id": {"$in": [each["session_id"] for each in found]}}}
            counted = tables[MESSAGES].aggregate(
                [of_these, {"$group": {"_id": "$session_id", "messages": {"$sum": 1}}}]
            )
            messages = {each["_id"]: int(each["messages"]) for each in counted}
            return [{**each, "messages": messages.get(each["session_id"], 0)} for each in found]

        return self._database.snapshot(work)

    def _messages(
        self, where: Filter, order: Sequence[tuple[str, int]] = (), limit: int | None = None
    ) -> list[ChatMessage]:
        def work(tables: Tables) -> list[ChatMessage]:
            found = tables[MESSAGES].find(where, MESSAGE_FIELDS, order=list(order), limit=limit)
            return messages_of(found, lambda ids: _cited(tables, ids))

        return self._database.read(work)


def _cited(tables: Tables, episode_ids: Sequence[str]) -> Cited:
    found = tables["episodes"].among("_id", episode_ids, ("_id", "summary", "project"))
    return {each["_id"]: (each["summary"], each["project"]) for each in found}


def forget_messages_of(tables: Tables, episode_ids: Iterable[str]) -> None:
    """Take out of conversations what these episodes were made of, with the titles that came from it."""
    _forget(tables, {"episode_id": {"$in": sorted(episode_ids)}})


def _forget(tables: Tables, of_these: Filter) -> list[str]:
    """Take out what these messages say; their sessions."""
    found = tables[MESSAGES].find(of_these, ("message_id", "session_id", "number", "details"))
    titled = sorted({each["session_id"] for each in found if each["number"] == 1})
    if titled:
        gone = {"title": FORGOTTEN, "name_history": "[]"}
        tables[SESSIONS].update({"session_id": {"$in": titled}}, {"$set": gone})
    for each in found:
        change = {"text": FORGOTTEN, "details": _without_quotes(each["details"]), "records_at": ""}
        tables[MESSAGES].update({"message_id": each["message_id"]}, {"$set": change})
    return sorted({each["session_id"] for each in found})


def _without_quotes(details: str) -> str:
    """A message's details without what quotes other texts."""
    return json.dumps(json.loads(details) | {"citations": [], "files": []}, ensure_ascii=False, sort_keys=True)
