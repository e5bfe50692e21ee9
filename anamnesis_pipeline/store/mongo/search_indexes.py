"""The search index of a collection: made, waited for, replaced without a gap, and which one is asked.

An index is built some time after the command, and a query of one that does not exist finds nothing instead of failing.
So every name says by what definition it was made (`digest`) and which one in a row it is; a new one is built beside the
old, which is searched until the new one can be, and dropped then. States and commands:
https://www.mongodb.com/docs/manual/reference/operator/aggregation/listSearchIndexes/.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pymongo.errors import OperationFailure

from anamnesis_pipeline.errors import StoreRefused
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.text.unspaced_scripts import paired, parted
from anamnesis_pipeline.store.mongo.client import Collections, Database
from anamnesis_pipeline.store.mongo.collections import Collection, Document, Filter
from anamnesis_pipeline.store.mongo.facets import FACETS, condition, of_episodes
from anamnesis_pipeline.store.mongo.schema import vectors_name
from anamnesis_pipeline.store.mongo.translation import IndexDown, NoSearchService, asking
from anamnesis_pipeline.store.records.spaces import StoredSpace

# --- what they are made of -------------------------------------------------------------------------------

Quantization = Literal["none", "scalar", "binary"]

STEM, EXACT = "stem", "exact"

_NUMBERS = ("at", "read_often", "seq")
"""Of what is filtered by, these are numbers, the others texts. All fit 64 bits, and `at` not the 53 of a double."""

_BETWEEN_WORDS = r"(?U)[\W_]+"
"""Where SQLite's `unicode61` divides a text, too: at all but letters, digits and marks. `standard` would keep
`SAVE_CONFIG` and `192.168.1.20` whole.
"""


UNSPACED = {"text": "text_unspaced", "context": "context_unspaced"}
"""Field of a passage -> the one with its words that hold scripts without spaces, as they are indexed."""


def unspaced_fields(text: str, context: str) -> dict[str, str]:
    """The fields of `UNSPACED` for a passage: what stands between white space there and the analyzer would take for one
    word. Most passages have none of it, and no such field.
    """
    found = {}
    for name, whole in (("text", text), ("context", context)):
        if words := [word for word in whole.split() if parted(word) != word]:
            found[UNSPACED[name]] = paired(" ".join(words))
    return found


def text_definition() -> Document:
    """The index of full text over passages: `text` and `context` stemmed and folded, and so what `unspaced_fields` says
    of them; `terms` as they are.
    """
    analyzed = {**dict.fromkeys(("text", "context", *UNSPACED.values()), STEM), "terms": EXACT}
    # phrases need positions; nothing is highlighted, and so no text is kept
    as_words = {"type": "string", "indexOptions": "positions", "store": False}
    fields: Document = {name: {**as_words, "analyzer": analyzer} for name, analyzer in analyzed.items()}
    for name in (*FACETS, "seq"):
        is_number = name in _NUMBERS
        fields[name] = {"type": "number", "representation": "int64"} if is_number else {"type": "token"}
    return {
        "mappings": {"dynamic": False, "fields": fields},
        "analyzers": [
            {
                "name": STEM,
                "tokenizer": {"type": "regexSplit", "pattern": _BETWEEN_WORDS},
                "tokenFilters": [{"type": "icuFolding"}, {"type": "porterStemming"}],
            },
            {"name": EXACT, "tokenizer": {"type": "whitespace"}, "tokenFilters": [{"type": "lowercase"}]},
        ],
    }


def vector_definition(dim: int, variants: Iterable[str], quantization: Quantization) -> Document:
    """The index of a space's vectors. Stored ones have length 1 but for float16's rounding, so that `dotProduct` is
    their cosine, and the very product that an exact scan computes.
    """
    how = {"quantization": quantization} if quantizes(dim, quantization) else {}
    shape = {"type": "vector", "numDimensions": dim, "similarity": "dotProduct"} | how
    vectors = [{**shape, "path": str(variant)} for variant in variants]
    return {"fields": [*vectors, *({"type": "filter", "path": name} for name in (*FACETS, "seq"))]}


def quantizes(dim: int, quantization: Quantization) -> bool:
    """Whether vectors of this width are held coarser than they are. Binary ones want a multiple of 8."""
    return quantization == "scalar" or (quantization == "binary" and dim % 8 == 0)


def digest(definition: Mapping[str, Any]) -> str:
    """Tells definitions apart, in the names of their indexes: a server does not give one back as it got it."""
    text = json.dumps(definition, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# --- making and asking them ------------------------------------------------------------------------------

log = logging.getLogger(__name__)

POLLED_EVERY_S = 0.1
SLOWEST_POLL_S = 2.0
TOLD_EVERY_S = 15.0
"""So often the log says what is waited for."""
ASKED_AGAIN_S = 5.0
"""So often a search that finds no index asks for one, at most."""

_GONE = ("DELETING", "DOES_NOT_EXIST")
_NAMESPACE_NOT_FOUND, _INDEX_NOT_FOUND, _INDEX_ALREADY_EXISTS = 26, 27, 68

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListedIndex:
    """An index as the server lists it. `generation`: its number in a row, for any definition."""

    name: str
    digest: str
    generation: int
    status: str
    queryable: bool
    problem: str


class SearchIndex:
    """The search index of one collection. Safe to share between threads."""

    def __init__(self, collection: str, base: str, kind: str, definition: Document) -> None:
        """:param base: what the names of its indexes begin with; none but its own do.
        :param kind: `search` or `vectorSearch`.
        """
        self.collection = collection
        self._base = base
        self._kind = kind
        self._definition = definition
        self._digest = digest(definition)
        self._lock = threading.Lock()
        self._name: str | None = None
        self._asked_at = -ASKED_AGAIN_S

    def name(self, tables: Collections) -> str:
        """The index to ask; looked up once, and again after `forget`. Where there is none it is asked for: the service
        was away when the store was opened, or it was dropped by hand.

        :raises IndexDown: none can be asked.
        """
        with self._lock:
            if self._name is not None:
                return self._name
        states = self.states(tables)
        usable = [state for state in states if state.queryable]
        if not usable:
            with self._lock:
                is_due = time.monotonic() - self._asked_at >= ASKED_AGAIN_S and not self._of_definition(states)
                if is_due:
                    self._asked_at = time.monotonic()
            if is_due:
                self._make(tables, states)
            raise IndexDown(f"search index {self._base} of {self.collection} is {_told(states)}")
        best = max(usable, key=lambda state: (state.digest == self._digest, state.generation))
        with self._lock:
            self._name = best.name
        return best.name

    def forget(self, name: str) -> None:
        """An index did not answer, or as one that does not exist does."""
        with self._lock:
            if self._name == name:
                self._name = None

    def instead_of(self, name: str, tables: Collections, is_there: Callable[[], bool]) -> str | None:
        """The index to ask instead of one that found nothing, which one that was dropped does, too. None: it is there.

        :raises IndexDown: none can be asked.
        """
        if is_there():
            return None
        self.forget(name)
        current = self.name(tables)
        return current if current != name else None

    def states(self, tables: Collections) -> list[ListedIndex]:
        """Its indexes, old ones and those that are being built included.

        :raises IndexDown: the service does not say.
        """
        with asking(self._base):
            listed = tables[self.collection].search_indexes()
        return [state for found in listed if (state := _read(self._base, found)) is not None]

    def ask_for(self, database: Database) -> None:
        """Make the index where there is none of its definition, without waiting for it; drop those before it where it
        can be asked by now. One that failed is made again by `build` alone: it would fail over and over.

        :raises IndexDown: the service does not answer.
        """
        with database.read() as tables:
            states = self.states(tables)
            mine = self._of_definition(states)
            if not mine:
                self._make(tables, states)
            elif usable := [state for state in mine if state.queryable]:
                self._drop_others(tables, max(usable, key=lambda state: state.generation), newer=False)
            elif all(state.status == "FAILED" for state in mine):
                log.warning(
                    "Search index %s of %s is %s; the next build of the vector index makes it again",
                    self._base,
                    self.collection,
                    _told(mine),
                )

    def build(self, database: Database, *, force: bool, wait_s: float) -> bool:
        """Make the index where there is none of its definition, or (`force`) again, wait until it can be asked, and
        drop those before it. Until then these are asked. True when one was made.

        :raises IndexDown: it cannot be asked within `wait_s`, and may be later.
        :raises StoreRefused: the server could not build it.
        """
        wait = _Wait(f"search index {self._base} of {self.collection}", wait_s)

        def made() -> tuple[str, bool]:
            with database.read() as tables:  # read and decided at one go: another process may be as quick
                states = self.states(tables)
                if not force and (standing := self._standing(states)):
                    return standing, False
                return self._make(tables, states), True

        def is_ready() -> ListedIndex:
            with database.read() as tables:
                return self._ready(tables, name)

        name, is_new = wait.for_answer(made)
        ready = wait.for_answer(is_ready)
        with database.read() as tables:
            self._drop_others(tables, ready, newer=True)
        with self._lock:
            self._name = ready.name
        return is_new or ready.name != name

    def _of_definition(self, states: Sequence[ListedIndex]) -> list[ListedIndex]:
        """Those of the definition that is wanted that are there, failed ones too."""
        return [state for state in states if state.digest == self._digest and state.status not in _GONE]

    def _standing(self, states: Sequence[ListedIndex]) -> str | None:
        """The latest index of the definition that is wanted, built or being built."""
        mine = [state for state in self._of_definition(states) if state.status != "FAILED"]
        return max(mine, key=lambda state: state.generation).name if mine else None

    def _make(self, tables: Collections, states: Sequence[ListedIndex]) -> str:
        generation = 1 + max((state.generation for state in states), default=0)
        name = f"{self._base}_{self._digest}_{generation}"
        try:
            with asking(name):
                tables[self.collection].create_search_index(name, self._kind, self._definition)
        except OperationFailure as exc:
            if exc.code == _NAMESPACE_NOT_FOUND:
                raise StoreRefused(
                    f"{self.collection} has no search index and is gone itself; was the space dropped?"
                ) from exc
            if exc.code != _INDEX_ALREADY_EXISTS:  # another process was as quick
                raise
        log.info("Search index %s of %s is being built", name, self.collection)
        return name

    def _ready(self, tables: Collections, name: str) -> ListedIndex:
        """The index of this name, or the one by which another process has replaced it meanwhile. Where both are gone,
        dropped by hand or by a process with another definition, it is made again.

        :raises IndexDown: it cannot be asked yet.
        :raises StoreRefused: it will never be.
        """
        states = self.states(tables)
        found = [state for state in states if state.name == name and state.status not in _GONE]
        if not found:
            found = [state for state in states if state.name == self._standing(states)]
        if not found:
            raise IndexDown(f"{name} is gone, {self._make(tables, states)} takes its place")
        if any(state.status == "FAILED" for state in found):
            failed = found[0].name
            self._drop(tables, failed)
            raise StoreRefused(
                f"the server could not build search index {failed} of {self.collection} ({_told(found)}); look at the "
                f"log of the search process (mongot), then build it again; until then an older index is searched, or "
                f"what is stored while that is little"
            )
        if not any(state.queryable for state in found):
            raise IndexDown(_told(found))
        return found[0]

    def _drop_others(self, tables: Collections, ready: ListedIndex, *, newer: bool) -> None:
        """Drop what this index replaces.

        :param newer: also later ones of another definition; without it these may be of a newer program that just
            builds them.
        """
        for state in self.states(tables):
            if state.generation > ready.generation and (not newer or self._standing([state])):
                continue  # another process builds it again
            if state.name != ready.name and state.status != "DELETING":
                self._drop(tables, state.name)
                log.info("Search index %s of %s was replaced by %s", state.name, self.collection, ready.name)

    def _drop(self, tables: Collections, name: str) -> None:
        try:
            with asking(name):
                tables[self.collection].drop_search_index(name)
        except OperationFailure as exc:
            if exc.code != _INDEX_NOT_FOUND:
                raise


def text_index() -> SearchIndex:
    """The index of full text."""
    return SearchIndex("passages", "passages_text", "search", text_definition())


def vector_index(space: StoredSpace, quantization: Quantization) -> SearchIndex:
    """The index of a space's vectors."""
    definition = vector_definition(space.dim, space.variants, quantization)
    return SearchIndex(vectors_name(space.key), "vectors", "vectorSearch", definition)


