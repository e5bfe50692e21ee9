"""Vectors as documents of `vectors_<space>`, by passage: one packed vector a variant, the facets, `seq`.

The numbers are float16's, which SQLite stores, so that both backends hold and score the same. MongoDB indexes no
float16, so they are written as float32 (https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
from bson.binary import Binary, BinaryVectorDtype
from numpy.typing import NDArray
from pymongo import ReplaceOne, UpdateOne

from anamnesis_pipeline.errors import DimensionMismatch
from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import TokenRows
from anamnesis_pipeline.store.episode_middles import EpisodeMiddles, middles_of
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.facets import FACETS, of_episodes
from anamnesis_pipeline.store.mongo.space_docs import SpaceDoc, seq_counter, tokens_name, vectors_name
from anamnesis_pipeline.store.token_values import Tokens, bytes_each, packed, token_rows
from anamnesis_pipeline.store.values import instant

Vectors = NDArray[np.float32]
Rows = Mapping[Variant, Mapping[int, Vectors]]
"""Variant -> passage id -> vector of shape (dim,)."""

_STORED = np.dtype("<f4")
BYTES_EACH = _STORED.itemsize
"""Of one number."""
_HEAD = 2
"""Bytes before the numbers of a packed vector: type and padding (the BSON vector format)."""


def rows_of(passage_ids: Sequence[int], vectors: Mapping[Variant, Vectors]) -> dict[Variant, dict[int, Vectors]]:
    """The vectors as they are stored.

    :raises ValueError: there are not as many as passages.
    """
    for matrix in vectors.values():
        if len(passage_ids) != len(matrix):
            raise ValueError(f"{len(passage_ids)} passage ids came with {len(matrix)} vectors")
    return {
        variant: dict(zip(passage_ids, np.asarray(matrix).astype(np.float16).astype(_STORED), strict=True))
        for variant, matrix in vectors.items()
    }


def check_width(space: SpaceDoc, shape: tuple[int, ...], dimensions: int) -> None:
    """:raises DimensionMismatch: the space's vectors have another width."""
    if len(shape) != dimensions or shape[-1] != space.dim:
        raise DimensionMismatch(
            f"space {space.key} holds {space.dim}-d vectors and was given shape {shape}; use the model of the space"
        )


def write_vectors(tables: Tables, space: SpaceDoc, passages: Sequence[Document], rows: Rows) -> int:
    """Write the vectors of these passages, told by documents with `_id` and `FACETS`; returns how many.

    A new `seq` tells every process that the vector is new.
    """
    if not rows or not passages:
        return 0
    name = vectors_name(space.key)
    first = tables.next_number(seq_counter(name), len(passages))
    tables[name].write([
        UpdateOne({"_id": each["_id"]}, {"$set": _fields(each, first + n, rows)}, upsert=True)
        for n, each in enumerate(passages)
    ])  # fmt: skip
    return len(rows) * len(passages)


def _fields(passage: Document, seq: int, rows: Rows) -> Document:
    vectors = {variant.value: pack(found[passage["_id"]]) for variant, found in rows.items()}
    return {**vectors, **{name: passage[name] for name in FACETS}, "seq": seq}


def note_checkpoint(tables: Tables, space: SpaceDoc, episode_ids: Sequence[str]) -> None:
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
    return np.frombuffer(numbers, _STORED).astype(np.float32).reshape(len(stored), dim)


# --- token vectors: how many, and their bits, by passage -------------------------------------------------


def write_tokens(tables: Tables, space: SpaceDoc, passage_ids: Sequence[int], tokens: Mapping[int, Tokens]) -> None:
    """Write those of these passages that are in `tokens`, in place of what they had."""
    tables[tokens_name(space.key)].write([
        ReplaceOne({"_id": key}, {"tokens": len(tokens[key]), "data": packed(tokens[key])}, upsert=True)
        for key in passage_ids
        if key in tokens
    ])  # fmt: skip


def read_tokens(tables: Tables, space: SpaceDoc, passage_ids: Sequence[int]) -> TokenRows:
    """See `VectorIndex.tokens`."""
    found = tables[tokens_name(space.key)].find({"_id": {"$in": list(passage_ids)}}) if passage_ids else []
    return token_rows([(each["_id"], each["tokens"], each["data"]) for each in found], space.token_dims)


def token_bytes(tables: Tables, space: SpaceDoc) -> int:
    """See `VectorIndex.token_bytes`; the index over `tokens` holds what is needed."""
    found = tables[tokens_name(space.key)].aggregate([
        {"$match": {"tokens": {"$gt": 0}}},
        {"$group": {"_id": None, "tokens": {"$sum": "$tokens"}}},
    ])  # fmt: skip
    return int(found[0]["tokens"]) * bytes_each(space.token_dims) if found else 0


# --- middles of episodes ---------------------------------------------------------------------------------


def read_middles(
    tables: Tables, space: SpaceDoc, variant: Variant, where: Where, after: int, limit: int
) -> EpisodeMiddles:
    """See `VectorIndex.middles`."""
    wanted = {"$and": [of_episodes(where), {"number": {"$gt": after}}]}
    episodes = tables["episodes"].find(wanted, ("_id", "project", "number"), order=[("number", 1)], limit=limit)
    places = {each["_id"]: place for place, each in enumerate(episodes)}
    passages = list(tables["passages"].among("episode_id", places, ("_id", "episode_id", "ordinal")))
    has = {variant.value: {"$exists": True}}
    found = tables[vectors_name(space.key)].among(
        "_id", (each["_id"] for each in passages), ("_id", variant.value), **has
    )
    vectors = {each["_id"]: each[variant.value] for each in found}
    held = [each for each in passages if each["_id"] in vectors]
    held.sort(key=lambda each: (places[each["episode_id"]], each["ordinal"]))
    return middles_of(
        [(each["_id"], each["project"]) for each in episodes],
        [(places[each["episode_id"]], each["_id"]) for each in held],
        unpack([vectors[each["_id"]] for each in held], space.dim),
        episodes[-1]["number"] if len(episodes) == limit else None,
    )
