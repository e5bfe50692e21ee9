"""The derived nearest-neighbour file of one space and variant: a usearch graph of int8 vectors, memory-mapped.

Equal and nearly equal vectors are one node of the graph: many of them link to each other alone, and the rest cannot be
reached any more (of 3,221 texts, 4,000 copies of another hid half, 32,000 hid all). Behind the graph the file holds the
passages of each node, the vectors of nodes whose vectors differ, and a checksum, since a damaged graph ends the process
that searches it.
"""

import hashlib
import mmap
import os
import struct
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from usearch.index import Index

from anamnesis_pipeline.store.vector_values import (
    ALIKE,
    EXACT_BELOW,
    POOL,
    SAMPLES,
    best_first,
    first_alike,
    share_found,
    spread,
    unlike,
)

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]

CONNECTIVITY = 16
EXPANSION_ADD = 128
EXPANSION_SEARCH = 384
"""Finds 0.997 of the ten nearest among 50,000 vectors with the spread of embedded texts; 96 found 0.966 (in 1.1 against
0.4 ms), and less in a grown graph.
"""
EXPANSION_ALIKE = 48
"""Of the search for the node that a new vector belongs to, which is very near if there is one."""
FIRST_ALONE = 5_000
"""Vectors that are added on one thread: several at once leave some of a small graph unreachable (eight threads found
0.984 to 0.998 among 1,000, one thread all).
"""
ADDED_AT_ONCE = 1_000
"""Vectors that are compared with each other before they are added."""
NODES_PER_RESULT = 2
"""Nodes that are looked at for each passage wanted: of vectors that are alike, others may be nearer than the one that
stands for them in the graph. One found 0.98 of the ten nearest where such are frequent, two 0.998.
"""
EXACT_NODES = 8
"""So many, where all vectors are compared, which is done where many are about as near: int8 tells
32,000 vectors with cosines of .96 to each other apart well enough to have 0.99 of the ten nearest among 200.
"""
CHECKED_K = 10

_FOOTER = struct.Struct("<8sQQQd32s")
"""Mark, bytes of the graph, passages, vectors, recall, SHA-256 of all before it."""
_MARK = b"ANAMVEC2"
_DIGEST_BYTES = 32
_EVERY_CORE = 0


class DamagedFileError(Exception):
    """A file that is not what was written, or that an earlier version wrote."""


