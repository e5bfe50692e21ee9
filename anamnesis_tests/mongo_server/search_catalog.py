"""The search process beside the server: its indexes, what it answers, and what it is asked to fail.

It behaves as the search process of Atlas (also as the image for local use has it) seems to a client: indexes are built
some time after the command, follow commits with a lag, and yield ids whose documents are then read as they are.
Commands: https://www.mongodb.com/docs/manual/reference/command/nav-atlas-search/; a query of an index that does not
exist finds nothing: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/.
"""

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson import ObjectId

from anamnesis_tests.mongo_server.search_behaviour import SearchBehaviour
from anamnesis_tests.mongo_server.search_errors import (
    INDEX_ALREADY_EXISTS,
    INDEX_NOT_FOUND,
    NAMESPACE_NOT_FOUND,
    SearchRefused,
    management_unreachable,
    unreachable,
)
from anamnesis_tests.mongo_server.search_generation import READY, Generation
from anamnesis_tests.mongo_server.search_listing import as_listed, entry
from anamnesis_tests.mongo_server.search_text_index import counted

Document = Mapping[str, Any]
Documents = Callable[[str, str], Mapping[Any, Document]]
Hit = tuple[dict[str, Any], dict[str, Any]]
"""A document, or a result of `$searchMeta`, and its metadata: `searchScore` or `vectorSearchScore`."""
Hits = list[Hit]

STAGES = ("$search", "$searchMeta", "$vectorSearch")


@dataclass(slots=True)
class _Index:
    """An index of a name: what is queried, and what takes its place once it is built."""

    id: ObjectId
    main: Generation
    staged: Generation | None = None

    @property
    def latest(self) -> Generation:
        return self.staged or self.main

    def generations(self) -> list[Generation]:
        return [self.main, self.staged] if self.staged else [self.main]


