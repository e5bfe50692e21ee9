"""Contract: a filter by layer passes exactly what `memory_layers.layer_of` says, at that time."""

from datetime import timedelta
from itertools import product

import pytest

from anamnesis_pipeline.memory_layers import Layer, layer_of
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.store.samples import DAY, put

KINDS = ("exchange", "note", "record", "procedure", "code", "decision")
METADATA: tuple[dict[str, object], ...] = (
    {}, {"value": 2.79}, {"value": 2.8}, {"value": 9}, {"value": True}, {"value": "9"}, {"type": "procedure"},
    {"trust": "file"}, {"trust": None},
)  # fmt: skip
AGES = (0, 29, 30, 31)
RETRIEVALS = (0, 1, 2, 4, 5)


@pytest.fixture
def full_store(store: Store) -> Store:
    made = product(KINDS, METADATA, AGES)
    for number, (kind, metadata, age) in enumerate(made):
        tags, source = ("pinned",) * (number % 7 == 0), "direct" if number % 5 == 0 else "logs"
        put(store, f"e{number}", "text", minute=-age, kind=kind, metadata=metadata, tags=tags, source=source)
    return store


def test_a_filter_by_layer_passes_what_is_in_it(full_store: Store) -> None:
    known = [episode.episode_id for episode in full_store.episodes.page(Where(), 1_000).items]
    for before, count in zip((0, *RETRIEVALS), RETRIEVALS, strict=False):
        for _ in range(count - before):
            full_store.episodes.track(known, DAY, read=True)
        layers = {e.episode_id: layer_of(e, DAY) for e in full_store.episodes.get(known).values()}
        for layer in Layer:
            where = Where(layers=(layer.value,), layers_at=DAY)
            found = {episode.episode_id for episode in full_store.episodes.page(where, 1_000).items}
            assert found == {episode_id for episode_id, its in layers.items() if its is layer}, (layer, count)


def test_a_search_by_layer_follows_the_clock_and_what_was_read(store: Store) -> None:
    put(store, "e", "zeppelin", kind="exchange")

    def working(minutes: int) -> list[str]:
        where = Where(layers=("working",), layers_at=DAY + timedelta(minutes=minutes))
        return [passage.episode_id for passage in store.text.matching(["zeppelin"], 5, where)]

    for _ in range(5):  # being listed moves nothing
        store.episodes.track(["e"], DAY)
    assert (working(29), working(30)) == (["e"], [])
    store.episodes.track(["e"], DAY, read=True)
    assert working(28) == ["e"]
    store.episodes.track(["e"], DAY, read=True)
    assert working(27) == []


def test_layers_are_of_a_time(store: Store) -> None:
    with pytest.raises(ValueError, match="layers_at"):
        store.episodes.count(Where(layers=("working",)))
