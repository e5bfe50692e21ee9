"""One definition of a search index from the command to READY, and how it follows what is committed."""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from anamnesis_tests.support.mongo_server.search_behaviour import SearchBehaviour, is_named
from anamnesis_tests.support.mongo_server.search_errors import SearchRefused, query_refused
from anamnesis_tests.support.mongo_server.search_text_index import TextIndex
from anamnesis_tests.support.mongo_server.search_vector_index import Taken, VectorIndex

PENDING, BUILDING, READY, FAILED = "PENDING", "BUILDING", "READY", "FAILED"
_INTERNAL = {PENDING: "NOT_STARTED", BUILDING: "INITIAL_SYNC", FAILED: "FAILED"}
"""What the search process calls these states when it refuses a query."""
_PENDING_PART = 0.2
_UNKNOWN_PART = 0.1
"""So long the process does not even know the index; its words are others then."""


@dataclass(frozen=True, slots=True)
class _Change:
    """`due`: when the index may have it; `held`: it was committed while the index was frozen."""

    due: float
    held: bool
    key: Hashable
    taken: Taken | None


class Generation:
    """An index by one definition. Changes are applied when somebody looks, so that nothing runs beside the tests."""

    def __init__(self, kind: str, name: str, definition: Mapping[str, Any], *, now: float, build_s: float) -> None:
        self.kind = kind
        self.name = name
        self.definition = definition
        self._content: TextIndex | VectorIndex = (
            VectorIndex(definition) if kind == "vectorSearch" else TextIndex(definition)
        )
        self._started, self._build_s = now, build_s
        self._state = PENDING
        self._changes: deque[_Change] = deque()
        self._rows: dict[Hashable, int] = {}
        self._keys: dict[int, Hashable] = {}
        self._next_row = 0

    def note(self, key: Hashable, document: Mapping[str, Any] | None, due: float, *, held: bool = False) -> None:
        """A document as it was committed, None when it was removed."""
        taken = self._content.take(document) if document is not None else None
        self._changes.append(_Change(due, held, key, taken))

    def state(self, behaviour: SearchBehaviour, now: float) -> str:
        """As it is now."""
        if self._state in (READY, FAILED):
            return self._state
        part = self._part(now)
        if part < _PENDING_PART:
            return PENDING
        if part < 1 or is_named(self.name, behaviour.never_ready):
            return BUILDING
        self._state = FAILED if is_named(self.name, behaviour.failing) else READY
        return self._state

    def query(
        self, stage: str, body: Mapping[str, Any], behaviour: SearchBehaviour, now: float
    ) -> list[tuple[Hashable, dict[str, Any]]]:
        """Keys and metadata of what is found; the key is None for the counts of `$searchMeta`.

        :raises SearchRefused: the index cannot be queried yet, or the query does not fit it.
        """
        if (state := self.state(behaviour, now)) != READY:
            raise self._refused(state, now)
        self.follow(behaviour, now)
        return [(self._keys.get(row), metadata) for row, metadata in self._content.query(stage, body)]

    def follow(self, behaviour: SearchBehaviour, now: float) -> None:
        """Apply what is due, in the order of the commits. A build holds what was there when it began, and what came."""
        while self._changes and self._changes[0].due <= now and not (behaviour.frozen and self._changes[0].held):
            self._apply(self._changes.popleft())

    def _apply(self, change: _Change) -> None:
        row = self._rows.get(change.key)
        if change.taken is None:
            if row is not None:
                self._content.remove(row)
                del self._rows[change.key], self._keys[row]
            return
        if row is None:
            row = self._rows[change.key] = self._next_row
            self._keys[row] = change.key
            self._next_row += 1
        self._content.put(row, change.taken)

    def _part(self, now: float) -> float:
        """How much of its build is over."""
        return (now - self._started) / self._build_s if self._build_s > 0 else 1.0

    def _refused(self, state: str, now: float) -> SearchRefused:
        if state == PENDING and self._part(now) < _UNKNOWN_PART:
            return query_refused(f"Index {self.name} not initialized")
        kind = "vector" if self.kind == "vectorSearch" else "search"
        return query_refused(f"cannot query {kind} index {self.name} while in state {_INTERNAL[state]}")
