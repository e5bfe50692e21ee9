"""The commands `anamnesis sources ...`: their arguments; what they do is in `sources.py`."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.commands import sources as sources_command

sources_app = typer.Typer(help="What is crawled, on this machine and on others.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@sources_app.command("list")
def sources_list(as_json: AsJson = False) -> None:
    """Every source, how it is doing, and which machines are away."""
    _show(sources_command.run_list(settings_file.load()), sources_command.render_list, as_json)


Patterns = Annotated[list[str] | None, typer.Option(help="As in a .gitignore, relative to the root; may be repeated.")]


@sources_app.command("add")
def sources_add(
    place: Annotated[
        str, typer.Argument(metavar="[USER@HOST:]ROOT", help="Without a root: what Claude Code keeps there.")
    ],
    kind: Annotated[str, typer.Option(help="logs, documents, or auto: what the root holds.")] = "auto",
    name: Annotated[str, typer.Option(help="Of the source; else of machine and folder.")] = "",
    machine: Annotated[str, typer.Option(help="Its name in results; else the host's.")] = "",
    include: Patterns = None,
    exclude: Patterns = None,
    project: Annotated[str, typer.Option(help="Of all documents in it; else as their repository is called.")] = "",
    instance: Annotated[str, typer.Option(help="Of all documents in it.")] = "",
    interval: Annotated[int | None, typer.Option(help="Seconds between two looks; at least 30.")] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Hide its text unless it is named; send it to no LLM elsewhere.")
    ] = False,
    max_mb: Annotated[
        float, typer.Option(min=0.001, max=1024, help="Largest text file; others 50 times as much.")
    ] = 1.0,
    no_test: Annotated[bool, typer.Option("--no-test", help="Add it without asking its machine.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the source of that name or place, which keeps its name.")
    ] = False,
) -> None:
    """Crawl logs or documents of this machine or, over SSH, of another one."""
    wish = sources_command.Wish(
        place, kind, name, machine, include or (), exclude or (), project, instance, interval, private, max_mb, replace
    )
    sources_command.run_add(settings_file.load(), wish, typer.echo, test=not no_test)


@sources_app.command("test")
def sources_test(
    source: Annotated[str, typer.Argument(metavar="NAME or PLACE", help="A source, or [USER@HOST:]ROOT.")],
    as_json: AsJson = False,
) -> None:
    """What would be crawled, and what is left out and why; nothing is stored. Exit status 1 when it does not work."""
    found = sources_command.run_test(settings_file.load(), source)
    _show(found, sources_command.render_trials, as_json)
    raise typer.Exit(0 if all(trial["ok"] for trial in found["trials"]) else 1)


@sources_app.command("remove")
def sources_remove(name: str) -> None:
    """Stop crawling a source; what was read of it stays."""
    typer.echo(sources_command.run_remove(settings_file.load(), name))


def _show(body: Mapping[str, Any], render: Callable[[Mapping[str, Any]], str], as_json: bool) -> None:
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))
