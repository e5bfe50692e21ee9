"""What passes a filter, and the vectors that it leaves, are remembered, and never show after a write."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.vector_search import FewVectors
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.samples import DAY, edit, put, space, unit

Write = Callable[[Store], object]
HERE, HOUR = EpisodeFilter(projects=("acme/api",)), EpisodeFilter(since=DAY, until=DAY.replace(hour=13))
EAST, NORTH = unit(1, 0, 0, 0), unit(0, 1, 0, 0)


def kept(store: Store, name: str, vector: np.ndarray, **fields: object) -> None:
    store.vectors.put("s", Variant.TEXT, put(store, name, "needle", **fields), vector[None])


@pytest.fixture
def filled(store: Store) -> Store:
    store.spaces.put(space("s"))
    kept(store, "a", EAST, tags=("red",))
    kept(store, "b", NORTH, tags=("green",), kind="decision", minute=-60 * 24)
    return store


def found(store: Store, where: EpisodeFilter) -> tuple[set[str], list[str]]:
    """Ids of those with the word, and of the nearest in their order."""
    words = store.text.matching(["needle"], 5, where)
    near = store.vectors.nearest("s", Variant.TEXT, EAST, 2, where)
    return {hit.episode_id for hit in words}, [hit.episode_id for hit in near]


def renamed(store: Store) -> None:
    store.projects.rename("acme/api", "acme/web")
    store.projects.call("acme/web", "acme/web")


def vectors_changed(store: Store) -> None:
    for name, vector in (("b", unit(1, 0.1, 0, 0)), ("a", unit(0, 0, 1, 0))):
        (passage,) = store.episodes.passages_of(name)
        store.vectors.put("s", Variant.TEXT, [passage.passage_id], vector[None])


@pytest.mark.parametrize(
    ("where", "before", "write", "near", "words"),
    [
        (HERE, "ab", renamed, "", ""),
        (HERE, "ab", lambda store: store.projects.call("acme/api", "there"), "", ""),
        (HERE, "ab", lambda store: store.episodes.delete("a"), "b", "b"),
        (HERE, "ab", lambda store: kept(store, "c", EAST), "ac", "abc"),
        (HERE, "ab", vectors_changed, "ba", "ab"),
        (HERE, "ab", lambda store: edit(store, "a", status="superseded"), "b", "b"),
        (EpisodeFilter(tags=("red",)), "a", lambda store: edit(store, "a", tags=("blue",)), "", ""),
        (EpisodeFilter(kinds=("note",)), "a", lambda store: edit(store, "a", kind="decision"), "", ""),
        (HOUR, "a", lambda store: edit(store, "a", timestamp=DAY.replace(year=2028)), "", ""),
    ],
)
@pytest.mark.parametrize("another_process", [False, True])
def test_write_that_changes_what_passes_shows_in_the_next_search(
    filled: Store,
    open_store: OpenStore,
    where: EpisodeFilter,
    before: str,
    write: Write,
    near: str,
    words: str,
    another_process: bool,
) -> None:
    assert found(filled, where) == found(filled, where) == ({*before}, [*before])
    write(open_store() if another_process else filled)
    assert found(filled, where) == ({*words}, [*near])


def test_what_is_written_later_is_found_within_the_same_filter(store: Store) -> None:
    for n in range(5):
        put(store, f"e{n}", "needle")
        assert len(store.text.matching(["needle"], 9, HERE)) == n + 1


def test_counting_retrievals_lets_the_filters_be(store: Store, tmp_path: Path) -> None:
    put(store, "a", "needle")
    with closing(Database(tmp_path / "anamnesis.db")) as database:

        def version() -> int:
            with database.read() as connection:
                return int(connection.execute("SELECT version FROM filter_version").fetchone()[0])

        before = version()
        store.episodes.track(["a"], DAY)
        assert version() == before
        put(store, "b", "other")
        assert version() > before


def test_rows_are_read_once_and_only_so_much_is_held(filled: Store, tmp_path: Path) -> None:
    few, key = np.array([1, 2], np.int64), (1, "text", HERE)
    with closing(Database(tmp_path / "anamnesis.db")) as database, database.read() as connection:
        remembered, forgetful = FewVectors(), FewVectors(most_bytes=31)
        ids, vectors = remembered.of(connection, key, few, 4)
        assert ids.tolist() == [1, 2]
        assert np.array_equal(vectors, np.array([EAST, NORTH]))
        assert remembered.of(connection, key, few, 4)[1] is vectors
        assert remembered.of(connection, key, few.copy(), 4)[1] is not vectors
        assert forgetful.of(connection, key, few, 4)[1] is not forgetful.of(connection, key, few, 4)[1]
