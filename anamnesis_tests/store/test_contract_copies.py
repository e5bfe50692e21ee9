"""A memory that is copied answers as before, wherever the copy is interrupted."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.services import store_copies
from anamnesis_pipeline.services.store_copies import move, settle
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.copying import line_of, row_of, rows_of
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.tables import TABLES
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.support.samples import edit, put
from anamnesis_tests.support.whole_memory import NEXT, answers, contents, fill, overlap


def quiet(step: str, done: int, of: int) -> None:
    """Nobody is told."""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Store]:
    """What is copied."""
    with closing(open_sqlite(tmp_path / "memory" / "anamnesis.db", tmp_path / "memory" / "index")) as store:
        fill(store)
        yield store


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Store]:
    """Where it comes back to."""
    with closing(open_sqlite(tmp_path / "home" / "anamnesis.db", tmp_path / "home" / "index")) as store:
        yield store


def test_the_memory_has_something_in_every_table(memory: Store) -> None:
    assert [name for name, (rows, _) in contents(memory).items() if not rows] == []


def test_a_row_is_the_same_after_it_was_a_line(memory: Store) -> None:
    with memory.copies.reading() as now:
        for table in now.tables():
            for row in rows_of(now, table):
                assert row_of(line_of(row)) == row
                assert tuple(row) == table.fields


def test_pages_of_one_row_come_to_the_same_as_whole_ones(memory: Store) -> None:
    with memory.copies.reading() as now:
        for table in now.tables():
            keys, after = [], None
            while page := now.page(table, after, 1):
                after = table.key_of(page[0])
                keys.append(after)
            assert keys == sorted(keys)
            assert keys == [table.key_of(row) for row in rows_of(now, table)]
            assert len(keys) <= now.count(table)


def test_copy_gives_the_same_there_and_back(memory: Store, store: Store, home: Store, place: tuple[str, Path]) -> None:
    before, wanted = contents(memory), answers(memory)
    assert all(wanted)
    report = move(memory, store, "there", quiet)
    settle(store, "there")
    assert (report.changes.rows, report.changes.removed) == (sum(rows for rows, _ in before.values()), 0)
    assert contents(store) == before
    assert store.text.check() == []
    move(store, home, "here", quiet)
    assert contents(home) == before == contents(memory)
    assert answers(home) == wanted == answers(memory)
    assert answers(store) == wanted if place[0] == "sqlite" else overlap(answers(store), wanted) > 0.9


def test_a_copy_goes_on_living_without_giving_a_number_twice(memory: Store, store: Store) -> None:
    move(memory, store, "there", quiet)
    settle(store, "there")
    last = max(key for key in store.episodes.passages(range(1, 1_000)))
    assert min(put(store, "new", "after the move")) > last
    assert store.vectors.pending_sources(NEXT.key) != {}


def test_second_copy_takes_what_changed_and_removes_what_went(memory: Store, store: Store) -> None:
    move(memory, store, "there", quiet)
    put(memory, "late", "a late zeppelin")
    memory.episodes.delete("e020")
    edit(memory, "e004", status="active", superseded_by=None)
    memory.spaces.stop(NEXT.key)
    memory.spaces.drop(NEXT.key)
    report = move(memory, store, "there", quiet)
    assert report.resumed
    assert 0 < report.changes.written < 20
    assert contents(store) == contents(memory)
    assert move(memory, store, "there", quiet).changes.written == 0
    settle(store, "there")
    assert overlap(answers(store), answers(memory)) > 0.9


def test_an_interrupted_copy_is_no_memory_until_it_was_finished(memory: Store, store: Store) -> None:
    def stop(step: str, done: int, of: int) -> None:
        if step == TABLES[6].name:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(memory, store, "there", stop)
    with pytest.raises(GiveUp, match="not finished"):
        settle(store, "there")
    report = move(memory, store, "there", quiet)
    assert report.resumed
    assert report.changes.written < report.changes.rows / 2
    settle(store, "there")
    assert contents(store) == contents(memory)


def test_copy_goes_on_after_a_space_was_added_again(memory: Store, store: Store) -> None:
    move(memory, store, "there", quiet)
    memory.spaces.stop(NEXT.key)
    memory.spaces.drop(NEXT.key)
    memory.spaces.put(NEXT)
    report = move(memory, store, "there", quiet)
    assert report.resumed
    assert contents(store) == contents(memory)


def test_what_is_written_during_a_copy_is_not_half_in_it(memory: Store, store: Store) -> None:
    before = contents(memory)

    def write(step: str, done: int, of: int) -> None:
        if step == "passages":
            put(memory, "meanwhile", "written meanwhile")
            memory.episodes.delete("e001")

    move(memory, store, "there", write)
    assert contents(store) == before


def test_another_memory_is_never_written_over(memory: Store, store: Store, home: Store) -> None:
    put(store, "mine", "something of mine")
    with pytest.raises(GiveUp, match="holds a memory already"):
        move(memory, store, "there", quiet)
    assert store.episodes.count(EpisodeFilter()) == 1
    move(memory, home, "here", quiet)
    fresh = replace(memory, copies=store.copies)
    with pytest.raises(GiveUp, match="copy of something else"):
        move(fresh, home, "here", quiet)


def test_one_of_two_memories_is_copied_into_a_place(
    memory: Store, home: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(home, "mine", "something of mine")
    looked, both = store_copies._held, threading.Barrier(2)

    def held(store: Store) -> str:
        found = looked(store)
        both.wait(timeout=30)  # each finds the place empty before either marks it
        return found

    def copied(source: Store, target: Store) -> str:
        try:
            move(source, target, "there", quiet)
        except GiveUp as problem:
            return str(problem)
        return ""

    monkeypatch.setattr(store_copies, "_held", held)
    targets = [open_store(), open_store()]
    with ThreadPoolExecutor(2) as pool:
        problems = list(pool.map(copied, (memory, home), targets))
    assert sorted(problems) == ["", "there holds a copy of something else; name an empty place, or remove that copy"]
    winner = (memory, home)[problems.index("")]
    settle(targets[0], "there")
    assert contents(targets[0]) == contents(winner)


def test_a_copy_that_was_used_is_a_memory_of_its_own(memory: Store, store: Store) -> None:
    move(memory, store, "there", quiet)
    settle(store, "there")
    with pytest.raises(GiveUp, match="holds a memory already"):
        move(memory, store, "there", quiet)


def test_copy_that_differs_is_not_finished(memory: Store, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(target, table, batch, changes):  # type: ignore[no-untyped-def]
        if table.name == "tombstones":
            batch.rows.pop()
        write(target, table, batch, changes)

    write = store_copies._write
    monkeypatch.setattr(store_copies, "_write", lose)
    with pytest.raises(GiveUp, match="of tombstones it holds 1 row "):
        move(memory, store, "there", quiet)
    with pytest.raises(GiveUp, match="not finished"):
        settle(store, "there")


def test_the_copy_is_told_apart_from_others_by_what_only_it_has(memory: Store, open_store: OpenStore) -> None:
    with memory.copies.reading() as now, open_store().copies.reading() as other:
        assert store_copies.memory_id(now) == store_copies.memory_id(now) != store_copies.memory_id(other)
