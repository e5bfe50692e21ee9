"""Vectors as documents of `vectors_<space>`, by passage: one packed vector a variant, the facets, `seq`.

The numbers are float16's, which SQLite stores, so that both backends hold and score the same. MongoDB indexes no
float16, so they are written as float32 (https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from bson.binary import Binary, BinaryVectorDtype
from numpy.typing import NDArray
from pymongo import ReplaceOne, UpdateOne

from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.mongo.client import Collections
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import FACETS
from anamnesis_pipeline.store.mongo.space_docs import SpaceDoc, seq_counter, tokens_name, vectors_name
from anamnesis_pipeline.store.values import instant
from anamnesis_pipeline.store.vector_values import POOL, Tokens, kth_scores, packed, share_found, spread, unlike

Vectors = NDArray[np.float32]
Rows = Mapping[Variant, Mapping[int, Vectors]]
"""Variant -> passage id -> vector of shape (dim,)."""

FLOAT32 = np.dtype("<f4")
BYTES_EACH = FLOAT32.itemsize
"""Of one number."""
_HEAD = 2
"""Bytes before the numbers of a packed vector: type and padding (the BSON vector format)."""


def write_vectors(tables: Collections, space: SpaceDoc, passages: Sequence[Document], rows: Rows) -> int:
    """Write the vectors of these passages, told by documents with `_id` and `FACETS`; returns how many.

    A new `seq` tells every process that the vector is new.
    """
    if not rows or not passages:
        return 0
    name = vectors_name(space.key)
    first = tables.next_number(seq_counter(name), len(passages))
    tables[name].write(
        [
            UpdateOne({"_id": each["_id"]}, {"$set": _fields(each, first + n, rows)}, upsert=True)
            for n, each in enumerate(passages)
        ]
    )
    return len(rows) * len(passages)


def _fields(passage: Document, seq: int, rows: Rows) -> Document:
    vectors = {variant.value: pack(found[passage["_id"]]) for variant, found in rows.items()}
    return {**vectors, **{name: passage[name] for name in FACETS}, "seq": seq}


def note_checkpoint(tables: Collections, space: SpaceDoc, episode_ids: Sequence[str]) -> None:
    """Name the last of these episodes that lacks nothing now; while all lack something, the older one stays named."""
    where = {"space_id": space.space_id, "episode_id": {"$in": list(dict.fromkeys(episode_ids))}}
    lacking = {found["episode_id"] for found in tables["pending"].find(where, ("episode_id",))}
    complete = [episode_id for episode_id in episode_ids if episode_id not in lacking]
    if complete:
        reached = {"last_episode": complete[-1], "written_at": instant(datetime.now(UTC))}
        tables["spaces"].update({"_id": space.space_id}, {"$set": reached})


def pack(vector: Vectors) -> Binary:
    """A vector as a packed BSON vector of float32, shape (dim,)."""
    return Binary.from_vector(vector, BinaryVectorDtype.FLOAT32)


def unpack(stored: Sequence[bytes], dim: int) -> Vectors:
    """The inverse, for several: shape (len(stored), dim)."""
    numbers = b"".join(memoryview(each)[_HEAD:] for each in stored)
    return np.frombuffer(numbers, FLOAT32).astype(np.float32).reshape(len(stored), dim)


# --- token vectors: how many, and their bits, by passage -------------------------------------------------


def write_tokens(
    tables: Collections, space: SpaceDoc, passage_ids: Sequence[int], tokens: Mapping[int, Tokens]
) -> None:
    """Write those of these passages that are in `tokens`, in place of what they had."""
    tables[tokens_name(space.key)].write(
        [
            ReplaceOne({"_id": key}, {"tokens": len(tokens[key]), "data": packed(tokens[key])}, upsert=True)
            for key in passage_ids
            if key in tokens
        ]
    )


# --- recall of the search index --------------------------------------------------------------------------

PAGE_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Sample:
    """Vectors of a variant that are looked for, of shape (n, dim), and the k-th highest score that each is to find."""

    queries: Vectors
    wanted: NDArray[np.float32]
    k: int

    def share(self, found: Sequence[Sequence[float]]) -> float:
        """Share of what is nearest among these scores, in [0, 1]."""
        return share_found(found, self.wanted, self.k)


def sample_of(tables: Collections, name: str, variant: str, dim: int, k: int, samples: int) -> Sample | None:
    """A sample that is spread over the passages by their keys, without any two that are alike; None: there are none."""
    ids = [found["_id"] for found in tables[name].each({}, ("_id",), order=[("_id", 1)])]
    pool = _vectors(tables, name, variant, dim, [ids[place] for place in spread(len(ids), POOL * samples)])
    if not len(pool):
        return None
    total = 0

    def pages() -> Iterator[Vectors]:
        nonlocal total
        for page in _pages(tables, name, variant):
            total += len(page)
            yield unpack(page, dim)

    queries = unlike(pool, samples)
    wanted = kth_scores(pages(), queries, k)
    return Sample(queries, wanted, min(k, total))


def _vectors(tables: Collections, name: str, variant: str, dim: int, ids: Sequence[int]) -> Vectors:
    where = {"_id": {"$in": list(ids)}, variant: {"$exists": True}}
    return unpack([found[variant] for found in tables[name].find(where, (variant,), order=[("_id", 1)])], dim)


def _pages(tables: Collections, name: str, variant: str) -> Iterator[list[bytes]]:
    page: list[bytes] = []
    for found in tables[name].each({variant: {"$exists": True}}, (variant,)):
        page.append(found[variant])
        if len(page) == PAGE_ROWS:
            yield page
            page = []
    if page:
        yield page
