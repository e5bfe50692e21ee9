"""What a person does with things: list and search them, see one with its history and what is around it, name them.

Things of private projects and sources are left out as `Where` says. Names that people gave are applied by the store.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from heapq import nsmallest

from anamnesis_pipeline.entities.naming import is_same_file
from anamnesis_pipeline.errors import EntityConflict, EntityNotFound, EpisodeNotFound
from anamnesis_pipeline.knowledge.error_signatures import signature_of
from anamnesis_pipeline.model import EpisodeFilter, EpisodeHead
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.search.project_labels import NO_PROJECT, Private
from anamnesis_pipeline.services.entity_graph import (
    MAX_NEAREST,
    Graph,
    by_episode,
    graph_around,
    groups_of,
    nearest,
    rarity,
)
from anamnesis_pipeline.services.folder_project import projects_called
from anamnesis_pipeline.services.things import Where
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import Entity, EntityKind, EntityName, Mention, Names
from anamnesis_pipeline.store.records.entities import leaf_of

MAX_EPISODES = 500
"""Episodes of a thing that are looked at, those stored last."""
MAX_MENTIONS = 2_000
MAX_NEAR_MENTIONS = 100
"""Of each thing one step away."""
MAX_RECENT = 5_000
"""Mentions among which groups are looked for, those stored last."""
MAX_OF_EPISODE = 60
MAX_SHARED = 10
MAX_LINES = 5
"""Mentions of an error, among which one is taken for its label, those stored last."""
MAX_MEANT = 10
"""Things that a name may mean, of which the first with an episode to show is taken."""
CLOSE = 0.75
"""Least similarity of a name to a misspelled one, as `difflib` measures it."""
_ANYWHERE = frozenset({EntityKind.ERROR, EntityKind.HOST, EntityKind.URL, EntityKind.PACKAGE, EntityKind.PERSON})
"""Kinds whose names mean the same in every project."""


@dataclass(slots=True)
class Listed:
    """A thing with its number of mentions, the projects that have it, and other names, as decided by people."""

    entity: Entity
    mentions: int = 0
    projects: set[str] = field(default_factory=set)
    aliases: tuple[EntityName, ...] = ()


@dataclass(frozen=True, slots=True)
class Things:
    """A list of things, those with the most mentions first. `kinds`: how many of each kind pass the search,
    listed or not. `is_close`: nothing has the words, so similar names are listed.
    """

    items: tuple[Listed, ...]
    kinds: dict[EntityKind, int]
    is_close: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """One thing. `episodes`: with what they have to do with it, in order of time; `mentions`: how many there are in
    these. `others`: what else the name that was asked for may mean.
    """

    listed: Listed
    episodes: tuple[tuple[EpisodeHead, tuple[Mention, ...]], ...]
    others: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlink:
    """An episode that shares things with another one. `score`: the sum of `rarity` of all that it shares."""

    head: EpisodeHead
    score: float
    shared: tuple[Entity, ...]


def where_of(store: Store, private: Private, project: str, included: Collection[str] = ()) -> Where:
    """Return where to look.

    :param project: empty: everywhere; a bare name also means `acme/<name>`; NO_PROJECT: what is of none.
    :param included: private projects and sources to show in addition; `*`: all.
    """
    if project == NO_PROJECT:
        return Where(("",), private, tuple(included))
    named = EpisodeFilter(projects=(project,) if project else ())
    projects = private.visible(store, named, included).projects
    return Where(projects, private, tuple(included))


def list_things(store: Store, where: Where, query: str = "", kind: EntityKind | None = None, most: int = 50) -> Things:
    """Return things, by words that their name or an alias has; by similar names if none has them.

    :param query: in any case; empty: all.
    :param most: maximum number.
    """
    found, names = _tally(store, where), store.entities.names()
    called: dict[Entity, list[EntityName]] = {}
    for given in names.all():
        called.setdefault(names.of(given.project, given.entity), []).append(given)
    words = query.lower().split()

    def told(entity: Entity) -> str:
        return " ".join([entity.name, *(each.entity.name for each in called.get(entity, ()))]).lower()

    passing = list(found.values())
    if words:
        passing = [each for each in passing if all(word in told(each.entity) for word in words)]
    if is_close := bool(words and not passing):
        leaves: dict[str, list[Listed]] = {}
        for each in found.values():
            leaves.setdefault(leaf_of(each.entity.kind, each.entity.name), []).append(each)
        close = get_close_matches(query.lower(), leaves, most, CLOSE)
        passing = [each for leaf in close for each in leaves[leaf]]
    kinds = Counter(each.entity.kind for each in passing)
    items = [each for each in passing if kind in {None, each.entity.kind}]
    if not is_close:
        items = nsmallest(most, items, key=lambda each: (-each.mentions, each.entity.kind, each.entity.name))
    lines = _lines(store, where, [each.entity for each in items[:most] if each.entity.kind is EntityKind.ERROR])
    for each in items[:most]:
        each.aliases = _aliases(names, each)
        each.entity = lines.get(each.entity, each.entity)
    by_kind = {each: kinds[each] for each in EntityKind if kinds[each]}
    return Things(tuple(items[:most]), by_kind, is_close and bool(items))


def find_thing(store: Store, where: Where, name: str, kind: EntityKind | None = None) -> Known:
    """Return the thing that a name means: its own name or alias, in any case, else the end of a path, else the error
    that a line tells.

    :param kind: None: any; the thing of this name with the most mentions.
    :raises EntityNotFound: nothing that may be shown has it.
    """
    asked = project_label(name) if name.startswith(("/", "~")) else name.strip()
    counts: dict[Entity, int] = {}
    for (_, entity), number in store.entities.known(asked, projects=where.projects).items():
        counts[entity] = counts.get(entity, 0) + number
    names = store.entities.names()
    aliased = {names.of(each.project, each.entity) for each in names.called(asked)}

    def rank(entity: Entity) -> int:
        exact = entity.name == asked, entity.name.lower() == asked.lower() or entity in aliased
        is_end = entity.kind in {EntityKind.FILE, EntityKind.SYMBOL} and is_same_file(entity.name, asked)
        return 0 if exact[0] else 1 if exact[1] else 2 if is_end else 3

    meant = sorted((each for each in counts if rank(each) < 3), key=lambda each: (rank(each), -counts[each], each.kind))
    meant = [each for each in meant if kind in {None, each.kind}][:MAX_MEANT]
    shown = [(each, episodes) for each in meant if (episodes := _episodes_of(store, each, where))]
    signature = signature_of(asked) if not shown and kind in {None, EntityKind.ERROR} else asked
    if signature not in {"", asked} and store.entities.known(signature, projects=where.projects):
        return find_thing(store, where, signature, EntityKind.ERROR)
    if not shown:
        if where.projects and all(each and not projects_called(store, each) for each in where.projects):
            raise EntityNotFound("no project has this name")
        similar = [each.entity.name for each in list_things(store, where, asked.split("/")[-1], kind, 5).items]
        hint = f"; similar: {', '.join(similar)}" if similar else ", nor a similar one"
        raise EntityNotFound(f"nothing known has this name{hint}")
    _, episodes = shown[0]
    entity = episodes[-1][1][-1].entity  # as it was met last
    listed = Listed(entity, sum(len(mentions) for _, mentions in episodes), {head.project for head, _ in episodes})
    listed.aliases = _aliases(names, listed)
    return Known(listed, tuple(episodes), tuple(each for each, _ in shown[1:]))


def graph_of(store: Store, where: Where, known: Known) -> Graph:
    """Return what a thing and those around it have to do with each other, two steps far."""
    entity = known.listed.entity
    found = by_episode(store.entities.of_episodes([head.episode_id for head, _ in known.episodes]))
    near = nearest(entity, found, MAX_NEAREST)
    further = {
        mention.episode_id
        for each in near
        for mention in store.entities.of_entity(each, MAX_NEAR_MENTIONS, projects=where.projects)
    }
    heads = store.episodes.heads(list(further - found.keys()))
    shown = [episode_id for episode_id, head in heads.items() if where.shows(head)]
    return graph_around(entity, found | by_episode(store.entities.of_episodes(shown)), near)


def groups(store: Store, where: Where) -> list[list[Entity]]:
    """Return the things that belong together, among those mentioned last."""
    found = by_episode(store.entities.recent(MAX_RECENT, projects=where.projects))
    heads = store.episodes.heads(list(found))
    return groups_of({each: found[each] for each, head in heads.items() if where.shows(head)})


def things_of(store: Store, episode_id: str) -> list[Entity]:
    """Return the things that an episode has, in order."""
    return list(dict.fromkeys(each.entity for each in store.entities.of_episodes([episode_id])))[:MAX_OF_EPISODE]


def backlinks(store: Store, private: Private, episode_id: str, most: int) -> list[Backlink]:
    """Return the episodes that share things with one, rare things weighing more, the most related first. Private ones
    are left out, unless this one is private and of the same project or source.

    :param most: maximum number.
    :raises EpisodeNotFound: no such id.
    """
    head = store.episodes.heads([episode_id]).get(episode_id)
    if head is None:
        raise EpisodeNotFound("no episode has this id")
    where = Where((), private, (head.project, head.source) if private.holds(head) else ())
    shared: dict[str, set[Entity]] = {}
    weights: dict[Entity, float] = {}
    for entity in things_of(store, episode_id):
        projects = () if entity.kind in _ANYWHERE else (head.project,)
        found = store.entities.of_entity(entity, MAX_EPISODES, projects=projects)
        having = {each.episode_id for each in found} - {episode_id}
        weights[entity] = rarity(len(having))
        for each in having:
            shared.setdefault(each, set()).add(entity)
    heads = store.episodes.heads(list(shared))
    scores = {each: sum(weights[entity] for entity in shared[each]) for each in heads}
    newest = sorted(
        (each for each in heads.values() if where.shows(each)), key=lambda head: head.timestamp, reverse=True
    )
    ordered = sorted(newest, key=lambda head: -scores[head.episode_id])
    return [
        Backlink(
            each,
            round(scores[each.episode_id], 4),
            tuple(sorted(shared[each.episode_id], key=lambda entity: (-weights[entity], entity.name))[:MAX_SHARED]),
        )
        for each in ordered[:most]
    ]


# --- decisions on names ----------------------------------------------------------------------------------


def add_alias(store: Store, where: Where, entity: Entity, alias: str, at: datetime) -> Entity:
    """Let a thing be found by another name, too; what had that name is merged into it. Return the thing.

    :raises EntityNotFound, EntityConflict: see `_project_of` and `EntityRecords.name`.
    """
    project, found = _project_of(store, where, entity)
    other = Entity(found.kind, alias.strip())
    if store.entities.names().of(project, other) != found:
        store.entities.name(EntityName(project, other, found, at))
    return found


def merge(store: Store, where: Where, entity: Entity, into: Entity, at: datetime) -> Entity:
    """Let all that is known of a thing be of another one. Return that one.

    :raises EntityNotFound, EntityConflict: see `_project_of` and `EntityRecords.name`; both are one thing.
    """
    project, found = _project_of(store, where, entity)
    _, target = _project_of(store, Where((project,), where.private, where.included), into)
    if found == target and (entity.kind, entity.name.strip().lower()) == (target.kind, target.name.lower()):
        raise EntityConflict("a thing cannot be merged into itself; name another one")
    if found != target:
        store.entities.name(EntityName(project, found, target, at))
    return target


def set_kind(store: Store, where: Where, entity: Entity, kind: EntityKind, at: datetime) -> Entity:
    """Let a thing be of another kind; of its former one, that decision is taken back. Return the present thing.

    :raises EntityNotFound, EntityConflict: see `_project_of` and `EntityRecords.name`.
    """
    project, found = _project_of(store, where, entity)
    changed = Entity(kind, found.name)
    if found != changed:
        if store.entities.names().of(project, changed) == found:
            store.entities.unname(project, changed)
        else:
            store.entities.name(EntityName(project, found, changed, at))
    return changed


def remove_alias(store: Store, where: Where, alias: Entity) -> str:
    """Let a name mean what it means without people's decision. Return the project in which it was an alias.

    :raises EntityNotFound: it is none.
    :raises EntityConflict: it is one in several projects.
    """
    called = {each.project for each in store.entities.names().called(alias.name) if each.entity.kind is alias.kind}
    its = sorted(each for each in called if _is_open(where, each) and each in (where.projects or called))
    if len(its) > 1:
        several = ", ".join(each or NO_PROJECT for each in its)
        raise EntityConflict(f"it is an alias in several projects: {several}; name one")
    if not its:
        raise EntityNotFound(f"no alias of a {alias.kind.value} has this name there")
    store.entities.unname(its[0], alias)
    return its[0]


def _project_of(store: Store, where: Where, entity: Entity) -> tuple[str, Entity]:
    """Return the one project that has a thing, and the thing in its spelling there.

    :raises EntityNotFound: none has it, or it may not be shown.
    :raises EntityConflict: several have it.
    """
    known = find_thing(store, where, entity.name, entity.kind).listed
    if known.entity.name.lower() != entity.name.strip().lower() and entity.name.lower() not in {
        each.entity.name.lower() for each in known.aliases
    }:
        raise EntityNotFound(f"no {entity.kind.value} has this very name; is {known.entity.name!r} meant?")
    if len(known.projects) > 1:
        several = ", ".join(sorted(each or NO_PROJECT for each in known.projects))
        raise EntityConflict(f"several projects have it: {several}; name one")
    return next(iter(known.projects)), known.entity


def _is_open(where: Where, project: str, source: str = "") -> bool:
    """Return whether episodes of a project and source may be shown."""
    return where.shows(EpisodeHead("", source, datetime.min, "", project, "", ""))


def _tally(store: Store, where: Where) -> dict[Entity, Listed]:
    """Return the things that may be shown, with their mentions and projects."""
    counts = store.entities.tally(projects=where.projects)
    for source in where.private.keys:
        for key, number in store.entities.tally(projects=where.projects, sources=[source]).items():
            counts[key] -= 0 if _is_open(where, key[0], source) else number
    shown = {project for project in {key[0] for key in counts} if _is_open(where, project)}
    found: dict[Entity, Listed] = {}
    for (project, entity), number in counts.items():
        if number > 0 and project in shown:
            if (its := found.get(entity)) is None:
                its = found[entity] = Listed(entity)
            its.mentions += number
            its.projects.add(project)
    return found


def _lines(store: Store, where: Where, errors: Collection[Entity]) -> dict[Entity, Entity]:
    """Return errors with the line of their latest mention that may be shown."""
    found = [m for each in errors for m in store.entities.of_entity(each, MAX_LINES, projects=where.projects)]
    heads = store.episodes.heads(list({each.episode_id for each in found}))
    shown = [m.entity for m in found if m.episode_id in heads and where.shows(heads[m.episode_id])]
    return {each: each for each in reversed(shown)}


def _aliases(names: Names, listed: Listed) -> tuple[EntityName, ...]:
    return tuple(each for each in names.aliases(listed.entity) if each.project in listed.projects)


def _episodes_of(store: Store, entity: Entity, where: Where) -> list[tuple[EpisodeHead, tuple[Mention, ...]]]:
    """Return the episodes of a thing that may be shown, in order of time, with their mentions of it."""
    found = by_episode(store.entities.of_entity(entity, MAX_MENTIONS, projects=where.projects))
    heads = store.episodes.heads(list(found)[:MAX_EPISODES])
    shown = sorted((h for h in heads.values() if where.shows(h)), key=lambda head: (head.timestamp, head.episode_id))
    return [(head, tuple(reversed(found[head.episode_id]))) for head in shown]
