"""Entities: the things that sessions and texts touch or name; one with its timeline, its names, and what is around it.

Every form works without scripts: it posts, and is redirected to the thing. The graph is drawn here, as SVG with links;
the list of the same relations is for keyboards and screen readers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import parse_qsl

from fastapi import Form
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from anamnesis_pipeline.errors import EntityConflict, EntityNotFound
from anamnesis_pipeline.search.project_labels import ALL
from anamnesis_pipeline.services import entities
from anamnesis_pipeline.services.entity_bodies import ThingOut, entities_body, groups_body, thing_body, timeline_body
from anamnesis_pipeline.services.entity_graph import TOGETHER, Edge, Graph, places
from anamnesis_pipeline.services.fields import Name, Text
from anamnesis_pipeline.sidecar.problems import status_of
from anamnesis_pipeline.sidecar.routes.entities import ThingName
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router
from anamnesis_pipeline.sidecar.web.undo import undo_of
from anamnesis_pipeline.store.entity_model import Entity, EntityKind, Relation

PATH = "/dashboard/entities"
LISTED = 60
EPISODES_SHOWN = 40
RELATED_SHOWN = 30
GROUPS_SHOWN = 20
WIDTH, HEIGHT = 960, 600
MARGIN_X, MARGIN_Y = 90, 30
LABELLED = 26
"""Things of a graph whose names are drawn, the nearest; the others show theirs under the pointer."""
LABEL_CHARS = 24
RADII = (12, 8, 5)
"""Of the thing itself, and of those one and two steps away."""

router = page_router()


class _Asked(BaseModel):
    """The filters of the page. `name`, `of`: the thing that is shown; `groups`: show what belongs together."""

    model_config = ConfigDict(extra="ignore")

    project: Name = ""
    kind: EntityKind | None = None
    query: ThingName = ""
    private: bool = False
    name: ThingName = ""
    of: EntityKind | None = None
    groups: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A thing in the drawing. `title`: its name for people; `label`: that, shortened, empty where there is no room."""

    kind: str
    name: str
    title: str
    x: int
    y: int
    radius: int
    label: str


@dataclass(frozen=True, slots=True)
class Line:
    """A relation in the drawing."""

    x1: int
    y1: int
    x2: int
    y2: int
    width: float
    relation: str


@router.get(PATH)
def entities_page(request: Request, services: Uses) -> Response:
    """Show the list, and one thing if it is named."""
    return _page(request, services, request.query_params)


@router.post(PATH)
def edit(
    request: Request,
    services: Uses,
    action: Annotated[Literal["alias", "merge", "type", "remove"], Form()],
    name: Annotated[ThingName, Form()],
    kind: Annotated[EntityKind, Form()],
    to: Annotated[EntityKind, Form()],
    value: Annotated[Text, Form(max_length=500)] = "",
    project: Annotated[Name | None, Form()] = None,
    asked: Annotated[str, Form(max_length=4_000)] = "",
) -> Response:
    """Give a thing another name (`value`), merge it into another one (`value`, of kind `to`), change its kind to `to`,
    or remove one of its aliases (`value`, of kind `to`); go to the thing.

    :param asked: query string of the page on which the form is.
    """
    given = dict(parse_qsl(asked))
    included = [ALL] if "private" in given else []
    where = entities.where_of(services.store, services.engine.private(), project or given.get("project", ""), included)
    thing, other, now = Entity(kind, name), Entity(to, value), datetime.now(UTC)
    if action != "type" and not value.strip():
        raise HTTPException(422, "Write the name first.")
    try:
        if action == "alias":
            thing = entities.add_alias(services.store, where, thing, services.poster.masked(value), now)
        elif action == "merge":
            thing = entities.merge(services.store, where, thing, other, now)
        elif action == "type":
            thing = entities.set_kind(services.store, where, thing, to, now)
        else:
            entities.remove_alias(services.store, where, other)
    except (EntityConflict, EntityNotFound) as exc:
        return _page(request, services, given, f"Nothing was changed: {exc}.", status_of(type(exc)))
    return RedirectResponse(asking.address_with(PATH, given, name=thing.name, of=thing.kind.value) + "#thing", 303)