class VectorFile:
    """An opened index file. It only proposes: scores come from the stored vectors."""

    def __init__(self, path: Path, dim: int) -> None:
        """:raises DamagedFileError: its checksum is another; nothing of it was followed.
        :raises OSError: it cannot be read.
        """
        self.name = path.name
        self._index = _empty(dim, EXPANSION_SEARCH)
        self._contents = _Contents.read(path, dim)  # behind the index, which is mapped from it, to be freed after it
        self._index.view(self._contents.graph)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Vectors in the file, also those whose passage is gone by now."""
        return len(self._contents.ids)

    @property
    def recall(self) -> float:
        """Share of the ten nearest nodes that the graph found when it was built, in [0, 1]."""
        return self._contents.recall

    @property
    def is_exact(self) -> bool:
        """Whether a search compares every node, since the graph finds too little."""
        return self.recall < EXACT_BELOW

    def nearest(self, vector: Vectors, k: int) -> Ids:
        """Passage ids, nearest first: of the nearest nodes all passages that are alone in theirs, and the k best of the
        others.
        """
        return self._scored(vector, k, exact=self.is_exact)[0]

    def shares_node(self, ids: Ids) -> NDArray[np.bool_]:
        """Whether each of these passages has others in its node."""
        grouped = self._contents.grouped
        places = np.minimum(np.searchsorted(grouped, ids), len(grouped) - 1)
        return np.asarray(grouped[places] == ids) if len(grouped) else np.zeros(len(ids), np.bool_)

    def measured(self) -> float:
        """Share of the ten nearest that a search by the graph finds of an exact one: the lower one of that over nodes
        that are unlike, since those that are alike find each other in any graph, and that over passages.
        """
        places, k = np.arange(len(self)), min(CHECKED_K, len(self))
        opening = np.unique(self._contents.nodes, return_index=True)[1]
        pool, chosen = opening[spread(len(opening), POOL * SAMPLES)], places[spread(len(places), SAMPLES)]
        return min(
            self._share(unlike(self._vectors(pool), SAMPLES), k),
            self._share(self._vectors(chosen), k),
        )

    def _share(self, queries: Vectors, k: int) -> float:
        if not len(queries):
            return 1.0
        wanted = [self._scored(query, k, exact=True)[1][k - 1] for query in queries]
        found = [self._scored(query, k, exact=False)[1].tolist() for query in queries]
        return share_found(found, np.array(wanted, np.float32), k)

    def _scored(self, vector: Vectors, k: int, *, exact: bool) -> tuple[Ids, NDArray[np.float32]]:
        """Passages, nearest first, and their cosines, nearly so where they are alone in their nodes."""
        wanted = min(k * (EXACT_NODES if exact else NODES_PER_RESULT), len(self._index))
        with self._lock:  # usearch numbers its search buffers per call, so two calls at once would share one
            matches = self._index.search(vector, wanted, threads=1, exact=exact)
        held, cosines = self._contents, 1 - np.asarray(matches.distances, np.float32)
        first, end = held.places(np.asarray(matches.keys, np.int64))
        alone = end - first == 1
        members = [np.flatnonzero(held.rows >= 0)] if exact else list(map(np.arange, first[~alone], end[~alone]))
        together = np.concatenate([np.empty(0, np.intp), *members])
        of_together = held.cosines(together, vector)
        best = best_first(of_together, k)
        ids = np.concatenate([held.ids[first[alone]], held.ids[together[best]]])
        scores = np.concatenate([cosines[alone], of_together[best]])
        order = np.argsort(-scores, kind="stable")
        return ids[order], scores[order]

    def _vectors(self, places: NDArray[np.intp]) -> Vectors:
        """Those of passages; of one that is alone in its node, as the graph has it."""
        held = self._contents
        found = _kept(self._index, held.nodes[places])
        has_row = held.rows[places] >= 0
        found[has_row] = held.vectors[held.rows[places[has_row]]]
        return found


def write_file(path: Path, dim: int, pages: Iterable[tuple[Ids, Vectors]]) -> int:
    """Build an index of `pages` and put it at `path` in one step; returns how many vectors it holds."""
    building = _Building(dim)
    for ids, vectors in pages:
        building.add(ids, vectors)
    building.save(path)
    return len(building)


def grow_file(
    old: Path, path: Path, dim: int, live: Ids, pages: Iterable[tuple[Ids, Vectors]]
) -> tuple[int, int] | None:
    """Put at `path` what `old` holds of `live`, and `pages`; returns how many vectors it holds, and how many it left.

    The slots of removed vectors are given to new ones. `old` is unchanged. None, with nothing written, when `old` is
    gone or damaged, or its graph, grown, would find too little.
    """
    building = _Building(dim)
    try:
        building.take(_Contents.read(old, dim))
    except (OSError, DamagedFileError):
        return None
    dead = building.keep(live)
    for ids, vectors in pages:
        building.add(ids, vectors)
    return (len(building), dead) if building.save(path, least=EXACT_BELOW) else None


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a file holds: the graph, and of each passage, in the order of its node, `ids` has its id, `nodes` its node,
    and `rows` its place among the `vectors`, which are of shape (n, dim); -1 of one that is alone in its node.
    """

    graph: memoryview
    ids: Ids
    nodes: Ids
    rows: Ids
    vectors: Vectors
    recall: float
    grouped: Ids

    @classmethod
    def read(cls, path: Path, dim: int) -> Self:
        """A mapped file, once its checksum was compared."""
        with path.open("rb") as handle:
            if os.fstat(handle.fileno()).st_size < _FOOTER.size:
                raise DamagedFileError(f"{path} is cut off")
            mapping = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        with memoryview(mapping) as whole, whole[:-_DIGEST_BYTES] as told:
            mark, graph, passages, rows, recall, digest = _FOOTER.unpack(whole[-_FOOTER.size :])
            is_whole = mark == _MARK and hashlib.sha256(told).digest() == digest
        if not is_whole:
            mapping.close()
            raise DamagedFileError(f"{path} has another checksum, or is of an earlier version")
        mapped = memoryview(mapping)
        offset = _padded(graph)
        ids, nodes, places = np.frombuffer(mapped, np.int64, 3 * passages, offset).reshape(3, passages)
        offset += 3 * passages * np.dtype(np.int64).itemsize
        vectors = np.frombuffer(mapped, np.float32, rows * dim, offset).reshape(rows, dim)
        grouped = np.sort(ids[_shared(nodes)])
        return cls(mapped[:graph], ids, nodes, places, vectors, recall, grouped)

    def places(self, nodes: Ids) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Where the passages of each node begin and end."""
        return np.searchsorted(self.nodes, nodes), np.searchsorted(self.nodes, nodes, side="right")

    def cosines(self, places: NDArray[np.intp], vector: Vectors) -> NDArray[np.float32]:
        """Those of passages that share their nodes; they are read in order."""
        rows = self.rows[places]
        if not len(rows):
            return np.empty(0, np.float32)
        least, most = rows.min(), rows.max()
        if most - least < 2 * len(rows):
            return np.asarray((self.vectors[least : most + 1] @ vector)[rows - least], np.float32)
        return np.asarray(self.vectors[rows] @ vector, np.float32)


class _Building:
    """An index that is being built."""

    def __init__(self, dim: int) -> None:
        self._index = _empty(dim, EXPANSION_ALIKE)
        self._ids: list[Ids] = [np.empty(0, np.int64)]
        self._nodes: list[Ids] = [np.empty(0, np.int64)]
        self._rows: list[Ids] = [np.empty(0, np.int64)]
        self._row_of: dict[tuple[int, bytes], int] = {}
        """Node and the bytes of a vector -> its row, of nodes that hold several passages."""
        self._next = 0

    def __len__(self) -> int:
        return sum(map(len, self._ids))

    def take(self, old: _Contents) -> None:
        """Begin with what a file holds."""
        self._index.load(old.graph)
        self._ids, self._nodes = [old.ids], [old.nodes]
        rows = old.rows.copy()
        for place in np.flatnonzero(rows >= 0):
            rows[place] = self._row(old.nodes[place], old.vectors[rows[place]])
        self._rows = [rows]
        self._next = int(old.nodes[-1]) + 1 if len(old.nodes) else 0

    def keep(self, live: Ids) -> int:
        """Take out the passages that are not among `live`, and the nodes that are empty then; returns how many."""
        ids, nodes, rows = map(np.concatenate, (self._ids, self._nodes, self._rows))
        lives = np.isin(ids, live)
        self._ids, self._nodes, self._rows = [ids[lives]], [nodes[lives]], [rows[lives]]
        self._index.remove(np.setdiff1d(nodes, nodes[lives]))
        return int(np.count_nonzero(~lives))

    def add(self, ids: Ids, vectors: Vectors) -> None:
        """Give each vector its own node, or that of a similar one."""
        for first in range(0, len(ids), ADDED_AT_ONCE):
            self._add(ids[first : first + ADDED_AT_ONCE], vectors[first : first + ADDED_AT_ONCE])

    def _add(self, ids: Ids, vectors: Vectors) -> None:
        nodes = self._alike(vectors)
        new = np.flatnonzero(nodes < 0)
        leaders = first_alike(vectors[new])
        are_nodes = leaders == np.arange(len(new))
        numbers = self._next + np.cumsum(are_nodes) - 1
        self._next += int(np.count_nonzero(are_nodes))
        nodes[new] = numbers[leaders]
        opening = new[are_nodes]
        if len(opening):
            self._index.add(nodes[opening], vectors[opening], threads=self._threads())
        rows = np.full(len(ids), -1, np.int64)
        for place in np.setdiff1d(np.arange(len(ids)), opening):
            rows[place] = self._row(nodes[place], vectors[place])
        self._ids.append(ids)
        self._nodes.append(nodes)
        self._rows.append(rows)

    def _row(self, node: np.int64, vector: Vectors) -> int:
        return self._row_of.setdefault((int(node), vector.tobytes()), len(self._row_of))

    def _alike(self, vectors: Vectors) -> Ids:
        """The node that each vector belongs to; -1: none so far."""
        if not len(self._index):
            return np.full(len(vectors), -1, np.int64)
        matches = self._index.search(vectors, 1, threads=_EVERY_CORE)
        cosines = np.nan_to_num(1 - np.asarray(matches.distances, np.float32).reshape(-1))  # nan: none was found
        return np.where(cosines >= ALIKE, np.asarray(matches.keys, np.int64).reshape(-1), -1)

    def _threads(self) -> int:
        return _EVERY_CORE if len(self._index) >= FIRST_ALONE else 1

    def save(self, path: Path, *, least: float = 0.0) -> bool:
        """Put it at `path` in one step; False, with nothing written, where it has less recall than `least`."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(".tmp")
        try:
            self._index.save(temporary)
            with temporary.open("r+b") as handle:
                written = _Behind(handle, *self._by_node())
                written.finish(recall=1.0)
                if (recall := VectorFile(temporary, self._index.ndim).measured()) < least:
                    return False
                written.finish(recall)
                os.fsync(handle.fileno())
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _by_node(self) -> tuple[Ids, Vectors]:
        """`ids`, `nodes` and `rows` of a file as one array of shape (3, n), and its `vectors`."""
        ids, nodes, rows = map(np.concatenate, (self._ids, self._nodes, self._rows))
        shared = _shared(nodes)
        first = np.flatnonzero(shared & (rows < 0))
        joined = np.frombuffer(b"".join(vector for _, vector in self._row_of), np.float32)
        joined = joined.reshape(-1, self._index.ndim)
        vectors = np.concatenate([joined, _kept(self._index, nodes[first])])
        rows[first] = len(joined) + np.arange(len(first))
        rows[~shared] = -1
        order = np.lexsort((rows, nodes))
        passages = np.stack([ids, nodes, rows])[:, order]
        rows = passages[2]
        begins = (rows >= 0) & np.append(True, rows[1:] != rows[:-1])[: len(rows)]
        used = vectors[rows[begins]]
        passages[2] = np.where(rows >= 0, np.cumsum(begins) - 1, -1)
        return passages, used


