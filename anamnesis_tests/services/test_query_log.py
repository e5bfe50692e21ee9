"""Which answers to a question that found nothing count as missed."""

from collections.abc import Sequence

import pytest

from anamnesis_pipeline.model import StoredPassage
from anamnesis_pipeline.search.floor import MIN_UNASKED
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.query import Hit, Mode
from anamnesis_pipeline.services.query_log import MAX_CHARS, note_query, query_report
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.queries import AskedQuery
from anamnesis_tests.support.samples import DAY, episode, passages


def hit(text: str, sure: float | None = None) -> Hit:
    explained = {"stages": {} if sure is None else {"confidence": sure}}
    return Hit(episode("a"), 1.0, None, StoredPassage(1, "a", passages(text)[0]), explanation=explained)


@pytest.mark.parametrize(
    ("by_words", "by_meaning", "found_by"),
    [
        ([hit("the hangar is green")], [], [Mode.EXACT]),
        ([hit("the hangar")], [], []),
        ([hit("the hangar"), hit("a green hangar")], [hit("grass", 0.9)], [Mode.EXACT]),
        ([], [hit("grass colored shed", MIN_UNASKED)], [Mode.SEMANTIC]),
        ([], [hit("teapot", MIN_UNASKED - 0.01)], []),
        ([], [hit("teapot", None)], []),
    ],
)
def test_a_question_was_missed_if_words_or_meaning_are_there(
    store: Store, by_words: list[Hit], by_meaning: list[Hit], found_by: list[Mode]
) -> None:
    store.queries.note("which hangar is green", {}, [], DAY)

    def ask(asked: AskedQuery, mode: Mode) -> Sequence[Hit]:
        return by_words if mode is Mode.EXACT else by_meaning

    report = query_report(store, ask, 10)
    assert [missed.found_by for missed in report.missed] == found_by
    assert report.unanswered == 1


@pytest.mark.parametrize(
    ("question", "mode", "found_by"),
    [
        ("what did we do last week?", "hybrid", []),
        ("what did we paint last week?", "hybrid", [Mode.EXACT]),
        ("hangar_green:4711", "exact", []),
        ("hangar_green:4711", "hybrid", [Mode.SEMANTIC]),
    ],
)
def test_no_text_answers_for_a_time_or_a_literal(store: Store, question: str, mode: str, found_by: list[Mode]) -> None:
    store.queries.note(question, {"mode": mode}, [], DAY)

    def ask(asked: AskedQuery, how: Mode) -> Sequence[Hit]:
        return [hit("we paint it last, next week") if how is Mode.EXACT else hit("a green hangar", 3.0)]

    assert [missed.found_by for missed in query_report(store, ask, 10).missed] == found_by


def test_a_secret_is_masked_before_a_long_question_is_cut(store: Store) -> None:
    text = "x" * (MAX_CHARS - 3) + " secret"
    assert note_query(store, text, {}, [], mask=lambda t: t.replace("secret", "***"), private=Private(), now=DAY)
    (asked,) = store.queries.unanswered(1)
    assert asked.query == "x" * (MAX_CHARS - 3) + " **"
