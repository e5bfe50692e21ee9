"""The vectors of what a filter leaves, where that is little: read once, then remembered while nothing changes.

Sessions search within their project time and again, and reading 20,000 rows takes longer than all else in a search.
"""

import sqlite3
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import Where
from anamnesis_pipeline.store.sqlite.vector_tail import from_blobs
from anamnesis_pipeline.store.values import json_list

MOST_BYTES = 128 * 2**20
"""Of all that is remembered: two variants of two filters that leave 20,000 passages, at 384 dimensions."""
READ_ROWS = 4_096

Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]
Key = tuple[int, str, Where]
"""Space, variant and filter."""


@dataclass(frozen=True, slots=True)
class _Held:
    """`few` and `seq` tell whether it still holds: the passages that pass, and the latest vector there was."""

    few: Ids
    seq: int
    ids: Ids
    vectors: Vectors


class FewVectors:
    """The vectors for the filters asked last. Safe to share between threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
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
