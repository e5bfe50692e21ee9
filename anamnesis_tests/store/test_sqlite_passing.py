"""What passes a filter is remembered in the embedded store, and never shows after a write that changed it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.store.samples import DAY, episode, passages, put, space, unit


def edited(store: Store, **fields: object) -> None:
    held = store.episodes.get(["a"])["a"]
    store.episodes.replace(replace(held, **fields), passages("needle"), held.content_hash)  # type: ignore[arg-type]


def renamed(store: Store) -> None:
    store.projects.rename("acme/api", "acme/web")
    store.projects.call("acme/web", "acme/web")


@pytest.mark.parametrize(
    ("where", "write"),
    [
        (Where(projects=("acme/api",)), renamed),
        (Where(projects=("acme/api",)), lambda store: store.episodes.delete("a")),
        (Where(projects=("acme/api",)), lambda store: edited(store, status="superseded")),
        (Where(tags=("red",)), lambda store: edited(store, tags=("blue",))),
        (Where(kinds=("note",)), lambda store: edited(store, kind="decision")),
        (Where(until=DAY.replace(year=2027)), lambda store: edited(store, timestamp=DAY.replace(year=2028))),
    ],
)
@pytest.mark.parametrize("another_process", [False, True])
def test_a_write_that_changes_what_passes_shows_in_the_next_search(
    tmp_path: Path, where: Where, write: Callable[[Store], None], another_process: bool
) -> None:
    def opened() -> Store:
        return open_sqlite(tmp_path / "a.db", tmp_path / "index")

    store = opened()
    store.spaces.put(space("s"))
    (key,) = put(store, "a", "needle", tags=("red",))
    store.vectors.put("s", Variant.TEXT, [key], unit(1, 0, 0, 0)[None])
    assert found(store, where) == (["a"], ["a"])
    writer = opened() if another_process else store
    write(writer)
    assert found(store, where) == ([], [])
    writer.close()
    store.close()


def found(store: Store, where: Where) -> tuple[list[str], list[str]]:
    words = store.text.matching(["needle"], 5, where)
    near = store.vectors.nearest("s", Variant.TEXT, unit(1, 0, 0, 0), 5, where)
    return [hit.episode_id for hit in words], [hit.episode_id for hit in near]


def test_what_is_written_later_is_found_within_the_same_filter(store: Store) -> None:
    where = Where(projects=("acme/api",))
    for n in range(5):
        store.episodes.put([(episode(f"e{n}"), passages("needle"))])
        assert len(store.text.matching(["needle"], 9, where)) == n + 1


def test_counting_retrievals_lets_the_filters_be(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "a.db", tmp_path / "index")
    put(store, "a", "needle")
    database = Database(tmp_path / "a.db")

    def version() -> int:
        with database.read() as connection:
            return int(connection.execute("SELECT version FROM filter_version").fetchone()[0])

    before = version()
    store.episodes.track(["a"], DAY)
    assert version() == before
    put(store, "b", "other")
    assert version() > before
    database.close()
    store.close()
