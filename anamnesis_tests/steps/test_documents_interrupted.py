"""A run over documents dies before or after any of its writes: the next one ends where an undisturbed one does."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.errors import HostUnreachable
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.steps.crawled_documents import COLORS, PORTS, SETUP, T0, DocumentHome, page, write

WRITES = {"commit_crawls", "mark_gone", "commit", "put_summaries", "publish", "settle", "add_generations"}


class Died(Exception):  # noqa: N818  # what happened to the run
    """The process is gone."""


class Dying:
    """Records, or an archive, whose so many-th write from now on is the last thing that a run does, or just not."""

    def __init__(self, real: Any, left: list[int], *, after: bool) -> None:
        self._real, self._left, self._after = real, left, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return self._written(found) if name in WRITES else found

    def _written(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def last(*values: Any, **named: Any) -> Any:
            self._left[0] -= 1
            if self._left[0] == 0 and not self._after:
                raise Died
            result = write(*values, **named)
            if self._left[0] == 0:
                raise Died
            return result

        return last


def remembered(home: DocumentHome) -> list[tuple[object, ...]]:
    """What is known in the end, whenever it was written."""
    every = {e.episode_id: e for e in home.episodes(every=True)}
    known = sorted(
        (e.raw_exchange, e.status, e.superseded_by in every and every[e.superseded_by or ""].raw_exchange, e.summary)
        for e in every.values()
    )
    return [*known, (home.store.overview.counts(),)]


def run_that_dies(place: Path, write_number: int, *, after: bool) -> tuple[list[tuple[object, ...]], bool]:
    """The memory after two versions of a folder, the run over the second of which died; whether it did."""
    store = open_sqlite(place / "memory.sqlite", place / "index")
    home = DocumentHome(store, place)
    notes = home.source("notes")
    write(notes, "a.md", page(SETUP, PORTS))
    write(notes, "b.md", page(COLORS))
    home.ingest(notes)
    write(notes, "a.md", page(PORTS.replace("3010", "4010"), SETUP.replace("## Setup", "## First steps")), T0 + 50)
    Path(notes.root, "b.md").unlink()
    write(notes, "c.md", page(COLORS), T0 + 60)
    left, died = [write_number], False
    written = ("files", "messages", "parts", "summaries", "documents", "episodes")
    dying: dict[str, Any] = {name: Dying(getattr(store, name), left, after=after) for name in written}
    archive: Any = Dying(Archive(place / "archive"), left, after=after)
    whole = home.pipeline
    home.pipeline = replace(whole, store=replace(store, **dying), archive=archive)
    try:
        home.ingest(notes)
    except Died:
        died = True
    home.pipeline = whole
    home.ingest(notes)
    assert not store.parts.unfinished_sources(datetime.now(UTC))
    found = remembered(home)
    store.close()
    return found, died


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_dies_at_any_write_loses_and_repeats_nothing(tmp_path: Path, after: bool) -> None:
    expected, died = run_that_dies(tmp_path / "undisturbed", 1_000, after=after)
    assert not died
    for number in range(1, 100):
        found, died = run_that_dies(tmp_path / str(number), number, after=after)
        assert found == expected, number
        if not died:
            break
    assert number > 6


def test_documents_of_a_repository_that_was_away_are_read_later(home: DocumentHome) -> None:
    source = home.source("far")
    write(source, "ports.md", page("Ports", PORTS))

    def away(cwd: str) -> str:
        raise HostUnreachable("far is away")

    usual = home.pipeline
    home.pipeline = replace(usual, label_of=lambda source: away)
    (report,) = home.ingest(source)
    assert (report.crawl.problems, home.texts()) == (["far is away"], [])
    home.pipeline = usual
    home.ingest(source)
    assert len(home.texts()) == 2
