"""Parse the messages of exported chats, by exporting program. A bad message does not affect the others."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from anamnesis_pipeline.model import SegmentKind, content_id, said_at
from anamnesis_pipeline.parsing.documents.plain import shortened

PAUSE = timedelta(minutes=30)
"""A longer silence between messages outside of threads begins a new turn."""
MAX_ATTACHED_CHARS = 1_000_000
"""Limit of the text of a file attached to a message."""


Way = tuple[str | int, ...]
_NOBODY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message; `key` is its ID in the export (`has_id`), or made from its text. A message without text still
    belongs to its turn. `way`: its path of keys and indexes in the export. `turned_away`: paths of the rejected
    alternatives, such as a former answer, and of the messages behind them; `ids_turned_away`: their IDs.
    """

    key: str
    kind: SegmentKind
    text: str
    timestamp: datetime | None
    way: Way
    has_id: bool = False
    turned_away: tuple[Way, ...] = ()
    ids_turned_away: tuple[str, ...] = ()


def _message(key: object, kind: SegmentKind, text: str, when: object, way: Way) -> ChatMessage:
    text = _encodable(text).strip()
    name = _encodable(str(key)) if key else content_id("chat", _encodable(str(when)), text)[:16]
    return ChatMessage(name, kind, text, _time(when), way, has_id=bool(key))


def _encodable(text: str) -> str:
    """Replace surrogate halves, which JSON may hold and no file can."""
    return text.encode("utf-8", "replace").decode()


def _time(when: object) -> datetime | None:
    """Parse seconds since 1970, as a number or a text, or ISO 8601."""
    try:
        if isinstance(when, str) and not re.fullmatch(r"\d{9,11}(\.\d+)?", when):
            return said_at(datetime.fromisoformat(when))
        return said_at(datetime.fromtimestamp(float(when), UTC))  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError, OSError):
        return None


# --- claude.ai -------------------------------------------------------------------------------------------


def claude_messages(exported: list[Any], way: Way) -> Iterator[ChatMessage]:
    """Yield the messages of a conversation of claude.ai, in order, with the text of their attachments."""
    for number, item in enumerate(exported):
        if not isinstance(item, dict):
            continue
        kind = SegmentKind.PROMPT if item.get("sender") == "human" else SegmentKind.STATEMENT
        said = [
            str(block.get("text") or "")
            for block in _listed(item, "content")
            if isinstance(block, dict) and block.get("type") == "text"
        ]
        texts = ["\n\n".join(text for text in said if text.strip()) or str(item.get("text") or "")]
        texts += [_attached(file) for file in _listed(item, "attachments") if isinstance(file, dict)]
        text = "\n\n".join(text for text in texts if text.strip())
        if not text:
            kind = SegmentKind.STATEMENT
        yield _message(item.get("uuid"), kind, text, item.get("created_at"), (*way, number))


def _listed(item: dict[str, Any], key: str) -> list[Any]:
    return item[key] if isinstance(item.get(key), list) else []


def _attached(file: dict[str, Any]) -> str:
    text = shortened(str(file.get("extracted_content") or ""), MAX_ATTACHED_CHARS)
    return f"[{file.get('file_name') or 'attachment'}]\n{text}".strip()


# --- ChatGPT ---------------------------------------------------------------------------------------------


def chatgpt_messages(mapping: dict[str, Any], current: object, way: Way) -> Iterator[ChatMessage]:
    """Yield the messages from the root to the current node; the user rejected the other branches."""
    branch = _branch(mapping, current)[::-1]
    aside = _turned_away(mapping, branch)
    for name in branch:
        node = mapping[name]
        message = node.get("message")
        if not isinstance(message, dict):
            continue
        author = message.get("author")
        role = author.get("role") if isinstance(author, dict) else ""
        is_shown = isinstance(role, str) and role in {"user", "assistant"} and not _hidden(message)
        text = _said(message.get("content")) if is_shown else ""
        kind = SegmentKind.PROMPT if role == "user" and text.strip() else SegmentKind.STATEMENT
        where = (*way, name, "message")
        found = _message(_id_of(node), kind, text, message.get("create_time"), where)
        others = aside.get(name, ())
        yield replace(
            found,
            turned_away=tuple((*way, other, "message") for other in others),
            ids_turned_away=tuple(_encodable(str(_id_of(mapping[other]))) for other in others),
        )


def _id_of(node: dict[str, Any]) -> object:
    return node["message"].get("id") or node.get("id")