class SearchCatalog:
    """All search indexes of a server. Safe to use from several threads."""

    def __init__(
        self,
        documents: Documents,
        *,
        exists: Callable[[str, str], bool] = lambda _db, _coll: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`documents` gives what is committed of a collection by id; `exists`, whether there is such a collection."""
        self.behaviour = SearchBehaviour()
        self._documents = documents
        self._exists = exists
        self._clock = clock
        self._lock = threading.RLock()
        self._indexes: dict[tuple[str, str], dict[str, _Index]] = {}

    def create(self, db: str, coll: str, models: Sequence[Document]) -> list[str]:
        """`createSearchIndexes`: the names, also of those that are there with the very same definition.

        :raises SearchRefused: the collection does not exist; a name is taken by another definition.
        """
        self._must_run()
        if not self._exists(db, coll):
            raise SearchRefused(NAMESPACE_NOT_FOUND, f"Collection '{db}.{coll}' does not exist.")
        with self._lock:
            there = self._indexes.setdefault((db, coll), {})
            wanted = [(model.get("name", "default"), model.get("type", "search"), model) for model in models]
            for name, kind, model in wanted:
                if name in there and not _is_same(there[name].latest, kind, model["definition"]):
                    raise SearchRefused(
                        INDEX_ALREADY_EXISTS,
                        f"Index {name} already exists with a different definition. Drop it first if needed.",
                    )
            for name, kind, model in wanted:
                if name not in there:
                    there[name] = _Index(ObjectId(), self._begin(db, coll, kind, name, model["definition"], 0))
        return [name for name, _, _ in wanted]

    def update(self, db: str, coll: str, name: str, definition: Document) -> None:
        """`updateSearchIndex`: the old definition is queried until the new one is built.

        :raises SearchRefused: there is no such index.
        """
        self._must_run()
        with self._lock:
            index = self._found(db, coll, name)
            self._settle(index)
            latest = index.latest
            index.staged = self._begin(db, coll, latest.kind, name, definition, latest.version + 1)

    def drop(self, db: str, coll: str, name: str) -> None:
        """`dropSearchIndex`.

        :raises SearchRefused: there is no such index.
        """
        self._must_run()
        with self._lock:
            self._found(db, coll, name)
            del self._indexes[db, coll][name]

    def list(self, db: str, coll: str, name: str | None = None) -> list[dict[str, Any]]:
        """What `$listSearchIndexes` gives."""
        self._must_run()
        with self._lock:
            indexes = self._indexes.get((db, coll), {})
            chosen = [index for known, index in indexes.items() if name in (None, known)]
            return [self._listed(index) for index in chosen]

    def run(self, db: str, coll: str, stage: Document) -> Hits:
        """What a stage finds, in order: documents as they are now, without those that are gone.

        :raises SearchRefused: the process does not run, the index is not built, or the query does not fit it.
        """
        if not self.behaviour.reachable:
            raise unreachable()
        (name, body) = next(iter(stage.items()))
        with self._lock:
            index = self._indexes.get((db, coll), {}).get(body.get("index", "default"))
            if index is None:
                return [({"count": counted(0, body.get("count", {}))}, {})] if name == "$searchMeta" else []
            self._settle(index)
            found = index.main.query(name, body, self.behaviour, self._clock())
        if name == "$searchMeta":
            return [(counts, {}) for _, counts in found]
        documents = self._documents(db, coll)
        return [(dict(documents[key]), metadata) for key, metadata in found if key in documents]

    def committed(self, db: str, coll: str, changed_ids: Iterable[Hashable]) -> None:
        """Documents that a commit made, changed or removed, which `documents` already shows so."""
        with self._lock:
            if not (indexes := self._indexes.get((db, coll))):
                return
            documents, due = self._documents(db, coll), self._clock() + self.behaviour.lag_s
            for key, late_s in self._in_batch(list(changed_ids)):
                for index in indexes.values():
                    for generation in index.generations():
                        generation.note(key, documents.get(key), due + late_s, held=self.behaviour.frozen)

    def _in_batch(self, keys: Sequence[Hashable]) -> Iterable[tuple[Hashable, float]]:
        """The order in which changes of one commit get into an index, and how much later than the first."""
        if not self.behaviour.torn_s:
            return [(key, 0.0) for key in keys]
        half = len(keys) // 2
        return [*((key, 0.0) for key in keys[half:]), *((key, self.behaviour.torn_s) for key in keys[:half])]

    def catch_up(self) -> None:
        """Apply everything that was committed, whatever the lag is; for tests that do not want to wait."""
        with self._lock:
            for indexes in self._indexes.values():
                for index in indexes.values():
                    for generation in index.generations():
                        generation.follow(SearchBehaviour(), float("inf"))

    def drop_collection(self, db: str, coll: str) -> None:
        """A collection is gone, and its indexes with it."""
        with self._lock:
            self._indexes.pop((db, coll), None)

    def drop_database(self, db: str) -> None:
        """A database is gone."""
        with self._lock:
            for key in [key for key in self._indexes if key[0] == db]:
                del self._indexes[key]

    def _must_run(self) -> None:
        if not self.behaviour.reachable:
            raise management_unreachable()

    def _begin(self, db: str, coll: str, kind: str, name: str, definition: Document, version: int) -> Generation:
        now = self._clock()
        generation = Generation(kind, name, definition, version, now=now, build_s=self.behaviour.build_s)
        for key, document in self._documents(db, coll).items():
            generation.note(key, document, now)
        return generation

    def _settle(self, index: _Index) -> None:
        """Let what is built take its place; one that failed leaves the old one in use."""
        if index.staged and index.staged.state(self.behaviour, self._clock()) == READY:
            index.main, index.staged = index.staged, None

    def _found(self, db: str, coll: str, name: str) -> _Index:
        index = self._indexes.get((db, coll), {}).get(name)
        if index is None:
            raise SearchRefused(INDEX_NOT_FOUND, f"No index with name {name} exists in namespace {db}.{coll}")
        return index

    def _listed(self, index: _Index) -> dict[str, Any]:
        self._settle(index)
        now = self._clock()
        return entry(
            str(index.id),
            index.latest,
            index.latest.state(self.behaviour, now),
            queryable=index.main.state(self.behaviour, now) == READY,
        )


def _is_same(generation: Generation, kind: str, definition: Document) -> bool:
    return generation.kind == kind and as_listed(kind, generation.definition) == as_listed(kind, definition)
