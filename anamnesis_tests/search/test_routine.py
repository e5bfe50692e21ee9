"""Routine ranks lower, and is found by its literal tokens all the same."""

from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import Mode, SearchQuery
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.store.samples import put

TEXT = "the zeppelin gateway keeps its window"


def ranked(store: Store, mode: Mode, least: float) -> list[str]:
    engine = Engine(store, None, min_value=lambda: least)
    answer = engine.search(SearchQuery("zeppelin gateway", mode=mode, fold=False))
    return [hit.episode.episode_id for hit in answer.hits]


def test_routine_ranks_below_what_matches_almost_as_well(store: Store):
    put(store, "routine", TEXT, metadata={"value": 0.5}, source="mac--logs--00000000")
    put(store, "worth it", TEXT + " open", metadata={"value": 4.0}, source="mac--logs--00000000")
    assert ranked(store, Mode.HYBRID, 0.0) == ["routine", "worth it"]
    assert ranked(store, Mode.HYBRID, 1.0) == ["worth it", "routine"]


def test_whoever_asks_for_literal_tokens_gets_them_in_the_order_of_their_match(store: Store):
    put(store, "routine", TEXT, metadata={"value": 0.5}, source="mac--logs--00000000")
    put(store, "worth it", TEXT + " open", metadata={"value": 4.0}, source="mac--logs--00000000")
    assert ranked(store, Mode.EXACT, 1.0) == ranked(store, Mode.EXACT, 0.0)
    assert "routine" in ranked(store, Mode.EXACT, 1.0)


def test_an_episode_without_a_value_is_never_routine(store: Store):
    put(store, "posted", TEXT)
    put(store, "odd", TEXT + " open", metadata={"value": "much"}, source="mac--logs--00000000")
    assert ranked(store, Mode.HYBRID, 20.0) == ranked(store, Mode.HYBRID, 0.0)
