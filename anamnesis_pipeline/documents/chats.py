"""Exports of chats (claude.ai, ChatGPT, Slack) -> a section per turn: a question with the answers up to the next."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from anamnesis_pipeline.document_model import Section, SectionPiece
from anamnesis_pipeline.documents.anchors import plain_title, told_apart
from anamnesis_pipeline.documents.chat_messages import (
    ChatMessage,
    Way,
    chatgpt_messages,
    claude_messages,
    slack_threads,
)
from anamnesis_pipeline.model import SegmentKind

_SEEN_CHARS = 200_000
_MARKS = re.compile(
    r'"chat_messages"\s*:\s*\[|"mapping"\s*:\s*\{|"ts"\s*:\s*"\d{9,11}\.\d+"|"current_node"\s*:', re.ASCII
)


@dataclass(frozen=True, slots=True)
class _Conversation:
    title: str
    turns: list[list[ChatMessage]]


def is_chat_export(text: str) -> bool:
    """Whether JSON looks like an export of chats; reads only its beginning."""
    return text.lstrip()[:1] in {"[", "{"} and _MARKS.search(text, 0, _SEEN_CHARS) is not None


def chat_sections(name: str, text: str) -> list[Section]:
    """A section of kind `exchange` per turn of each conversation in the export `text`; empty if it is none after all.

    What is unreadable in it is left out, and costs nothing but itself. Anchors are the ids of turns' first messages.
    """
    try:
        exported = json.loads(text)
    except (ValueError, RecursionError):
        return []
    last = text.count("\n") + 1
    found = [_section(name, talk.title, turn, last) for talk in _conversations(exported, name) for turn in talk.turns]
    anchors = told_apart(section.anchor for section in found)
    return [replace(section, anchor=anchor) for section, anchor in zip(found, anchors, strict=True)]


def _conversations(exported: Any, name: str) -> Iterator[_Conversation]:
    items, ways = _items(exported)
    first = next((item for item in items if item != {}), None)  # what was forgotten is empty
    if isinstance(exported, list) and isinstance(first, dict) and "ts" in first and "text" in first:
        yield _Conversation(name.rsplit(".", 1)[0], slack_threads(items, ()))
        return
    for item, way in zip(items, ways, strict=True):
        if not isinstance(item, dict):
            continue
        title = plain_title(str(item.get("name") or item.get("title") or "")) or "(untitled)"
        if isinstance(item.get("chat_messages"), list):
            yield _Conversation(title, _turns(claude_messages(item["chat_messages"], (*way, "chat_messages"))))
        elif isinstance(item.get("mapping"), dict):
            messages = chatgpt_messages(item["mapping"], item.get("current_node"), (*way, "mapping"))
            yield _Conversation(title, _turns(messages))
        elif isinstance(item.get("messages"), list):
            channel = item.get("channel_name") or item.get("channel") or item.get("name") or name.rsplit(".", 1)[0]
            yield _Conversation(plain_title(str(channel)), slack_threads(item["messages"], (*way, "messages")))


def _items(exported: Any) -> tuple[list[Any], list[Way]]:
    """The conversations or messages in an export, and the way to each."""
    if isinstance(exported, list):
        return exported, [(number,) for number in range(len(exported))]
    if isinstance(exported, dict) and isinstance(exported.get("conversations"), list):
        items = exported["conversations"]
        return items, [("conversations", number) for number in range(len(items))]
    return [exported], [()]


def _turns(messages: Iterable[ChatMessage]) -> list[list[ChatMessage]]:
    """The messages in order, cut before each question that follows an answer or begins."""
    turns: list[list[ChatMessage]] = []
    for message in messages:
        if message.kind is SegmentKind.PROMPT or not turns:
            turns.append([])
        turns[-1].append(message)
    return [turn for turn in turns if any(message.text for message in turn)]


def _section(name: str, title: str, turn: list[ChatMessage], last: int) -> Section:
    said = [message for message in turn if message.text]
    pieces = tuple(SectionPiece(message.kind, message.text, message.timestamp) for message in said)
    ways = tuple(way for message in turn for way in (message.way, *message.turned_away))
    return Section(said[0].key, (name, title), pieces, 1, last, "exchange", values=ways)
