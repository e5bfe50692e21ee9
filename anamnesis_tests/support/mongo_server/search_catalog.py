"""The search process beside the server: its indexes, what it answers, and what it is asked to fail.

It behaves as the search process of Atlas (also as the image for local use has it) seems to a client: indexes are built
some time after the command, follow commits with a lag, and yield ids whose documents are then read as they are.
Commands: https://www.mongodb.com/docs/manual/reference/command/nav-atlas-search/; what is listed:
https://www.mongodb.com/docs/manual/reference/operator/aggregation/listSearchIndexes/; a query of an index that does not
exist finds nothing: https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/.
"""

import threading
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bson.raw_bson import RawBSONDocument

from anamnesis_tests.support.mongo_server.search_behaviour import SearchBehaviour
from anamnesis_tests.support.mongo_server.search_errors import (
    INDEX_ALREADY_EXISTS,
    INDEX_NOT_FOUND,
    NAMESPACE_NOT_FOUND,
    SearchRefused,
    management_unreachable,
    unreachable,
)
from anamnesis_tests.support.mongo_server.search_generation import FAILED, READY, Generation
from anamnesis_tests.support.mongo_server.search_text_index import counted

Document = Mapping[str, Any]
Documents = Mapping[Hashable, RawBSONDocument]
Hit = tuple[Document, dict[str, Any]]
"""A document, or a result of `$searchMeta`, and its metadata: `searchScore` or `vectorSearchScore`."""
Hits = list[Hit]
Namespace = tuple[str, str]
"""Database and collection."""


class Source(Protocol):
    """Where documents come from."""

    def exists(self, namespace: Namespace) -> bool:
        """Whether there is such a collection."""

    def read(self, namespace: Namespace) -> Documents:
        """All that is committed of a collection, by id."""

    def changed(self, namespace: Namespace) -> tuple[int, float]:
        """How often it may have been changed, and when it was last, by the monotonic clock."""


@dataclass(slots=True)
class _Collection:
    """One with indexes: as it was when somebody looked last, and how often it had been changed by then."""

    indexes: dict[str, Generation] = field(default_factory=dict)
    documents: Documents = field(default_factory=dict)
    changes: int = -1


class SearchCatalog:
    """All search indexes of a server. Safe to use from several threads."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.RLock()
        self._collections: dict[Namespace, _Collection] = {}
        self.behaviour = SearchBehaviour(self._look_at_all)

    def create(self, db: str, coll: str, models: Sequence[Document]) -> list[str]:
        """`createSearchIndexes`: the names, also of those that are there with the very same definition.

        :raises SearchRefused: the collection does not exist; a name is taken by another definition.
        """
        self._must_run()
        if not self._source.exists((db, coll)):
            raise SearchRefused(NAMESPACE_NOT_FOUND, f"Collection '{db}.{coll}' does not exist.")
        with self._lock:
            collection = self._collections.setdefault((db, coll), _Collection())
            self._look((db, coll), collection)
            there = collection.indexes
            wanted = [(model.get("name", "default"), model.get("type", "search"), model) for model in models]
            for name, kind, model in wanted:
                if name in there and (there[name].kind, there[name].definition) != (kind, model["definition"]):
                    raise SearchRefused(
                        INDEX_ALREADY_EXISTS,
                        f"Index {name} already exists with a different definition. Drop it first if needed.",
                    )
            for name, kind, model in wanted:
                if name not in there:
                    there[name] = self._begin(collection, kind, name, model["definition"])
        return [name for name, _, _ in wanted]

    def drop(self, db: str, coll: str, name: str) -> None:
        """`dropSearchIndex`.

        :raises SearchRefused: there is no such index.
        """
        self._must_run()
        with self._lock:
            if self._collections.get((db, coll), _Collection()).indexes.pop(name, None) is None:
                raise SearchRefused(INDEX_NOT_FOUND, f"No index with name {name} exists in namespace {db}.{coll}")

    def list(self, db: str, coll: str, name: str | None = None) -> list[dict[str, Any]]:
        """What `$listSearchIndexes` gives."""
        self._must_run()
        with self._lock:
            indexes = self._collections.get((db, coll), _Collection()).indexes
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
            collection = self._collections.get((db, coll), _Collection())
            index = collection.indexes.get(body.get("index", "default"))
            if index is None:
                return [({"count": counted(0, body.get("count", {}))}, {})] if name == "$searchMeta" else []
            self._look((db, coll), collection)
            found = index.query(name, body, self.behaviour, time.monotonic())
            if name == "$searchMeta":
                return [(counts, {}) for _, counts in found]
            documents = collection.documents
            return [(documents[key], metadata) for key, metadata in found if key in documents]

    def forget(self, db: str, coll: str | None = None) -> None:
        """A collection is gone, or all of a database, and the indexes with it."""
        with self._lock:
            for key in [key for key in self._collections if key[0] == db and coll in (None, key[1])]:
                del self._collections[key]

    def _look_at_all(self) -> None:
        with self._lock:
            for namespace, collection in self._collections.items():
                self._look(namespace, collection)

    def _look(self, namespace: Namespace, collection: _Collection) -> None:
        """Take note of what was committed, and of when an index may have it."""
        changes, at = self._source.changed(namespace)
        if changes == collection.changes:
            return
        before, now = collection.documents, self._source.read(namespace)
        keys = [key for key, held in now.items() if key not in before or before[key].raw != held.raw]
        keys += [key for key in before if key not in now]
        collection.documents, collection.changes = now, changes
        behaviour = self.behaviour
        for key, late_s in self._in_batch(keys) if collection.indexes else ():
            for index in collection.indexes.values():
                index.note(key, now.get(key), at + behaviour.lag_s + late_s, held=behaviour.frozen)

    def _in_batch(self, keys: Sequence[Hashable]) -> Iterable[tuple[Hashable, float]]:
        """The order in which changes get into an index, and how much later than the first."""
        if not self.behaviour.torn_s:
            return [(key, 0.0) for key in keys]
        half = len(keys) // 2
        return [*((key, 0.0) for key in keys[half:]), *((key, self.behaviour.torn_s) for key in keys[:half])]

    def _must_run(self) -> None:
        if not self.behaviour.reachable:
            raise management_unreachable()

    def _begin(self, collection: _Collection, kind: str, name: str, definition: Document) -> Generation:
        now = time.monotonic()
        generation = Generation(kind, name, definition, now=now, build_s=self.behaviour.build_s)
        for key, document in collection.documents.items():
            generation.note(key, document, now)
        return generation

    def _listed(self, index: Generation) -> dict[str, Any]:
        status = index.state(self.behaviour, time.monotonic())
        shown = {"status": status, "queryable": status == READY}
        main = shown | ({"message": "Your index could not be built"} if status == FAILED else {})
        detail = [{"hostname": "localhost", **shown, "mainIndex": main}]
        return {"id": index.name, "name": index.name, "type": index.kind, **shown, "statusDetail": detail}
