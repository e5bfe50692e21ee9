"""Conversations: sessions and their messages."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from anamnesis_pipeline.model import FORGOTTEN, SUMMARY_CHARS, ChatMessage, ChatSession, Citation, EarlierName
from anamnesis_pipeline.store.gateway import Gateway, Match, Order, Row, Tables, beyond
from anamnesis_pipeline.store.values import clean, cursor_at, instant, moment, read_cursor

SESSIONS, MESSAGES = "chat_sessions", "chat_messages"
_BY_USE = ("-updated_at", "-session_id")
_BY_RATING = ("-at", "-message_id")
_DETAILS = tuple("backend model seconds input_tokens output_tokens dollars stopped problem".split())


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, the one that was used last first; `next_cursor` is opaque, None at the end."""

    items: list[ChatSession]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class FeedbackCounts:
    """Answers that were found good, and bad."""

    up: int
    down: int


class ChatRecords:
    """Sessions and their messages.

    When an episode is removed, so are its text in the messages that it was made of, and the title taken from the first
    one. Of what an answer cites only the ids are kept, so that no text of an episode outlives it here.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def put_session(self, session: ChatSession) -> None:
        """Write a new session, or backend, model, server, project and `updated_at` of a present one."""
        row = _session_row(session)
        self._gateway.write(lambda tables: tables[SESSIONS].put([row], keep=("title", "created_at", "name_history")))

    def session(self, session_id: str) -> ChatSession | None:
        """Return one session; None: there is none."""
        found = self._sessions({"session_id": session_id}, 1)
        return found[0] if found else None

    def sessions(self, limit: int, cursor: str | None = None, words: str = "") -> SessionPage:
        """Return the sessions whose title contains `words`, in any case.

        :raises InvalidEpisode: the cursor is not one of ours.
        """
        match: dict[str, Any] = {"title": {"$contains": words}} if words else {}
        if cursor is not None:
            when, name = read_cursor(cursor)
            match |= beyond(_BY_USE, (instant(when), name))
        found = self._sessions(match, limit + 1)
        items, last = found[:limit], found[limit - 1] if len(found) > limit else None
        return SessionPage(items, cursor_at(last.updated_at, last.session_id) if last else None)

    def rename(self, session_id: str, title: str, when: datetime) -> bool:
        """Give another title, and keep the former one. Return False if there is no such session."""
        key = {"session_id": session_id}

        def work(tables: Tables) -> bool:
            row = tables[SESSIONS].one(key, ("title", "name_history"))
            if row is not None and row["title"] != clean(title):
                history = [*json.loads(row["name_history"]), {"title": row["title"], "until": instant(when)}]
                change = {"title": clean(title), "name_history": json.dumps(history, ensure_ascii=False)}
                tables[SESSIONS].update(key, change)
            return row is not None

        return self._gateway.write(work)

    def rewrite(self, session: ChatSession) -> None:
        """Write title, project and earlier names of a present session, without noting another name."""
        row = _session_row(session)
        change = {name: row[name] for name in ("title", "project", "name_history")}
        self._gateway.write(lambda tables: tables[SESSIONS].update({"session_id": session.session_id}, change))

    def delete(self, session_id: str) -> bool:
        """Remove a session with its messages. Return False if there was none."""
        return self._gateway.write(lambda tables: _delete(tables, [session_id])) > 0

    def add(self, message: ChatMessage) -> None:
        """Append a message to its session, which was used then, or replace the one of its id. If the session is gone,
        write nothing.
        """
        cited = [
            {"episode_id": c.episode_id, "score": c.score, "timestamp": instant(c.timestamp), "standing": c.standing}
            for c in message.citations
        ]
        details = {name: getattr(message, name) for name in _DETAILS}
        details |= {"citations": cited, "files": [clean(name) for name in message.files]}
        row = {
            "message_id": message.message_id,
            "session_id": message.session_id,
            "role": message.role,
            "text": clean(message.text),
            "at": instant(message.at),
            "episode_id": message.episode_id,
            "feedback": message.feedback,
            "details": json.dumps(details, ensure_ascii=False, sort_keys=True),
        }
        of_session = {"session_id": message.session_id}

        def work(tables: Tables) -> None:
            session = tables[SESSIONS].one(of_session, ("updated_at",))
            if session is None:
                return
            last = tables[MESSAGES].one(of_session, ("number",), order=("-number",))
            first = {"number": (last["number"] if last else 0) + 1, "records_at": ""}
            tables[MESSAGES].put([{**row, **first}], keep=tuple(first))
            tables[SESSIONS].update(of_session, {"updated_at": max(session["updated_at"], row["at"])})

        self._gateway.write(work)

    def forget(self, message_ids: Iterable[str]) -> None:
        """Remove the text, files and citations of these messages, and the titles that came from them. A session in
        which nothing else was said is removed.
        """
        of_these = {"message_id": {"$in": sorted(message_ids)}}

        def work(tables: Tables) -> None:
            sessions = _forget(tables, of_these)
            left = tables[MESSAGES].among("session_id", sessions, ["session_id"], text={"$ne": FORGOTTEN})
            _delete(tables, sorted(sessions - {row["session_id"] for row in left}))

        self._gateway.write(work)

    def want_records(self, message_id: str, when: datetime | None) -> None:
        """Note when to look for the records of an answer's round trip; None: never. `forget` removes the note."""
        change = {"records_at": instant(when) if when else ""}
        self._gateway.write(lambda tables: tables[MESSAGES].update({"message_id": message_id}, change))

    def records_due(self, now: datetime, limit: int) -> list[str]:
        """Return the ids of answers whose records are to be looked for by now, in the order of their times."""
        due = {"records_at": {"$gt": "", "$lte": instant(now)}}
        with self._gateway.read() as tables:
            rows = tables[MESSAGES].find(due, ("message_id",), order=("records_at", "message_id"), limit=limit)
        return [row["message_id"] for row in rows]

    def messages(self, session_id: str) -> list[ChatMessage]:
        """Return all messages of a session, in their order."""
        return self._messages({"session_id": session_id}, ("number",))

    def message(self, message_id: str) -> ChatMessage | None:
        """Return one message; None: there is none."""
        found = self._messages({"message_id": message_id})
        return found[0] if found else None

    def cited_by(self, episode_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Return episode of a round trip -> the episodes that its answer cites, for those that cite any."""
        cited: dict[str, frozenset[str]] = {}
        with self._gateway.read() as tables:
            for row in tables[MESSAGES].among("episode_id", episode_ids, ("episode_id", "details")):
                ids = frozenset(each["episode_id"] for each in json.loads(row["details"])["citations"])
                cited[row["episode_id"]] = cited.get(row["episode_id"], frozenset()) | ids
        return {episode_id: ids for episode_id, ids in cited.items() if ids}

    def rate(self, message_id: str, value: int) -> bool:
        """Keep the rating of an answer (1, -1; 0: none). Return False if there is no such answer."""
        answer = {"message_id": message_id, "role": "assistant"}
        return self._gateway.write(lambda tables: tables[MESSAGES].update(answer, {"feedback": value})) > 0

    def feedback(self) -> FeedbackCounts:
        """Count the ratings of all sessions."""
        with self._gateway.read() as tables:
            return FeedbackCounts(*(tables[MESSAGES].count({"feedback": value}) for value in (1, -1)))

    def rated(self, limit: int, after: ChatMessage | None = None) -> list[ChatMessage]:
        """Return answers with a rating, the newest first; only those after `after`, the last of the page before."""
        behind = beyond(_BY_RATING, (instant(after.at), after.message_id)) if after else {}
        return self._messages({"feedback": {"$in": [1, -1]}, **behind}, _BY_RATING, limit)

    def _sessions(self, match: Match, limit: int) -> list[ChatSession]:
        with self._gateway.snapshot() as tables:
            rows = tables[SESSIONS].find(match, order=_BY_USE, limit=limit)
            of_these = {"session_id": {"$in": [row["session_id"] for row in rows]}}
            counted = tables[MESSAGES].sums(of_these, by=("session_id",))
        messages = {row["session_id"]: row["rows"] for row in counted}
        return [
            ChatSession(
                row["session_id"],
                row["title"],
                row["backend"],
                row["model"],
                row["project"],
                moment(row["created_at"]),
                moment(row["updated_at"]),
                messages.get(row["session_id"], 0),
                tuple(EarlierName(each["title"], moment(each["until"])) for each in json.loads(row["name_history"])),
                row["worker_url"],
            )
            for row in rows
        ]

    def _messages(self, match: Match, order: Order = (), limit: int | None = None) -> list[ChatMessage]:
        with self._gateway.read() as tables:
            rows = tables[MESSAGES].find(match, order=order, limit=limit)
            details = [json.loads(row["details"]) for row in rows]
            cited = {each["episode_id"] for one in details for each in one["citations"]}
            episodes = tables["episodes"].among("episode_id", cited, ("episode_id", "summary", "project"))
            found = {row["episode_id"]: (row["summary"], row["project"]) for row in episodes}
        return [_message(row, its, found) for row, its in zip(rows, details, strict=True)]


def forget_messages_of(tables: Tables, episode_ids: Iterable[str]) -> None:
    """Remove from conversations what these episodes, which are being removed, were made of, with the titles that came
    from it.
    """
    _forget(tables, {"episode_id": {"$in": sorted(episode_ids)}})


def _forget(tables: Tables, match: Match) -> set[str]:
    """Remove what these messages say. Return the ids of their sessions."""
    found = tables[MESSAGES].find(match, ("message_id", "session_id", "number", "details"))
    titled = sorted({row["session_id"] for row in found if row["number"] == 1})
    if titled:
        tables[SESSIONS].update({"session_id": {"$in": titled}}, {"title": FORGOTTEN, "name_history": "[]"})
    for row in found:
        details = json.loads(row["details"]) | {"citations": [], "files": []}
        change = {
            "text": FORGOTTEN,
            "details": json.dumps(details, ensure_ascii=False, sort_keys=True),
            "records_at": "",
        }
        tables[MESSAGES].update({"message_id": row["message_id"]}, change)
    return {row["session_id"] for row in found}


def _delete(tables: Tables, session_ids: Sequence[str]) -> int:
    """Remove sessions with their messages. Return how many sessions there were."""
    of_these = {"session_id": {"$in": list(session_ids)}}
    tables[MESSAGES].delete(of_these)
    return tables[SESSIONS].delete(of_these)


def _session_row(session: ChatSession) -> dict[str, Any]:
    """Return a stored session."""
    history = [{"title": clean(name.title), "until": instant(name.until)} for name in session.name_history]
    return {
        "session_id": session.session_id,
        "title": clean(session.title),
        "backend": session.backend,
        "model": session.model,
        "worker_url": session.worker_url,
        "project": clean(session.project),
        "created_at": instant(session.created_at),
        "updated_at": instant(session.updated_at),
        "name_history": json.dumps(history, ensure_ascii=False),
    }


def _message(row: Row, details: dict[str, Any], found: Mapping[str, tuple[str, str]]) -> ChatMessage:
    """Return the message of a row. `found`: episode -> summary and project, of those that are there."""
    citations = []
    for each in details["citations"]:
        summary, project = found.get(each["episode_id"], (FORGOTTEN, ""))
        when = moment(each["timestamp"])
        citations.append(
            Citation(each["episode_id"], summary[:SUMMARY_CHARS], project, when, each["score"], each["standing"])
        )
    return ChatMessage(
        row["message_id"],
        row["session_id"],
        row["role"],
        row["text"],
        moment(row["at"]),
        tuple(citations),
        episode_id=row["episode_id"],
        feedback=row["feedback"],
        files=tuple(details["files"]),
        **{name: details[name] for name in _DETAILS},
    )
