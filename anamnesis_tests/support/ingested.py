"""Real log folders through crawl, parse and publish, on a real store."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import Episode, EpisodeFilter, FileCursor, Source
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.crawl import CrawlReport, crawl_source
from anamnesis_pipeline.pipeline.llm_choice import Llm
from anamnesis_pipeline.pipeline.parse import ParseReport, parse_source
from anamnesis_pipeline.pipeline.publish import publish_source
from anamnesis_pipeline.pipeline.session_summaries import SessionReport, summarize_sessions
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.log_lines import SESSION, START

OTHER = "9af4606d-e5b5-4bac-b0b2-fab40b03792a"
FOLDER = "-home-dev-shop"
LATER = START + timedelta(days=1)


class Ingested:
    """A Claude home below `home`, and what is known of it. `label` is how projects are told apart."""

    def __init__(self, store: Store, home: Path, label: Callable[[str], str] = lambda cwd: cwd) -> None:
        self.store, self.label = store, label
        self.projects = home / ".claude" / "projects"
        self.projects.mkdir(parents=True, exist_ok=True)
        self.host = LocalHost("box")
        self.archive = Archive(home / "archive")
        self.mask = Redactor(b"test").mask_line
        self.now = LATER
        self._clock = 1_786_698_000

    def path(self, name: str, folder: str = FOLDER) -> Path:
        """Where a file of a project folder, or the history, is."""
        place = self.projects.parent / name if name == "history.jsonl" else self.projects / folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def write(self, lines: Iterable[str] | bytes, name: str = f"{SESSION}.jsonl", folder: str = FOLDER) -> Path:
        """Lines or bytes become a file, in place; its time is later than that of any file written before."""
        data = lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode()
        self.path(name, folder).write_bytes(data)
        return self._touched(name, folder)

    def append(self, lines: Iterable[str] | bytes, name: str = f"{SESSION}.jsonl", folder: str = FOLDER) -> Path:
        data = lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode()
        with self.path(name, folder).open("ab") as file:
            file.write(data)
        return self._touched(name, folder)

    def _touched(self, name: str, folder: str) -> Path:
        self._clock += 1
        path = self.path(name, folder)
        os.utime(path, ns=(self._clock * 10**9, self._clock * 10**9))
        return path

    def sources(self) -> list[Source]:
        return list(discover(self.host, [str(self.projects)]).sources)

    def crawl(self) -> list[CrawlReport]:
        found = self.sources()
        self.store.files.put_sources(found)
        return [crawl_source(self.store, self.host, self.archive, source, self.mask) for source in found]

    def parse(self, now: datetime | None = None) -> list[ParseReport]:
        lines = ArchivedLines(self.store, self.archive)
        return [
            parse_source(self.store, lines, source, now=now or self.now, idle_minutes=30, label=self.label)
            for source in self.store.files.sources()
            if source.kind != "reserved"
        ]

    def publish(self) -> None:
        for source in self.store.files.sources():
            publish_source(self.store, source, minilm_pieces(), lambda part: part.prompt)

    def record(self) -> list[SessionReport]:
        """Records of sessions, without an LLM."""
        logs = [source for source in self.store.files.sources() if source.kind.startswith("claude")]
        return [summarize_sessions(self.store, source, Llm(), minilm_pieces()) for source in logs]

    def ingest(self) -> "Seen":
        """Everything once: what was read, and what was left out and why."""
        crawled, parsed = self.crawl(), self.parse()
        self.publish()
        return Seen(crawled, parsed)

    def take(self, lines: Iterable[str] | bytes, name: str = f"{SESSION}.jsonl", folder: str = FOLDER) -> "Seen":
        """Lines become a file, and everything is ingested."""
        self.write(lines, name, folder)
        return self.ingest()

    def grow(self, lines: Iterable[str] | bytes, name: str = f"{SESSION}.jsonl", folder: str = FOLDER) -> "Seen":
        """Lines are appended to a file, and everything is ingested."""
        self.append(lines, name, folder)
        return self.ingest()

    def episodes(self) -> list[Episode]:
        """All episodes, by the order in their file."""
        page = self.store.episodes.page(EpisodeFilter(), 10_000)
        return sorted(page.items, key=lambda e: (e.path, e.metadata.get("ordinal", 0)))

    def owners(self, text: str = "") -> set[str]:
        """The names of the files whose episodes say this."""
        return {episode.path.rpartition("/")[2] for episode in self.episodes() if text in episode.raw_exchange}

    def counted(self) -> tuple[int, int]:
        """Messages, and further places where they stand."""
        counts = self.store.overview.counts()
        return counts.messages, counts.occurrences

    def texts(self) -> str:
        """Everything that can be found."""
        return "\n".join(episode.raw_exchange for episode in self.episodes())

    def archived(self, name: str = f"{SESSION}.jsonl") -> list[str]:
        """Every archived line of a file, of every generation."""
        read = ArchivedLines(self.store, self.archive).read
        return [
            line
            for source in self.store.files.sources()
            for cursor in self.store.files.cursors(source.key).values()
            if cursor.path == name
            for generation in range(cursor.generation + 1)
            for line in read(FileCursor(source.key, name, generation=generation), 0)
        ]


class Seen:
    """The sums of the reports of one ingest."""

    def __init__(self, crawled: list[CrawlReport], parsed: list[ParseReport]) -> None:
        self.bytes_read = sum(report.bytes_read for report in crawled)
        self.replaced = sum(report.replaced for report in crawled)
        self.gone = sum(report.gone for report in crawled)
        self.messages = sum(report.messages for report in parsed)
        self.duplicates = sum(report.duplicates for report in parsed)
        self.malformed = sum(report.malformed for report in parsed)
        self.parts = sum(report.parts for report in parsed)
        self.skipped = sum((Counter(report.skipped) for report in parsed), Counter[str]())