def _page(
    request: Request, services: Services, query: QueryParams | Mapping[str, str], problem: str = "", status: int = 200
) -> Response:
    given = asking.filled(query)
    try:
        asked = _Asked.model_validate(given)
    except ValidationError as exc:
        asked, status, problem = _Asked(), 422, asking.told(asking.invalid(exc))
    included = [ALL] if asked.private else []
    where = entities.where_of(services.store, services.engine.private(), asked.project, included)
    body = entities_body(entities.list_things(services.store, where, asked.query, asked.kind, LISTED))
    known = nodes = lines = timeline = graph = None
    if asked.name:
        try:
            known = entities.find_thing(services.store, where, asked.name, asked.of)
        except EntityNotFound as exc:
            status, problem = 404, problem or f"{exc}."
        else:
            graph = entities.graph_of(services.store, where, known)
            nodes, lines = drawn(graph)
            timeline = timeline_body(known, undo_of(request).waiting())
    shown = {key: value for key, value in given.items() if key in _Asked.model_fields}
    return page(
        request,
        "entities.html",
        "Entities",
        status=status,
        names=asking.names_offered(services, given),
        problem=problem,
        asked=shown,
        here=asking.address_with("", shown).removeprefix("?"),
        body=body,
        kinds=list(EntityKind),
        timeline=timeline,
        episodes_shown=EPISODES_SHOWN,
        nodes=nodes,
        lines=lines,
        width=WIDTH,
        height=HEIGHT,
        related=related(graph)[:RELATED_SHOWN] if graph else (),
        groups=groups_body(entities.groups(services.store, where))["groups"][:GROUPS_SHOWN] if asked.groups else None,
        address=lambda **changes: asking.address_with(PATH, shown, **changes),
    )


def drawn(graph: Graph) -> tuple[list[Node], list[Line]]:
    """Return the things and relations of a graph as they are drawn, in pixels of the picture. Pure."""
    at = {
        entity: (
            round(MARGIN_X + (x + 1) / 2 * (WIDTH - 2 * MARGIN_X)),
            round(MARGIN_Y + (y + 1) / 2 * (HEIGHT - 2 * MARGIN_Y)),
        )
        for entity, (x, y) in places(graph).items()
    }
    nodes = [
        Node(
            entity.kind.value,
            entity.name,
            title_of(entity),
            *at[entity],
            RADII[hops],
            label_of(entity) if place < LABELLED else "",
        )
        for place, (entity, hops) in enumerate(graph.hops.items())
    ]
    lines = [Line(*at[each.one], *at[each.other], 0.5 + 3.5 * each.strength, each.relation) for each in graph.edges]
    return nodes, lines


def label_of(entity: Entity) -> str:
    """Return a short name: of a path, its end. Pure."""
    name = entity.name.rstrip("/").rpartition("/")[2] if entity.kind in _PATHS else title_of(entity)
    return name if len(name) <= LABEL_CHARS else f"{name[: LABEL_CHARS - 1]}…"


def title_of(entity: Entity) -> str:
    """Return the name of a thing for people. Pure."""
    return thing_body(entity).get("label", entity.name)


_PATHS = {EntityKind.FILE, EntityKind.URL}


def related(graph: Graph) -> list[tuple[str, ThingOut, Edge]]:
    """Return what the thing of a graph has to do with others: the relation in words, the other, the edge. Pure."""
    centre = next(iter(graph.hops))
    nodes = {each: thing_body(each) for each in graph.hops}
    found = []
    for edge in graph.edges:
        if centre in {edge.one, edge.other}:
            words = WORDS[edge.relation][edge.one != centre]
            found.append((words, nodes[edge.other if edge.one == centre else edge.one], edge))
    return found


WORDS = {
    TOGETHER: ("with", "with"),
    Relation.FIXED.value: ("fixed", "fixed by"),
    Relation.DEPENDS_ON.value: ("depends on", "needed by"),
}
"""Relation -> its words, from the first thing and from the second."""
