"""Of what was forgotten nothing is left in the files of the embedded store."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from anamnesis_pipeline.model import EpisodeFilter, Passage, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.store.forgotten_words import fill, forget_half
from anamnesis_tests.support.samples import episode, put, space


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")
    yield opened
    opened.close()


def test_nothing_of_a_deleted_text_is_left_in_any_file(store: Store, tmp_path: Path) -> None:
    words = fill(store)
    store.vectors.build("s", force=True)
    before = sorted(file.name for file in tmp_path.rglob("*.usearch"))
    those = forget_half(store, words)
    assert store.forgetting.scrub() == []
    data = b"".join(file.read_bytes().lower() for file in tmp_path.rglob("*") if file.is_file())
    assert [word for own in those.gone.values() for word in own if word.encode() in data] == []
    assert all(own[5].encode() in data for own in those.kept.values())
    after = sorted(file.name for file in tmp_path.rglob("*.usearch"))
    assert len(after) == len(before) == 1
    assert after != before
    assert store.vectors.build("s").dead == 0
    assert store.text.check() == []
    first = next(iter(those.kept))
    assert [hit.episode_id for hit in store.text.matching([words[first][7]], 5, EpisodeFilter())] == [first]


def test_an_index_file_of_which_nothing_is_left_goes(store: Store, tmp_path: Path) -> None:
    store.spaces.put(space("s"))
    (passage,) = put(store, "e", "text")
    store.vectors.put("s", Variant.TEXT, [passage], np.array([[1, 0, 0, 0]], np.float32))
    store.vectors.build("s", force=True)
    store.episodes.delete("e")
    assert store.forgetting.scrub() == []
    assert list(tmp_path.rglob("*.usearch")) == []
    (other,) = put(store, "f", "text")
    store.vectors.put("s", Variant.TEXT, [other], np.array([[1, 0, 0, 0]], np.float32))
    assert store.vectors.nearest("s", Variant.TEXT, np.array([1, 0, 0, 0], np.float32), 1, EpisodeFilter())


def test_the_write_ahead_log_is_emptied(store: Store, tmp_path: Path) -> None:
    put(store, "e", "text")
    assert store.forgetting.rewrite_episode(episode("e"), [Passage(0, "x")])
    assert store.forgetting.scrub() == []
    assert (tmp_path / "anamnesis.db-wal").stat().st_size == 0


def test_nothing_is_kept_that_scrubbing_does_not_reach(store: Store) -> None:
    assert store.forgetting.keeps() == []
