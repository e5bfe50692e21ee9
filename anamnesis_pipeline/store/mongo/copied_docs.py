"""Neutral rows written as documents, and removed."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pymongo import ReplaceOne

from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.copy_base import NUMBERS, SECRET, Key, Row
from anamnesis_pipeline.store.exact_terms import exact_terms
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.episode_docs import changed_facets
from anamnesis_pipeline.store.mongo.facets import FACET_SOURCES, FACETS, facets_of
from anamnesis_pipeline.store.mongo.passage_docs import delete_passages, spread
from anamnesis_pipeline.store.mongo.search_definitions import unspaced_fields
from anamnesis_pipeline.store.mongo.space_docs import (
    DROPPED,
    SpaceDoc,
    find_space,
    live_spaces,
    seq_counter,
    tokens_name,
    vectors_name,
)
from anamnesis_pipeline.store.mongo.vector_docs import write_vectors
from anamnesis_pipeline.store.tables import EPISODES, PASSAGES, PENDING, SPACES, Table

STORED = np.dtype("<f2")


def write(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    """Make or replace rows by their keys, inside a transaction."""
    if rows:
        _writer(table)(tables, table, rows)


def remove(tables: Tables, table: Table, keys: Sequence[Key]) -> None:
    """Remove rows by their keys, and what belongs to them, inside a transaction."""
    if keys:
        _remover(table)(tables, table, keys)


def same_key(table: Table, values: Key) -> Filter:
    """The document of a key, where it has the fields of the table."""
    return dict(zip(table.key, values, strict=True))


def _writer(table: Table) -> Callable[[Tables, Table, Sequence[Row]], None]:
    if table.space:
        return _write_tokens if table.name.startswith("tokens/") else _write_vectors
    special: dict[str, Callable[[Tables, Table, Sequence[Row]], None]] = {
        SECRET.name: _write_secret, SPACES.name: _write_spaces, EPISODES.name: _write_episodes,
        PASSAGES.name: _write_passages, PENDING.name: _write_pending, NUMBERS.name: _write_numbers,
        "files": _write_files,
    }  # fmt: skip
    return special.get(table.name, _write_plain)


def _remover(table: Table) -> Callable[[Tables, Table, Sequence[Key]], None]:
    if table.space:
        return _remove_of_space
    special: dict[str, Callable[[Tables, Table, Sequence[Key]], None]] = {
        SPACES.name: _remove_spaces, EPISODES.name: _remove_episodes, PASSAGES.name: _remove_passages,
        NUMBERS.name: _remove_numbers,
    }  # fmt: skip
    return special.get(table.name, _remove_plain)


def _write_plain(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    documents = [{**row, **{name: flag.of(row) for name, flag in table.flags.items()}} for row in rows]
    tables[table.name].write([ReplaceOne(same_key(table, table.key_of(row)), row, upsert=True) for row in documents])


def _remove_plain(tables: Tables, table: Table, keys: Sequence[Key]) -> None:
    tables[table.name].delete({"$or": [same_key(table, key) for key in keys]})


def _write_files(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    _write_plain(tables, table, rows)


def _write_secret(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    tables["store_secret"].write([
        ReplaceOne({"_id": table.fields[1]}, {"secret": row["secret"]}, upsert=True) for row in rows
    ])  # fmt: skip


def _write_numbers(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    tables["counters"].write([
        ReplaceOne({"_id": row["name"]}, {"next": row["last"]}, upsert=True) for row in rows
    ])  # fmt: skip


def _remove_numbers(tables: Tables, table: Table, keys: Sequence[Key]) -> None:
    tables["counters"].delete({"_id": {"$in": [name for (name,) in keys]}})


def _write_episodes(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    documents = [_episode(row) for row in rows]
    ids = [document["_id"] for document in documents]
    held = {found["_id"]: found for found in tables["episodes"].find({"_id": {"$in": ids}}, ("_id", *FACET_SOURCES))}
    changed = {d["_id"]: changed_facets(held[d["_id"]], d) for d in documents if d["_id"] in held}
    tables["episodes"].write([ReplaceOne({"_id": d["_id"]}, d, upsert=True) for d in documents])
    spread(tables, live_spaces(tables), {episode_id: facets for episode_id, facets in changed.items() if facets})


def _episode(row: Row) -> Document:
    document = {"_id" if name == "episode_id" else name: value for name, value in row.items()}
    return document | {name: value for name, value in facets_of(document).items() if name != "episode_id"}


def _remove_episodes(tables: Tables, table: Table, keys: Sequence[Key]) -> None:
    numbers = {"number": {"$in": [number for (number,) in keys]}}
    of_these = {"episode_id": {"$in": [found["_id"] for found in tables["episodes"].find(numbers, ("_id",))]}}
    delete_passages(tables, live_spaces(tables), [p["_id"] for p in tables["passages"].find(of_these, ("_id",))])
    tables["pending"].delete(of_these)
    tables["episodes"].delete(numbers)


def _write_passages(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    """A passage never changes; one that differs here is of an earlier moment, and goes with its vectors."""
    ids = {"_id": {"$in": [row["passage_id"] for row in rows]}}
    delete_passages(tables, live_spaces(tables), [found["_id"] for found in tables["passages"].find(ids, ("_id",))])
    of = {"_id": {"$in": sorted({row["episode_id"] for row in rows})}}
    facets = {found["_id"]: facets_of(found) for found in tables["episodes"].find(of, ("_id", *FACET_SOURCES))}
    first = tables.next_number(seq_counter("passages"), len(rows))
    tables["passages"].insert([
        {
            "_id": row["passage_id"], "ordinal": row["ordinal"], "text": row["text"], "context": row["context"],
            "message_ids": row["message_ids"], "terms": exact_terms(row["text"]), "seq": seq,
            **unspaced_fields(row["text"], row["context"]), **facets[row["episode_id"]],
        }
        for seq, row in enumerate(rows, first)
    ])  # fmt: skip


def _remove_passages(tables: Tables, table: Table, keys: Sequence[Key]) -> None:
    delete_passages(tables, live_spaces(tables), [passage_id for (passage_id,) in keys])


def _write_spaces(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    """At most one space is active, and one building: those that change give that up first."""
    ids = [row["space_id"] for row in rows]
    tables["spaces"].update({"_id": {"$in": ids}}, {"$set": {"status": "added"}})
    tables["spaces"].write([
        ReplaceOne({"_id": row["space_id"]}, {n: row[n] for n in row if n != "space_id"}, upsert=True) for row in rows
    ])  # fmt: skip


def _remove_spaces(tables: Tables, table: Table, keys: Sequence[Key]) -> None:
    """What they had is removed behind the transaction."""
    ids = [space_id for (space_id,) in keys]
    tables["pending"].delete({"space_id": {"$in": ids}})
    tables["spaces"].update({"_id": {"$in": ids}}, {"$set": {"status": DROPPED}})


def _write_pending(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    numbers = {"number": {"$in": sorted({row["number"] for row in rows})}}
    ids = {found["number"]: found["_id"] for found in tables["episodes"].find(numbers, ("_id", "number"))}
    _write_plain(tables, table, [{**row, "episode_id": ids[row["number"]]} for row in rows])


def _write_vectors(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    space, variant = _of_space(tables, table)
    vectors = {row["passage_id"]: np.frombuffer(row["vector"], STORED).astype(np.float32) for row in rows}
    passages = tables["passages"].find({"_id": {"$in": list(vectors)}}, ("_id", *FACETS), order=[("_id", 1)])
    write_vectors(tables, space, passages, {Variant(variant): vectors})


def _write_tokens(tables: Tables, table: Table, rows: Sequence[Row]) -> None:
    tables[tokens_name(table.space)].write([
        ReplaceOne({"_id": row["passage_id"]}, {"tokens": row["tokens"], "data": row["data"]}, upsert=True)
        for row in rows
    ])  # fmt: skip


def _remove_of_space(tables: Tables, table: Table, keys: Sequence[Key]) -> None:
    ids: dict[str, Any] = {"_id": {"$in": [passage_id for (passage_id,) in keys]}}
    if table.name.startswith("tokens/"):
        tables[tokens_name(table.space)].delete(ids)
        return
    space, variant = _of_space(tables, table)
    vectors = tables[vectors_name(space.key)]
    vectors.update(ids, {"$unset": {variant: ""}})
    vectors.delete({**ids, **{each.value: {"$exists": False} for each in space.variants}})


def _of_space(tables: Tables, table: Table) -> tuple[SpaceDoc, str]:
    """The space and the variant of a table of vectors."""
    return find_space(tables, table.space), table.name.rpartition("/")[2]
