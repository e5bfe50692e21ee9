"""A store that notes what is committed, and on which a run may die at any write."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from anamnesis_pipeline.model import ArchiveFrame, FileCursor
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.messages import ParsedChunk


class Died(Exception):  # noqa: N818  # what happened to the run
    """The process is gone."""


class WatchedStore:
    """Notes the cursors that files and messages of a store commit, in order."""

    def __init__(self, store: Store) -> None:
        self.store = replace(store, **{name: _Watched(getattr(store, name), self) for name in ("files", "messages")})
        """The store to use."""
        self._crawled: list[FileCursor] = []
        self._parsed: list[FileCursor] = []
        self._writes_left: int | None = None
        self._dies_after = False

    def die_at(self, write: int | None, *, after: bool = False) -> None:
        """The run dies at its so many-th write from now on, before or just after it; None: it lives."""
        self._writes_left, self._dies_after = write, after

    def committed(self) -> tuple[list[FileCursor], list[FileCursor]]:
        """What was crawled and what was parsed since this was asked last."""
        found = self._crawled, self._parsed
        self._crawled, self._parsed = [], []
        return found

    def crawl(self, write: Callable[[], bool], after: FileCursor) -> bool:
        return self._write(write, self._crawled, after)

    def parse(self, write: Callable[[], bool], after: FileCursor) -> bool:
        return self._write(write, self._parsed, after)

    def _write(self, write: Callable[[], bool], noted: list[FileCursor], what: FileCursor) -> bool:
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


class _Watched:
    """Files or messages of a store, whose commits are noted."""

    def __init__(self, records: Any, watch: WatchedStore) -> None:
        self._records, self._watch = records, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def commit_crawl(self, before: FileCursor | None, after: FileCursor, frame: ArchiveFrame | None) -> bool:
        return self._watch.crawl(lambda: self._records.commit_crawl(before, after, frame), after)

    def commit_parsed(self, chunk: ParsedChunk) -> bool:
        return self._watch.parse(lambda: self._records.commit_parsed(chunk), chunk.after)
