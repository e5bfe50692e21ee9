import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.model import Section, SegmentKind
from anamnesis_pipeline.parsing.documents.chats import chat_sections, is_chat_export
from anamnesis_pipeline.parsing.documents.sections import sections_of

PROMPT, STATEMENT = SegmentKind.PROMPT, SegmentKind.STATEMENT


def claude_message(uuid: str, sender: str, text: str, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "sender": sender, "text": text, "created_at": "2026-03-01T10:00:00.5+01:00", **more}


CLAUDE = {
    "uuid": "c1",
    "name": "Solar **panels**",
    "chat_messages": [
        claude_message(
            "m1",
            "human",
            "How many panels fit on my roof?",
            attachments=[{"file_name": "roof.txt", "extracted_content": "The roof is 8 by 5 metres."}],
        ),
        claude_message(
            "m2",
            "assistant",
            "",
            content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Twenty of the usual size."}],
        ),
        "no message",
        {"uuid": "m3", "sender": "human", "text": None, "content": 3},
        claude_message("m4", "human", "And if they are laid across instead?"),
        claude_message("m5", "assistant", "Then eighteen, with a walkway."),
    ],
}


def node(name: str, parent: str | None, role: str, text: Any, time: float | None = 1_700_000_000) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text] if isinstance(text, str) else text}
    message = {"id": f"id-{name}", "author": {"role": role}, "content": content, "create_time": time}
    return {"id": name, "parent": parent, "message": message, "children": []}


def mapping() -> dict[str, Any]:
    nodes = [
        {"id": "root", "parent": None, "message": None},
        node("s", "root", "system", "You are a helper that must never be indexed."),
        node("u1", "s", "user", "Which pump for a well of twenty metres?"),
        node("old", "u1", "assistant", "A hand pump, which was the discarded answer.", 1_900_000_000),
        node("new", "u1", "assistant", ["A submersible pump.", {"asset_pointer": "x"}], 1_700_000_100),
        node("u2", "new", "user", "Does it need a filter in sandy ground?", None),
        node("a2", "u2", "assistant", "Yes, a gravel pack around it."),
    ]
    return {item["id"]: item for item in nodes}


def texts(section: Section) -> list[tuple[SegmentKind, str]]:
    return [(piece.kind, piece.text) for piece in section.pieces]


@pytest.mark.parametrize("several", [False, True])
def test_a_conversation_of_claude_ai_is_cut_into_its_turns(several: bool) -> None:
    text = json.dumps([CLAUDE, None, {"name": "empty", "chat_messages": []}] if several else CLAUDE)
    found = sections_of("conversations.json", text)
    assert [(section.kind, section.anchor, section.title) for section in found] == [
        ("exchange", "m1", ("conversations.json", "Solar panels")),
        ("exchange", "m4", ("conversations.json", "Solar panels")),
    ]
    assert texts(found[0]) == [
        (PROMPT, "How many panels fit on my roof?\n\n[roof.txt]\nThe roof is 8 by 5 metres."),
        (STATEMENT, "Twenty of the usual size."),
    ]
    assert found[0].pieces[0].timestamp == datetime(2026, 3, 1, 9, 0, 0, 500_000, tzinfo=UTC)


def test_a_conversation_of_chatgpt_goes_along_its_current_branch() -> None:
    found = sections_of("c.json", json.dumps([{"title": "Well", "mapping": mapping(), "current_node": "a2"}]))
    assert [section.anchor for section in found] == ["id-u1", "id-u2"]
    assert texts(found[0]) == [(PROMPT, "Which pump for a well of twenty metres?"), (STATEMENT, "A submersible pump.")]
    assert found[1].pieces[0].timestamp is None
    assert found[0].pieces[1].timestamp == datetime.fromtimestamp(1_700_000_100, UTC)


def test_without_a_current_node_the_newest_branch_is_read_and_a_circle_ends() -> None:
    nodes = mapping()
    nodes["root"]["parent"] = "root"
    found = sections_of("c.json", json.dumps({"title": "Well", "mapping": nodes, "current_node": "gone"}))
    assert [text for _, text in texts(found[0])][1] == "A hand pump, which was the discarded answer."


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_channel_of_slack_is_cut_into_threads_with_the_names_of_who_wrote(wrapped: bool) -> None:
    messages = [
        {
            "type": "message",
            "user": "U1",
            "text": "Who has the key?",
            "ts": "1700000000.000100",
            "thread_ts": "1700000000.000100",
            "user_profile": {"real_name": "Ada"},
        },
        {"type": "message", "user": "U3", "text": "Lunch is at noon in the yard", "ts": "1700000050.000100"},
        {
            "type": "message",
            "user": "U2",
            "text": "<@U1> it is in my drawer",
            "ts": "1700000100.000100",
            "thread_ts": "1700000000.000100",
        },
        {"type": "message", "user": "U3", "text": "Tomorrow as well, same place", "ts": "1700090000.000100"},
        {"broken": True},
    ]
    found = sections_of(
        "general.json", json.dumps({"channel": "general", "messages": messages} if wrapped else messages)
    )
    assert [section.title for section in found] == [("general.json", "general")] * 3
    assert texts(found[0]) == [(PROMPT, "Ada: Who has the key?"), (STATEMENT, "U2: @Ada it is in my drawer")]
    assert found[1].anchor == "1700000050.000100"


