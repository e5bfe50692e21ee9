"""What things have to do with each other: which occur together, which fixed or need which, and what belongs together.

Pure. It is worked out from the mentions of some episodes, so nothing of it is stored.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Any

from anamnesis_pipeline.store.entity_model import Entity, EntityKind, Mention, Relation

TOGETHER = "co_occurs"
"""Relation of two things that one episode has. The typed ones are `fixed` and `depends_on`."""
MAX_NODES = 60
MAX_EDGES = 150
"""Edges of a graph, the strongest; more only where a thing would have none."""
MAX_NEAREST = 24
"""Things one step away that are followed further."""
MIN_GROUP = 3
MAX_OF_GROUP = 40
_GROUPED = frozenset(EntityKind) - {EntityKind.DATE, EntityKind.TOOL}
"""Kinds that say what an episode is about; all episodes of a day, or with a shell, have little in common."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Two things with a relation.

    `one`: which fixed or depends on `other`; of TOGETHER, the first by kind and name. `evidence`: the number of
    episodes that say so. `strength`: between 0 and 1, growing with each.
    """

    one: Entity
    other: Entity
    relation: str
    evidence: int
    strength: float


@dataclass(frozen=True, slots=True)
class Graph:
    """A thing with those around it. `hops`: thing -> steps from it, the nearest and strongest first."""

    hops: Mapping[Entity, int]
    edges: tuple[Edge, ...]


@dataclass(slots=True)
class _Tie:
    weight: float = 0.0
    evidence: set[str] = field(default_factory=set)


def by_episode(mentions: Iterable[Mention]) -> dict[str, list[Mention]]:
    """Return episode id -> its mentions, in order."""
    found: dict[str, list[Mention]] = {}
    for each in mentions:
        found.setdefault(each.episode_id, []).append(each)
    return found


def nearest(entity: Entity, episodes: Mapping[str, Sequence[Mention]], most: int) -> list[Entity]:
    """Return the things that have most to do with one, the strongest first.

    :param episodes: as `by_episode` returns them.
    """
    weights: dict[Entity, float] = {}
    for mentions in episodes.values():
        for one, other, _, weight in _ties(mentions, {entity}):
            beside = other if one == entity else one
            weights[beside] = weights.get(beside, 0.0) + weight
    return sorted(weights, key=lambda each: (-weights[each], each.kind, each.name))[:most]


def graph_around(entity: Entity, episodes: Mapping[str, Sequence[Mention]], near: Sequence[Entity]) -> Graph:
    """Return a thing, the things `near` it, and those that have most to do with these, MAX_NODES in all.

    :param episodes: of the thing and of those near it.
    """
    import networkx as nx  # noqa: PLC0415 - 0.2 s that only a graph is worth

    nodes = dict.fromkeys([entity, *near])
    per_near = (MAX_NODES - len(nodes)) // max(1, len(near))
    having: dict[Entity, dict[str, Sequence[Mention]]] = {each: {} for each in near}
    for episode_id, mentions in episodes.items():
        for each in {mention.entity for mention in mentions} & having.keys():
            having[each][episode_id] = mentions
    for each in near:
        nodes |= dict.fromkeys(nearest(each, having[each], per_near))
    edges: list[Edge] = []
    joined = {entity}
    for edge in edges_among(set(nodes), episodes):
        if len(edges) < MAX_EDGES or not joined.issuperset((edge.one, edge.other)):
            edges.append(edge)
            joined.update((edge.one, edge.other))
    graph: Any = nx.Graph()
    graph.add_node(entity)
    graph.add_edges_from((each.one, each.other) for each in edges)
    hops = nx.single_source_shortest_path_length(graph, entity, cutoff=2)
    ordered = sorted((each for each in nodes if each in hops), key=lambda each: hops[each])
    told = {each.entity: each.entity for mentions in episodes.values() for each in mentions}  # errors with their line
    return Graph(
        {told.get(each, each): hops[each] for each in ordered},
        tuple(e for e in edges if e.one in hops and e.other in hops),
    )


def edges_among(things: set[Entity], episodes: Mapping[str, Sequence[Mention]]) -> list[Edge]:
    """Return what these things have to do with each other, the strongest first."""
    ties: dict[tuple[Entity, Entity, str], _Tie] = {}
    for episode_id, mentions in episodes.items():
        for one, other, relation, weight in _ties(mentions, things):
            if one in things and other in things:
                tie = ties.setdefault((one, other, relation), _Tie())
                tie.weight += weight
                tie.evidence.add(episode_id)
    edges = [
        Edge(*key, evidence=len(tie.evidence), strength=round(tie.weight / (1 + tie.weight), 4))
        for key, tie in ties.items()
    ]
    return sorted(edges, key=lambda each: (-each.strength, each.relation, each.one.name, each.other.name))


def places(graph: Graph) -> dict[Entity, tuple[float, float]]:
    """Return where to draw each thing of a graph, force-directed: x and y from -1 to 1, the same for the same graph."""
    import networkx as nx  # noqa: PLC0415

    drawn: Any = nx.Graph()
    drawn.add_nodes_from(graph.hops)
    for each in graph.edges:
        known = drawn.get_edge_data(each.one, each.other, {"weight": 0.0})["weight"]
        drawn.add_edge(each.one, each.other, weight=known + each.strength)
    found = nx.spring_layout(drawn, k=5 / max(1, len(graph.hops)) ** 0.5, iterations=200, seed=1)
    return dict(zip(found, zip(*map(_stretched, zip(*found.values(), strict=True)), strict=True), strict=True))


def _stretched(values: Sequence[float]) -> list[float]:
    """Return values moved and scaled to reach from -1 to 1; all 0 if they are the same."""
    low, high = min(values), max(values)
    return [float((each - low) / (high - low) * 2 - 1) if high > low else 0.0 for each in values]


def groups_of(episodes: Mapping[str, Sequence[Mention]], least: int = MIN_GROUP) -> list[list[Entity]]:
    """Return the things that belong together, by label propagation (Raghavan, Albert and Kumara 2007), the largest
    group first, and in each what occurs most first.

    :param least: things in a group; smaller ones are left out.
    """
    import networkx as nx  # noqa: PLC0415

    counts = Counter(each.entity for mentions in episodes.values() for each in mentions if each.kind in _GROUPED)
    graph: Any = nx.Graph()
    for each in edges_among(set(counts), episodes):
        known = graph.get_edge_data(each.one, each.other, {"weight": 0.0})["weight"]
        graph.add_edge(each.one, each.other, weight=known + each.strength)
    found = nx.community.asyn_lpa_communities(graph, weight="weight", seed=1)
    told = {each: each for each in counts}  # errors with their line
    groups = [
        sorted(map(told.__getitem__, each), key=lambda thing: (-counts[thing], thing.kind, thing.name))
        for each in found
    ]
    large = sorted((each for each in groups if len(each) >= least), key=lambda each: (-len(each), each[0].name))
    return [each[:MAX_OF_GROUP] for each in large]


def rarity(episodes: int) -> float:
    """Return the weight of a thing that so many episodes have: 1 / log2(1 + n), after Adamic and Adar (2003)."""
    return 1 / log2(1 + max(1, episodes))


def _ties(mentions: Sequence[Mention], wanted: set[Entity]) -> Iterable[tuple[Entity, Entity, str, float]]:
    """Yield what one episode says of wanted things and others: both things, the relation, and its weight.

    Things that occur together weigh less the more there are (Newman 2001); a typed relation weighs 1. A program that
    is there with its command says nothing more, so it is left out unless it is wanted.
    """
    programs = {each.name.partition(" ")[0] for each in mentions if each.kind is EntityKind.COMMAND}
    said = {Entity(EntityKind.TOOL, each) for each in programs} - wanted
    things = sorted({each.entity for each in mentions} - said, key=lambda each: (each.kind, each.name))
    own = {at for at, each in enumerate(things) if each in wanted}
    for at in own:
        for beside in range(len(things)):
            if beside > at or (beside < at and beside not in own):
                yield things[min(at, beside)], things[max(at, beside)], TOGETHER, 1 / (len(things) - 1)
    named = {each.name: each for each in things}
    for each in mentions:
        if each.relation is Relation.FIXED:
            pair = (each.entity, Entity(EntityKind.ERROR, each.other))
        elif each.relation is Relation.DEPENDS_ON and each.other in named:
            pair = (named[each.other], each.entity)
        else:
            continue
        if pair[0] != pair[1] and (pair[0] in wanted or pair[1] in wanted):
            yield *pair, each.relation.value, 1.0
