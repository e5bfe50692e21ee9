"""The full-text indexes of the embedded store, made again from the stored passages."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import RetryLater, StoreCorrupt
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite import text_rebuild
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.samples import episode, passages

EVERYTHING = EpisodeFilter()
EPISODES = 7


@pytest.fixture(autouse=True)
def few_rows_per_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rebuild, "MAX_ROWS_PER_WRITE", 2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = opening(tmp_path)
    for number in range(EPISODES):
        opened.episodes.put([(episode(f"e{number}", number), passages(f"zeppelin hangar-{number}", "日本語の索引"))])
    yield opened
    opened.close()


def opening(folder: Path) -> Store:
    return open_sqlite(folder / "a.db", folder / "index")


def damage(folder: Path) -> None:
    """Remove words from the indexes alone."""
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        for table in ("stem_index", "exact_index"):
            connection.execute(f"DELETE FROM {table}_docsize WHERE id < 3")
            connection.execute(f"DELETE FROM {table}_data WHERE id > 10")
        connection.commit()


def found(store: Store, word: str = "zeppelin", analyzer: str = "stem") -> set[str]:
    return {hit.episode_id for hit in store.text.matching([word], 50, EVERYTHING, analyzer=analyzer)}


def every() -> set[str]:
    return {f"e{number}" for number in range(EPISODES)}


def test_rebuilt_index_answers_as_the_one_before(store: Store) -> None:
    before = store.text.matching(["zeppelin"], 50, EVERYTHING), store.text.matching(["索引"], 50, EVERYTHING)
    assert [*store.text.rebuild()][-1] == (2 * EPISODES, 2 * EPISODES)
    assert (store.text.matching(["zeppelin"], 50, EVERYTHING), store.text.matching(["索引"], 50, EVERYTHING)) == before
    assert store.text.check() == []
    assert found(store, "hangar-3", "exact") == {"e3"}
    store.episodes.put([(episode("late", 99), passages("zeppelin"))])
    store.episodes.delete("e0")
    assert found(store) == every() - {"e0"} | {"late"}
    assert store.text.check() == []


def test_rebuild_repairs_a_damaged_index_that_a_service_searches(store: Store, tmp_path: Path) -> None:
    with closing(opening(tmp_path)) as service:
        damage(tmp_path)
        assert service.text.check()
        with pytest.raises(StoreCorrupt):
            found(service)
        assert [*store.text.rebuild()]
        assert service.text.check() == []
        assert found(service, "hangar-0", "exact") == {"e0"}
        assert found(service) == every()


def test_former_index_answers_and_takes_writes_until_the_end(store: Store, tmp_path: Path) -> None:
    with closing(opening(tmp_path)) as service:
        for step, _ in enumerate(store.text.rebuild()):
            assert found(service) == every() | {f"new{n}" for n in range(min(step, 3))}
            if step < 3:
                service.episodes.put([(episode(f"new{step}", 50 + step), passages("zeppelin"))])
        service.episodes.delete("e1")
        assert found(service) == (every() | {"new0", "new1", "new2"}) - {"e1"}
        assert service.text.check() == []


def test_text_deleted_during_a_rebuild_is_not_in_the_new_index(store: Store) -> None:
    for step, _ in enumerate(store.text.rebuild()):
        if step == 2:
            store.episodes.delete("e0")  # was added already
            store.episodes.delete("e6")  # is still to come
    assert found(store) == every() - {"e0", "e6"}
    assert store.text.check() == []


def test_killed_rebuild_loses_nothing_and_a_rerun_completes(store: Store, tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from anamnesis_pipeline.store.sqlite import text_rebuild as t; "
        "from anamnesis_pipeline.store.sqlite.opening import open_sqlite; t.MAX_ROWS_PER_WRITE = 2; "
        "f = Path(sys.argv[1]); steps = open_sqlite(f / 'a.db', f / 'index').text.rebuild(); "
        "next(steps); next(steps); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    assert found(store) == every()
    assert store.text.check() == []
    assert [*store.text.rebuild()][-1] == (2 * EPISODES, 2 * EPISODES)
    assert found(store) == every()
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        left = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE '%next%' OR name LIKE 'text_re%'")
        assert left.fetchall() == []


@pytest.mark.parametrize("what", ["scrub", "rebuild"])
def test_rebuild_says_that_its_new_index_was_removed(store: Store, what: str) -> None:
    steps = store.text.rebuild()
    next(steps)
    other = store.text.rebuild()
    store.forgetting.scrub() if what == "scrub" else next(other)
    with pytest.raises(RetryLater, match="the former index still answers"):
        next(steps)
    assert found(store) == every()
