"""Copies of messages, as documents."""

from collections.abc import Iterable, Mapping

from pymongo import UpdateMany, UpdateOne

from anamnesis_pipeline.model import Occurrence
from anamnesis_pipeline.store.mongo.client import Tables


def write_occurrences(tables: Tables, seen: Iterable[tuple[str, Occurrence]]) -> None:
    """(source, occurrence) of copies, those that are known left alone. One that is known by a further key is a copy of
    the message whose key that is.
    """
    copies = list(seen)
    own = own_keys(tables, {occurrence.message_key for _, occurrence in copies})
    tables["occurrences"].write([
        UpdateOne(
            {
                "source": source,
                "path": occurrence.path,
                "line": occurrence.line,
                "message_key": own.get(occurrence.message_key, occurrence.message_key),
            },
            {"$setOnInsert": {"source": source}},
            upsert=True,
        )
        for source, occurrence in copies
    ])  # fmt: skip


def rename_messages(tables: Tables, keys: Mapping[str, str]) -> None:
    """Let copies of messages be of those that they are now, one after the other: old key -> key."""
    tables["occurrences"].write([
        UpdateMany({"message_key": old}, {"$set": {"message_key": key}}) for old, key in keys.items() if old != key
    ])  # fmt: skip


def own_keys(tables: Tables, keys: Iterable[str]) -> dict[str, str]:
    """Those of `keys` that are further ones of a message -> its own."""
    found = tables["messages"].among("key", keys, ["key", "canonical"])
    return {message["key"]: message["canonical"] for message in found if message["canonical"]}
