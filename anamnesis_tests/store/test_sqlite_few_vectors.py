"""The vectors that a filter leaves are remembered in the embedded store, and never those that were before."""

from collections.abc import Callable

import numpy as np
import pytest

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.vector_search import FewVectors
from anamnesis_tests.store.samples import put, space, unit

HERE = Where(projects=("here",))


@pytest.fixture
def filled(store: Store) -> Store:
    store.spaces.put(space("s"))
    for name, vector in {"a": (1, 0, 0, 0), "b": (0, 1, 0, 0)}.items():
        (key,) = put(store, name, name, project="here")
        store.vectors.put("s", Variant.TEXT, [key], unit(*vector)[None])
    return store


def nearest(store: Store) -> list[str]:
    return [hit.episode_id for hit in store.vectors.nearest("s", Variant.TEXT, unit(1, 0, 0, 0), 2, HERE)]


def another(store: Store) -> None:
    (key,) = put(store, "c", "c", project="here")
    store.vectors.put("s", Variant.TEXT, [key], unit(1, 0, 0, 0)[None])


def later_vector(store: Store) -> None:
    (passage,) = store.episodes.passages_of("b")
    store.vectors.put("s", Variant.TEXT, [passage.passage_id], unit(1, 0.1, 0, 0)[None])
    (passage,) = store.episodes.passages_of("a")
    store.vectors.put("s", Variant.TEXT, [passage.passage_id], unit(0, 0, 1, 0)[None])


@pytest.mark.parametrize(
    ("write", "then"),
    [
        (another, ["a", "c"]),
        (later_vector, ["b", "a"]),
        (lambda store: store.episodes.delete("a"), ["b"]),
        (lambda store: store.projects.call("here", "there"), []),
    ],
)
@pytest.mark.parametrize("another_process", [False, True])
def test_what_is_written_shows_in_the_next_search(
    filled: Store,
    open_store: Callable[[], Store],
    write: Callable[[Store], None],
    then: list[str],
    another_process: bool,
) -> None:
    assert nearest(filled) == nearest(filled) == ["a", "b"]
    write(open_store() if another_process else filled)
    assert nearest(filled) == then


def test_rows_are_read_once_and_only_so_much_is_held(filled: Store) -> None:
    database: Database = filled.vectors._database  # type: ignore[attr-defined]
    few, key = np.array([1, 2], np.int64), (1, "text", HERE)
    with database.read() as connection:
        remembered, forgetful = FewVectors(), FewVectors(most_bytes=31)
        ids, vectors = remembered.of(connection, key, few, 4)
        assert ids.tolist() == [1, 2]
        assert np.array_equal(vectors, np.array([unit(1, 0, 0, 0), unit(0, 1, 0, 0)]))
        assert remembered.of(connection, key, few, 4)[1] is vectors
        assert remembered.of(connection, key, few.copy(), 4)[1] is not vectors
        assert forgetful.of(connection, key, few, 4)[1] is not forgetful.of(connection, key, few, 4)[1]
