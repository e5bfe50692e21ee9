"""Token vectors as documents of `tokens_<space>`, by passage: how many (`tokens`), and their bits (`data`)."""

from collections.abc import Mapping, Sequence

from pymongo import ReplaceOne

from anamnesis_pipeline.store.base import TokenRows
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.space_docs import SpaceDoc, tokens_name
from anamnesis_pipeline.store.token_values import Tokens, bytes_each, packed, unpacked


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
    return unpacked([(each["_id"], each["tokens"], each["data"]) for each in found], space.token_dims)


def token_bytes(tables: Tables, space: SpaceDoc) -> int:
    """See `VectorIndex.token_bytes`; the index over `tokens` holds what is needed."""
    found = tables[tokens_name(space.key)].aggregate([
        {"$match": {"tokens": {"$gt": 0}}},
        {"$group": {"_id": None, "tokens": {"$sum": "$tokens"}}},
    ])  # fmt: skip
    return int(found[0]["tokens"]) * bytes_each(space.token_dims) if found else 0
