"""Nearest passages: proposals of an index file and of the tail behind it, scored with the stored vectors."""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import EpisodeFilter, ScoredPassage
from anamnesis_pipeline.store.sqlite.filters import condition
from anamnesis_pipeline.store.sqlite.vector_file import VectorFile
from anamnesis_pipeline.store.values import json_list
from anamnesis_pipeline.store.vector_values import best_first, from_blobs

# --- vectors that no index file covers yet, kept in memory and scanned exactly ---------------------------

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]

MAX_TAIL_ROWS = 50_000
TAIL_READ_ROWS = 2_000
STALE_ROWS = 1_000
"""Rows deleted since they were read that may stay before the tail is read again."""


@dataclass(frozen=True, slots=True)
class TailView:
    """What one search sees: ids of shape (n,), vectors of shape (n, dim), and the last seq among them."""

    ids: Ids
    vectors: Vectors
    last_seq: int

    def nearest(self, vector: Vectors, k: int) -> Ids:
        """Up to k passage ids, nearest first."""
        return self.ids[best_first(self.vectors @ vector, k)] if len(self.ids) else self.ids


class VectorTail:
    """The tail of one space and variant. Rows are only ever appended, so a view stays valid while it grows."""

    def __init__(self, space_id: int, variant: str, dim: int) -> None:
        self._key = (space_id, variant)
        self._lock = threading.Lock()
        self._ids: Ids = np.empty(0, np.int64)
        self._vectors: Vectors = np.empty((0, dim), np.float32)
        self._dim = dim
        self._rows = 0
        self._covered = self._last = 0

    def view(self, connection: sqlite3.Connection, covered_seq: int) -> TailView:
        """The rows behind `covered_seq`, at most `MAX_TAIL_ROWS`; reads only those it has not seen."""
        with self._lock:
            if covered_seq != self._covered:
                self._restart(covered_seq)
            if self._read_new(connection) and self._is_stale(connection):
                self._restart(covered_seq)
                self._read_new(connection)
            return TailView(self._ids[: self._rows], self._vectors[: self._rows], self._last)

    def _restart(self, covered_seq: int) -> None:
        self._ids, self._vectors = np.empty(0, np.int64), np.empty((0, self._dim), np.float32)
        self._rows, self._covered, self._last = 0, covered_seq, covered_seq

    def _read_new(self, connection: sqlite3.Connection) -> bool:
        before = self._rows
        while self._rows < MAX_TAIL_ROWS:
            rows = connection.execute(
                """SELECT seq, passage_id, vec FROM vectors INDEXED BY vectors_by_seq
                    WHERE space_id = ? AND variant = ? AND seq > ? ORDER BY seq LIMIT ?""",
                (*self._key, self._last, min(TAIL_READ_ROWS, MAX_TAIL_ROWS - self._rows)),
            ).fetchall()
            if not rows:
                break
            self._append([row[1] for row in rows], from_blobs([row[2] for row in rows], self._dim))
            self._last = rows[-1][0]
        return self._rows > before

    def _append(self, ids: list[int], vectors: Vectors) -> None:
        end = self._rows + len(ids)
        if end > len(self._ids):
            capacity = min(MAX_TAIL_ROWS, max(end, 2 * len(self._ids)))
            grown_ids, grown = np.empty(capacity, np.int64), np.empty((capacity, self._dim), np.float32)
            grown_ids[: self._rows], grown[: self._rows] = self._ids[: self._rows], self._vectors[: self._rows]
            self._ids, self._vectors = grown_ids, grown
        self._ids[self._rows : end], self._vectors[self._rows : end] = ids, vectors
        self._rows = end

    def _is_stale(self, connection: sqlite3.Connection) -> bool:
        (live,) = connection.execute(
            """SELECT count(*) FROM vectors INDEXED BY vectors_by_seq
                WHERE space_id = ? AND variant = ? AND seq > ? AND seq <= ?""",
            (*self._key, self._covered, self._last),
        ).fetchone()
        return bool(self._rows - live > max(STALE_ROWS, live // 4))


# --- vectors of the few passages that pass a filter ------------------------------------------------------

MAX_BYTES = 128 * 2**20
"""Of all that is remembered: two variants of two filters that leave 20,000 passages, at 384 dimensions."""
READ_ROWS = 4_096

Key = tuple[int, str, EpisodeFilter]
"""Space, variant and filter."""


@dataclass(frozen=True, slots=True)
class _Held:
    """`few` and `seq` tell whether it still holds: the passages that pass, and the latest vector there was."""

    few: Ids
    seq: int
    ids: Ids
    vectors: Vectors


class FewVectors:
    """The vectors for the filters asked last, where these leave little: read once, then kept while nothing changes.
    Sessions search within their project time and again, and reading 20,000 rows takes longer than all else in a search.
    Safe to share between threads.
    """

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        """:param most_bytes: what is more is read at each search."""
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[Key, _Held] = OrderedDict()

    def of(self, connection: sqlite3.Connection, key: Key, few: Ids, dim: int) -> tuple[Ids, Vectors]:
        """The keys of those of `few` that have a vector, and the vectors, shape (len(keys), dim).

        :param few: as `PassingPassages` gives them: the same array as long as nothing changes.
        """
        (latest,) = connection.execute(
            "SELECT coalesce(max(seq), 0) FROM vectors WHERE space_id = ? AND variant = ?", key[:2]
        ).fetchone()
        with self._lock:
            held = self._held.get(key)
            if held is not None and held.few is few and held.seq == latest:
                self._held.move_to_end(key)
                return held.ids, held.vectors
        held = _Held(few, latest, *_read(connection, key, few, dim))
        with self._lock:
            self._held[key] = held
            self._held.move_to_end(key)
            while sum(each.vectors.nbytes for each in self._held.values()) > self._most_bytes:
                self._held.popitem(last=False)
        return held.ids, held.vectors


def _read(connection: sqlite3.Connection, key: Key, few: Ids, dim: int) -> tuple[Ids, Vectors]:
    rows = connection.execute(
        """SELECT v.passage_id, v.vec FROM json_each(?) j CROSS JOIN vectors v
            ON v.passage_id = j.value AND v.space_id = ? AND v.variant = ?""",
        (json_list(few.tolist()), *key[:2]),
    )
    ids, pages = [], [np.empty((0, dim), np.float32)]
    while page := rows.fetchmany(READ_ROWS):
        ids += [passage_id for passage_id, _ in page]
        pages.append(from_blobs([vec for _, vec in page], dim))
    return np.array(ids, np.int64), np.concatenate(pages)


# --- search ----------------------------------------------------------------------------------------------


MAX_PROPOSALS = 16_384
"""When so many proposals hold too few passages that pass, scanning all that pass is no slower."""

SPARE = 16
"""Proposals beyond the wanted ones: a filter hides some, and int8 orders the last ones differently."""

SCAN_ROWS = 4_096

Row = tuple[int, str, bytes]
"""Passage id, episode id, vector."""

_EPISODE = "CROSS JOIN episodes e ON e.episode_key = p.episode_key"
_VECTOR = "CROSS JOIN vectors v ON v.passage_id = p.passage_id"
_OF_IDS = f"json_each(?) j CROSS JOIN passages p ON p.passage_id = j.value {_EPISODE} {_VECTOR}"
_OF_ALL = f"episodes e CROSS JOIN passages p ON p.episode_key = e.episode_key {_VECTOR}"
_BEHIND = f"""vectors v INDEXED BY vectors_by_seq
    CROSS JOIN passages p ON p.passage_id = v.passage_id AND v.seq > ? {_EPISODE}"""
"""Where rows come from; SQLite joins in this order."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for, in which space and variant. `vector` has shape (dim,)."""

    space_id: int
    variant: str
    vector: Vectors
    k: int
    where: EpisodeFilter


def nearest(
    connection: sqlite3.Connection,
    question: Question,
    file: VectorFile | None,
    tail: TailView,
    few: Ids | None,
    remembered: FewVectors,
) -> list[ScoredPassage]:
    """The k best passages that pass the filter, best first.

    :param few: all passages that pass, where they are few enough to be scanned.
    :param remembered: their vectors.
    """
    if few is not None:
        return _scan_few(connection, question, few, remembered)
    found = _proposed(connection, question, file, tail)
    if found is None:  # exact: every passage that passes
        return _scored(_passing(connection, question, _OF_ALL), question)
    if len(tail.ids) < MAX_TAIL_ROWS:
        return found
    behind = _scored(_passing(connection, question, _BEHIND, tail.last_seq), question)
    return _best([*found, *behind], question.k)


def _proposed(
    connection: sqlite3.Connection, question: Question, file: VectorFile | None, tail: TailView
) -> list[ScoredPassage] | None:
    """The best of what file and tail propose; None when they would have to propose too much.

    Each must yield k passages that pass, or all it has: otherwise a better one could hide behind its proposals. So must
    what shares its node in the file with others, of which only the best are proposed.
    """
    k, in_file = question.k, len(file) if file else 0
    wanted = k + SPARE
    while wanted <= MAX_PROPOSALS:
        proposed = file.nearest(question.vector, wanted) if file else np.empty(0, np.int64)
        of_file, alike = set(proposed.tolist()), set(proposed[file.shares_node(proposed)].tolist()) if file else set()
        of_tail = set(tail.nearest(question.vector, wanted).tolist())
        pages = list(_passing(connection, question, _OF_IDS, json_list(of_file | of_tail)))
        passed = {row[0] for page in pages for row in page}
        all_alike_told = len(alike) < wanted or len(alike & passed) >= k
        file_is_done = (len(of_file & passed) >= k and all_alike_told) or not in_file
        if file_is_done and (len(of_tail & passed) >= k or wanted >= len(tail.ids)):
            return _scored(pages, question)
        wanted *= 2
    return None


def _passing(
    connection: sqlite3.Connection, question: Question, origin: str, *values: str | int
) -> Iterator[list[Row]]:
    """Yield pages of the vectors of an origin, with its values, that pass the filter."""
    terms, of_filter = condition(question.where)
    rows = connection.execute(
        f"""SELECT v.passage_id, e.episode_id, v.vec FROM {origin}
            WHERE v.space_id = ? AND v.variant = ? AND {terms}""",  # noqa: S608 - names of ours
        (*values, question.space_id, question.variant, *of_filter),
    )
    while page := rows.fetchmany(SCAN_ROWS):
        yield page


def _scan_few(
    connection: sqlite3.Connection, question: Question, few: Ids, remembered: FewVectors
) -> list[ScoredPassage]:
    """Exact: every passage of `few`; only the best are looked up."""
    key = (question.space_id, question.variant, question.where)
    ids, vectors = remembered.of(connection, key, few, len(question.vector))
    scores = vectors @ question.vector
    top = {int(ids[place]): float(scores[place]) for place in best_first(scores, question.k)}
    episodes = connection.execute(
        """SELECT p.passage_id, e.episode_id FROM json_each(?) j
            CROSS JOIN passages p ON p.passage_id = j.value
            CROSS JOIN episodes e ON e.episode_key = p.episode_key""",
        (json_list(top),),
    )
    return _best((ScoredPassage(key, episode_id, top[key]) for key, episode_id in episodes), question.k)


def _scored(pages: Iterable[Sequence[Row]], question: Question) -> list[ScoredPassage]:
    """The k best of all pages; one is held at a time, so that memory stays bounded."""
    best: list[ScoredPassage] = []
    for page in pages:
        scores = from_blobs([row[2] for row in page], len(question.vector)) @ question.vector
        top = best_first(scores, question.k)
        best = _best([*best, *(ScoredPassage(page[i][0], page[i][1], float(scores[i])) for i in top)], question.k)
    return best


def _best(hits: Iterable[ScoredPassage], k: int) -> list[ScoredPassage]:
    unique = {hit.passage_id: hit for hit in hits}
    return sorted(unique.values(), key=lambda hit: (-hit.score, hit.passage_id))[:k]
