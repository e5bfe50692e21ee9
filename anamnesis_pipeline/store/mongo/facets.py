"""`Where` as a filter, and the fields that it looks at. The only place that knows both.

These fields, the facets, are those of the episode, repeated in its passages and vectors, so that one filter passes the
same in every collection and in every search index. Only operators stand in it that `$vectorSearch` knows too:
https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import UpdateOne

from anamnesis_pipeline.model import CHAT, CHAT_ANSWER, CHAT_KINDS, FORMER_KIND, EpisodeHead, Where
from anamnesis_pipeline.store.memory_layers import WORKING_BELOW, WORKING_FOR, Layer, layer_of
from anamnesis_pipeline.store.mongo.client import Collections
from anamnesis_pipeline.store.mongo.collections import Document, Filter, Write
from anamnesis_pipeline.store.mongo.space_docs import live_spaces, seq_counter, vectors_name
from anamnesis_pipeline.store.values import instant, moment, sought, spellings

FACETS = tuple("episode_id source instance project kind status session_id tags at layer read_often".split())
"""`at` is the timestamp in microseconds since 1970; `layer` is `memory_layers.Layer`, but OPEN where age decides;
`read_often` is 1 for what was read too often to be working memory, else 0.
"""
FACET_SOURCES = tuple("source instance project kind status session_id tags timestamp metadata read_count".split())
"""The fields of an episode's document that its facets follow from, beside `_id`."""

