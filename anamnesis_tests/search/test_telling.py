"""Nothing is said unless one hit is close enough; beside that one, what ranks with it."""

from typing import Any

import pytest

from anamnesis_pipeline.model import Episode, Passage, StoredPassage
from anamnesis_pipeline.search.floor import MIN_UNASKED
from anamnesis_pipeline.search.query import Hit
from anamnesis_pipeline.search.telling import BESIDE, MIN_LITERAL, STRANGER, says_what_it_asks, telling
from anamnesis_tests.support.samples import episode


def hits(*above: float | None, sure: float | None, names: bool) -> list[Hit]:
    found: Episode = episode("e")
    stages = [{"confidence": sure, "nearness": near} for near in above]
    lists = {"exact": {"rank": 1}} if names else {}
    return [
        Hit(found, 1.0, 0.5, StoredPassage(n, "e", Passage(0, "text")), explanation={"stages": _known(stage), **lists})
        for n, stage in enumerate(stages)
    ]


def _known(stage: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in stage.items() if value is not None}


def kept(above: list[float | None], *, sure: float | None, is_stranger: bool = False, names: bool = False) -> list[int]:
    """Places of the hits that are worth saying. `names`: the prompt names what they hold."""
    return [hit.passage.passage_id for hit in telling(hits(*above, sure=sure, names=names), is_stranger)]


@pytest.mark.parametrize(
    ("above", "given", "said"),
    [
        ([BESIDE, 4.0, BESIDE - 0.1], {"sure": MIN_UNASKED}, [0, 1]),
        ([4.0], {"sure": MIN_UNASKED - 0.1}, []),
        ([], {"sure": None}, []),
        ([4.0], {"sure": MIN_LITERAL, "names": True}, [0]),
        ([4.0], {"sure": MIN_LITERAL - 0.1, "names": True}, []),
        ([4.0], {"sure": MIN_UNASKED + STRANGER - 0.1, "is_stranger": True}, []),
        ([4.0], {"sure": MIN_UNASKED + STRANGER, "is_stranger": True}, [0]),
        ([4.0, 4.0], {"sure": None}, []),  # not known how near it is
        ([None, 4.0], {"sure": MIN_UNASKED}, [1]),
    ],
)
def test_what_is_near_is_said_where_it_is_sure_enough(
    above: list[float | None], given: dict[str, Any], said: list[int]
) -> None:
    assert kept(above, **given) == said


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