def _turned_away(mapping: dict[str, Any], branch: list[str]) -> dict[str, list[str]]:
    """Return node of the branch -> nodes with a message on other branches that fork off before it, or behind the last
    one.
    """
    following, shown = dict(pairwise(branch)), set(branch)
    found: dict[str, list[str]] = {}
    for name, node in mapping.items():
        if name in shown or not isinstance(node, dict) or not isinstance(node.get("message"), dict):
            continue
        above: Any = name
        seen: set[str] = set()
        while isinstance(above, str) and above not in shown and above not in seen and above in mapping:
            seen.add(above)
            above = mapping[above].get("parent") if isinstance(mapping[above], dict) else None
        if isinstance(above, str) and above in shown:
            found.setdefault(following.get(above, above), []).append(name)
    return found


def _branch(mapping: dict[str, Any], current: object) -> list[str]:
    """Return the names of the nodes from the current one up to the root; without a current one, from the newest."""
    name = current if isinstance(current, str) and isinstance(mapping.get(current), dict) else _newest(mapping)
    found: list[str] = []
    seen: set[object] = set()
    while isinstance(name, str) and name not in seen and isinstance(mapping.get(name), dict):
        seen.add(name)
        found.append(name)
        name = mapping[name].get("parent")
    return found


def _newest(mapping: dict[str, Any]) -> str | None:
    times = {
        name: node["message"].get("create_time")
        for name, node in mapping.items()
        if isinstance(node, dict) and isinstance(node.get("message"), dict)
    }
    dated = {name: found for name, time in times.items() if (found := _time(time))}
    return max(dated, key=lambda name: dated[name], default=None)


def _hidden(message: dict[str, Any]) -> bool:
    metadata = message.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("is_visually_hidden_from_conversation"))


def _said(content: Any) -> str:
    if not isinstance(content, dict):
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
        return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())
    return content["text"] if isinstance(content.get("text"), str) else ""


# --- Slack -----------------------------------------------------------------------------------------------

_MENTION = re.compile(r"<@(\w+)(?:\|[^>]*)?>")


def slack_people(exported: Any) -> dict[str, str]:
    """Return ID -> name of each author, from the `users.json` of an export."""
    found = {}
    for user in exported if isinstance(exported, list) else ():
        if isinstance(user, dict) and isinstance(user.get("id"), str):
            profile = user["profile"] if isinstance(user.get("profile"), dict) else {}
            name = profile.get("display_name") or profile.get("real_name") or user.get("real_name") or user.get("name")
            found[user["id"]] = _encodable(str(name or user["id"]))
    return found


def slack_threads(exported: list[Any], way: Way, people: Mapping[str, str] = _NOBODY) -> list[list[ChatMessage]]:
    """Return the messages of a channel: each thread together, others split at a silence of half an hour.

    :param people: from `slack_people`; the author's name in a message has precedence.
    """
    messages = [
        (item, (*way, number))
        for number, item in enumerate(exported)
        if isinstance(item, dict) and str(item.get("text") or "").strip()
    ]
    names = {**people, **{str(item.get("user")): _name(item, people) for item, _ in messages}}
    threads: dict[str, list[ChatMessage]] = {}
    loose: list[list[ChatMessage]] = []
    for item, where in sorted(messages, key=lambda found: str(found[0].get("ts") or "")):
        text = _MENTION.sub(lambda found: "@" + names.get(found.group(1), found.group(1)), str(item["text"]))
        when, thread = item.get("ts"), item.get("thread_ts")
        told = _message(when, SegmentKind.STATEMENT, f"{_name(item, names)}: {text}", when, where)
        if thread:
            threads.setdefault(str(thread), []).append(told)
        elif loose and _soon(loose[-1][-1], told):
            loose[-1].append(told)
        else:
            loose.append([told])
    turns = sorted([*threads.values(), *loose], key=lambda turn: turn[0].key)
    return [[replace(turn[0], kind=SegmentKind.PROMPT), *turn[1:]] for turn in turns]


def _name(item: dict[str, Any], people: Mapping[str, str]) -> str:
    profile = item.get("user_profile")
    real = profile.get("real_name") or profile.get("name") if isinstance(profile, dict) else None
    user = str(item.get("user") or "")
    return str(real or people.get(user) or item.get("username") or user or "somebody")


def _soon(before: ChatMessage, after: ChatMessage) -> bool:
    if before.timestamp is None or after.timestamp is None:
        return True
    return after.timestamp - before.timestamp < PAUSE
