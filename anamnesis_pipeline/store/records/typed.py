"""Which entries of the history and which transcripts' prompts are the same: equal texts, the nearest in time."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from anamnesis_pipeline.parsing.claude_logs.message_keys import (
    CLAIM_KEY,
    TYPED_KEY,
    TYPED_WITHIN_MS,
    forgotten_typed,
    nearest_typed,
    typed_at,
    typed_near,
)
from anamnesis_pipeline.store.gateway import Row, Rows, Tables, batches
from anamnesis_pipeline.store.tables import NOT_EMPTY

Span = tuple[str, str]
"""The first and the last of the keys that are meant; keys are in the order of time."""


def histories(tables: Tables) -> set[str]:
    """Return the sources that are the history of some machine."""
    return {row["key"] for row in tables["sources"].find({"kind": "claude_history"}, ["key"])}


def forbidden(tables: Tables, keys: Sequence[str]) -> set[str]:
    """Return those of `keys` that a tombstone forbids, by this name or by the one that the same prompt has elsewhere:
    of all that may be the same prompt, the nearest in time is forgotten, and not one that stays.
    """
    found = {row["message_key"] for row in tables["tombstone_keys"].among("message_key", keys, ["message_key"])}
    near = {key: span for key in keys if (span := typed_near(key))}
    buried = _Spans(tables["tombstone_keys"], "message_key", near.values())
    gone = {key: distances for key, span in near.items() if (distances := _distances(key, buried.within(span)))}
    messages = {key: _bare(near[key]) for key in gone}
    left = _Spans(tables["messages"], "key", messages.values())
    return found | {
        key
        for key, distances in gone.items()
        if min(distances) <= min(_distances(key, left.within(messages[key])), default=TYPED_WITHIN_MS)
    }


def claims_near(tables: Tables, entries: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return what `MessageRecords.claims_near` says."""
    near = {entry: span for entry in entries if (span := typed_near(entry))}
    held = _Spans(tables["messages"], "key", near.values(), ["canonical"])
    claims = {entry: held.within(span) for entry, span in near.items()}
    names = {forgotten_typed(claim) for its in claims.values() for claim in its}
    gone = {row["message_key"] for row in tables["tombstone_keys"].among("message_key", names, ["message_key"])}
    left = {
        entry: {claim: row["canonical"] for claim, row in its.items() if forgotten_typed(claim) not in gone}
        for entry, its in claims.items()
    }
    return {entry: its for entry, its in left.items() if its}


def held_by_history(tables: Tables, source: str, claims: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return (key, source, path, message) of the entries that only the history has, and that these messages are."""
    spans = {claim: typed_near(claim) or (claim, claim) for claim in claims}
    held = _Spans(tables["messages"], "key", spans.values(), ["source", "path", "canonical"])
    others = histories(tables) - {source} if held else set[str]()
    near: dict[str, dict[str, str]] = {}
    files: dict[str, tuple[str, str]] = {}
    for claim, message in claims.items():
        for key, row in held.within(spans[claim]).items():
            if row["canonical"] == "" and row["source"] in others:
                files[key] = row["source"], row["path"]
                near.setdefault(key, {})[claim] = message
    return [(key, *files[key], message) for key, message in nearest_typed(near).items()]


def close_claims(tables: Tables, names: Mapping[str, str]) -> None:
    """Stop looking for messages (further key -> message) in the history that are known from it by now."""
    messages = {message for name, message in names.items() if message and typed_near(name)}
    known = list(further_keys(tables, messages))
    entered = {message for key, message in known if key.startswith(f"{TYPED_KEY}:")}
    closed = [key for key, message in known if key.startswith(f"{CLAIM_KEY}:") and message in entered]
    for batch in batches(closed):
        tables["messages"].delete({"key": {"$in": list(batch)}})


def are_open(tables: Tables, aliases: Mapping[str, str]) -> bool:
    """Tell whether every message that entries of the history are taken for is still looked for there."""
    messages = {message for alias, message in aliases.items() if alias.startswith(f"{TYPED_KEY}:")}
    looked_for = {message for key, message in further_keys(tables, messages) if key.startswith(f"{CLAIM_KEY}:")}
    return messages <= looked_for


def further_keys(tables: Tables, messages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (further key, message) of these messages."""
    for batch in batches(sorted({message for message in messages if message})):
        # the index holds those that have one, and the match has to say so
        match = {"canonical": {"$in": list(batch), **NOT_EMPTY}}
        for row in tables["messages"].each(match, ["key", "canonical"]):
            yield row["key"], row["canonical"]


def _bare(span: Span) -> Span:
    first, last = (name.removeprefix(forgotten_typed("")) for name in span)
    return first, last


def _distances(key: str, found: Iterable[str]) -> list[int]:
    return [abs(typed_at(name) - typed_at(key)) for name in found]


class _Spans:
    """The rows that have a value of a field within any of some spans."""

    def __init__(self, rows: Rows, field: str, spans: Iterable[Span], fields: Sequence[str] = ()) -> None:
        self._rows: dict[str, Row] = {}
        for batch in batches(sorted(set(spans))):
            ranges = [{field: {"$gte": first, "$lte": last}} for first, last in batch]
            for row in rows.each({"$or": ranges}, [field, *fields]):
                self._rows[row[field]] = row
        self._values = sorted(self._rows)

    def __bool__(self) -> bool:
        return bool(self._values)

    def within(self, span: Span) -> dict[str, Row]:
        """Return value -> row within one of these spans."""
        first, last = span
        values = self._values[bisect_left(self._values, first) : bisect_right(self._values, last)]
        return {value: self._rows[value] for value in values}
