"""Message keys, the copies of messages, and lines that could not be read, as documents.

A message is one document under its own key, and one more for each further key by which it is known: their `canonical`
is its own key.
"""

from collections.abc import Collection, Iterable, Sequence

from pymongo import DeleteOne, UpdateOne

from anamnesis_pipeline.archive_model import DeadLetter
from anamnesis_pipeline.message_keys import RESULT_KEY, call_of
from anamnesis_pipeline.store.ingest_base import ParsedChunk
from anamnesis_pipeline.store.mongo import superseding, typed
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document
from anamnesis_pipeline.store.mongo.cursors import File, first_seen
from anamnesis_pipeline.store.mongo.occurrences import own_keys, write_occurrences
from anamnesis_pipeline.store.values import clean

_LETTER_KEY = ("source", "path", "generation", "line")


def read_owners(tables: Tables, keys: Iterable[str]) -> dict[str, File]:
    """Message key -> (source, path) that owns it, for those that are known."""
    found = tables["messages"].among("key", keys, ["key", "source", "path"])
    return {message["key"]: (message["source"], message["path"]) for message in found}


def read_known(tables: Tables, keys: Sequence[str], reader: File | None) -> set[str]:
    """Keys that have an owner, unless it gives way to the reader."""
    owners = read_owners(tables, keys)
    younger = _giving_way(tables, set(owners.values()), reader) if reader else set()
    return {key for key, owner in owners.items() if owner not in younger}


def is_owned_by_another(tables: Tables, keys: Sequence[str], reader: File) -> bool:
    """Whether some key has an owner that is not the reader and does not give way to it."""
    others = set(read_owners(tables, keys).values()) - {reader}
    return bool(others - _giving_way(tables, others, reader))


def _giving_way(tables: Tables, owners: Collection[File], reader: File) -> set[File]:
    """The files that give way to a file of another source that has their messages too: both are sessions' own, and the
    reader is the older one.
    """
    candidates = {owner for owner in owners if owner[0] != reader[0] and not _is_of_agent(owner)}
    if not candidates or _is_of_agent(reader):
        return set()
    histories = typed.histories(tables)
    seen = first_seen(tables, [*candidates, reader])
    if reader[0] in histories or reader not in seen:
        return set()
    return {owner for owner in candidates if owner[0] not in histories and owner in seen and seen[owner] > seen[reader]}


def _is_of_agent(file: File) -> bool:
    return "/agent-" in f"/{file[1]}".lower()


def write_messages(tables: Tables, chunk: ParsedChunk) -> None:
    """The keys, occurrences and dead letters of a chunk."""
    file = chunk.before.source, chunk.before.path
    further = own_keys(tables, set(chunk.claims.values()))  # where a copy made the claim by a further key
    claims = {claim: further.get(key, key) for claim, key in chunk.claims.items()}
    keys = {key: chunk.aliases.get(key, key) for key in chunk.keys}
    superseding.supersede(tables, file, claims, keys, {part.part_id for part in chunk.parts})
    _insert(tables, file, [(key, chunk.aliases.get(key, "")) for key in chunk.keys] + list(claims.items()))
    typed.close_claims(tables, {**chunk.claims, **chunk.aliases})
    write_occurrences(tables, [(file[0], occurrence) for occurrence in chunk.occurrences])
    _write_letters(tables, chunk)


def _insert(tables: Tables, file: File, names: Sequence[tuple[str, str]]) -> None:
    """Let a file own what nobody does: (key, own key of the message where that is another one), the first of a key."""
    known = {found["key"] for found in tables["messages"].among("key", [key for key, _ in names], ["key"])}
    new: dict[str, Document] = {}
    for key, canonical in names:
        if key not in known:
            new.setdefault(key, {"key": key, "source": file[0], "path": file[1], "canonical": canonical})
    tables["messages"].insert(list(new.values()))


def _write_letters(tables: Tables, chunk: ParsedChunk) -> None:
    tables["dead_letters"].write([
        *(DeleteOne(_letter_key(letter)) for letter in chunk.revived),
        *(UpdateOne(_letter_key(letter), {"$set": {"reason": clean(letter.reason)}}, upsert=True)
          for letter in chunk.dead),
    ])  # fmt: skip


def _letter_key(letter: DeadLetter) -> Document:
    return {"source": letter.source, "path": letter.path, "generation": letter.generation, "line": letter.line}


def read_calls(tables: Tables, keys: Iterable[str]) -> dict[str, str]:
    """Further key -> id of the tool call, for those of `keys` by which a tool's result is known."""
    own = own_keys(tables, keys)
    return {key: call_of(canonical) for key, canonical in own.items() if canonical.startswith(RESULT_KEY)}


def read_dead_letters(tables: Tables, source: str | None, limit: int) -> list[DeadLetter]:
    """See `IngestRecords.dead_letters`."""
    where = {} if source is None else {"source": source}
    order = [(name, 1) for name in _LETTER_KEY]
    found = tables["dead_letters"].find(where, (*_LETTER_KEY, "reason"), order=order, limit=limit)
    return [DeadLetter(**letter) for letter in found]
