"""Episodes as documents, and the changes of single fields of theirs."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pymongo import UpdateOne

from anamnesis_pipeline.model import Episode, EpisodeHead
from anamnesis_pipeline.store import episode_values
from anamnesis_pipeline.store.mongo.client import Tables
from anamnesis_pipeline.store.mongo.collections import Document, Filter
from anamnesis_pipeline.store.mongo.facets import FACET_SOURCES, facets_of
from anamnesis_pipeline.store.mongo.passage_docs import spread
from anamnesis_pipeline.store.mongo.space_docs import live_spaces
from anamnesis_pipeline.store.project_names import PROJECT_ALIASES
from anamnesis_pipeline.store.values import instant

HEAD_FIELDS = ("_id", *episode_values.HEAD_FIELDS)
EPISODE_FIELDS = ("_id", *episode_values.EPISODE_FIELDS)
CHANGED_FIELDS = ("_id", *FACET_SOURCES, "superseded_by", "superseded_at", "retrieval_count")
"""What `change` and `status_fields` look at."""


def read_episode(document: Document) -> Episode:
    """A document with `EPISODE_FIELDS`."""
    return episode_values.episode_of({**document, "episode_id": document["_id"]})


def read_head(document: Document) -> EpisodeHead:
    """A document with `HEAD_FIELDS`."""
    return episode_values.head_of({**document, "episode_id": document["_id"]})


def read_aliases(tables: Tables) -> dict[str, str]:
    """Project -> what it is called instead."""
    found = tables["settings"].one({"name": PROJECT_ALIASES}, ("value",))
    return json.loads(found["value"]) if found else {}


def set_status(tables: Tables, where: Filter, status: str, superseded_by: str | None) -> int:
    """Let episodes that match be `active` or `superseded`; returns how many matched. What is superseded already keeps
    the time since when it is.
    """
    now = instant(datetime.now(UTC))
    return _change_where(tables, where, lambda document: status_fields(document, status, superseded_by, now))


def set_fields(tables: Tables, where: Filter, fields: Document) -> int:
    """Set fields of the episodes that match, and what their passages and vectors repeat of these; returns how many
    matched.
    """
    return _change_where(tables, where, lambda _: fields)


def status_fields(document: Document, status: str, superseded_by: str | None, now: str) -> Document:
    """The fields of an episode that is to have this status, superseded `now` unless it is already."""
    since = (document["superseded_at"] if document["status"] == status else now) if status == "superseded" else None
    return {"status": status, "superseded_by": superseded_by, "superseded_at": since}


def change(tables: Tables, documents: Sequence[Document], fields_of: Callable[[Document], Document]) -> None:
    """Set fields of these episodes, which are as `CHANGED_FIELDS` of theirs say, and what follows from them in their
    passages and vectors.
    """
    writes, changed = [], {}
    for document in documents:
        fields = fields_of(document)
        if facets := changed_facets(document, {**document, **fields}):
            changed[document["_id"]] = facets
        writes.append(UpdateOne({"_id": document["_id"]}, {"$set": {**facets, **fields}}))
    tables["episodes"].write(writes)
    if changed:
        spread(tables, live_spaces(tables), changed)


def changed_facets(before: Document, after: Document) -> Document:
    """The facets of an episode that are others in `after`."""
    old = facets_of(before)
    return {name: value for name, value in facets_of(after).items() if value != old[name]}


def _change_where(tables: Tables, where: Filter, fields_of: Callable[[Document], Document]) -> int:
    documents = tables["episodes"].find(where, CHANGED_FIELDS)
    change(tables, documents, fields_of)
    return len(documents)
