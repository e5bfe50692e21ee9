"""Which entries of the history and which transcripts' prompts are the same: equal texts, the nearest in time."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from anamnesis_pipeline.message_keys import (
    CLAIM_KEY,
    TYPED_KEY,
    TYPED_WITHIN_MS,
    forgotten_typed,
    nearest_typed,
    typed_at,
    typed_near,
)
from anamnesis_pipeline.store.batching import batches
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Collection, Document

Span = tuple[str, str]
"""The first and the last of the keys that are meant; keys are in the order of time."""


def histories(tables: Tables) -> set[str]:
    """The sources that are the history of some machine."""
    return set(tables["sources"].values("key", {"kind": "claude_history"}))


def forbidden(tables: Tables, keys: Sequence[str]) -> set[str]:
    """Those of `keys` that a tombstone forbids, by this name or by the one that the same prompt has elsewhere."""
    buried = tables["tombstone_keys"].among("message_key", keys, ["message_key"])
    near = {key: span for key in keys if (span := typed_near(key))}
    return {found["message_key"] for found in buried} | _gone(tables, near)


def _gone(tables: Tables, near: Mapping[str, Span]) -> set[str]:
    """Those of which, of all that may be the same prompt, the nearest in time is forgotten, and not one that stays."""
    buried = _within(tables["tombstone_keys"], "message_key", near.values())
    gone = {key: found for key, span in near.items() if (found := _distances(key, buried(span)))}
    messages = {key: (_bare(near[key][0]), _bare(near[key][1])) for key in gone}
    left = _within(tables["messages"], "key", messages.values())
    return {
        key
        for key, distances in gone.items()
        if min(distances) <= min(_distances(key, left(messages[key])), default=TYPED_WITHIN_MS)
    }


def _bare(name: str) -> str:
    return name.removeprefix(forgotten_typed(""))


def _distances(key: str, found: Mapping[str, Document]) -> list[int]:
    return [abs(typed_at(name) - typed_at(key)) for name in found]


def claims_near(tables: Tables, entries: Iterable[str]) -> dict[str, dict[str, str]]:
    """See `IngestRecords.claims_near`."""
    near = {entry: span for entry in entries if (span := typed_near(entry))}
    claimed = _within(tables["messages"], "key", near.values(), ["key", "canonical"])
    claims = {
        entry: {key: message["canonical"] for key, message in claimed(span).items()} for entry, span in near.items()
    }
    names = {forgotten_typed(claim) for its in claims.values() for claim in its}
    gone = {found["message_key"] for found in tables["tombstone_keys"].among("message_key", names, ["message_key"])}
    left = {
        entry: {claim: message for claim, message in its.items() if forgotten_typed(claim) not in gone}
        for entry, its in claims.items()
    }
    return {entry: its for entry, its in left.items() if its}


def held_by_history(tables: Tables, source: str, claims: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """(key, source, path, message) of the entries that only the history has, and that these messages are."""
    spans = {claim: typed_near(claim) or (claim, claim) for claim in claims}
    held = _within(tables["messages"], "key", spans.values(), ["key", "source", "path", "canonical"])
    others = histories(tables) - {source}
    near: dict[str, dict[str, str]] = {}
    files: dict[str, tuple[str, str]] = {}
    for claim, message in claims.items():
        for key, entry in held(spans[claim]).items():
            if entry["canonical"] == "" and entry["source"] in others:
                files[key] = entry["source"], entry["path"]
                near.setdefault(key, {})[claim] = message
    return [(key, *files[key], message) for key, message in nearest_typed(near).items()]


def close_claims(tables: Tables, names: Mapping[str, str]) -> None:
    """Further key -> message: one that is known from the history by now is looked for there no more."""
    messages = {message for name, message in names.items() if message and typed_near(name)}
    known = [
        (found["key"], found["canonical"])
        for found in tables["messages"].among("canonical", messages, ["key", "canonical"])
    ]
    entered = {message for key, message in known if _begins(key, TYPED_KEY)}
    closed = [key for key, message in known if _begins(key, CLAIM_KEY) and message in entered]
    for batch in batches(closed):
        tables["messages"].delete({"key": {"$in": batch}})


def are_open(tables: Tables, aliases: Mapping[str, str]) -> bool:
    """Whether every message that entries of the history are taken for is still looked for there."""
    messages = {message for alias, message in aliases.items() if _begins(alias, TYPED_KEY)}
    looked_for = {
        found["canonical"]
        for found in tables["messages"].among("canonical", messages - {""}, ["key", "canonical"])
        if _begins(found["key"], CLAIM_KEY)
    }
    return messages <= looked_for


def _begins(key: str, name: str) -> bool:
    return key.startswith(f"{name}:")


def _within(
    collection: Collection, field: str, spans: Iterable[Span], fields: Sequence[str] = ()
) -> Callable[[Span], dict[str, Document]]:
    """What has a value of `field` within any of these spans, as a function: span -> value -> document, which is asked
    for those very spans.
    """
    found: dict[str, Document] = {}
    for batch in batches(sorted(set(spans))):
        ranges = [{field: {"$gte": first, "$lte": last}} for first, last in batch]
        found |= {document[field]: document for document in collection.each({"$or": ranges}, fields or [field])}
    values = sorted(found)
    return lambda span: {
        value: found[value] for value in values[bisect_left(values, span[0]) : bisect_right(values, span[1])]
    }
