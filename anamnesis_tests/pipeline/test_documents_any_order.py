"""Documents are edited, crawled, and runs over them die, in any order and at any write: what is current stays true."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anamnesis_pipeline.errors import HostUnreachable
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.publish import publish_source
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.crawled_documents import (
    COLORS,
    PORTS,
    SETUP,
    T0,
    DocumentHome,
    SameLabels,
    make_repository,
    page,
    write,
)

COPIES = ("laptop", "desk")
HEADINGS = ("Setup", "Ports", "Colors", "Doors")
BODIES = tuple(f"{word} is what this section says, and it says so in a line of its own." for word in "abcde")

copies, headings, bodies = st.sampled_from(COPIES), st.sampled_from(HEADINGS), st.sampled_from(BODIES)
Sections = dict[str, str]


def text_of(heading: str, body: str) -> str:
    return f"## {heading}\n\n{body}"


@dataclass
class Copy:
    """What a copy holds, what was crawled of it, and what of that was parsed."""

    sections: Sections = field(default_factory=dict)
    mtime: int = T0
    there: bool = True
    crawled: Sections | None = None
    gone: bool = False
    waiting: list[tuple[int, Sections]] = field(default_factory=list)
    since: dict[str, tuple[str, int]] = field(default_factory=dict)

    def crawl(self) -> None:
        if not self.there:
            self.gone = self.crawled is not None
        elif self.gone or self.in_order(self.sections) != self.in_order(self.crawled):
            self.waiting.append((self.mtime, dict(self.sections)))
            self.crawled, self.gone = dict(self.sections), False

    @staticmethod
    def in_order(sections: Sections | None) -> list[tuple[str, str]] | None:
        return None if sections is None else list(sections.items())

    def parse(self) -> set[tuple[str, str]]:
        """Every text that came."""
        seen = set()
        for mtime, sections in [*self.waiting, *([(0, Sections())] if self.gone else [])]:
            kept = {h: held for h, held in self.since.items() if sections.get(h) == held[0]}
            self.since = {h: kept.get(h, (body, mtime)) for h, body in sections.items()}
            seen |= set(sections.items())
        self.waiting = []
        return seen


class Editing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        place = Path(self.folder.name)
        self.store = open_sqlite(place / "memory.sqlite", place / "index")
        self.home = DocumentHome(self.store, place)
        self.sources = {name: self.home.source(name) for name in COPIES}
        self.copies = {name: Copy() for name in COPIES}
        self.clock, self.ever = T0, set[tuple[str, str]]()
        for name in COPIES:
            make_repository(self.sources[name])
            self.save(name)

    def save(self, name: str) -> None:
        copy = self.copies[name]
        self.clock += 10
        copy.mtime, copy.there = self.clock, True
        head = "# A handbook, whose first lines are long enough to be a section of their own here"
        page = "\n\n".join([head, *(text_of(h, b) for h, b in copy.sections.items())]) + "\n"
        write(self.sources[name], "a.md", page, self.clock)

    @rule(name=copies, heading=headings, body=bodies)
    def edit(self, name: str, heading: str, body: str) -> None:
        self.copies[name].sections[heading] = body
        self.save(name)

    @rule(name=copies, heading=headings)
    def remove(self, name: str, heading: str) -> None:
        self.copies[name].sections.pop(heading, None)
        self.save(name)

    @rule(name=copies, heading=headings)
    def move_to_the_end(self, name: str, heading: str) -> None:
        sections = self.copies[name].sections
        if heading in sections:
            sections[heading] = sections.pop(heading)
            self.save(name)

    @rule(name=copies, heading=headings, other=headings)
    def rename(self, name: str, heading: str, other: str) -> None:
        sections = self.copies[name].sections
        if heading in sections and other not in sections:
            sections[other] = sections.pop(heading)
            self.save(name)

    @rule(name=copies)
    def delete_the_file(self, name: str) -> None:
        if self.copies[name].there:
            Path(self.sources[name].root, "a.md").unlink()
            self.copies[name].there = False

    @rule(name=copies)
    def touch(self, name: str) -> None:
        self.save(name)

    @rule(name=copies)
    def crawl_and_die(self, name: str) -> None:
        self.home.pipeline.crawl(self.sources[name])
        self.copies[name].crawl()

    @rule(name=copies)
    def parse_and_die(self, name: str) -> None:
        self.home.pipeline.parse_documents(self.sources[name])
        self.ever |= self.copies[name].parse()

    @rule(name=copies)
    def publish_and_die(self, name: str) -> None:
        pipeline = self.home.pipeline
        publish_source(self.store, self.sources[name], pipeline.pieces, extractive.summarize)

    @rule()
    def ingest_all(self) -> None:
        for name in COPIES:
            self.home.pipeline.crawl(self.sources[name])
            self.copies[name].crawl()
            self.home.pipeline.parse_documents(self.sources[name])
            self.ever |= self.copies[name].parse()
        for source in [*self.sources.values()] * 2:  # what one gave up, the other publishes
            self.home.pipeline.summarize_parts(source)
            self.home.pipeline.publish(source)
        self.check()

    def check(self) -> None:
        newest: dict[str, tuple[int, str]] = {}
        for copy in self.copies.values():
            for heading, (body, since) in copy.since.items():
                newest[heading] = max(newest.get(heading, (0, "")), (since, body))
        every = [e for e in self.home.episodes(every=True) if e.raw_exchange.startswith("## ")]
        active = {e.raw_exchange.strip(): e for e in every if e.status == "active"}
        wanted = {text_of(heading, body) for heading, (_, body) in newest.items()}
        assert set(active) == wanted
        assert sorted(e.raw_exchange.strip() for e in every) == sorted(text_of(h, b) for h, b in self.ever)
        for episode in every:
            heading = episode.raw_exchange.partition("\n")[0].removeprefix("## ")
            if episode.status == "superseded" and heading in newest:
                assert episode.superseded_by == active[text_of(heading, newest[heading][1])].episode_id
        assert not self.store.parts.unfinished_sources(datetime.now(UTC))
        self.check_that_a_second_run_writes_nothing()

    def check_that_a_second_run_writes_nothing(self) -> None:
        before = self.store.overview.counts()
        for report in self.home.ingest(*self.sources.values()):
            put = report.episodes.put
            assert (report.documents.versions, put.created, put.updated) == (0, 0, 0)
        assert self.store.overview.counts() == before

    @invariant()
    def no_text_is_there_twice(self) -> None:
        texts = [e.raw_exchange for e in self.home.episodes(every=True)]
        assert len(texts) == len(set(texts))

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


Editing.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
TestEditing = Editing.TestCase


# --- runs that die at any write ---------------------------------------------------------------------------


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
    home.pipeline = replace(usual, labels=SameLabels(away))
    (report,) = home.ingest(source)
    assert (report.crawl.problems, home.texts()) == (["far is away"], [])
    home.pipeline = usual
    home.ingest(source)
    assert len(home.texts()) == 2