OPEN = "open"
"""The layer of what is working memory or episodic, told apart by `at` and `read_often` when it is asked for."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATE = datetime.max.replace(tzinfo=UTC)
"""A time at which nothing is working memory any more."""


def facets_of(document: Document) -> Document:
    """What the passages and vectors of an episode repeat, of its document, or of `_id` and `FACET_SOURCES` of it."""
    return {
        "episode_id": document["_id"],
        "source": document["source"],
        "instance": document["instance"],
        "project": document["project"],
        "kind": document["kind"],
        "status": document["status"],
        "session_id": document["session_id"],
        "tags": document["tags"],
        "at": microseconds(moment(document["timestamp"])),
        "layer": _layer(document),
        "read_often": int(document["read_count"] >= WORKING_BELOW),
    }


def microseconds(when: datetime) -> int:
    """Microseconds since 1970, as `at` has them."""
    return (when - _EPOCH) // timedelta(microseconds=1)


def condition(where: Where) -> Filter:
    """What an episode, or a passage or vector of it, must meet: a list of terms under `$and`; empty when nothing is
    asked.

    :raises ValueError: layers are asked for and not at what time.
    """
    terms = [*_lists(where), *_values(where), *({"tags": sought(tag)} for tag in where.tags), *_layers(where)]
    if where.hidden_sources:
        hidden: Document = {"source": {"$in": list(map(sought, where.hidden_sources))}}
        if where.shown_projects:
            hidden["project"] = {"$nin": list(map(sought, where.shown_projects))}
        terms.append({"$nor": [hidden]})
    if where.only_superseded:
        terms.append({"status": "superseded"})
    elif not where.include_superseded:
        terms.append({"status": "active"})
    return {"$and": terms} if terms else {}


def of_episodes(where: Where) -> Filter:
    """As `condition`, of episodes alone: their indexes are by `timestamp`, so that is bounded like `at`."""
    bounds = {name: instant(when) for name, when in (("$gte", where.since), ("$lt", where.until)) if when is not None}
    terms = condition(where)
    return {**terms, "timestamp": bounds} if bounds else terms


def _lists(where: Where) -> Iterable[Document]:
    lists = (
        ("project", "$in", spellings(where.projects)),
        ("project", "$nin", where.hidden_projects),
        ("kind", "$in", () if CHAT_KINDS & set(where.kinds) else where.kinds),
        ("kind", "$nin", where.hidden_kinds),
    )
    of_chat = [_of_kinds(where.kinds)] if CHAT_KINDS & set(where.kinds) else []
    return [*of_chat, *({field: {operator: list(map(sought, values))}} for field, operator, values in lists if values)]


def _of_kinds(kinds: Sequence[str]) -> Document:
    """As `model.kind_of` tells kinds, where that makes a difference."""
    former: Document = {"$and": [{"source": CHAT}, {"kind": FORMER_KIND}]}
    named: Document = {"kind": {"$in": list(map(sought, kinds))}}
    if CHAT_ANSWER in kinds:
        return {"$or": [named, former]}
    return {"$and": [named, {"$nor": [former]}]}


def _values(where: Where) -> Iterable[Document]:
    of_texts = (("instance", where.instance), ("source", where.source), ("session_id", where.session_id))
    values: tuple[tuple[str, Any], ...] = (
        *((name, text if text is None else sought(text)) for name, text in of_texts),
        ("at", {"$gte": microseconds(where.since)} if where.since else None),
        ("at", {"$lt": microseconds(where.until)} if where.until else None),
    )
    return [{field: value} for field, value in values if value is not None]


def _layers(where: Where) -> list[Document]:
    if not where.layers:
        return []
    if where.layers_at is None:
        raise ValueError(f"an episode is in {' or '.join(where.layers)} at some time; give layers_at with layers")
    lasting = sorted(set(where.layers) - {Layer.WORKING, Layer.EPISODIC})
    terms: list[Document] = [{"layer": {"$in": list(map(str, lasting))}}] if lasting else []
    began = microseconds(where.layers_at - WORKING_FOR)
    if Layer.WORKING in where.layers:
        terms.append({"$and": [{"layer": OPEN}, {"read_often": 0}, {"at": {"$gt": began}}]})
    if Layer.EPISODIC in where.layers:
        terms.append({"$and": [{"layer": OPEN}, {"$or": [{"read_often": 1}, {"at": {"$lte": began}}]}]})
    return [{"$or": terms}]


def _layer(document: Document) -> str:
    """The layer by `memory_layers.layer_of`, which is asked as if the episode were old."""
    head = EpisodeHead(
        episode_id=document["_id"],
        source=document["source"],
        timestamp=moment(document["timestamp"]),
        instance=document["instance"],
        project=document["project"],
        kind=document["kind"],
        summary="",
        tags=tuple(document["tags"]),
        metadata=json.loads(document["metadata"]),
        read_count=document["read_count"],
    )
    layer = layer_of(head, _LATE)
    return OPEN if layer is Layer.EPISODIC else layer.value


# --- following the episodes ------------------------------------------------------------------------------

CHANGED_FIELDS = ("_id", *FACET_SOURCES)
"""What `change_episodes` looks at."""


def change_episodes(
    tables: Collections, documents: Sequence[Document], fields_of: Callable[[Document], Document]
) -> None:
    """Set fields of these episodes, which are as `CHANGED_FIELDS` of theirs say, and what follows from them in their
    passages and vectors.
    """
    writes: list[Write] = []
    changed: dict[str, Document] = {}
    for document in documents:
        fields = fields_of(document)
        if facets := changed_facets(document, {**document, **fields}):
            changed[document["_id"]] = facets
        writes.append(UpdateOne({"_id": document["_id"]}, {"$set": {**facets, **fields}}))
    tables["episodes"].write(writes)
    spread_facets(tables, changed)


def changed_facets(before: Document, after: Document) -> Document:
    """The facets of an episode that are others in `after`."""
    old = facets_of(before)
    return {name: value for name, value in facets_of(after).items() if value != old[name]}


def spread_facets(tables: Collections, changed: Mapping[str, Document]) -> None:
    """Write changed facets of episodes, by id, into their passages and the vectors of every space. Each gets a `seq` of
    its own, by which a reader knows that a search index has not seen it yet.
    """
    if not changed:
        return
    for name in ("passages", *(vectors_name(space.key) for space in live_spaces(tables))):
        found = tables[name].find({"episode_id": {"$in": list(changed)}}, ("_id", "episode_id"), order=[("_id", 1)])
        first = tables.next_number(seq_counter(name), len(found)) if found else 0
        tables[name].write(
            [
                UpdateOne({"_id": each["_id"]}, {"$set": {**changed[each["episode_id"]], "seq": seq}})
                for seq, each in enumerate(found, first)
            ]
        )
