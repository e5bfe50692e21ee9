"""The map of memory: what is alike lies together, the same map of the same memory, and no text in its file."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.pipeline import map_layout
from anamnesis_pipeline.pipeline.memory_map import (
    CENTRES,
    MIN_EPISODES,
    NONE,
    MemoryMap,
    TooFewEpisodesError,
    is_map_due,
    make_map,
    map_path,
    read_map,
    save_map,
)
from anamnesis_pipeline.services.map_picture import COLOURS, SIZE_PX, picture_of
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import episode, passages, random_units, space, unit

TOPICS = random_units(4, 16, seed=3)


def fill(
    store: Store, count: int, *, projects: Sequence[str] = ("big", "big", "big", "small"), first: int = 0
) -> Space:
    """`count` episodes, each of one of four topics, which are the projects; `big` has three of them."""
    store.spaces.put(replace(space("s", 16), status="added"))
    store.spaces.activate("s")
    noise = 0.15 * random_units(count, 16, seed=7 + first)
    for n in range(first, first + count):
        store.episodes.put([(episode(f"e{n}", n, project=projects[n % 4]), passages(f"text {n}"))])
        (stored,) = store.episodes.passages_of(f"e{n}")
        vector = unit(*(TOPICS[n % 4] + noise[n - first]))
        store.vectors.put("s", Variant.TEXT, [stored.passage_id], vector[None])
    return store.spaces.active()


def topics_of(store: Store, made: MemoryMap) -> NDArray[np.intp]:
    """The topic of each point."""
    stored = store.episodes.passages([int(key) for key in made.passages])
    return np.array([int(stored[int(key)].episode_id[1:]) % 4 for key in made.passages])


def test_what_is_alike_lies_together_in_every_map(store: Store):
    filled = fill(store, 200)
    made, again = (make_map(store, filled, landmarks=80) for _ in range(2))
    np.testing.assert_array_equal(made.places, again.places)
    np.testing.assert_array_equal(made.passages, again.passages)
    topics, places = topics_of(store, made), made.places.astype(float)
    assert (made.landmarks, made.episodes, len(places)) == (80, 200, 200)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    nearest = topics[np.argsort(apart, axis=1)[:, :5]]
    assert np.mean(nearest == topics[:, None]) > 0.95


def test_points_come_by_project_the_largest_first(store: Store):
    made = make_map(store, fill(store, 80), landmarks=40)
    assert made.counts.tolist() == [60, 20]
    assert made.starts.tolist() == [0, 60, 80]
    heads = store.episodes.heads([f"e{n}" for n in range(80)])
    stored = store.episodes.passages([int(key) for key in made.passages])
    names = [heads[stored[int(key)].episode_id].project for key in made.passages]
    assert names == ["big"] * 60 + ["small"] * 20
    assert [made.is_of(point) for point in (0, 59, 60, 79)] == [0, 0, 1, 1]
    central = store.episodes.passages([int(key) for key in made.centres[1]])
    assert {heads[each.episode_id].project for each in central.values()} == {"small"}
    assert len(central) == CENTRES


def test_a_project_of_one_episode_is_known_by_that(store: Store):
    filled = fill(store, 40)
    store.episodes.put([(episode("alone", project="alone"), passages("text"))])
    (stored,) = store.episodes.passages_of("alone")
    store.vectors.put("s", Variant.TEXT, [stored.passage_id], TOPICS[:1])
    assert make_map(store, filled).centres[-1].tolist() == [stored.passage_id] + [NONE] * (CENTRES - 1)


def test_no_more_points_are_drawn_than_are_asked_for(store: Store):
    filled = fill(store, 100)
    made = make_map(store, filled, landmarks=50, most=30)
    assert (made.episodes, len(made.places), made.counts.sum()) == (100, 30, 100)
    more = make_map(store, filled, landmarks=50, most=60)
    assert set(made.passages.tolist()) < set(more.passages.tolist())


def test_what_comes_while_a_map_is_drawn_is_on_the_next_one(store: Store, monkeypatch: pytest.MonkeyPatch):
    filled, laid_out = fill(store, 40), map_layout.laid_out

    def late(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        fill(store, 40, first=40)
        return laid_out(vectors)

    monkeypatch.setattr(map_layout, "laid_out", late)
    made = make_map(store, filled)
    assert (made.episodes, len(made.places), int(made.starts[-1]), int(made.counts.sum())) == (40, 40, 40, 40)


def test_of_too_few_episodes_there_is_no_map(store: Store):
    with pytest.raises(TooFewEpisodesError, match=f"needs {MIN_EPISODES} .* there are {MIN_EPISODES - 1};"):
        make_map(store, fill(store, MIN_EPISODES - 1))


def test_episodes_that_all_say_the_same_still_have_a_map(store: Store):
    store.spaces.put(space("s"))
    store.spaces.activate("s")
    for n in range(MIN_EPISODES):
        store.episodes.put([(episode(f"e{n}"), passages("text"))])
        (stored,) = store.episodes.passages_of(f"e{n}")
        store.vectors.put("s", Variant.TEXT, [stored.passage_id], unit(1, 0, 0, 0)[None])
    active = store.spaces.active()
    assert len(make_map(store, active).places) == MIN_EPISODES


# --- pure --------------------------------------------------------------------------------------------------


def test_a_sample_is_of_the_smallest_ranks_however_they_come():
    ranks = np.random.default_rng(0).permutation(1_000).astype(np.int64)
    sample = map_layout.Sample(50, 1)
    for at in range(0, 1_000, 33):
        sample.add(ranks[at : at + 33], ranks[at : at + 33, None].astype(np.float32))
        assert len(sample.ranks) <= 100 + 33
    taken, vectors = sample.taken()
    assert taken.tolist() == list(range(50))
    assert vectors[:, 0].tolist() == list(range(50))


def test_an_episode_lies_among_the_landmarks_that_it_is_like():
    landmarks = np.stack([unit(1, 0, 0), unit(0, 1, 0), unit(0, 0, 1)])
    places = np.array([[0, 0], [10, 0], [0, 10]], np.float32)
    (near,) = map_layout.placed(unit(1, 0.02, 0)[None], landmarks, places)
    (between,) = map_layout.placed(unit(1, 1, 0)[None], landmarks, places)
    assert np.abs(near).max() < 0.01
    np.testing.assert_allclose(between, [5, 0], atol=0.01)


def test_places_keep_their_proportions_within_the_square():
    places = map_layout.scaled(np.array([[0, 0], [100, 0], [0, 50]], np.float32)).astype(int)
    assert places.min() >= 0
    assert places.max() <= map_layout.SIDE
    wide, high = places[1, 0] - places[0, 0], places[2, 1] - places[0, 1]
    assert wide == pytest.approx(2 * high, abs=2)


def test_ranks_are_spread_evenly():
    ranks = sorted(map_layout.rank_of(f"episode {n}") for n in range(2_000))
    assert 0 <= ranks[0] <= ranks[-1] < 2**63
    assert max(b - a for a, b in pairwise(ranks)) < 2**63 / 2_000 * 15


# --- the file ----------------------------------------------------------------------------------------------


@pytest.fixture
def made(store: Store) -> MemoryMap:
    return make_map(store, fill(store, 40))


def test_a_map_reads_back_as_it_was_written(made: MemoryMap, tmp_path: Path):
    path = map_path(tmp_path)
    assert read_map(path) is None
    save_map(path, made)
    found = read_map(path)
    assert found is not None
    for name in MemoryMap.__slots__:
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert found.mark == made.mark
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_file_holds_no_text_of_the_memory(made: MemoryMap, tmp_path: Path):
    save_map(map_path(tmp_path), made)
    content = map_path(tmp_path).read_bytes()
    assert not [word for word in (b"small", b"big", b"acme", b"text 1", b"e12") if word in content]


def test_a_damaged_map_is_told_and_replaced(made: MemoryMap, tmp_path: Path):
    path = map_path(tmp_path)
    save_map(path, made)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreCorrupt, match="draw the map again"):
        read_map(path)
    save_map(path, made)
    assert read_map(path) is not None


def test_a_map_is_due_where_the_space_or_many_episodes_are_new(store: Store, tmp_path: Path):
    assert not is_map_due(store, tmp_path)
    filled = fill(store, 100)
    assert is_map_due(store, tmp_path)
    save_map(map_path(tmp_path), make_map(store, filled))
    assert not is_map_due(store, tmp_path)
    fill(store, 4, first=100)
    assert is_map_due(store, tmp_path)
    save_map(map_path(tmp_path), make_map(store, filled))
    store.spaces.put(space("other", 16))
    store.vectors.put("other", Variant.TEXT, [1], TOPICS[:1])
    made = read_map(map_path(tmp_path))
    assert made.is_due("other", made.embedded)
    map_path(tmp_path).write_bytes(b"nonsense")
    assert is_map_due(store, tmp_path)


def test_the_picture_shows_each_project_in_its_colour(made: MemoryMap):
    picture = picture_of(made)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture[16:24]) == (SIZE_PX, SIZE_PX)
    chunks, at = {}, 8
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        name, data = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        assert struct.unpack(">I", picture[at + 8 + length : at + 12 + length])[0] == zlib.crc32(name + data)
        chunks[name], at = data, at + 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert len(chunks[b"PLTE"]) == 3 * len(COLOURS)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(SIZE_PX, 1 + SIZE_PX // 2)
    assert not lines[:, 0].any()
    assert set(np.unique(np.concatenate([lines[:, 1:] >> 4, lines[:, 1:] & 15]))) == {0, 1, 2}


def test_the_picture_of_many_points_stays_small():
    count = 100_000
    places = np.random.default_rng(0).integers(0, map_layout.SIDE, (count, 2)).astype(np.uint16)
    zeros = np.zeros(count, np.int64)
    starts, counts = np.arange(0, count + 1, count // 20), np.full(20, count // 20)
    many = MemoryMap(
        "s", "m", datetime.now(UTC), 1.0, 1, count, count, places, zeros, starts, counts, np.full((20, CENTRES), NONE)
    )
    assert len(picture_of(many)) < 160_000