class _Wait:
    """Waiting for a search service, bounded and told in the log."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._began = time.monotonic()
        self._seconds = seconds
        self._told = self._began

    def for_answer(self, ask: Callable[[], T]) -> T:
        """What `ask` returns once the index can be asked.

        :raises IndexDown: it cannot be when the time is over, or the server has no search service.
        """
        pause = POLLED_EVERY_S
        while True:
            try:
                return ask()
            except NoSearchService:
                raise
            except IndexDown as exc:
                waited_s = time.monotonic() - self._began
                if waited_s >= self._seconds:
                    raise IndexDown(
                        f"{self._what} cannot be asked after {self._seconds:.0f} s: {exc}; it may be ready later: look "
                        f"at the search process (mongot) and its log, and build again"
                    ) from exc
                if self._began + waited_s - self._told >= TOLD_EVERY_S:
                    self._told = self._began + waited_s
                    log.warning(
                        "Waiting for %s since %.0f s of at most %.0f: %s", self._what, waited_s, self._seconds, exc
                    )
            time.sleep(pause)
            pause = min(2 * pause, SLOWEST_POLL_S)


def _read(base: str, found: Document) -> ListedIndex | None:
    """None for an index of another purpose."""
    prefix, _, rest = found["name"].rpartition(f"{base}_")
    made_by, _, generation = rest.partition("_")
    if prefix or not generation.isdecimal():
        return None
    problem = ""
    for host in found.get("statusDetail", ()):  # the first that says why it could not build the index
        with suppress(KeyError, TypeError):
            problem = problem or str(host["mainIndex"]["message"])
    return ListedIndex(
        found["name"],
        made_by,
        int(generation),
        found.get("status", "PENDING"),
        bool(found.get("queryable")),
        problem,
    )


def _told(states: Sequence[ListedIndex]) -> str:
    """The states of indexes in words."""
    return ", ".join(f"{s.status}: {s.problem}" if s.problem else s.status for s in states) or "not there"


# --- how far an index is behind its collection -----------------------------------------------------------
# It follows every write some time later. Writes are serial, and each gives what it changes a higher `seq` than anything
# had before. An index follows in batches, not in the order of a batch, and shows some of one before the rest
# (https://github.com/mongodb/mongot, `ChangeStreamDocumentUtils`, `DefaultIndexingWorkScheduler`). So one that has
# shown a `seq` holds all that was written before it a few seconds later; until then that is read, too. What is behind
# is read from the collection; and since a found document is always read in its present form, nothing is ever shown
# that does not pass.

log = logging.getLogger(__name__)

STEPS = (0, 100, 1_000, 10_000)
"""So many changes before the newest one it is asked, in turn, whether the index holds it. Of what is farther behind,
only the newest are read.
"""
SETTLED_AFTER_S = 5.0
"""What an index showed so long ago is there whole."""
QUIET_S = 60.0 + SETTLED_AFTER_S
"""Where no `seq` was given for so long, an index that shows the newest is whole: a transaction lives for 60 s at most
(https://www.mongodb.com/docs/manual/reference/parameters/, `transactionLifetimeLimitSeconds`).
"""
UNSETTLED = 1_000
"""Changes before the one that was shown that may not be there yet, as long as nothing is known to be whole: more than
one transaction makes of most kinds, and all that a process reads which starts while others write. Of a larger one
that was written in the minute before, it finds a part only, for its first five seconds.
"""
WARNED_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Tail:
    """What a search has to read itself: documents whose `seq` is higher than `since`. Of `newest` and all before it,
    `is_whole` tells whether they and the index are everything.
    """

    since: int
    newest: int
    is_whole: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether the index has it all."""
        return self.since >= self.newest

    def of(self, where: Filter) -> Filter:
        """The documents of the tail that pass a filter."""
        return {"seq": {"$gt": self.since}, **where}


@dataclass(slots=True)
class _Reached:
    """How far an index is: whole up to `settled`; and what it has `shown`, when, ascending."""

    settled: int = 0
    shown: list[tuple[float, int]] = field(default_factory=list)

    def settle(self, now: float) -> None:
        """Take what was shown long enough ago for whole."""
        for when, seq in self.shown:
            if when <= now - SETTLED_AFTER_S:
                self.settled = max(self.settled, seq)
        self.shown = [(when, seq) for when, seq in self.shown if seq > self.settled]

    def last_shown(self) -> int:
        """The highest it is known to have."""
        return self.shown[-1][1] if self.shown else self.settled

    def show(self, now: float, seq: int) -> None:
        """It has this one now."""
        if seq > self.last_shown():
            self.shown.append((now, seq))


class IndexTail:
    """How far indexes are known to be, by name. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """:param clock: seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, _Reached] = {}
        self._warned_at = -WARNED_EVERY_S

    def behind(
        self, index: str, newest: int, holds: Callable[[int], bool], unused_s: Callable[[], float] = lambda: 0.0
    ) -> Tail:
        """What an index may lack.

        :param newest: the highest `seq` there was when the search began.
        :param holds: asks the index whether it holds anything of that `seq` or a higher one.
        :param unused_s: asks for how long no `seq` was given.
        """
        with self._lock:
            known = self._known.setdefault(index, _Reached())
            known.settle(self._clock())
            if newest < known.settled:
                # an index that was farther than its collection is now is of before a restore of the collection,
                # whose index begins again under the same name
                known = self._known[index] = _Reached()
            settled, shown = known.settled, known.last_shown()
        for step in STEPS:
            reached = newest - step
            if reached <= settled:
                return Tail(settled, newest)
            if reached <= shown:
                return Tail(_whole(settled, shown), newest)
            if holds(reached):
                is_quiet = step == 0 and settled == 0 and unused_s() >= QUIET_S
                with self._lock:
                    known = self._known.setdefault(index, _Reached())
                    if is_quiet:
                        known.settled = max(known.settled, reached)
                    else:
                        known.show(self._clock(), reached)
                return Tail(reached if is_quiet else _whole(settled, reached), newest)
        with self._lock:
            is_due = time.monotonic() - self._warned_at >= WARNED_EVERY_S
            if is_due:
                self._warned_at = time.monotonic()
        if is_due:
            log.warning(
                "Search index %s is more than %d changes behind (the newest is %d): what was written between is found "
                "once it caught up. If this stays so, look at the search process (mongot) and its log.",
                index,
                STEPS[-1],
                newest,
            )
        return Tail(max(settled, newest - STEPS[-1]), newest, is_whole=False)

    def forget(self, index: str) -> None:
        """An index did not answer: when it does, it may have begun again."""
        with self._lock:
            self._known.pop(index, None)


