"""A home that is fed from folders of documents, through every step of the pipeline."""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import Episode, EpisodeFilter, Source
from anamnesis_pipeline.parsing.documents.formats import format_of
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.archived import ArchivedLines
from anamnesis_pipeline.pipeline.crawl_documents import DocumentRules, DocumentSelection
from anamnesis_pipeline.pipeline.llm_choice import Llm
from anamnesis_pipeline.pipeline.projects import Label, project_labels
from anamnesis_pipeline.services.forget import ForgetReport
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.ingest import Pipeline, SourceReport, ingest_source
from anamnesis_pipeline.settings import load
from anamnesis_pipeline.sources.base import SourceHost, Survey, Wanted
from anamnesis_pipeline.sources.document_selection import Chosen, Rules
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec
from anamnesis_pipeline.store.base import Store

MAX_BYTES = 1 << 20
T0 = 1_750_000_000
REMOTE = '[remote "origin"]\n\turl = git@github.com:acme/shop.git\n'

SETUP = "## Setup\n\nRun the installer twice, since the first run only downloads the parts."
PORTS = "## Ports\n\nThe sidecar listens on 3010, and Dagster on 3000 of the same machine."
COLORS = "## Colors\n\nEverything that is a warning is orange, and errors are red on white."


def page(*sections: str) -> str:
    """A document with these below a title."""
    return "\n\n".join(["# Handbook of the workshop, for all who join it and for those who stay", *sections]) + "\n"


def unmasked(text: str) -> tuple[str, Counter[str]]:
    return text, Counter()


def readable(survey: Survey) -> Chosen:
    """Every file of a format that is read, and is not too large."""
    files = [file for file in survey.files or () if format_of(file.path)]
    too_large = frozenset(file.path for file in files if file.size > MAX_BYTES)
    return Chosen(tuple(file for file in files if file.path not in too_large), too_large=too_large)


class ReadableRules(DocumentRules):
    def choose(self, survey: Survey) -> Chosen:
        return readable(survey)


class Everything(DocumentSelection):
    def document_rules(self, spec: SourceSpec) -> DocumentRules:
        return ReadableRules(spec, Wanted(DOCUMENTS, spec.root), self.rules(spec))


@dataclass(frozen=True)
class SameLabels:
    """One function for the directories of every source."""

    label: Label

    def of(self, source: Source) -> Label:
        return self.label


@dataclass(frozen=True)
class SameRules:
    """The same rules for every source."""

    given: Rules

    def rules(self, spec: SourceSpec) -> Rules:
        return self.given


class NamedHosts:
    """The machines and sources of a home, by their names."""

    specs = ()

    def __init__(self, home: "DocumentHome") -> None:
        self.home = home

    def of_source(self, source: Source) -> SourceHost:
        return self.home.hosts[source.machine]

    def spec_of(self, source: Source) -> SourceSpec | None:
        return self.home.specs.get(source.spec)


class DocumentHome:
    """A store and an archive; each of its folders is a source on a machine of its name, or of the one given."""

    def __init__(self, store: Store, place: Path, mask=unmasked) -> None:
        self.store, self.place = store, place
        self.archive = Archive(place / "archive")
        self.hosts: dict[str, SourceHost] = {}
        self.specs: dict[str, SourceSpec] = {}
        self.pipeline = Pipeline(
            store=store,
            hosts=NamedHosts(self),
            archive=self.archive,
            mask=mask,
            archive_lines=ArchivedLines(store, self.archive),
            labels=SameLabels(project_labels(store.settings)),
            pieces=minilm_pieces(),
            idle_minutes=30,
            llm=Llm(),
            selection=Everything(load()),
        )

    def source(self, name: str, *, machine: str = "", root: Path | None = None, **spec: str) -> Source:
        root = root or self.place / name
        root.mkdir(parents=True, exist_ok=True)
        machine = machine or name
        self.hosts.setdefault(machine, LocalHost(machine))
        self.specs[name] = SourceSpec(name, DOCUMENTS, str(root), **spec)
        source = Source(f"{machine}--{name}--0", machine, str(root), "", DOCUMENTS, name)
        self.store.files.put_sources([source])
        return source

    def ingest(self, *sources: Source) -> list[SourceReport]:
        return [ingest_source(self.pipeline, source) for source in sources]

    def change(self, source: Source, path: str, text: str | bytes, at: int = T0 + 50) -> SourceReport:
        """Write a file of a source, and read the source."""
        write(source, path, text, at)
        return self.ingest(source)[0]

    def holding(self, path: str, text: str | bytes, name: str = "notes") -> Source:
        """A source with one file, read."""
        source = self.source(name)
        self.change(source, path, text, T0)
        return source

    def clones(self, *names: str) -> list[Source]:
        """Clones of one repository, each on a machine of its name."""
        clones = [self.source(name) for name in names]
        for clone in clones:
            make_repository(clone)
        return clones

    def forget(self, word: str = "", **asked: Any) -> ForgetReport:
        """Forget the episode that holds a word, or what is asked."""
        wanted = {"ids": (self.one(word).episode_id,)} if word else asked
        return self.pipeline.forgetter().forget(ForgetRequest(**wanted))

    def episodes(self, *, every: bool = False) -> list[Episode]:
        return self.store.episodes.page(EpisodeFilter(include_superseded=every), 1_000).items

    def texts(self) -> list[str]:
        """Of all active episodes."""
        return sorted(episode.raw_exchange.strip() for episode in self.episodes())

    def said(self, *, every: bool = False) -> str:
        """Texts and summaries of the active episodes, or of every one."""
        return "\n".join(f"{e.raw_exchange}\n{e.summary}" for e in self.episodes(every=every))

    def kept(self) -> str:
        """Everything that archive and episodes hold."""
        return self.archived() + self.said(every=True)

    def one(self, word: str, *, every: bool = False) -> Episode:
        """The one episode whose text holds a word."""
        (found,) = [e for e in self.episodes(every=every) if word in e.raw_exchange]
        return found

    def archived(self) -> str:
        """Everything that the archive holds."""
        found = []
        for source in self.store.files.sources():
            for path, cursor in self.store.files.cursors(source.key).items():
                for generation in range(cursor.generation + 1):
                    frames = self.store.archive.frames(source.key, path, generation)
                    found += self.archive.lines(source.key, path, frames)
        return "\n".join(found)


def write(source: Source, path: str, text: str | bytes, at: int = T0) -> Path:
    """A file of a source, with this time of its last change, in seconds."""
    file = Path(source.root, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(file, (at, at))
    return file


def make_repository(source: Source, folder: str = ".") -> None:
    """Let a folder be a clone of `acme/shop`."""
    git = Path(source.root, folder, ".git")
    git.mkdir(parents=True, exist_ok=True)
    (git / "config").write_text(REMOTE)
