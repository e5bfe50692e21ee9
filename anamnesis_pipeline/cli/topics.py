"""`anamnesis topics` and `anamnesis lessons`: what holds of a project, and its index for Claude Code."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored
from anamnesis_pipeline.cli.search import no_project, private_here
from anamnesis_pipeline.cli.sessions import AsJson
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.text.wording import counted, one_line, printable, project_name
from anamnesis_pipeline.services.topics import (
    LessonOut,
    TopicOut,
    TopicsOut,
    held_of,
    indexed,
    open_topics,
    topics_body,
    write_indexes,
)
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings

Project = Annotated[str, typer.Argument(metavar="[PROJECT]", help="Default: all; `api` also means `acme/api`.")]
Private = Annotated[bool, typer.Option("--private", help="Include private projects and sources.")]
HISTORY_SHOWN = 10


def topics(
    project: Project = "",
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Topic to read, e.g. deploys.")] = "",
    write_index: Annotated[
        bool, typer.Option("--write-index", help="Write MEMORY.md for Claude Code, beside what you wrote there.")
    ] = False,
    private: Private = False,
    as_json: AsJson = False,
) -> None:
    """List topics, what each is for, how old it is and where; with NAME, read one, and what it said before."""
    settings = settings_file.load()
    body = _body(settings, project, name, private=private)
    if name and not body["topics"]:
        raise GiveUp(f"{project} has no topic {name!r}; those that there are: anamnesis topics {project}")
    if write_index:
        _write_index(settings, project, private=private)
    elif as_json:
        typer.echo(json.dumps(body, ensure_ascii=False, indent=2))
    else:
        typer.echo("\n".join(read_lines(body["topics"]) if name else list_lines(body)))


def lessons(project: Project = "", private: Private = False, as_json: AsJson = False) -> None:
    """List what went wrong before, what fixed it, and what to check before similar work."""
    found = _body(settings_file.load(), project, "", private=private)["lessons"]
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        typer.echo("\n".join(line for each in found for line in lesson_lines(each)) or "No lesson yet.")


def list_lines(body: TopicsOut) -> Iterator[str]:
    """Yield the lines of a list. Pure."""
    if not body["topics"] and not body["pinned"] and not body["pointers"]:
        yield "No topic yet. A topic is a file memory/topics/NAME.md beside the logs; `anamnesis dream` proposes some."
        return
    for each in body["topics"]:
        facts = [counted(each["entries"], "entry", "entries"), counted(len(each["sources"]), "source"), _age(each)]
        yield one_line(f"{project_name(each['project'])}  {each['title']}  ({', '.join(facts)})")
        if each["purpose"]:
            yield one_line(f"   {each['purpose']}")
        yield one_line(f"   {each['machine']}:{each['path']}")
    for pinned in body["pinned"]:
        yield one_line(f"pinned in {project_name(pinned['project'])}: {pinned['text']}")
    for pointer in body["pointers"]:
        place = f"{pointer['machine']}:{pointer['path']}" if pointer["machine"] else pointer["path"]
        about = f": {pointer['description']}" if pointer["description"] else ""
        yield one_line(f"pointer {pointer['keyword']} ({pointer['category']}) → {place}{about}")


def read_lines(found: list[TopicOut]) -> Iterator[str]:
    """Yield the text of topics, and what they said before. Pure."""
    for each in found:
        yield one_line(f"{project_name(each['project'])}, {each['machine']}:{each['path']}, {_age(each)}")
        yield from ("", printable(each["text"] or "").rstrip("\n"))
        if each["history"]:
            yield from ("", "What it said before:")
        for former in (each["history"] or [])[:HISTORY_SHOWN]:
            yield one_line(f"- until {(former['superseded_at'] or '?')[:10]}: {former['summary'][:100]}")
            yield one_line(f"  {former['episode_id']}")


def lesson_lines(lesson: LessonOut) -> Iterator[str]:
    """Yield the lines of a lesson. Pure."""
    days = sorted(source["day"] for source in lesson["sources"] if source["day"])
    yield one_line(f"{project_name(lesson['project'])}  {lesson['goes_wrong']}{f'  ({days[-1]})' if days else ''}")
    told = (("notice", lesson["notice"]), ("fixed by", lesson["fixed_by"]), ("check first", lesson["check"]))
    for label, text in told:
        if text:
            yield one_line(f"   {label}: {text}")


def _age(topic: TopicOut) -> str:
    return "changed today" if not topic["age_days"] else f"unchanged for {counted(topic['age_days'], 'day')}"


def _body(settings: Settings, project: str, name: str, *, private: bool) -> TopicsOut:
    require_stored(settings)
    mention_other_store(settings)
    included = ["*"] if private else private_here(settings)
    with closing(open_to_read(settings)) as store:
        if project and (unknown := no_project(store, project)):
            raise GiveUp(unknown)
        held = held_of(store, what_is_private(store), project, included)
        return topics_body(store, held, settings.machine, datetime.now(UTC), project, name)


def _write_index(settings: Settings, project: str, *, private: bool) -> None:
    with closing(open_to_read(settings)) as store:
        found = indexed(store, what_is_private(store), project, ["*"] if private else private_here(settings))
        if not found:
            typer.echo("Nothing holds yet, so there is no index to write.")
        written = write_indexes(store, open_topics(settings), settings.machine, found, into_memory=True)
    for name, path in written.items():
        is_home = path.is_relative_to(settings.topics_dir)
        only = "  (Claude Code has no memory of this project here and does not read this file)" if is_home else ""
        typer.echo(f"{project_name(name)}: {path}{only}")
