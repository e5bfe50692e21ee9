"""A store that notes what is committed, and on which a run may die at any write."""

from collections.abc import Callable
from typing import Any

from anamnesis_pipeline.archive_model import ArchiveFrame
from anamnesis_pipeline.model import FileCursor
from anamnesis_pipeline.store.ingest_base import IngestRecords, ParsedChunk


class Died(Exception):  # noqa: N818  # what happened to the run
    """The process is gone."""


class WatchedIngest:
    """Ingest records that note the cursors they commit, in order."""

    def __init__(self, ingest: IngestRecords) -> None:
        self._ingest = ingest
        self._crawled: list[FileCursor] = []
        self._parsed: list[FileCursor] = []
        self._writes_left: int | None = None
        self._dies_after = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ingest, name)

    def die_at(self, write: int | None, *, after: bool = False) -> None:
        """The run dies at its so many-th write from now on, before or just after it; None: it lives."""
        self._writes_left, self._dies_after = write, after

    def committed(self) -> tuple[list[FileCursor], list[FileCursor]]:
        """What was crawled and what was parsed since this was asked last."""
        found = self._crawled, self._parsed
        self._crawled, self._parsed = [], []
        return found

    def commit_crawl(self, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None) -> bool:
        return self._write(lambda: self._ingest.commit_crawl(before, after, frame), self._crawled, after)

    def commit_parsed(self, chunk: ParsedChunk) -> bool:
        return self._write(lambda: self._ingest.commit_parsed(chunk), self._parsed, chunk.after)

    def mark_published(self, published: Any) -> None:
        self._write(lambda: self._ingest.mark_published(published) is None, [], None)

    def _write(self, write: Callable[[], bool], noted: list[Any], what: Any) -> bool:
        is_last = self._writes_left == 1
        if self._writes_left is not None:
            self._writes_left -= 1
        if is_last and not self._dies_after:
            raise Died
        written = write()
        if written:
            noted.append(what)
        if is_last:
            raise Died
        return written
