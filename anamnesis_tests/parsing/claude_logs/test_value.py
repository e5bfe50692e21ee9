"""What a part is worth: each rule of the table, in English and without words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.model import Part, Segment, SegmentKind, part_id_of
from anamnesis_pipeline.parsing.claude_logs.value import EXPLANATIONS, WEIGHTS, value_of

PROMPT, STEERING, SAID = SegmentKind.PROMPT, SegmentKind.STEERING, SegmentKind.STATEMENT
CALL, RESULT, FAILED, NOTE = (
    SegmentKind.TOOL_INPUT,
    SegmentKind.TOOL_RESULT,
    SegmentKind.TOOL_ERROR,
    SegmentKind.NOTIFICATION,
)
ASKED = (PROMPT, "Add a page")
FAILS, EDITS, WORKS = (FAILED, "assert 1 == 2"), (CALL, "Edit\nfile: a.py"), (RESULT, "1 passed")
STOPPED = (NOTE, "[Request interrupted by user for tool use]")
REFUSED = (FAILED, "The user doesn't want to proceed with this tool use. The tool use was rejected")


def part(*said: tuple[SegmentKind, str], lead: str = "") -> Part:
    segments = tuple(Segment(f"k{n}", f"u{n}", kind, 0, text, None) for n, (kind, text) in enumerate(said))
    first = part_id_of(segments[0]) if segments else "p"
    return Part(first, "s", "a.jsonl", "s1", "x", 0, "exchange", "p", "/", "", segments, closed=True, lead=lead)


def signals(*said: tuple[SegmentKind, str], lead: str = "") -> dict[str, float]:
    return dict(value_of(part(*said, lead=lead)).signals)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([ASKED, (SAID, "Done."), (STEERING, "No, in German")], {"correction": 3.0}),
        ([ASKED, (SAID, "Done."), (STEERING, "that's not what I asked for")], {"correction": 3.0}),
        ([ASKED, (SAID, "There was an error.")], {"errors": 1.0}),
        ([ASKED, (SAID, "It failed with an exception.")], {"errors": 2.0}),
        ([ASKED, (SAID, "We will use WAL.")], {"decisions": 0.5}),
        ([ASKED, (SAID, "We chose WAL rather than DELETE.")], {"decisions": 2.0}),
        ([ASKED, (FAILED, "no such file")], {"tool_error": 1.5}),
        ([(PROMPT, "x" * 2_001)], {"length": 0.5}),
        ([(PROMPT, "x" * 5_001)], {"length": 1.0}),
        ([ASKED, *[(SAID, "Well.")] * 3], {}),
        ([ASKED, *[(SAID, "Well.")] * 4], {"turns": 1.0}),
        ([ASKED, STOPPED, REFUSED], {"interruption": 1.0, "tool_error": 1.5}),
        ([ASKED, (RESULT, "errors.py\ntest_failed.py")], {}),  # a listing
        ([ASKED, (RESULT, "Traceback (most recent call last):\n  x\nValueError: no")], {"errors": 2.0}),
        ([ASKED, (RESULT, "process exited with code 2")], {"errors": 1.0}),
        ([ASKED, (RESULT, "x" * 100_000)], {}),
        ([ASKED, (CALL, "AskUserQuestion\nquestions: Welche?")], {"decisions": 0.5}),
        ([ASKED, FAILS, EDITS, WORKS], {"tool_error": 1.5, "fix": 1.0, "edits": 0.5}),
        ([ASKED, EDITS, WORKS, FAILS], {"tool_error": 1.5, "edits": 0.5}),
        ([ASKED, FAILS, (CALL, "Read\nfile: a.py"), WORKS], {"tool_error": 1.5}),
        ([(SegmentKind.COMPACT_SUMMARY, "An error was fixed. We decided to use WAL. " * 200)], {}),
        ([], {}),
    ],
)
def test_each_rule_of_the_table_counts_what_it_says(said: list[tuple[SegmentKind, str]], expected: dict[str, float]):
    assert signals(*said) == expected


@pytest.mark.parametrize(
    "text", ["nein, auf Deutsch", "Non, pas ça", "нет, не так", "不对", "違います", "não, assim não"]
)
def test_a_short_turn_that_begins_with_a_no_corrects_what_was_said_before_in_any_language(text: str):
    assert signals((PROMPT, text), lead="I have added the page.") == {"correction": 3.0}
    assert signals((PROMPT, text)) == {}, "nothing was said before"


@pytest.mark.parametrize("text", ["Notice the header", "Nonetheless add it", "nothing else", "ok " + "no " * 99, "yes"])
def test_words_that_only_begin_like_a_no_correct_nothing(text: str):
    assert "correction" not in signals((PROMPT, text), lead="I have added the page.")


@given(st.lists(st.tuples(st.sampled_from(list(SegmentKind)), st.text(max_size=80)), max_size=8), st.text(max_size=9))
def test_the_score_is_the_sum_of_explained_signals(said: list[tuple[SegmentKind, str]], lead: str):
    value = value_of(part(*said, lead=lead))
    assert value.score == sum(value.signals.values())
    assert value.signals.keys() <= EXPLANATIONS.keys()
    assert all(points > 0 for points in value.signals.values())


def test_every_rule_can_be_given_other_points_or_none():
    said = ("There was an error.", "x" * 6_000, "Well.", "So.")
    loud = [*((SAID, text) for text in said), (FAILED, "no such file")]
    whole = value_of(part(ASKED, *loud))
    assert whole.score > 0
    assert value_of(part(ASKED, *loud), dict.fromkeys(WEIGHTS, 0.0)).score == 0
    more = value_of(part(ASKED, *loud), {**WEIGHTS, "tool_error": 4.0, "longer": 0.0})
    assert more.signals == {**whole.signals, "tool_error": 4.0, "length": 0.5}
