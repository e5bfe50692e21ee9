"""Where sentences end, and where they do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.parsing.text.sentences import beginning, sentence_spans, sentences

WRAPPED = "The service lost jobs every night because the worker was\nrestarted by the watchdog. It is fixed."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It works. See it! Really? Yes", ["It works.", "See it!", "Really?", "Yes"]),
        ("Use v1.2.3, e.g. in src/app.py. Then stop.", ["Use v1.2.3, e.g. in src/app.py.", "Then stop."]),
        ("Ask Dr. Smith vs. J. Doe. ok", ["Ask Dr. Smith vs. J. Doe.", "ok"]),
        ("use the container. it works the same way", ["use the container.", "it works the same way"]),
        ("Run `ALTER TABLE. ADD x`. It fails", ["Run `ALTER TABLE. ADD x`.", "It fails"]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("1. First do it.\n2. Then that.", ["1. First do it.", "2. Then that."]),
        ("- one\n- two\n\n---\n", ["- one", "- two"]),
        (WRAPPED, [" ".join(WRAPPED.split("\n")).partition(" It")[0], "It is fixed."]),
        ("他修了。然后走了！", ["他修了。", "然后走了！"]),
        ("x = f(a)\ny = g(b)", ["x = f(a)", "y = g(b)"]),
        ("", []),
    ],
)
def test_sentences_end_at_marks_and_lines(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text(alphabet="aB.!? \n`-\u3002", max_size=200))
def test_sentences_cover_all_but_the_blanks(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join(text[start:end] for start, end in spans).split() == "".join(text.split()).split() or spans
    covered = "".join(text[start:end] for start, end in spans)
    assert "".join(covered.split()) == "".join(text.split())
    assert all(start < end for start, end in spans)


def test_beginning_is_whole_sentences() -> None:
    text = "One is here. Two is there.\nThree is far away."
    assert beginning(text, 30) == "One is here. Two is there."
    assert beginning(text, 100) == " ".join(text.split())
    assert beginning(text, 100, keep_lines=True) == text
    assert beginning("word " * 20, 18) == "word word word\u2026"
    assert beginning("Go. " + "word " * 20, 18) == "Go. word word\u2026"
    assert beginning("Use e.g. Redis v1.2. It works.", 26) == "Use e.g. Redis v1.2."
    assert beginning("All is fixed. 1. The login 2. The build and the rest", 30) == "All is fixed."
