"""Split exports of chats (claude.ai, ChatGPT, Slack) into a section per turn: a question with its answers."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anamnesis_pipeline.model import Section, SectionPiece, SegmentKind
from anamnesis_pipeline.parsing.documents.anchors import plain_title, told_apart
from anamnesis_pipeline.parsing.documents.chat_messages import (
    ChatMessage,
    Way,
    chatgpt_messages,
    claude_messages,
    slack_threads,
)

UNTITLED = "(untitled)"
"""Title of a conversation without one, or with a forgotten one."""
CHANNEL = "slack:"
"""Prefix of the session of a channel, before the channel's name."""
MAX_SESSION_CHARS = 200
_SEEN_CHARS = 200_000
_MARKS = re.compile(
    r'"chat_messages"\s*:\s*\[|"mapping"\s*:\s*\{|"ts"\s*:\s*"\d{9,11}\.\d+"|"current_node"\s*:', re.ASCII
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_UPLOAD = re.compile(r"[0-9a-f]{32}(-\d+)?")
_MESSAGES = ("chat_messages", "mapping", "messages")
_KEPT = frozenset(
    {
        *_MESSAGES,
        "uuid",
        "id",
        "conversation_id",
        "current_node",
        "channel",
        "channel_name",
        "create_time",
        "update_time",
        "created_at",
        "updated_at",
    }
)
"""Fields that stay of a partly forgotten conversation: not its title, nor its summary."""
_NOBODY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class _Conversation:
    title: str
    session: str
    turns: list[list[ChatMessage]]


def is_chat_export(text: str) -> bool:
    """Return whether JSON looks like an export of chats; reads only its beginning."""
    return text.lstrip()[:1] in {"[", "{"} and _MARKS.search(text, 0, _SEEN_CHARS) is not None


def chat_sections(path: str, text: str, people: Mapping[str, str] = _NOBODY) -> list[Section]:
    """Return a section of kind `exchange` per turn of each conversation in the export `text`; empty if it is no export.

    An unreadable item is left out without affecting the others. Anchors are the IDs of the turns' first messages.

    :param people: of Slack, see `chat_messages.slack_people`.
    """
    try:
        exported = json.loads(text)
    except (ValueError, RecursionError):
        return []
    name, last = path.rsplit("/", 1)[-1], text.count("\n") + 1
    found = [
        _section(name, talk, turn, last)
        for talk in _conversations(exported, _channel(path), people)
        for turn in talk.turns
    ]
    anchors = told_apart(section.anchor for section in found)
    return [replace(section, anchor=anchor) for section, anchor in zip(found, anchors, strict=True)]


def without_messages(exported: Any, ways: Iterable[Way]) -> Any:
    """Return an export without the content of some messages; their times stay, which determine the newest branch of a
    chat. The titles of their conversations are dropped, and so is a conversation without any message left.
    """
    holder: dict[str, Any] = {"": exported}
    talks: dict[Way, None] = {}
    for *outer, last in ways:
        around = _at(exported, outer)
        around[last] = {name: when for name, when in around[last].items() if name == "create_time"}
        inside = next((n for n, key in enumerate(outer) if key in _MESSAGES), None)
        if inside is not None:
            talks[tuple(outer[:inside])] = None
    for *outer, last in (("", *talk) for talk in talks):
        around = _at(holder, outer)
        is_channel = isinstance(around[last].get("messages"), list)  # its `name` is no title
        kept = _KEPT | {"name"} if is_channel else _KEPT
        left = {name: value for name, value in around[last].items() if name in kept}
        around[last] = left if any(talk.turns for talk in _conversations(left, "", _NOBODY)) else {}
    return holder[""]


def _at(exported: Any, way: Iterable[str | int]) -> Any:
    for key in way:
        exported = exported[key]
    return exported


def _channel(path: str) -> str:
    """Return the name of a Slack channel from the path of its file: its folder, if there is a file for each day."""
    folder, _, name = path.rpartition("/")
    stem, above = name.rsplit(".", 1)[0], folder.rpartition("/")[2]
    return above if _DAY.fullmatch(stem) and above and not _UPLOAD.fullmatch(above) else stem


def _conversations(exported: Any, name: str, people: Mapping[str, str]) -> Iterator[_Conversation]:
    """:param name: of a channel whose export lacks it."""
    items, ways = _items(exported)
    first = next((item for item in items if item != {}), None)  # a forgotten item is empty
    if isinstance(exported, list) and isinstance(first, dict) and "ts" in first and "text" in first:
        yield _channel_of(name, slack_threads(items, (), people))
        return
    for item, way in zip(items, ways, strict=True):
        if not isinstance(item, dict):
            continue
        title = plain_title(str(item.get("name") or item.get("title") or "")) or UNTITLED
        session = _named(str(item.get("uuid") or item.get("conversation_id") or item.get("id") or ""))
        if isinstance(item.get("chat_messages"), list):
            yield _Conversation(title, session, _turns(claude_messages(item["chat_messages"], (*way, "chat_messages"))))
        elif isinstance(item.get("mapping"), dict):
            messages = chatgpt_messages(item["mapping"], item.get("current_node"), (*way, "mapping"))
            yield _Conversation(title, session, _turns(messages))
        elif isinstance(item.get("messages"), list):
            channel = item.get("channel_name") or item.get("channel") or item.get("name") or name
            yield _channel_of(str(channel), slack_threads(item["messages"], (*way, "messages"), people))


def _channel_of(name: str, threads: list[list[ChatMessage]]) -> _Conversation:
    return _Conversation(plain_title(name), "" if _DAY.fullmatch(name) else _named(f"{CHANNEL}{name}"), threads)


def _named(session: str) -> str:
    """Return a name in the characters allowed for stored and typed IDs."""
    return " ".join(session.encode("utf-8", "replace").decode().split())[:MAX_SESSION_CHARS]


def _items(exported: Any) -> tuple[list[Any], list[Way]]:
    """Return the conversations or messages in an export, and the path to each."""
    if isinstance(exported, list):
        return exported, [(number,) for number in range(len(exported))]
    if isinstance(exported, dict) and isinstance(exported.get("conversations"), list):
        items = exported["conversations"]
        return items, [("conversations", number) for number in range(len(items))]
    return [exported], [()]


def _turns(messages: Iterable[ChatMessage]) -> list[list[ChatMessage]]:
    """Return the messages in order, split before each question. Leading messages without text, such as the program's
    own instructions, belong to the first one.
    """
    turns: list[list[ChatMessage]] = []
    for message in messages:
        if not turns or (message.kind is SegmentKind.PROMPT and _says_something(turns[-1])):
            turns.append([])
        turns[-1].append(message)
    return [turn for turn in turns if _says_something(turn)]


def _says_something(turn: list[ChatMessage]) -> bool:
    return any(message.text for message in turn)


def _section(name: str, talk: _Conversation, turn: list[ChatMessage], last: int) -> Section:
    said = [message for message in turn if message.text]
    pieces = tuple(
        SectionPiece(message.kind, message.text, message.timestamp, message.key if message.has_id else "")
        for message in said
    )
    return Section(
        said[0].key,
        (name, talk.title),
        pieces,
        1,
        last,
        "exchange",
        session=talk.session,
        values=tuple(way for message in turn for way in (message.way, *message.turned_away)),
        turned_away=tuple(key for message in turn for key in message.ids_turned_away),
    )
