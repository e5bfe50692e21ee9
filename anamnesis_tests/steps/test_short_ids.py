"""A short form of an id means that id as long as it is the only one."""

import pytest

from anamnesis_pipeline.errors import EpisodeNotFound, IdAmbiguous
from anamnesis_pipeline.steps.short_ids import find_episode, short_ids, whole_id
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.store.samples import put

IDS = (
    "48d31a139c6944405ee948d31a139c69",
    "48d31a139c69ffff000048d31a139c69",
    "48d31a",
    "e52b14176ce8990dd6dfe52b14176ce8",
    "ep_20260211_e52b14176ce8",
)


@pytest.fixture
def known(store: Store) -> Store:
    for name in IDS:
        put(store, name, "text")
    return store


def test_short_ids_are_as_short_as_is_unique(known: Store) -> None:
    short = short_ids(known, IDS)
    assert short == {
        IDS[0]: "48d31a139c694440", IDS[1]: "48d31a139c69ffff", IDS[2]: "48d31a", IDS[3]: "e52b14", IDS[4]: IDS[4],
    }  # fmt: skip
    assert [find_episode(known, name).episode_id for name in short.values()] == list(IDS)


def test_an_exact_id_wins_over_longer_ones(known: Store) -> None:
    assert whole_id(known, "48d31a") == "48d31a"


def test_an_ambiguous_beginning_names_two_of_its_ids(known: Store) -> None:
    with pytest.raises(IdAmbiguous, match=f"'48d31a1'.*{IDS[0]} and {IDS[1]}"):
        find_episode(known, "48d31a1")


@pytest.mark.parametrize("text", ["e52", "", "unknown", f"{IDS[3]}0"])
def test_what_begins_no_id_or_is_too_short_is_not_found(known: Store, text: str) -> None:
    assert whole_id(known, text) == text
    with pytest.raises(EpisodeNotFound):
        find_episode(known, text)
