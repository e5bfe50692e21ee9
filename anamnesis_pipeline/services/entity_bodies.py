"""Things, their timelines, graphs and groups, as JSON. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NotRequired

from typing_extensions import TypedDict

from anamnesis_pipeline.knowledge.error_signatures import label_of
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.services.entities import Backlink, Known, Listed, Things
from anamnesis_pipeline.services.entity_graph import Graph
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.store.entity_model import Entity

MAX_DETAILS = 5
"""Verbatim texts of a thing in one episode that are shown."""


class ThingOut(TypedDict):
    """A thing by kind and name. `label`: of an error, its line as it was met last, without times and places."""

    kind: str
    name: str
    label: NotRequired[str]


class AliasOut(TypedDict):
    """Another name of a thing in a project, or the kind that it had, as a person decided. Deleting it undoes that."""

    project: str
    kind: str
    name: str


class EntityOut(ThingOut):
    """A thing with its number of mentions, the projects that have it, and its other names."""

    mentions: int
    projects: list[str]
    aliases: list[AliasOut]


class EntitiesOut(TypedDict):
    """Things, those with the most mentions first. `kinds`: kind -> how many pass the search, listed or not.
    `is_close`: none has the words, so things with similar names are listed.
    """

    items: list[EntityOut]
    kinds: dict[str, int]
    is_close: bool


class OccurrenceOut(TypedDict):
    """An episode of a thing. `relations`: what it has to do with it, e.g. `edited`; `details`: verbatim, e.g. the
    script of a command or the line of an error.
    """

    episode_id: str
    session_id: str
    project: str
    timestamp: str
    title: str
    relations: list[str]
    details: list[str]


class EntityTimelineOut(TypedDict):
    """One thing in order of time. `relations`: relation -> mentions. `others`: what else the name may mean."""

    entity: EntityOut
    relations: dict[str, int]
    items: list[OccurrenceOut]
    others: list[ThingOut]


class NodeOut(ThingOut):
    """A thing in a graph. `hops`: steps from the thing that was asked for."""

    hops: int


class EdgeOut(TypedDict):
    """Two things, by their places in `nodes`. `relation`: `co_occurs`, or `source` `fixed` or `depends_on` `target`.
    `evidence`: episodes that say so; `strength`: from 0 to 1, growing with each.
    """

    source: int
    target: int
    relation: str
    evidence: int
    strength: float


class EntityGraphOut(TypedDict):
    """A thing and those around it, two steps far, the nearest first; edges by strength."""

    nodes: list[NodeOut]
    edges: list[EdgeOut]


class GroupsOut(TypedDict):
    """Things that belong together, the largest group first."""

    groups: list[list[ThingOut]]


class BacklinkOut(TypedDict):
    """An episode that shares things with another one. `score`: rare things add more."""

    episode_id: str
    project: str
    timestamp: str
    title: str
    score: float
    shared: list[ThingOut]


class BacklinksOut(TypedDict):
    """Episodes that share things with one, the most related first."""

    items: list[BacklinkOut]


def entities_body(found: Things) -> EntitiesOut:
    """Return a list of things."""
    return {
        "items": [entity_body(each) for each in found.items],
        "kinds": {kind.value: number for kind, number in found.kinds.items()},
        "is_close": found.is_close,
    }


def entity_body(listed: Listed) -> EntityOut:
    """Return a thing."""
    return {
        **thing_body(listed.entity),
        "mentions": listed.mentions,
        "projects": sorted(listed.projects),
        "aliases": [
            {"project": each.project, "kind": each.entity.kind.value, "name": each.entity.name}
            for each in listed.aliases
        ],
    }


def thing_body(entity: Entity) -> ThingOut:
    """Return kind and name, and the label of an error."""
    body: ThingOut = {"kind": entity.kind.value, "name": entity.name}
    if label := label_of(entity.line):
        body["label"] = label
    return body


def timeline_body(known: Known, hidden: Collection[str] = ()) -> EntityTimelineOut:
    """Return one thing in order of time.

    :param hidden: ids of episodes to leave out.
    """
    shown = [(head, mentions) for head, mentions in known.episodes if head.episode_id not in hidden]
    relations = Counter(each.relation.value for _, mentions in shown for each in mentions)
    return {
        "entity": entity_body(known.listed),
        "relations": dict(relations.most_common()),
        "items": [
            {
                "episode_id": head.episode_id,
                "session_id": head.session_id,
                "project": head.project,
                "timestamp": utc_text(head.timestamp),
                "title": title_of(head),
                "relations": list(dict.fromkeys(each.relation.value for each in mentions)),
                "details": list(dict.fromkeys(each.detail for each in mentions if each.detail))[:MAX_DETAILS],
            }
            for head, mentions in shown
        ],
        "others": [thing_body(each) for each in known.others],
    }


def graph_body(graph: Graph) -> EntityGraphOut:
    """Return a graph."""
    at: Mapping[Entity, int] = {entity: place for place, entity in enumerate(graph.hops)}
    return {
        "nodes": [{**thing_body(entity), "hops": hops} for entity, hops in graph.hops.items()],
        "edges": [
            {
                "source": at[each.one],
                "target": at[each.other],
                "relation": each.relation,
                "evidence": each.evidence,
                "strength": each.strength,
            }
            for each in graph.edges
        ],
    }


def groups_body(found: Sequence[Sequence[Entity]]) -> GroupsOut:
    """Return groups of things."""
    return {"groups": [[thing_body(each) for each in group] for group in found]}


def backlinks_body(found: Sequence[Backlink]) -> BacklinksOut:
    """Return the episodes that share things with one."""
    return {
        "items": [
            {
                "episode_id": each.head.episode_id,
                "project": each.head.project,
                "timestamp": utc_text(each.head.timestamp),
                "title": title_of(each.head),
                "score": each.score,
                "shared": [thing_body(entity) for entity in each.shared],
            }
            for each in found
        ]
    }