class _Behind:
    """What follows the graph in a file that ends with it."""

    def __init__(self, handle: BufferedRandom, passages: Ids, vectors: Vectors) -> None:
        self._handle = handle
        self._digest = hashlib.file_digest(handle, "sha256")
        graph = handle.tell()
        self._counts = graph, passages.shape[1], len(vectors)
        for block in (bytes(_padded(graph) - graph), passages.tobytes(), vectors.tobytes()):
            self._digest.update(block)
            handle.write(block)
        self._end = handle.tell()

    def finish(self, recall: float) -> None:
        """Write the footer, in place of an earlier one."""
        head, digest = _FOOTER.pack(_MARK, *self._counts, recall, b"")[:-_DIGEST_BYTES], self._digest.copy()
        digest.update(head)
        self._handle.seek(self._end)
        self._handle.write(head + digest.digest())
        self._handle.flush()


def _kept(index: Index, nodes: Ids) -> Vectors:
    """What a graph has of the vectors that nodes were opened with, as unit vectors: int8 is all it keeps."""
    kept = np.asarray(index.get(nodes, "f32"), np.float32).reshape(-1, index.ndim)
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    return np.asarray(kept / np.where(lengths, lengths, 1), np.float32)


def _shared(nodes: Ids) -> NDArray[np.bool_]:
    """Whether the node at each place is at others, too."""
    _, places, counts = np.unique(nodes, return_inverse=True, return_counts=True)
    return np.asarray(counts[places] > 1)


def _padded(size: int) -> int:
    """The next place at which whole numbers may begin."""
    return -(-size // 8) * 8


def _empty(dim: int, expansion_search: int) -> Index:
    return Index(
        ndim=dim,
        metric="cos",
        dtype="i8",
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
        expansion_search=expansion_search,
    )
