"""The contract of what a store keeps of conversations, and how their fields become rows."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from anamnesis_pipeline.chat_model import FORGOTTEN, SUMMARY_CHARS, ChatMessage, ChatSession, Citation, EarlierName
from anamnesis_pipeline.store.values import clean, instant, moment

SESSION_FIELDS = (
    "session_id", "title", "backend", "model", "worker_url", "project", "created_at", "updated_at", "name_history",
)  # fmt: skip
MESSAGE_FIELDS = ("message_id", "session_id", "number", "role", "text", "at", "episode_id", "feedback", "details")
_DETAILS = (
    "backend", "model", "seconds", "input_tokens", "output_tokens", "dollars", "stopped", "problem",
)  # fmt: skip
Cited = Mapping[str, tuple[str, str]]
"""Of episodes that are there: id -> summary, project."""


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


class ChatRecords(Protocol):
    """Sessions and their messages. What an episode is made of goes from its messages with the episode, whatever removes
    it: their text, and the title that was taken from the first one. Of what an answer cites only the ids are kept, so
    that no text of an episode outlives it here.
    """

    def put_session(self, session: ChatSession) -> None:
        """Write a new session, or backend, model, server, project and `updated_at` of one that is there."""

    def session(self, session_id: str) -> ChatSession | None:
        """One session; None: there is none."""

    def sessions(self, limit: int, cursor: str | None = None, words: str = "") -> SessionPage:
        """The sessions whose title holds `words`, in any case.

        :raises InvalidEpisode: the cursor is not one of ours.
        """

    def rename(self, session_id: str, title: str, when: datetime) -> bool:
        """Give another title, and keep the former one; False: there is no such session."""

    def rewrite(self, session: ChatSession) -> None:
        """Write title, project and earlier names of a session that is there, without noting another name."""

    def delete(self, session_id: str) -> bool:
        """Remove a session with its messages; False: there was none."""

    def add(self, message: ChatMessage) -> None:
        """Append a message to its session, which was used then, or write it anew under its id. Where the session is
        gone nothing is written.
        """

    def forget(self, message_ids: Iterable[str]) -> None:
        """Take out of these messages what was said, attached and cited, and of their sessions the titles that came from
        it. Where nothing else was said in a session, it goes.
        """

    def want_records(self, message_id: str, when: datetime | None) -> None:
        """Note when the records of an answer's round trip are to be looked for; None: not any more. The note goes with
        what was said.
        """

    def records_due(self, now: datetime, limit: int) -> list[str]:
        """Ids of answers whose records are to be looked for by now, those first that were due first."""

    def messages(self, session_id: str) -> list[ChatMessage]:
        """All of a session, in their order."""

    def message(self, message_id: str) -> ChatMessage | None:
        """One message; None: there is none."""

    def cited_by(self, episode_ids: Sequence[str]) -> dict[str, frozenset[str]]:
        """Episode of a round trip -> the episodes that its answer cites, for those that cite any."""

    def rate(self, message_id: str, value: int) -> bool:
        """Keep what somebody thinks of an answer (1, -1; 0: nothing any more); False: there is no such answer."""

    def feedback(self) -> FeedbackCounts:
        """Of all sessions."""

    def rated(self, limit: int, after: ChatMessage | None = None) -> list[ChatMessage]:
        """Answers with feedback, the newest first; only those behind `after`, the last of the page before."""


def session_row(session: ChatSession) -> dict[str, Any]:
    """The fields of a session as both stores keep them."""
    history = [{"title": clean(name.title), "until": instant(name.until)} for name in session.name_history]
    return {
        "session_id": session.session_id, "title": clean(session.title), "backend": session.backend,
        "model": session.model, "worker_url": session.worker_url, "project": clean(session.project),
        "created_at": instant(session.created_at),
        "updated_at": instant(session.updated_at), "name_history": json.dumps(history, ensure_ascii=False),
    }  # fmt: skip


def session_of(row: Mapping[str, Any], messages: int) -> ChatSession:
    """The inverse of `session_row`."""
    history = tuple(EarlierName(each["title"], moment(each["until"])) for each in json.loads(row["name_history"]))
    return ChatSession(
        row["session_id"], row["title"], row["backend"], row["model"], row["project"], moment(row["created_at"]),
        moment(row["updated_at"]), messages, history, row["worker_url"],
    )  # fmt: skip


def message_row(message: ChatMessage) -> dict[str, Any]:
    """The fields of a message as both stores keep them, without its `number`."""
    cited = [
        {
            "episode_id": each.episode_id,
            "score": each.score,
            "timestamp": instant(each.timestamp),
            "standing": each.standing,
        }
        for each in message.citations
    ]
    details = {name: getattr(message, name) for name in _DETAILS} | {
        "citations": cited, "files": [clean(name) for name in message.files],
    }  # fmt: skip
    return {
        "message_id": message.message_id, "session_id": message.session_id, "role": message.role,
        "text": clean(message.text), "at": instant(message.at), "episode_id": message.episode_id,
        "feedback": message.feedback, "details": json.dumps(details, ensure_ascii=False, sort_keys=True),
    }  # fmt: skip


def cited_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """As `ChatRecords.cited_by`, of rows with `episode_id` and `details`."""
    cited: dict[str, frozenset[str]] = {}
    for row in rows:
        ids = frozenset(each["episode_id"] for each in json.loads(row["details"])["citations"])
        cited[row["episode_id"]] = cited.get(row["episode_id"], frozenset()) | ids
    return {episode_id: ids for episode_id, ids in cited.items() if ids}


def messages_of(rows: Sequence[Mapping[str, Any]], look_up: Callable[[Sequence[str]], Cited]) -> list[ChatMessage]:
    """The inverse of `message_row`.

    :param look_up: finds episodes by their ids.
    """
    details = [json.loads(row["details"]) for row in rows]
    ids = dict.fromkeys(each["episode_id"] for one in details for each in one["citations"])
    found = look_up(list(ids)) if ids else {}
    return [_message_of(row, one, found) for row, one in zip(rows, details, strict=True)]


def _message_of(row: Mapping[str, Any], details: dict[str, Any], found: Cited) -> ChatMessage:
    cited = tuple(_citation_of(each, *found.get(each["episode_id"], (FORGOTTEN, ""))) for each in details["citations"])
    return ChatMessage(
        row["message_id"], row["session_id"], row["role"], row["text"], moment(row["at"]), cited,
        episode_id=row["episode_id"], feedback=row["feedback"], files=tuple(details["files"]),
        **{name: details[name] for name in _DETAILS},
    )  # fmt: skip


def _citation_of(kept: Mapping[str, Any], summary: str, project: str) -> Citation:
    return Citation(
        kept["episode_id"], summary[:SUMMARY_CHARS], project, moment(kept["timestamp"]), kept["score"],
        kept["standing"],
    )  # fmt: skip


def renamed(row: Mapping[str, Any], title: str, when: datetime) -> dict[str, Any]:
    """What changes of a session's row that gets another title."""
    if row["title"] == clean(title):
        return {}
    history = [*json.loads(row["name_history"]), {"title": row["title"], "until": instant(when)}]
    return {"title": clean(title), "name_history": json.dumps(history, ensure_ascii=False)}


def cut(rows: Sequence[Mapping[str, Any]], limit: int) -> tuple[Sequence[Mapping[str, Any]], tuple[str, str] | None]:
    """The rows of a page of which one more was asked for, and (updated_at, session_id) where the next one begins."""
    if len(rows) <= limit:
        return rows, None
    last = rows[limit - 1]
    return rows[:limit], (last["updated_at"], last["session_id"])
