"""The commands `anamnesis sources ...`: their arguments; what they do is in `sources.py`."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli import sources as sources_command

sources_app = typer.Typer(help="Sources: what is crawled, on this machine and on others.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@sources_app.command("list")
def sources_list(as_json: AsJson = False) -> None:
    """List sources with their state, and machines that do not answer."""
    _show(sources_command.run_list(settings_file.load()), sources_command.render_list, as_json)


Patterns = Annotated[
    list[str] | None, typer.Option(help="Pattern as in a .gitignore, relative to the root; repeatable.")
]


@sources_app.command("add")
def sources_add(
    place: Annotated[
        str,
        typer.Argument(
            metavar="[USER@HOST:]ROOT",
            help="Folder, on this machine or over SSH; without ROOT: logs and memory of Claude Code on that host.",
        ),
    ],
    kind: Annotated[str, typer.Option(help="`logs`, `documents`, or `auto`: by the content of the folder.")] = "auto",
    name: Annotated[str, typer.Option(help="Name of the source; default: machine and folder.")] = "",
    machine: Annotated[str, typer.Option(help="Name of its machine in results; default: the name of the host.")] = "",
    include: Patterns = None,
    exclude: Patterns = None,
    project: Annotated[
        str, typer.Option(help="Project of all its documents; default: the name of their repository.")
    ] = "",
    instance: Annotated[str, typer.Option(help="Instance of all its documents.")] = "",
    interval: Annotated[
        int | None, typer.Option(help="Polling interval, in seconds (min 30); default: the setting crawl_interval_s.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="Hide its text unless named, and send it to no LLM on another machine.")
    ] = False,
    max_mb: Annotated[
        float, typer.Option(min=0.001, max=1024, help="Max size of a text file, in MB; other formats 50 times as much.")
    ] = 1.0,
    no_test: Annotated[bool, typer.Option("--no-test", help="Add it without a test.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the source of this name or place; it keeps its name.")
    ] = False,
) -> None:
    """Crawl logs or documents of this machine or, over SSH, of another one. The source is tested first, and read at
    once while `anamnesis up` runs.
    """
    wish = sources_command.Wish(
        place, kind, name, machine, include or (), exclude or (), project, instance, interval, private, max_mb, replace
    )
    sources_command.run_add(settings_file.load(), wish, typer.echo, test=not no_test)


@sources_app.command("test")
def sources_test(
    source: Annotated[str, typer.Argument(metavar="NAME or PLACE", help="Name of a source, or [USER@HOST:]ROOT.")],
    as_json: AsJson = False,
) -> None:
    """Show which files would be crawled, and which are left out and why; nothing is stored. Exit status 1: the source
    cannot be read.
    """
    found = sources_command.run_test(settings_file.load(), source)
    _show(found, sources_command.render_trials, as_json)
    raise typer.Exit(0 if all(trial["ok"] for trial in found["trials"]) else 1)


@sources_app.command("remove")
def sources_remove(name: Annotated[str, typer.Argument(help="Name of a source (`sources list`).")]) -> None:
    """Stop crawling a source; its episodes stay."""
    typer.echo(sources_command.run_remove(settings_file.load(), name))


def _show(body: Mapping[str, Any], render: Callable[[Mapping[str, Any]], str], as_json: bool) -> None:
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))
