"""What is near is judged by what questions on other things find, whatever the model's cosines are like."""

import pytest

from anamnesis_pipeline.model import ScoredPassage
from anamnesis_pipeline.search.floor import (
    MIN_ASKED,
    MIN_SPREAD,
    UNKNOWN_MOST,
    Confidence,
    Evidence,
    Level,
    confidence,
    in_words,
    level_of,
    nearest_of,
    nearness,
    says_nothing,
)
from anamnesis_pipeline.search.fusion import Ranking

LEVEL = Level({"dense_text": 0.25, "dense_context": 0.2}, {"dense_text": 0.05, "dense_context": 0.06}, 0.45)


def found(text: float, context: float, unknown: float = 0.1) -> Evidence:
    return Evidence({"dense_text": text, "dense_context": context}, unknown)


def sure(evidence: Evidence, level: Level = LEVEL) -> float:
    value = confidence(evidence, level)
    assert value is not None
    return value


def test_nearer_passages_and_known_words_make_it_surer() -> None:
    usual = sure(found(0.4, 0.4))
    assert sure(found(0.5, 0.4)) > usual
    assert sure(found(0.4, 0.5)) > usual
    assert sure(found(0.4, 0.4, unknown=0.0)) > usual > sure(found(0.4, 0.4, unknown=0.3))


def test_what_other_things_find_is_no_answer_and_what_is_far_above_it_is() -> None:
    assert sure(found(0.25, 0.2, unknown=0.45)) < MIN_ASKED < sure(found(0.5, 0.45))


def test_a_model_whose_cosines_are_all_high_is_judged_alike() -> None:
    others = [found(0.2, 0.2), found(0.3, 0.15, 0.4), found(0.35, 0.3, 0.9)]
    high = [
        found(0.8 + each.nearest["dense_text"] / 5, 0.7 + each.nearest["dense_context"] / 3, each.unknown)
        for each in others
    ]
    asked = [found(0.5, 0.5), found(0.8 + 0.5 / 5, 0.7 + 0.5 / 3)]
    assert sure(asked[0], level_of(others)) == pytest.approx(sure(asked[1], level_of(high)))


def test_a_question_in_other_words_or_another_language_is_heard_where_its_passage_is_near() -> None:
    assert sure(found(0.6, 0.55, unknown=1.0)) == sure(found(0.6, 0.55, unknown=UNKNOWN_MOST)) > MIN_ASKED


def test_where_little_is_stored_all_words_are_unknown_to_questions_on_other_things_too() -> None:
    few = level_of([found(0.1, 0.1, unknown=1.0), found(0.2, 0.1, unknown=0.9)])
    assert few.unknown == UNKNOWN_MOST
    assert sure(found(0.4, 0.4, unknown=0.6), few) > MIN_ASKED


def test_cosines_that_hardly_differ_are_not_told_apart_finer_than_they_are_measured() -> None:
    flat = level_of([found(0.2, 0.2), found(0.2, 0.2)])
    assert nearness(0.2 + MIN_SPREAD, flat, "dense_text") == pytest.approx(1.0)


def test_a_list_that_was_not_measured_says_nothing() -> None:
    only_text = Level({"dense_text": 0.25}, {"dense_text": 0.05}, 0.45)
    assert sure(found(0.4, 0.9), only_text) == sure(Evidence({"dense_text": 0.4}, 0.1), only_text)
    assert confidence(Evidence({}, 0.1), LEVEL) is None
    assert nearness(0.5, only_text, "dense_context") is None


@pytest.mark.parametrize(
    ("evidence", "cosine", "word"),
    [
        (found(0.6, 0.55), 0.6, Confidence.STRONG),
        (found(0.6, 0.55), 0.4, Confidence.FAIR),  # a later hit of a sure answer
        (found(0.6, 0.55), 0.2, Confidence.WEAK),
        (found(0.6, 0.55), None, Confidence.FAIR),  # it has no vector yet
        (found(0.2, 0.2, 0.5), 0.2, Confidence.WEAK),
        (found(0.2, 0.2, 0.5), None, Confidence.WEAK),
        (None, None, Confidence.FAIR),
    ],
)
def test_a_word_is_of_the_answer_or_the_hit_whichever_is_less(
    evidence: Evidence | None, cosine: float | None, word: Confidence
) -> None:
    assert in_words(evidence, LEVEL, cosine) is word


def test_the_best_of_each_dense_list_counts() -> None:
    lists = [
        Ranking("dense_text", 1.0, [ScoredPassage(1, "a", 0.7), ScoredPassage(2, "b", 0.5)]),
        Ranking("dense_context", 1.0, []),
        Ranking("words_text", 1.0, [ScoredPassage(1, "a", 12.0)]),
    ]
    assert nearest_of(lists) == {"dense_text": 0.7}


def test_literal_tokens_that_are_found_are_near_enough() -> None:
    exact = Ranking("exact", 2.0, [ScoredPassage(1, "a", 5.0)])
    assert says_nothing([], -1.1, -1.0)
    assert not says_nothing([], -0.9, -1.0)
    assert not says_nothing([], None, -1.0)
    assert not says_nothing([exact], -9.0, -1.0)
