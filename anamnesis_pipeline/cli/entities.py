"""`anamnesis entities` and `anamnesis entity`: things that sessions and texts touch or name, and what they have to do
with each other.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.asking import ALL
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored
from anamnesis_pipeline.cli.search import no_project, private_here
from anamnesis_pipeline.cli.sessions import AsJson
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.text.wording import counted, local_time, one_line, project_name
from anamnesis_pipeline.services.entities import find_thing, graph_of, groups, list_things, where_of
from anamnesis_pipeline.services.entity_bodies import (
    EntitiesOut,
    EntityGraphOut,
    EntityTimelineOut,
    GroupsOut,
    ThingOut,
    entities_body,
    graph_body,
    groups_body,
    timeline_body,
)
from anamnesis_pipeline.services.things import Where
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import EntityKind

Kind = Annotated[EntityKind | None, typer.Option(help="Only of this kind.")]
Project = Annotated[
    str, typer.Option(help="Only of this project; `api` also means `acme/api`. Default, and `all`: every one.")
]
Private = Annotated[bool, typer.Option("--private", help="Include private projects and sources.")]
SHOWN_EPISODES = 20
SHOWN_EDGES = 40
SHOWN_OF_GROUP = 12


def entities(
    query: Annotated[str, typer.Argument(metavar="[QUERY]", help="Words of names; default: all.")] = "",
    kind: Kind = None,
    project: Project = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="Max things.")] = 30,
    groups_only: Annotated[bool, typer.Option("--groups", help="Show which things belong together instead.")] = False,
    private: Private = False,
    as_json: AsJson = False,
) -> None:
    """List files, commands, errors, hosts, packages and other things, those with the most mentions first. Exit status
    1: nothing found.
    """
    with closing(open_to_read(_ready())) as store:
        where = _where(store, project, private=private)
        grouped = groups_body(groups(store, where)) if groups_only else None
        listed = entities_body(list_things(store, where, query, kind, limit))
    if as_json:
        typer.echo(json.dumps(listed if grouped is None else grouped, ensure_ascii=False, indent=2))
    else:
        of = "" if project == ALL else project
        typer.echo("\n".join(list_lines(listed, query, of) if grouped is None else group_lines(grouped)))
    raise typer.Exit(0 if (listed["items"] if grouped is None else grouped["groups"]) else 1)


def entity(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name or alias, or the end of a path.")],
    graph: Annotated[bool, typer.Option("--graph", help="Show what it has to do with others, two steps far.")] = False,
    kind: Kind = None,
    project: Project = "",
    private: Private = False,
    as_json: AsJson = False,
) -> None:
    """Show one thing: its aliases, and the episodes that have it in order of time. Exit status 1: nothing has this
    name.
    """
    with closing(open_to_read(_ready())) as store:
        where = _where(store, project, private=private)
        known = find_thing(store, where, name, kind)
        timeline = timeline_body(known)
        drawn = graph_body(graph_of(store, where, known)) if graph else None
    if as_json:
        told: dict[str, Any] = {**timeline} | ({} if drawn is None else {"graph": drawn})
        typer.echo(json.dumps(told, ensure_ascii=False, indent=2))
    else:
        typer.echo("\n".join([*entity_lines(timeline), *(graph_lines(drawn) if drawn else ())]))


def list_lines(body: EntitiesOut, query: str = "", project: str = "") -> Iterator[str]:
    """Yield the lines of a list. Pure."""
    if not body["items"]:
        none = "Nothing known has these words." if query else f"Nothing is known of {project}." if project else _EMPTY
        yield "Nothing of this kind; there are:" if body["kinds"] else none
    elif body["is_close"]:
        yield "Nothing has these words; similar names:"
    for each in body["items"]:
        where = project_name(each["projects"][0]) if len(each["projects"]) == 1 else f"{len(each['projects'])} projects"
        yield one_line(f"{each['kind']:8} {_name(each)}  ({counted(each['mentions'], 'mention')}, {where})")
    if body["kinds"]:
        yield ", ".join(f"{kind} {number:,}" for kind, number in body["kinds"].items())


_EMPTY = "Nothing is known yet: run `anamnesis ingest`."


def entity_lines(body: EntityTimelineOut) -> Iterator[str]:
    """Yield the lines of one thing. Pure."""
    its = body["entity"]
    relations = ", ".join(f"{relation.replace('_', ' ')} {number:,}" for relation, number in body["relations"].items())
    yield one_line(f"{its['kind']} {_name(its)}  ({relations})")
    for alias in its["aliases"]:
        kind = "" if alias["kind"] == its["kind"] else f" ({alias['kind']})"
        yield one_line(f"   also called {alias['name']}{kind} in {project_name(alias['project'])}")
    hidden = len(body["items"]) - SHOWN_EPISODES
    if hidden > 0:
        yield f"   {counted(hidden, 'earlier episode')}: --json"
    for each in body["items"][-SHOWN_EPISODES:]:
        did = ", ".join(each["relations"]).replace("_", " ")
        yield one_line(f"{local_time(each['timestamp'])}  {did}: {each['title']}")
        yield from (one_line(f"   {detail}"[:200]) for detail in each["details"][:1])
        yield f"   {each['episode_id']}"
    if body["others"]:
        others = (f"{each['kind']} {_name(each)}" for each in body["others"])
        yield one_line(f"The name may also mean: {', '.join(others)}")


def graph_lines(body: EntityGraphOut) -> Iterator[str]:
    """Yield the lines of a graph: relations of the thing itself first, the strongest first. Pure."""
    nodes = body["nodes"]
    yield f"{counted(len(nodes) - 1, 'thing')} around it, {counted(len(body['edges']), 'relation')}:"
    own = sorted(body["edges"], key=lambda each: 0 not in (each["source"], each["target"]))
    for each in own[:SHOWN_EDGES]:
        one, other = (f"{nodes[at]['kind']} {_name(nodes[at])}" for at in (each["source"], each["target"]))
        relation = "with" if each["relation"] == "co_occurs" else each["relation"].replace("_", " ")
        yield one_line(f"   {each['strength']:.2f}  {one} {relation} {other}  ({counted(each['evidence'], 'episode')})")


def group_lines(body: GroupsOut) -> Iterator[str]:
    """Yield the lines of groups. Pure."""
    if not body["groups"]:
        yield "No things belong together yet."
    for group in body["groups"]:
        more = f", and {len(group) - SHOWN_OF_GROUP} more" if len(group) > SHOWN_OF_GROUP else ""
        yield one_line(f"{len(group):3}  {', '.join(_name(each) for each in group[:SHOWN_OF_GROUP])}{more}")


def _name(thing: ThingOut) -> str:
    return thing.get("label", thing["name"])


def _ready() -> settings_file.Settings:
    settings = settings_file.load()
    require_stored(settings)
    mention_other_store(settings)
    return settings


def _where(store: Store, project: str, *, private: bool) -> Where:
    """Return where to look.

    :raises GiveUp: no project has this name.
    """
    project = "" if project == ALL else project
    if project and (unknown := no_project(store, project)):
        raise GiveUp(unknown)
    included = ["*"] if private else private_here(settings_file.load())
    return where_of(store, what_is_private(store), project, included)
