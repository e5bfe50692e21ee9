"""Blocks never exceed their tokens, whatever is quoted; a quote is cut around what was asked."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.search.context_items import Item, SourceClass
from anamnesis_pipeline.search.quoting import one_line
from anamnesis_pipeline.search.token_budget import Section, count_tokens, fitted, shortened
from anamnesis_pipeline.search.words import content_words

PIECES = minilm_pieces()
POSTED = SourceClass.POSTED


def item(text: str, name: str = "e") -> Item:
    return Item(Episode(name, "direct", datetime(2026, 3, 5, tzinfo=UTC), "mac", "acme", "note", "", ""), text, POSTED)


def test_an_unbroken_run_counts_by_its_length() -> None:
    assert count_tokens("one two three", PIECES) == 3
    assert count_tokens("x" * 4_000, PIECES) >= 1_000
    assert count_tokens("", PIECES) == 0


@settings(max_examples=40)
@given(st.lists(st.text(max_size=400), max_size=6), st.integers(0, 500))
def test_no_block_has_more_tokens_than_allowed(texts: list[str], most: int) -> None:
    items = [item(text, f"e{n}") for n, text in enumerate(texts)]
    sections = [Section("", items[:2], 50), Section("A heading:", items[2:], 30)]
    block, out = fitted(sections, most, ["why"], PIECES)
    assert block.tokens == count_tokens(block.text, PIECES) <= most
    assert sorted(i.episode.episode_id for i in (*block.items, *out)) == sorted(i.episode.episode_id for i in items)


@given(st.text(max_size=600), st.integers(3, 60))
def test_no_shortened_text_is_longer_than_allowed(text: str, most: int) -> None:
    assert count_tokens(shortened(one_line(text), most, ["a"], PIECES), PIECES) <= most


def test_a_long_text_is_cut_around_the_sentence_that_was_asked_for() -> None:
    text = "It rained a lot. " * 20 + "The quagga was late. It came by train. " + "It snowed after. " * 20
    found = shortened(text.strip(), 20, ["quagga"], PIECES)
    assert found.startswith("…The quagga was late. It came by train.")
    assert found.endswith("…")
    assert shortened("Short.", 20, [], PIECES) == "Short."


def test_the_end_of_a_text_brings_what_stands_before_it() -> None:
    text = " ".join(f"word{n}" for n in range(60)) + ". The quagga came."
    found = shortened(text, 20, ["quagga"], PIECES)
    assert found.startswith("…word5")
    assert found.endswith("The quagga came.")


@pytest.mark.parametrize("most", [150, 250, 400])
def test_the_first_of_each_heading_comes_before_the_second_of_any(most: int) -> None:
    sections = [Section(f"Heading {s}:", [item(f"text {s} {n}", f"{s}{n}") for n in range(4)], 50) for s in "ab"]
    block, _ = fitted(sections, most, (), PIECES)
    names = [i.episode.episode_id for i in block.items]
    assert names == sorted(names)
    assert abs(sum(n[0] == "a" for n in names) - sum(n[0] == "b" for n in names)) <= 1
    assert block.text.count("Heading a:") == block.text.count("\nHeading a:\n- On 2026-03-05")


def test_a_quote_that_is_too_long_leaves_room_for_the_next() -> None:
    sections = [Section("", [item("long " * 300, "long"), item("short", "short")], 500)]
    block, out = fitted(sections, 200, (), PIECES)
    assert [i.episode.episode_id for i in block.items] == ["short"]
    assert [i.episode.episode_id for i in out] == ["long"]


def test_a_block_is_never_so_long_that_claude_code_would_cut_it() -> None:
    items = [item(" ".join(["\u2135" * 5] * 900), f"e{n}") for n in range(40)]
    block, out = fitted([Section("", items, 100)], 8_000, (), PIECES)
    assert 8_000 < len(block.text) <= 9_000
    assert out


def test_a_text_without_spaces_is_cut_around_the_sentence_that_is_asked_for():
    text = "我们先看了日志。" * 20 + "登录超时改成三十秒。" + "然后部署。" * 20
    found = shortened(text, 40, content_words("登录超时是多少"), PIECES)
    assert "登录超时改成三十秒" in found
    assert len(found) < 120
