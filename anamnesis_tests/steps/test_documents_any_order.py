"""Two copies of a repository are edited, crawled, and runs over them die, in any order: what is current stays true."""

import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anamnesis_pipeline.steps.episodes import publish_source
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.steps.crawled_documents import T0, DocumentHome, make_repository, write

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
        publish_source(self.store, self.sources[name], pipeline.pieces, pipeline.headline)

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
