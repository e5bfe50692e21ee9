"""What is embedded, cut with MiniLM's own tokenizer."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.embeddings.passages import (
    BODY_CHARS,
    BODY_PIECES,
    MAX_MESSAGE_IDS,
    TOTAL_PIECES,
    cut_text,
    passages_of_part,
    passages_of_posted,
)
from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import Episode, Part, Passage, SectionFacts, Segment, SegmentKind

PIECES = minilm_pieces()
WINDOW = 254
"""Pieces that MiniLM reads of a text, its two special ones apart."""
START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)

words = st.text("abcdefghij éßñ日本語한국👩‍💻\u0301\u200d.,;:-_/\\\"'(){}[]<>\n\t 0123456789", max_size=400)
odd = st.sampled_from(
    [
        "x" * 10_000,
        "0123456789abcdef" * 80,
        " " * 3_000,
        "\n" * 500,
        "a" + "\u0301" * 3_000,
        "\0" * 1_500,
        "日本" * 800,
        "👩‍👩‍👧‍👦" * 300,
        "한국어" * 300,
        "-" * 2_500,
        "word " * 700,
    ]
)
texts = st.lists(st.one_of(words, odd), max_size=4).map("".join)
kinds = st.sampled_from([kind for kind in SegmentKind if kind is not SegmentKind.CODE])  # which is not searched
segments = st.lists(st.tuples(kinds, texts), min_size=1, max_size=5)


def part(*said: tuple[SegmentKind, str], prompt: str = "why is the build red", lead: str = "") -> Part:
    return Part(
        "p",
        "src",
        "a.jsonl",
        "s1",
        "x1",
        0,
        "exchange",
        "acme/api",
        "/code/api",
        prompt,
        tuple(
            Segment(f"k{n}", f"u{n}", kind, 0, text, START + timedelta(minutes=n))
            for n, (kind, text) in enumerate(said)
        ),
        closed=True,
        lead=lead,
    )


def plain(text: str) -> str:
    return "".join(text.split())


def count(text: str) -> int:
    return len(PIECES.spans([text])[0])


@settings(deadline=None, max_examples=60)
@given(segments)
def test_passages_hold_every_character_that_is_not_blank_in_order(said: list[tuple[SegmentKind, str]]) -> None:
    passages = passages_of_part(part(*said), PIECES)
    assert plain("".join(p.text for p in passages)) == plain("".join(text for _, text in said))
    assert [p.ordinal for p in passages] == list(range(len(passages)))
    assert all(p.text.strip() for p in passages)


ENDS = 300
"""Pieces in the end of an unbroken run that is cut: up to 100 characters, of up to three pieces each in some scripts.
In the whole run they were part of one unknown piece. The model then reads the passage in windows."""


@settings(deadline=None, max_examples=60)
@given(segments, texts)
def test_no_passage_is_longer_than_the_model_reads(said: list[tuple[SegmentKind, str]], lead: str) -> None:
    longest = max((len(word) for text in [*(text for _, text in said), lead] for word in text.split()), default=0)
    ends = 0 if longest <= 32 else ENDS
    for passage in passages_of_part(part(*said, lead=lead), PIECES):
        assert len(passage.text) <= BODY_CHARS
        assert count(passage.text) <= BODY_PIECES + ends
        assert count(passage.with_context) <= WINDOW + 2 * ends


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text("abcdefgh", min_size=1, max_size=9), min_size=1, max_size=2_000), st.integers(0, 400))
def test_prose_stays_within_the_bounds_exactly(told: list[str], lead: int) -> None:
    text = " ".join(told)
    for passage in passages_of_part(part((SegmentKind.STATEMENT, text), lead="before " * lead), PIECES):
        assert count(passage.text) <= BODY_PIECES
        assert count(passage.with_context) <= TOTAL_PIECES


@settings(deadline=None, max_examples=60)
@given(texts, st.integers(1, BODY_PIECES))
def test_cuts_are_consecutive_and_cover_the_text(text: str, most: int) -> None:
    cuts = cut_text(text, PIECES.spans([text])[0], most)
    assert "".join(text[start:end] for start, end in cuts) == text
    assert all(0 < end - start <= BODY_CHARS for start, end in cuts)


@settings(deadline=None, max_examples=40)
@given(segments, segments)
def test_growing_part_changes_its_end(said: list[tuple[SegmentKind, str]], more: list[tuple[SegmentKind, str]]) -> None:
    before = passages_of_part(part(*said), PIECES)
    after = passages_of_part(part(*said, *more), PIECES)
    assert after[: max(0, len(before) - 1)] == before[:-1]


def test_a_first_time_that_is_known_late_leaves_earlier_headers_alone() -> None:
    grown = part((SegmentKind.STATEMENT, "one " * 60), (SegmentKind.STATEMENT, "two " * 60))
    undated = replace(grown, segments=(replace(grown.segments[0], timestamp=None), grown.segments[1]))
    before = passages_of_part(replace(undated, segments=undated.segments[:1]), PIECES)
    assert passages_of_part(undated, PIECES)[0] == before[0]


def test_a_passage_names_the_records_of_its_own_text_only() -> None:
    said = [(SegmentKind.PROMPT, "why is it red?"), (SegmentKind.STATEMENT, "look " * 400), (SegmentKind.THINKING, " ")]
    passages = passages_of_part(part(*said), PIECES)
    assert passages[0].message_ids == ("u0",) or passages[0].message_ids == ("u0", "u1")
    for passage in passages:
        for uuid in passage.message_ids:
            assert any(line.strip() in said[int(uuid[1:])][1] for line in passage.text.split("\n"))
    assert "u2" not in {uuid for p in passages for uuid in p.message_ids}


def test_at_most_twelve_records_share_a_passage_and_an_unnamed_one_is_not_listed() -> None:
    whole = part(*[(SegmentKind.TOOL_INPUT, f"ls {n}") for n in range(30)])
    passages = passages_of_part(whole, PIECES)
    assert max(len(p.message_ids) for p in passages) == MAX_MESSAGE_IDS
    unnamed = replace(whole, segments=tuple(replace(s, uuid="") for s in whole.segments))
    assert {p.message_ids for p in passages_of_part(unnamed, PIECES)} == {()}


def test_a_context_is_header_and_what_was_said_before_never_what_follows() -> None:
    said = [
        (SegmentKind.PROMPT, "Why does the nightly build fail?"),
        (SegmentKind.TOOL_RESULT, "output " * 150),
        (SegmentKind.STATEMENT, "The linker runs out of memory, so I lower the parallelism now. " * 4),
        (SegmentKind.TOOL_RESULT, "success " * 150),
    ]
    passages = passages_of_part(part(*said, lead="Earlier we moved to the new runner."), PIECES)
    assert all(p.context.startswith("2026-03-14 api why is the build red") for p in passages)
    assert "Earlier we moved" in passages[0].context
    assert "Why does the nightly build fail?" in next(p for p in passages if "output" in p.text).context
    assert "lower the parallelism" in passages[-1].context
    for number, passage in enumerate(passages):
        following = {sentence for p in passages[number:] for sentence in p.text.split("\n") if len(sentence) > 20}
        assert not any(sentence in passage.context for sentence in following)


def test_each_entry_of_a_topic_is_a_passage() -> None:
    text = "# Lessons\n\nWhat went wrong.\n\n- Port in use\n  - Fixed by: another one\n- Slow tests\n\n1. Red build\n"
    section = part((SegmentKind.DOCUMENT, text), (SegmentKind.DOCUMENT, "- And this"))
    tagged = replace(section, section=SectionFacts((), 1, 9, tags=("document", "topic")))
    assert [passage.text for passage in passages_of_part(tagged, PIECES)] == [
        "# Lessons\n\nWhat went wrong.",
        "- Port in use\n  - Fixed by: another one",
        "- Slow tests",
        "1. Red build",
        "- And this",
    ]
    assert len(passages_of_part(section, PIECES)) == 1


def test_a_long_header_leaves_room_for_the_text() -> None:
    (passage,) = passages_of_part(part((SegmentKind.STATEMENT, "short"), prompt="please " * 3_000), PIECES)
    assert 30 < count(passage.context) <= 40


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("alpha beta. " * 45 + "\n" + "gamma delta " * 60, "\n"),
        ("alpha beta gamma. " * 100, ". "),
        ("alpha beta gamma " * 100, " "),
    ],
)
def test_a_cut_falls_at_a_line_else_a_sentence_else_a_space(text: str, cut: str) -> None:
    (start, end), *_ = cut_text(text, PIECES.spans([text])[0])
    assert text[start:end].endswith(cut)


def posted(summary: str, raw: str = "") -> Episode:
    return Episode("e", "direct", START, "mac", "acme/api", "note", summary, raw)


def test_a_posted_episode_has_its_summary_then_its_text() -> None:
    passages = passages_of_posted(posted("We chose Postgres.", "user: which database?"), ["It rained."], PIECES)
    assert [p.text for p in passages] == ["We chose Postgres.", "user: which database?"]
    assert passages[0].context == "2026-03-14 api\nIt rained."
    assert passages[1].context == "2026-03-14 api\nWe chose Postgres."
    assert all(p.message_ids == () for p in passages)


def test_a_text_that_only_repeats_the_summary_is_not_indexed_twice() -> None:
    assert len(passages_of_posted(posted("one two", " one\n two "), [], PIECES)) == 1


def test_a_long_summary_never_sees_its_own_end_as_context() -> None:
    told = [f"fact{n} is known." for n in range(300)]
    passages = passages_of_posted(posted(" ".join(told)), [], PIECES)
    assert len(passages) > 3
    for before, passage in pairwise(passages):
        assert passage.context.split("\n", 1)[1] in before.text
        assert told[-1] not in passage.context


@settings(deadline=None, max_examples=30)
@given(texts.filter(lambda text: bool(text.strip())), texts, st.lists(texts, max_size=2))
def test_everything_posted_is_in_some_passage(summary: str, raw: str, preceding: list[str]) -> None:
    found: list[Passage] = passages_of_posted(posted(" ".join(summary.split()), raw), preceding, PIECES)
    told = plain("".join(p.text for p in found))
    whole = plain(summary) + plain(raw)
    says_the_same = plain(raw) in ("", plain(summary))
    assert told == whole or (says_the_same and told == plain(summary))
    assert plain(raw) in told
    assert all(len(p.text) <= BODY_CHARS for p in found)