KEYS = ["text", "content", "sender", "author", "message", "parent", "ts", "parts", "attachments", "create_time"]
ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
)


@given(ANYTHING)
def test_one_bad_message_never_loses_the_others(bad: Any) -> None:
    good = CLAUDE["chat_messages"]
    assert isinstance(good, list)
    found = sections_of("c.json", json.dumps({"name": "x", "chat_messages": [good[0], bad, good[1]]}))
    assert {"m1"} <= {section.anchor for section in found}
    found = sections_of("c.json", json.dumps({"mapping": {**mapping(), "bad": bad}, "current_node": "a2"}))
    assert {"id-u1", "id-u2"} <= {section.anchor for section in found}
    slack = [{"user": "a", "text": "a message that is long enough to stay", "ts": "1700000000.1"}, bad]
    assert sections_of("c.json", json.dumps(slack))


def test_other_json_is_no_chat() -> None:
    assert not is_chat_export('{"name": "a setting", "value": 3}')
    assert not is_chat_export('no json with "chat_messages": [ in it')
    assert is_chat_export(json.dumps([CLAUDE]))


# --- other JSON ------------------------------------------------------------------------------------------


def test_every_item_of_a_list_is_a_section_named_by_its_id() -> None:
    items = [{"id": n, "text": f"item {n} has something to say " * 8} for n in range(60)]
    found = sections_of("a.json", json.dumps(items))
    assert [section.anchor for section in found] == [str(n) for n in range(60)]
    moved = sections_of("a.json", json.dumps([{"text": "a new one without a name " * 10}, *reversed(items)], indent=1))
    assert {section.anchor for section in found} <= {section.anchor for section in moved}
    assert moved[1].first_line == 5


def test_small_items_share_a_section_and_none_is_lost() -> None:
    found = sections_of("a.json", json.dumps(list(range(1000))))
    assert [number for section in found for number in json.loads(f"[{section.pieces[0].text}]")] == list(range(1000))


@pytest.mark.parametrize(
    "text", ['{"a": "some words that say something", "b": [1, 2]}', '[{"a": "some words that say something", ']
)
def test_an_object_or_broken_json_is_one_section(text: str) -> None:
    assert len(sections_of("a.json", text)) == 1


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_ODD = st.recursive(
    _PLAIN | st.sampled_from(["user", "a", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "parts", "text", "a"]), inner),
    max_leaves=5,
)
_ODD_MESSAGE = st.dictionaries(
    st.sampled_from(
        [
            "uuid",
            "sender",
            "text",
            "content",
            "attachments",
            "created_at",
            "ts",
            "thread_ts",
            "user",
            "user_profile",
            "message",
            "parent",
            "author",
            "create_time",
            "metadata",
            "username",
        ]
    ),
    _ODD,
)
_ODD_SPOKEN = st.fixed_dictionaries(
    {"author": st.fixed_dictionaries({"role": _ODD}), "content": st.fixed_dictionaries({"parts": _ODD})}
)
_ODD_CHAT = st.fixed_dictionaries(
    {},
    optional={
        "name": _ODD,
        "title": _ODD,
        "current_node": _ODD,
        "messages": st.lists(_ODD_MESSAGE | _ODD, max_size=3),
        "chat_messages": st.lists(_ODD_MESSAGE | _ODD, max_size=3),
        "mapping": st.dictionaries(
            st.sampled_from("ab"), st.fixed_dictionaries({"message": _ODD_MESSAGE | _ODD_SPOKEN, "parent": _ODD})
        ),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_ODD_CHAT | _ODD_MESSAGE, min_size=1, max_size=3))
def test_whatever_a_chat_holds_its_sections_can_be_stored(exported: list[object]) -> None:
    for section in chat_sections("a.json", json.dumps(exported)):
        assert section.pieces
        for text in (section.anchor, *section.title, *(piece.text for piece in section.pieces)):
            text.encode()
