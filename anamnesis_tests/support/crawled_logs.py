"""A folder of logs that is crawled, with a real store and archive."""

import json
import os
import uuid
from collections import Counter
from pathlib import Path

from anamnesis_pipeline.model import Source
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.pipeline.crawl import crawl_source, listed
from anamnesis_pipeline.pipeline.exclusion import Exclusions
from anamnesis_pipeline.pipeline.survey import has_news
from anamnesis_pipeline.sources.discovery import source_key
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.survey_split import SourceFiles
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

SESSION = f"{uuid.UUID(int=1)}.jsonl"


def unmasked(line):
    return line, Counter()


def source_changed(store, host, source):
    """What a look finds of a source that is listed by itself."""
    listing = listed(host, source)
    return has_news(store, Exclusions(store), SourceFiles(source, listing.files), complete=not listing.problems)


class Memory:
    """A log folder, a store and an archive in one temporary place."""

    def __init__(self, base):
        self.base = Path(base)
        self.folder = self.base / "projects" / "-home-dev-acme"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / SESSION
        root = os.fspath(self.folder.parent)
        self.source = Source(source_key("box", root, self.folder.name), "box", root, self.folder.name)
        self.store = open_sqlite(self.base / "memory.db", self.base / "index")
        self.store.files.put_sources([self.source])
        self.archive = Archive(self.base / "archive")
        self.host = LocalHost("box")

    def crawl(self, mask=unmasked):
        return crawl_source(self.store, self.host, self.archive, self.source, mask)

    def cursor(self, path=SESSION):
        return self.store.files.cursors(self.source.key)[path]

    def archived(self, generation=None, path=SESSION):
        generation = self.cursor(path).generation if generation is None else generation
        frames = self.store.archive.frames(self.source.key, path, generation)
        return list(self.archive.lines(self.source.key, path, frames))

    def replace(self, text):
        """Save the log as a new file in its place."""
        (self.folder / "draft").write_text(text)
        os.replace(self.folder / "draft", self.file)

    def changed(self):
        return source_changed(self.store, self.host, self.source)

    def append(self, text, path=SESSION):
        with open(self.folder / path, "ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


def lines_of(*numbers):
    return "".join(f"{line(number)}\n" for number in numbers)


def line(number, text="hello"):
    return json.dumps({"n": number, "text": text})
