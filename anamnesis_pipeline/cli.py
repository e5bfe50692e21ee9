"""The `anamnesis` command: thin calls into the commands, the supervisor and search."""

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.commands import config as config_command
from anamnesis_pipeline.commands import doctor as doctor_command
from anamnesis_pipeline.commands import model as model_command
from anamnesis_pipeline.commands import reembed as reembed_command
from anamnesis_pipeline.commands import search as search_command
from anamnesis_pipeline.commands import status as status_command
from anamnesis_pipeline.commands.demo import run_demo
from anamnesis_pipeline.commands.embedding_calls import Answer
from anamnesis_pipeline.commands.ingest import run_ingest
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.supervisor.up import run_up

app = typer.Typer(
    help="Lasting episodic memory for Claude: your Claude Code logs, searchable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Show, store and forget settings.", invoke_without_command=True)
app.add_typer(config_app, name="config")
model_app = typer.Typer(help="List, add, use and drop embedding models.", invoke_without_command=True)
app.add_typer(model_app, name="model")
reembed_app = typer.Typer(help="Embed everything anew, and see how far it is.", invoke_without_command=True)
app.add_typer(reembed_app, name="reembed")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """Entry point: an expected error is one clear message on stderr and exit status 1."""
    try:
        app()
    except AnamnesisError as exc:
        typer.echo(f"anamnesis: {exc}", err=True)
        sys.exit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anamnesis {version('anamnesis')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


@app.command()
def up() -> None:
    """Start the sidecar and Dagster, and keep both running until Ctrl-C."""
    raise typer.Exit(run_up(settings_file.load(), Console(highlight=False)))


@app.command()
def demo() -> None:
    """The same on a temporary home with the bundled example logs."""
    raise typer.Exit(run_demo(Console(highlight=False)))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in your own words.")],
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Most results to show.")] = 5,
    project: Annotated[str | None, typer.Option(help="Only this project; `api` also means `acme/api`.")] = None,
    instance: Annotated[str | None, typer.Option(help="Only this instance.")] = None,
    since: Annotated[str | None, typer.Option(help="Not before this date or time (local zone).")] = None,
    until: Annotated[str | None, typer.Option(help="Before this date or time (local zone).")] = None,
    mode: Annotated[Mode, typer.Option(help="Words and meaning, meaning only, or literal tokens.")] = Mode.HYBRID,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; may be repeated.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag; repeated: with all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search the memory: asks the running sidecar, else the store itself."""
    body = search_command.search_body(
        query, top_k=top_k, mode=mode, project=project, instance=instance, since=since, until=until,
        kinds=kind or (), tags=tag or (),
    )  # fmt: skip
    answer, remark = search_command.search(settings_file.load(), body)
    if remark:
        typer.echo(f"anamnesis: {remark}", err=True)
    typer.echo(json.dumps(answer, ensure_ascii=False, indent=2) if as_json else search_command.render(answer))


@app.command()
def status(as_json: AsJson = False) -> None:
    """What the memory holds, and what is running."""
    found = status_command.gather_status(settings_file.load())
    typer.echo(json.dumps(found, ensure_ascii=False, indent=2) if as_json else status_command.render(found))


@app.command()
def ingest() -> None:
    """Read everything new in all logs once, in this process, without Dagster."""
    run_ingest(settings_file.load(), typer.echo)


@app.command()
def doctor() -> None:
    """Say what is wrong and what to do; exit status 1 when something is."""
    findings = doctor_command.examine(settings_file.load())
    typer.echo(doctor_command.render(findings))
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


@config_app.callback()
def config(context: typer.Context, as_json: AsJson = False) -> None:
    """Every setting with its value and where that came from."""
    if context.invoked_subcommand:
        return
    rows = config_command.setting_rows(settings_file.load())
    if as_json:
        values = {row.name: {"value": config_command.shown_value(row.value), "origin": row.origin} for row in rows}
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    else:
        typer.echo(config_command.render(rows))
        typer.echo(config_command.cores_line(rows))


@config_app.command("set")
def config_set(name: str, value: str) -> None:
    """Store a setting; it then wins over environment and file."""
    config_command.store_setting(settings_file.load(), name, value)
    typer.echo(f"{name} is stored")
    if name == "model":
        typer.echo("searches move to it once everything is embedded with it; watch that with: anamnesis reembed")


@config_app.command("unset")
def config_unset(name: str) -> None:
    """Forget a stored setting."""
    had = config_command.unstore_setting(settings_file.load(), name)
    typer.echo(f"{name} is no longer stored" if had else f"{name} was not stored")


@model_app.callback()
def model(context: typer.Context, as_json: AsJson = False) -> None:
    """The model that is used, on which cores, every space with its coverage, and the models known by name."""
    if not context.invoked_subcommand:
        _show(model_command.describe(settings_file.load()), model_command.render, as_json)


@model_app.command("list")
def model_list(as_json: AsJson = False) -> None:
    """The same."""
    _show(model_command.describe(settings_file.load()), model_command.render, as_json)


@model_app.command("add")
def model_add(model_id: str) -> None:
    """Make a space for a model, without embedding anything yet."""
    space = model_command.add(settings_file.load(), model_id)
    typer.echo(f"{space.key} is {space.status}. Embed everything with it: anamnesis model use {space.key}")


@model_app.command("use")
def model_use(name: Annotated[str, typer.Argument(help="A model, or the key of a space.")]) -> None:
    """Answer searches with a model or from a space: at once when it is complete, else once it is embedded."""
    _show(model_command.use(settings_file.load(), name), model_command.render_started)


@model_app.command("drop")
def model_drop(key: Annotated[str, typer.Argument(help="The key of a space, as `anamnesis model` lists it.")]) -> None:
    """Forget a space and its vectors."""
    model_command.drop(settings_file.load(), key)
    typer.echo(f"{key} is dropped")


@reembed_app.callback()
def reembed(context: typer.Context, as_json: AsJson = False) -> None:
    """How far the re-embed is, how long it still takes, and where to watch it."""
    if not context.invoked_subcommand:
        _show(reembed_command.status(settings_file.load()), reembed_command.render, as_json)


@reembed_app.command("start")
def reembed_start(
    model_id: Annotated[str | None, typer.Option("--model", help="Another model than the active one.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much there is to embed.")] = False,
) -> None:
    """Embed everything anew; searches are answered meanwhile."""
    if dry_run:
        typer.echo(reembed_command.count(settings_file.load(), model_id))
    else:
        _show(reembed_command.start(settings_file.load(), model_id), model_command.render_started)


@reembed_app.command("pause")
def reembed_pause() -> None:
    """Stop within one checkpoint; nothing is lost."""
    _show(reembed_command.pause(settings_file.load()), reembed_command.render)


@reembed_app.command("resume")
def reembed_resume() -> None:
    """Go on with what is left."""
    _show(reembed_command.resume(settings_file.load()), reembed_command.render)


@reembed_app.command("status")
def reembed_status(as_json: AsJson = False) -> None:
    """The same as without a command."""
    _show(reembed_command.status(settings_file.load()), reembed_command.render, as_json)


def _show(answer: Answer, render: Callable[[Any], str], as_json: bool = False) -> None:
    body, remark = answer
    if remark:
        typer.echo(f"anamnesis: {remark}; asked the store itself", err=True)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))


if __name__ == "__main__":
    main()
