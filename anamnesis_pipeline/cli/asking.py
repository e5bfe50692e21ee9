"""`anamnesis blame`, `fix` and `how`: who changed a file and why, what ended an error, how something is run here."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored
from anamnesis_pipeline.cli.search import no_project
from anamnesis_pipeline.cli.sessions import AsJson
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.text.wording import printable
from anamnesis_pipeline.services.asking import (
    DEFAULT_ITEMS,
    MAX_ASKED_CHARS,
    MAX_ITEMS,
    Asked,
    Asking,
    blocks_of,
)
from anamnesis_pipeline.services.folder_project import current_project
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings

ALL = "all"
MAX_LINE_CHARS = 400

OfProject = Annotated[
    str | None,
    typer.Option("--project", help="Only this project; `all`: every one. Default: that of the current folder."),
]
AtMost = Annotated[int, typer.Option("--limit", min=1, max=MAX_ITEMS, help="Max items.")]
WithPrivate = Annotated[bool, typer.Option("--private", help="Include private projects and sources.")]


def blame(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A path, the end of one, or the name of a symbol.")],
    project: OfProject = None,
    limit: AtMost = DEFAULT_ITEMS,
    private: WithPrivate = False,
    as_json: AsJson = False,
) -> None:
    """Tell which sessions changed a file or symbol, and why, newest first, with what was decided and rejected there.
    Exit status 1: none did.
    """
    _run(Asked.BLAME, path, project, limit, private=private, as_json=as_json)


def fix(
    error: Annotated[
        str | None, typer.Argument(metavar="[ERROR]", help="An error, or an output with one; omit to read stdin.")
    ] = None,
    project: OfProject = None,
    limit: AtMost = DEFAULT_ITEMS,
    private: WithPrivate = False,
    as_json: AsJson = False,
) -> None:
    """Tell where an error occurred before, what was tried, and what ended it. Exit status 1: it is not recorded."""
    if error is None and sys.stdin.isatty():
        raise GiveUp('say which error: anamnesis fix "ERROR", or pipe the output of a command into it')
    text = sys.stdin.read(MAX_ASKED_CHARS) if error is None else error
    _run(Asked.FIX, text, project, limit, private=private, as_json=as_json)


def how(
    task: Annotated[list[str], typer.Argument(metavar="WORDS", help="A command, or a task in words.")],
    project: OfProject = None,
    limit: AtMost = DEFAULT_ITEMS,
    private: WithPrivate = False,
    as_json: AsJson = False,
) -> None:
    """Tell how a command or task was run here with success, and which runs never succeeded. Exit status 1: none did."""
    _run(Asked.HOW, " ".join(task), project, limit, private=private, as_json=as_json)


def render(kind: Asked, body: Mapping[str, Any]) -> str:
    """Render an answer. Pure."""
    blocks = [
        [one_line(f"{line.ours}: {line.quote}" if line.quote else line.ours) for line in block]
        for block in blocks_of(kind, body)
    ]
    return "\n\n".join("\n".join([first, *(f"   {line}" for line in rest)]) for first, *rest in blocks)


def one_line(text: str) -> str:
    """Return a text on one line, shortened."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= MAX_LINE_CHARS else f"{flat[: MAX_LINE_CHARS - 1]}…"


def _run(kind: Asked, asked: str, project: str | None, limit: int, *, private: bool, as_json: bool) -> None:
    raise typer.Exit(0 if answered(kind, asked, project, limit, private=private, as_json=as_json) else 1)


def answered(kind: Asked, asked: str, project: str | None, limit: int, *, private: bool, as_json: bool) -> bool:
    """Print the answer to a question by thing. Return whether something is recorded.

    :param project: `all`: every one; None: that of the current folder.
    :raises GiveUp: the question is empty, or no project has this name.
    """
    if not asked.strip():
        raise GiveUp("the question is empty: name a file, an error or a task")
    settings = settings_file.load()
    require_stored(settings)
    mention_other_store(settings)
    body = _body(settings, kind, asked[:MAX_ASKED_CHARS], project, limit, private=private)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(kind, body))
    return bool(body["items"])


def _body(
    settings: Settings, kind: Asked, asked: str, project: str | None, limit: int, *, private: bool
) -> Mapping[str, Any]:
    with closing(open_to_read(settings)) as store:
        hidden = what_is_private(store)
        here = current_project(store, os.getcwd(), settings.machine, hidden)
        if project and project != ALL and (unknown := no_project(store, project)):
            raise GiveUp(unknown)
        own = here.project if here.known and here.project else None
        included = ["*"] if private else list(filter(None, [own, *here.private_sources]))
        named = None if project == ALL else project or own
        if project and project != ALL and not private:
            included = []
        asking = Asking(store, hidden, settings.machine)
        return asking.answer(kind, asked, asking.where(named, included), limit)
