"""Nothing is said unless one hit is close enough; beside that one, what ranks with it."""

import pytest

from anamnesis_pipeline.model import Episode, Passage, StoredPassage
from anamnesis_pipeline.search.floor import UNASKED_LEAST
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.search.telling import (
    BESIDE,
    FLOOR,
    LITERAL_LEAST,
    STRANGER,
    STRANGER_FLOOR,
    says_what_it_asks,
    telling,
)
from anamnesis_tests.store.samples import episode


def hits(*cosines: float | None, sure: float | None = None) -> list[Hit]:
    found: Episode = episode("e")
    stages = {} if sure is None else {"confidence": sure}
    return [
        Hit(found, 1.0, cosine, StoredPassage(n, "e", Passage(0, "text")), explanation={"stages": stages})
        for n, cosine in enumerate(cosines)
    ]


def kept(cosines: list[float | None], *, sure: float | None = None, is_stranger: bool = False) -> list[float | None]:
    return [hit.similarity for hit in telling(hits(*cosines, sure=sure), is_stranger)]


def test_where_it_is_sure_enough_what_is_near_is_said_in_its_order() -> None:
    assert kept([0.35, 0.4, 0.1], sure=LITERAL_LEAST) == [0.35, 0.4]
    assert kept([0.9], sure=LITERAL_LEAST - 0.1) == []
    assert kept([0.5], sure=UNASKED_LEAST + 1, is_stranger=True) == []
    assert kept([0.5], sure=UNASKED_LEAST + STRANGER, is_stranger=True) == [0.5]


def test_without_token_vectors_one_close_hit_brings_what_ranks_beside_it() -> None:
    assert kept([BESIDE, FLOOR, 0.1, 0.35]) == [BESIDE, FLOOR, 0.35]
    assert kept([FLOOR - 0.01, 0.4]) == []
    assert kept([0.5, 0.5], is_stranger=True) == []
    assert kept([STRANGER_FLOOR], is_stranger=True) == [STRANGER_FLOOR]
    assert kept([]) == []


def test_nothing_is_said_while_there_are_no_cosines() -> None:
    assert kept([None, None]) == []
    assert kept([None, 0.9]) == [0.9]


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("go on", False),
        ("yes, do it", False),
        ("continue", False),
        ("why?", False),
        ("src/billing.py:44", True),
        ("Why does the retry charge twice?", True),
    ],
)
def test_a_prompt_that_names_nothing_asks_nothing(prompt: str, says: bool) -> None:
    assert says_what_it_asks(prompt) is says
