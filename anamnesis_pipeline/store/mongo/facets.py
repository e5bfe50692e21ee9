"""`EpisodeFilter` as a filter, and the fields that it looks at. The only place that knows both.

These fields, the facets, are those of the episode, repeated in its passages and vectors, so that one filter passes the
same in every collection and in every search index. Only operators stand in it that `$vectorSearch` knows too:
https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/
"""

import json
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.model import (
    CHAT,
    CHAT_ANSWER,
    CHAT_KINDS,
    FORMER_KIND,
    HOLDING,
    RECORD_KIND,
    EpisodeFilter,
    EpisodeHead,
)
from anamnesis_pipeline.store.memory_layers import WORKING_BELOW, WORKING_FOR, Layer, layer_of
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.values import instant, moment, sought, spellings

FACETS = tuple("episode_id source instance project kind status session_id tags at layer read_often".split())
"""`at` is the timestamp in microseconds since 1970; `layer` is `memory_layers.Layer`, but OPEN where age decides;
`read_often` is 1 for what was read too often to be working memory, else 0.
"""
FACET_SOURCES = tuple("source instance project kind status session_id tags timestamp metadata read_count".split())
"""The fields of an episode's document that its facets follow from, beside `_id`."""
CHANGED_FIELDS = ("_id", *FACET_SOURCES)

OPEN = "open"
"""The layer of what is working memory or episodic, told apart by `at` and `read_often` when it is asked for."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATE = datetime.max.replace(tzinfo=UTC)
"""A time at which nothing is working memory any more."""


def facets_of(document: Document) -> Document:
    """Return what the passages and vectors of an episode repeat, of the `CHANGED_FIELDS` of its document."""
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
    layer = layer_of(head, _LATE)  # as if the episode were old
    return {
        "episode_id": document["_id"],
        "source": document["source"],
        "instance": document["instance"],
        "project": document["project"],
        "kind": document["kind"],
        "status": document["status"],
        "session_id": document["session_id"],
        "tags": document["tags"],
        "at": microseconds(head.timestamp),
        "layer": OPEN if layer is Layer.EPISODIC else layer.value,
        "read_often": int(document["read_count"] >= WORKING_BELOW),
    }


def microseconds(when: datetime) -> int:
    """Microseconds since 1970, as `at` has them."""
    return (when - _EPOCH) // timedelta(microseconds=1)


def condition(where: EpisodeFilter) -> Filter:
    """What an episode, or a passage or vector of it, must meet: a list of terms under `$and`; empty when nothing is
    asked.

    :raises ValueError: layers are asked for and not at what time.
    """
    of_chat = bool(CHAT_KINDS & set(where.kinds))
    lists = (
        ("project", "$in", spellings(where.projects)),
        ("project", "$nin", where.hidden_projects),
        ("kind", "$in", () if of_chat else where.kinds),
        ("kind", "$nin", where.hidden_kinds),
    )
    terms: list[Document] = [{field: {sign: list(map(sought, values))}} for field, sign, values in lists if values]
    if of_chat:  # as `model.kind_of` tells kinds
        former: Document = {"$and": [{"source": CHAT}, {"kind": FORMER_KIND}]}
        named: Document = {"kind": {"$in": list(map(sought, where.kinds))}}
        is_former = CHAT_ANSWER in where.kinds
        terms.append({"$or": [named, former]} if is_former else {"$and": [named, {"$nor": [former]}]})
    of_texts = (("instance", where.instance), ("source", where.source), ("session_id", where.session_id))
    terms += [{field: sought(text)} for field, text in of_texts if text is not None]
    bounds = (("$gte", where.since), ("$lt", where.until))
    terms += [{"at": {operator: microseconds(when)}} for operator, when in bounds if when]
    terms += [{"tags": sought(tag)} for tag in where.tags]
    if where.types:
        its = {"$in": list(map(sought, where.types))}
        terms.append({"$or": [{"kind": its}, {"$and": [{"kind": RECORD_KIND}, {"tags": its}]}]})
    if where.layers:
        terms.append(_in_layers(where))
    if where.hidden_sources:
        hidden: Document = {"source": {"$in": list(map(sought, where.hidden_sources))}}
        if where.shown_projects:
            hidden["project"] = {"$nin": list(map(sought, where.shown_projects))}
        terms.append({"$nor": [hidden]})
    if where.only_superseded:
        terms.append({"status": {"$nin": list(HOLDING)}})
    elif not where.include_superseded:
        terms.append({"status": {"$in": list(HOLDING)}})
    return {"$and": terms} if terms else {}


def _in_layers(where: EpisodeFilter) -> Document:
    """Return what is in one of the layers asked for."""
    if where.layers_at is None:
        raise ValueError(f"an episode is in {' or '.join(where.layers)} at some time; give layers_at with layers")
    lasting = sorted(set(where.layers) - {Layer.WORKING, Layer.EPISODIC})
    terms: list[Document] = [{"layer": {"$in": list(map(str, lasting))}}] if lasting else []
    began = microseconds(where.layers_at - WORKING_FOR)
    if Layer.WORKING in where.layers:
        terms.append({"$and": [{"layer": OPEN}, {"read_often": 0}, {"at": {"$gt": began}}]})
    if Layer.EPISODIC in where.layers:
        terms.append({"$and": [{"layer": OPEN}, {"$or": [{"read_often": 1}, {"at": {"$lte": began}}]}]})
    return {"$or": terms}


def layer_at(now: datetime) -> Document:
    """Return the layer of an episode at a time, as an expression."""
    is_new = {"$and": [{"$eq": ["$read_often", 0]}, {"$gt": ["$at", microseconds(now - WORKING_FOR)]}]}
    aging = {"$cond": [is_new, Layer.WORKING.value, Layer.EPISODIC.value]}
    return {"$cond": [{"$eq": ["$layer", OPEN]}, aging, "$layer"]}


def of_episodes(where: EpisodeFilter) -> Filter:
    """As `condition`, of episodes alone: their indexes are by `timestamp`, so that is bounded like `at`."""
    bounds = {name: instant(when) for name, when in (("$gte", where.since), ("$lt", where.until)) if when is not None}
    terms = condition(where)
    return {**terms, "timestamp": bounds} if bounds else terms


def changed_facets(before: Document, after: Document) -> Document:
    """The facets of an episode that are others in `after`."""
    old = facets_of(before)
    return {name: value for name, value in facets_of(after).items() if value != old[name]}