def _whole(settled: int, shown: int) -> int:
    """Up to where an index that has shown a `seq` is whole; one transaction may have changed thousands before it."""
    return max(settled, shown - (STEPS[-1] if settled else UNSETTLED))


def newest_seq(collection: Collection, where: Filter | None = None) -> int:
    """The highest `seq` in a collection; 0 when it is empty."""
    found = collection.one(where or {}, ("seq",), order=[("seq", -1)])
    return int(found["seq"]) if found else 0


# --- all that passes a filter, where it is little: what a search without an index answers from -----------

EPISODES_LOOKED_UP = 5_000
"""A filter that leaves more is not followed from the episodes, whose fields are indexed, to what belongs to them."""


def live_rows(
    tables: Collections, name: str, where: EpisodeFilter, fields: Sequence[str], most: int, *, has: str | None = None
) -> list[Document] | None:
    """The documents of a collection that pass; None when there are more than `most`, or it takes too long to tell.

    :param has: a field that they must have.
    """
    wanted = {**condition(where), **({has: {"$exists": True}} if has else {})}
    if tables[name].size() > most:
        if not where.is_selective:
            return None
        episodes = tables["episodes"].find(of_episodes(where), ("_id",), limit=EPISODES_LOOKED_UP + 1)
        if len(episodes) > EPISODES_LOOKED_UP:
            return None
        wanted |= {"episode_id": {"$in": [episode["_id"] for episode in episodes]}}
    found = tables[name].find(wanted, fields, limit=most + 1)
    return found if len(found) <= most else None
