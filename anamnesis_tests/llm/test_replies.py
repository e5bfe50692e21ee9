import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import LlmAnswerInvalid
from anamnesis_pipeline.llm.replies import (
    FALLBACK_CHARS,
    MAX_MESSAGE_IDS,
    MAX_RECORD_CHARS,
    MAX_SUMMARY_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    MAX_WHY_CHARS,
    ParsedReply,
    parse_reply,
)
from anamnesis_pipeline.model import MAX_RECORDS, RecordType, TypedRecord

IDS = ("u1", "u2", "u3")


def answer(**fields: Any) -> str:
    body = {"skip": False, "summary": "The key was missing.", "tags": ["webhook"], "records": []}
    return json.dumps(body | fields)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "lesson", "text": "Send a key.", "why": "Retries.", "messages": [1]} | fields


def test_an_answer_becomes_summary_tags_and_records() -> None:
    found = parse_reply(answer(records=[record(type="error", messages=[3, 1])]), IDS)
    assert found.text == "The key was missing."
    assert found.tags == ("webhook",)
    assert found.records == (TypedRecord(RecordType.ERROR, "Send a key.", "Retries.", ("u1", "u3")),)
    assert not found.skip


@pytest.mark.parametrize(
    "wrap",
    [
        "```json\n{}\n```",
        "Here is the summary you asked for:\n\n{}\n\nLet me know if {{more}} is needed.",
        'First {{"a": 1}} then {}',
        "<think>{{so}}</think>{}",
        "\ufeff {}",
    ],
)
def test_prose_and_fences_around_the_json_do_no_harm(wrap: str) -> None:
    found = parse_reply(wrap.format(answer()), IDS)
    assert (found.text, found.tags) == ("The key was missing.", ("webhook",))


@pytest.mark.parametrize("reply", ['{"skip": true}', answer(skip=True), "SKIP", " **SKIP**.\n", answer(skip="true")])
def test_skip_leaves_nothing_else(reply: str) -> None:
    assert parse_reply(reply, IDS) == ParsedReply("", skip=True)


@pytest.mark.parametrize(
    "reply",
    ["The key  was\nmissing. " * 200, '{"summary": "The key was', '{"other": 1}', '["summary"]', '{"summary": 3}'],
)
def test_a_malformed_reply_becomes_its_first_characters(reply: str) -> None:
    found = parse_reply(reply, IDS)
    assert found.text.removesuffix("…") == " ".join(reply.split())[: len(found.text.removesuffix("…"))]
    assert min(len(reply), FALLBACK_CHARS - 20) <= len(found.text) <= FALLBACK_CHARS
    assert (found.tags, found.records, found.skip) == ((), (), False)


@pytest.mark.parametrize("reply", ["The key was missing.", '{"summary": "The key was', "[]"])
def test_a_strict_reader_takes_our_json_only(reply: str) -> None:
    with pytest.raises(LlmAnswerInvalid, match="JSON"):
        parse_reply(reply, IDS, strict=True)
    assert parse_reply(answer(), IDS, strict=True) == parse_reply(answer(), IDS)
    assert parse_reply("SKIP", IDS, strict=True).skip


@pytest.mark.parametrize("reply", ["", " \n\t", answer(summary=""), answer(summary="  \n")])
def test_an_empty_reply_is_no_answer(reply: str) -> None:
    with pytest.raises(LlmAnswerInvalid, match="asked again"):
        parse_reply(reply, IDS)


NO_MESSAGES = [[], [0, 4, -1, "u1", None, 1.5, True, {}, "99999999999"], None]
BAD = [*(record(messages=bad) for bad in NO_MESSAGES), {"type": "fact"}, "a fact", None]


@pytest.mark.parametrize("bad", [record(type="skill"), record(text=" "), *BAD])
def test_a_bad_record_is_dropped_and_the_next_one_stays(bad: Any) -> None:
    found = parse_reply(answer(records=[bad, *(record(text=f"Good {n}.") for n in range(5))]), IDS)
    assert [r.text for r in found.records] == ["Good 0.", "Good 1.", "Good 2."]


def test_only_numbers_that_a_message_has_count_and_each_once() -> None:
    found = parse_reply(answer(records=[record(messages=[9, 2, "[3]", "2", 0])]), IDS)
    assert found.records[0].message_ids == ("u2", "u3")
    many = tuple(f"u{n}" for n in range(40))
    found = parse_reply(answer(records=[record(messages=list(range(1, 41)))]), many)
    assert found.records[0].message_ids == many[:MAX_MESSAGE_IDS]
    same = parse_reply(answer(records=[record(messages=[1, 2, 3])]), ("u1", "u1", ""))
    assert same.records[0].message_ids == ("u1",)


def test_tags_are_normalized_and_at_most_eight() -> None:
    tags = ["Web Hooks", "web hooks", "C++", "c#", "", "***", 7, None, "node.js", "python3.13", "größe", "a/b", "_x_"]
    assert " ".join(parse_reply(answer(tags=tags), IDS).tags) == "web-hooks c++ c# node.js python3.13 größe a/b _x_"
    assert len(parse_reply(answer(tags=[f"t{n}" for n in range(20)]), IDS).tags) == MAX_TAGS
    assert parse_reply(answer(tags="python"), IDS).tags == ()


@settings(deadline=None, max_examples=100)
@given(
    st.text(max_size=3_000)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=50),
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(
                st.sampled_from(["summary", "skip", "tags", "records", "type", "text", "messages"]), inner
            )
        ),
        max_leaves=20,
    ).map(json.dumps)
    | st.integers(0, 60_000).map(lambda n: '{"summary":' * (n // 11))
)
def test_any_reply_is_read_within_bounds_or_is_no_answer(reply: str) -> None:
    try:
        found = parse_reply(reply, IDS)
    except LlmAnswerInvalid:
        return
    assert found.skip or found.text
    assert len(found.text) <= MAX_SUMMARY_CHARS
    assert len(found.tags) <= MAX_TAGS
    assert all(0 < len(tag) <= MAX_TAG_CHARS for tag in found.tags)
    assert len(found.records) <= MAX_RECORDS
    for kept in found.records:
        assert 0 < len(kept.text) <= MAX_RECORD_CHARS
        assert len(kept.why) <= MAX_WHY_CHARS
        assert set(kept.message_ids) <= set(IDS)
    json.dumps(found.text).encode()
    found.text.encode("utf-8")


def test_what_no_store_takes_is_taken_out() -> None:
    found = parse_reply('{"summary": "a\\u0000b \\ud800 c"}', IDS)
    assert found.text == "ab ? c"
