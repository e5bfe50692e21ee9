from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.text.languages import language_of
from anamnesis_pipeline.parsing.text.stop_words import STOP_WORDS, STOP_WORDS_OF
from anamnesis_pipeline.search.words import content_words, literal_tokens, literal_words, unknown_share


def test_function_words_are_left_out_unless_nothing_else_is_there() -> None:
    assert content_words("Why did the webhook fail, and why the retry?") == ["webhook", "fail", "retry"]
    assert content_words("What is it?") == ["what", "is", "it"]
    assert content_words("?!") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Warum wurden die Rechnungen nicht gelöscht?", ["rechnungen", "gelöscht"]),
        ("Pourquoi est-ce que les paniers sont vides ?", ["paniers", "vides"]),
        ("¿Por qué no se pagaban los portes?", ["pagaban", "portes"]),
        ("Du oder sie", ["du", "oder", "sie"]),
        ("Why did the die roll, and what was the war for?", ["die", "roll", "war"]),
        ("der timeout", ["der", "timeout"]),
    ],
)
def test_stop_words_are_those_of_the_language_of_a_text(text: str, words: list[str]) -> None:
    assert content_words(text) == words


@given(st.text(max_size=80))
def test_words_are_distinct_lower_case_and_from_the_text(text: str) -> None:
    words = content_words(text)
    assert len(words) == len(set(words))
    assert all(word in text.lower() or word in "".join(c.lower() for c in text) for word in words)
    stop_words = STOP_WORDS_OF.get(language_of(text) or "", STOP_WORDS)
    assert not set(words) & stop_words or set(words) <= stop_words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("ping 192.168.0.108.", ["192.168.0.108."]),
        ("use --no-verify or -x", ["--no-verify", "-x"]),
        ("since v1.2.3", ["v1.2.3"]),
        ("see src/billing.py:44", ["src/billing.py:44"]),
        ("call chargeOnce with foo_bar", ["chargeOnce", "foo_bar"]),
        ("commit a7f3b2c over HTTP2", ["a7f3b2c", "HTTP2"]),
        ("what did `make up` say", ["make", "up"]),
        ('the text "not found" there', ["not", "found"]),
        ("Why did the build fail?", []),
        ("为什么重跑gen-itgc后空闲", ["gen-itgc"]),
        ("`登录超时`改成多少", ["登录超时"]),
    ],
)
def test_what_looks_like_code_is_looked_for_literally(text: str, tokens: list[str]) -> None:
    assert literal_tokens(text) == tokens


@pytest.mark.timeout(30)
@pytest.mark.parametrize("run", ["0", "A", "_", "0_", "AA0_"])
def test_literal_tokens_of_one_endless_word_take_no_time(run: str) -> None:
    """An expression that goes back and forth in it would take hours."""
    assert literal_tokens(run * (10_000 // len(run))) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("How does Marta like the changelog formatted?", ["Marta"]),
        ("Why does the build fail on Nordkube?", ["Nordkube"]),
        ("why was HTTP2 dropped by Priya, Ilya and the rest", ["HTTP2", "Priya", "Ilya"]),
        ("flaky test", ["flaky", "test"]),
        ("which of the three fixes was the right one in the end", []),
    ],
)
def test_literal_words_are_names_tokens_and_few_words(text: str, words: list[str]) -> None:
    assert literal_words(text) == words


def test_what_cannot_be_cut_into_words_is_never_unknown() -> None:
    def none_is_known(words: Sequence[str]) -> Sequence[str]:
        return words

    assert unknown_share("登录超时改成多少", none_is_known) == 0
    assert unknown_share("หมดเวลา 타임아웃", none_is_known) == 0
    assert unknown_share("gen-itgc 超时", none_is_known) == 2 / 3
    assert unknown_share("登录", lambda words: pytest.fail(f"asked for {words}")) == 0
