"""Things that sessions and texts touch or name: lists, timelines, graphs, and what people call them."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.services import entities
from anamnesis_pipeline.services.entity_bodies import (
    BacklinksOut,
    EntitiesOut,
    EntityGraphOut,
    EntityTimelineOut,
    GroupsOut,
    ThingOut,
    backlinks_body,
    entities_body,
    graph_body,
    groups_body,
    thing_body,
    timeline_body,
)
from anamnesis_pipeline.services.fields import WORDED_PATTERN, EpisodeId, Name
from anamnesis_pipeline.services.things import Where
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES
from anamnesis_pipeline.sidecar.routes.topics import IncludePrivate
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.store.entity_model import Entity, EntityKind

router = APIRouter(tags=["entities"], responses=PROBLEMS)

ThingName = Annotated[str, Field(max_length=500, pattern=WORDED_PATTERN)]
Kind = Annotated[EntityKind, Field(strict=False)]
Project = Annotated[Name | None, Query(description="Project, also without its owner; default: all")]
Asked = Annotated[ThingName, Query(description="Name or alias, or the end of a path")]
OfKind = Annotated[EntityKind | None, Query(description="Kind of the thing; default: any")]


class ThingIn(BaseModel):
    """A thing that has this name or alias, of the project that has it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Annotated[Kind, Field(description="Kind of the thing")]
    name: Annotated[ThingName, Field(description="Its name")]
    project: Annotated[Name | None, Field(description="Project; required if several have the thing")] = None


class AliasIn(ThingIn):
    """Another name for a thing."""

    alias: Annotated[ThingName, Field(description="Other name; what has it is merged into the thing")]


class MergeIn(ThingIn):
    """A thing, and the one that it is."""

    into: Annotated[ThingName, Field(description="Name of the thing that stays")]
    into_kind: Annotated[Kind | None, Field(description="Kind of that thing; default: the same")] = None


class KindIn(ThingIn):
    """A thing, and what kind it is."""

    to: Annotated[Kind, Field(description="Its new kind")]


class RemovedAliasOut(TypedDict):
    """The project in which the name was an alias."""

    project: str


@router.get("/api/entities", response_model=EntitiesOut)
def list_entities(
    *,
    services: Uses,
    query: Annotated[ThingName | None, Query(description="Words of names; similar names if none has them")] = None,
    kind: OfKind = None,
    project: Project = None,
    limit: Annotated[int, Query(ge=1, le=500, description="Max results")] = 50,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """List files, symbols, commands, errors, hosts, URLs, packages, tools, tickets, people and dates that sessions and
    texts touch or name, those with the most mentions first.
    """
    where = where_of(services, project, include_private)
    return json_reply(entities_body(entities.list_things(services.store, where, query or "", kind, limit)))


@router.get("/api/entities/timeline", response_model=EntityTimelineOut)
def get_timeline(
    *,
    services: Uses,
    name: Asked,
    kind: OfKind = None,
    project: Project = None,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Return one thing with its aliases, and the episodes that have it in order of time: at most 500, those stored
    last.
    """
    where = where_of(services, project, include_private)
    return json_reply(timeline_body(entities.find_thing(services.store, where, name, kind)))


@router.get("/api/entities/graph", response_model=EntityGraphOut)
def get_graph(
    *,
    services: Uses,
    name: Asked,
    kind: OfKind = None,
    project: Project = None,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Return what a thing and those around it have to do with each other, two steps far, at most 60 things."""
    where = where_of(services, project, include_private)
    known = entities.find_thing(services.store, where, name, kind)
    return json_reply(graph_body(entities.graph_of(services.store, where, known)))


@router.get("/api/entities/groups", response_model=GroupsOut)
def get_groups(*, services: Uses, project: Project = None, include_private: IncludePrivate = NO_NAMES) -> Response:
    """Return the things that belong together, of those mentioned last, found by label propagation."""
    where = where_of(services, project, include_private)
    return json_reply(groups_body(entities.groups(services.store, where)))


@router.post("/api/entities/alias", response_model=ThingOut)
def post_alias(wanted: AliasIn, services: Uses) -> Response:
    """Give a thing another name. Return the thing."""
    where, now = where_of(services, wanted.project), datetime.now(UTC)
    alias = services.poster.masked(wanted.alias)
    return json_reply(thing_body(entities.add_alias(services.store, where, _thing(wanted), alias, now)))


@router.post("/api/entities/merge", response_model=ThingOut)
def post_merge(wanted: MergeIn, services: Uses) -> Response:
    """Let all that is known of a thing be of another one; deleting the alias that it becomes undoes it. Return that
    one.
    """
    where, now = where_of(services, wanted.project), datetime.now(UTC)
    into = Entity(wanted.into_kind or wanted.kind, wanted.into)
    return json_reply(thing_body(entities.merge(services.store, where, _thing(wanted), into, now)))


@router.post("/api/entities/type", response_model=ThingOut)
def post_type(wanted: KindIn, services: Uses) -> Response:
    """Let a thing be of another kind. Return the thing."""
    where, now = where_of(services, wanted.project), datetime.now(UTC)
    return json_reply(thing_body(entities.set_kind(services.store, where, _thing(wanted), wanted.to, now)))


@router.delete("/api/entities/alias", response_model=RemovedAliasOut)
def delete_alias(
    services: Uses,
    kind: Annotated[EntityKind, Query(description="Kind of the alias")],
    name: Annotated[ThingName, Query(description="Alias, in any case")],
    project: Project = None,
) -> Response:
    """Delete an alias, which also undoes a merge or a change of kind."""
    where = where_of(services, project)
    return json_reply({"project": entities.remove_alias(services.store, where, Entity(kind, name))})


@router.get("/api/backlinks", response_model=BacklinksOut)
def get_backlinks(
    services: Uses,
    episode_id: Annotated[EpisodeId, Query(description="Episode to find others for")],
    limit: Annotated[int, Query(ge=1, le=100, description="Max results")] = 10,
) -> Response:
    """List episodes that share files, errors, commands and other things with one, rare things weighing more. Private
    episodes are left out, unless the given one is private and of the same project or source.
    """
    found = entities.backlinks(services.store, services.engine.private(), episode_id, limit)
    return json_reply(backlinks_body(found))


def where_of(services: Services, project: str | None, included: list[str] = NO_NAMES) -> Where:
    """Return where to look; private projects and sources only if they are named."""
    return entities.where_of(services.store, services.engine.private(), project or "", included)


def _thing(wanted: ThingIn) -> Entity:
    return Entity(wanted.kind, wanted.name)
