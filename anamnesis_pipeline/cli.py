"""The `anamnesis` command: thin calls into the commands, the supervisor and search."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.commands import config as config_command
from anamnesis_pipeline.commands import dead_letters as dead_letters_command
from anamnesis_pipeline.commands import doctor as doctor_command
from anamnesis_pipeline.commands import exclude as exclude_command
from anamnesis_pipeline.commands import forget as forget_command
from anamnesis_pipeline.commands import model as model_command
from anamnesis_pipeline.commands import projects as projects_command
from anamnesis_pipeline.commands import redact as redact_command
from anamnesis_pipeline.commands import reembed as reembed_command
from anamnesis_pipeline.commands import search as search_command
from anamnesis_pipeline.commands import status as status_command
from anamnesis_pipeline.commands import summaries as summaries_command
from anamnesis_pipeline.commands.archive import archive_app
from anamnesis_pipeline.commands.backup import backup, restore
from anamnesis_pipeline.commands.demo import run_demo
from anamnesis_pipeline.commands.embedding_calls import Answer
from anamnesis_pipeline.commands.exporting import export, import_file
from anamnesis_pipeline.commands.ingest import run_ingest
from anamnesis_pipeline.commands.install import install as install_command
from anamnesis_pipeline.commands.install import uninstall as uninstall_command
from anamnesis_pipeline.commands.migrate import migrate
from anamnesis_pipeline.commands.queries import queries as queries_command
from anamnesis_pipeline.commands.sessions import remember_shown
from anamnesis_pipeline.commands.sessions import sessions as sessions_command
from anamnesis_pipeline.commands.sessions import show as show_command
from anamnesis_pipeline.commands.sources_app import sources_app
from anamnesis_pipeline.commands.upload import upload as upload_command
from anamnesis_pipeline.commands.uploads import uploads_app
from anamnesis_pipeline.dagster_api.api import open_dagster
from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.home_wiring import home_problem
from anamnesis_pipeline.mcp_server.stdio import main as serve_mcp
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.setting_places import chosen_home
from anamnesis_pipeline.supervisor.log_roots import examples_advice
from anamnesis_pipeline.supervisor.up import run_up
from anamnesis_pipeline.supervisor.up_lock import settings_in_use

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
projects_app = typer.Typer(help="List projects, and say which are one and the same.", no_args_is_help=True)
app.add_typer(projects_app, name="projects")
app.add_typer(sources_app, name="sources")
dead_letters_app = typer.Typer(help="Lines of logs that could not be read.", no_args_is_help=True)
app.add_typer(dead_letters_app, name="dead-letters")
app.add_typer(exclude_command.app, name="exclude")
app.add_typer(archive_app, name="archive")
app.command("backup")(backup)
app.command("restore")(restore)
app.command("migrate")(migrate)
app.command("export")(export)
app.command("import")(import_file)
app.command("upload")(upload_command)
app.command("queries")(queries_command)
app.command("sessions")(sessions_command)
app.command("show")(show_command)
app.command("install")(install_command)
app.command("uninstall")(uninstall_command)
app.add_typer(uploads_app, name="uploads")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """Entry point: an expected error is one clear message on stderr and exit status 1."""
    try:
        app()
    except AnamnesisError as exc:
        typer.echo(f"anamnesis: {exc}", err=True)
        sys.exit(1)
    except OSError as exc:
        if exc.filename is None:
            raise
        typer.echo(f"anamnesis: {exc.filename} cannot be read or written ({exc.strerror})", err=True)
        sys.exit(1)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"anamnesis {version('anamnesis')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    home = chosen_home()
    needs_home = context.invoked_subcommand not in ("doctor", "demo")
    if needs_home and not os.path.isdir(home) and (problem := home_problem(home)):
        raise GiveUp(problem)


@app.command()
def up() -> None:
    """Start the sidecar and Dagster, and keep both running until Ctrl-C."""
    settings = settings_file.load()
    if advice := examples_advice(settings.log_roots, settings.home):
        typer.echo(advice)
    raise typer.Exit(run_up(settings, Console(highlight=False)))


@app.command()
def mcp() -> None:
    """Serve the memory to an MCP client over standard input and output; `claude mcp add` names this command."""
    raise typer.Exit(serve_mcp())


@app.command()
def demo() -> None:
    """The same on a temporary home with the bundled example logs."""
    raise typer.Exit(run_demo(Console(highlight=False)))


@app.command()
def search(
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORDS]", help="What to look for, in your own words; none: asks, one line at a time."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Most results to show.")] = 5,
    project: Annotated[str | None, typer.Option(help="Only this project; `api` also means `acme/api`.")] = None,
    instance: Annotated[str | None, typer.Option(help="Only this instance.")] = None,
    since: Annotated[str | None, typer.Option(help="From this time on (local zone): 2026-02, yesterday.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time (local zone).")] = None,
    mode: Annotated[Mode, typer.Option(help="Words and meaning, meaning only, or literal tokens.")] = Mode.HYBRID,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; may be repeated.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag; repeated: with all.")] = None,
    include_superseded: Annotated[
        bool, typer.Option("--include-superseded", help="Also what something newer replaced, or is gone.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Also what is private elsewhere; without it only --project names it.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Also why each hit stands where it does.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search the memory: asks the running sidecar, else the store itself. Exit status 1: nothing was found."""

    def answered(words: str) -> bool:
        body = search_command.search_body(
            words, top_k=top_k, mode=mode, project=project, instance=instance, since=since, until=until,
            kinds=kind or (), tags=tag or (), include_superseded=include_superseded, private=private,
            explain=explain,
        )  # fmt: skip
        settings = settings_file.load()
        answer, remark = search_command.search(settings, body)
        remember_shown(settings, answer)
        if remark:
            typer.echo(f"anamnesis: {remark}", err=True)
        shown = json.dumps(answer, ensure_ascii=False, indent=2) if as_json else search_command.render(answer)
        typer.echo(shown, color=False if os.environ.get("NO_COLOR") else None)
        return bool(answer["results"])

    if query:
        raise typer.Exit(0 if answered(" ".join(query)) else 1)
    search_command.converse(answered)


@app.command()
def status(as_json: AsJson = False) -> None:
    """What the memory holds, and what is running; exit status 1 when the home cannot be used."""
    found = status_command.gather_status(settings_file.load())
    typer.echo(json.dumps(found, ensure_ascii=False, indent=2) if as_json else status_command.render(found))
    raise typer.Exit(1 if found["home_problem"] else 0)


@app.command()
def ingest() -> None:
    """Read everything new in all logs once, in this process, without Dagster."""
    run_ingest(settings_file.load(), typer.echo)


OnlyProject = Annotated[str | None, typer.Option("--project", help="Only this project; `api` also means `acme/api`.")]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many parts, the newest.")]


@app.command()
def summarize(project: OnlyProject = None, limit: AtMost = None) -> None:
    """Make the summaries that are missing, here and now; a paid LLM needs no budget for it."""
    summaries_command.run_summarize(settings_file.load(), typer.echo, project, limit)


@app.command()
def backfill(
    project: OnlyProject = None,
    limit: AtMost = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
) -> None:
    """Have everything summarized anew that another model than the present one summarized."""
    summaries_command.run_backfill(settings_file.load(), typer.echo, project=project, limit=limit, dry_run=dry_run)


@app.command()
def value(episode_id: str, as_json: AsJson = False) -> None:
    """Why an exchange of a log is worth an LLM's summary, or not."""
    body = summaries_command.explain_value(settings_file.load(), episode_id)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else summaries_command.render_value(body))


@app.command()
def doctor(
    start: Annotated[bool, typer.Option("--start", help="First start sensors and schedules that are stopped.")] = False,
) -> None:
    """Say what is wrong and what to do; exit status 1 when something is."""
    if start:
        started = open_dagster(settings_in_use(settings_file.load())).start_automations()
        typer.echo(f"started: {', '.join(each.name for each in started) or 'nothing was stopped'}")
    findings = doctor_command.examine(settings_file.load())
    typer.echo(doctor_command.render(findings))
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


@app.command()
def forget(
    ids: Annotated[list[str] | None, typer.Option("--id", help="An episode; may be repeated.")] = None,
    session: Annotated[str | None, typer.Option(help="Everything of a session; a unique beginning will do.")] = None,
    project: Annotated[str | None, typer.Option(help="Everything of a project.")] = None,
    path: Annotated[str | None, typer.Option(help="A file, or those in a folder; also as search shows it.")] = None,
    machine: Annotated[str | None, typer.Option(help="What was read on this machine.")] = None,
    source: Annotated[str | None, typer.Option(help="What was read of a source; `sources list` names all.")] = None,
    since: Annotated[str | None, typer.Option(help="From this time on (local zone): 2026-02, yesterday.")] = None,
    until: Annotated[str | None, typer.Option(help="Before this time (local zone).")] = None,
    query: Annotated[str | None, typer.Option(help="What holds every one of these words.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without, only say what would go.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Only finish what was interrupted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove for good: episodes, what they were made of, archived lines and their copies. All filters must hold."""
    if resume:
        done, problems = forget_command.finish_forgetting(settings_file.load())
        typer.echo("what was interrupted is finished" if done else "nothing was interrupted")
        typer.echo("".join(f"Not done: {problem}\n" for problem in problems), nl=False)
        raise typer.Exit(1 if problems else 0)
    request = forget_command.request_of(
        ids=ids or (), session=session, project=project, path=path, machine=machine, source=source, since=since,
        until=until, query=query,
    )  # fmt: skip
    report = forget_command.run_forget(settings_file.load(), request, yes=yes)
    _show((asdict(report), None), lambda _: forget_command.render(report), as_json)
    raise typer.Exit(1 if report.problems else 0)


@app.command()
def redact(
    rescan: Annotated[bool, typer.Option("--rescan", help="Mask what is stored by the rules of this version.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: AsJson = False,
) -> None:
    """Apply today's rules for secrets to everything that is stored, archive included."""
    if not rescan:
        raise GiveUp("say --rescan: what is read is masked by itself, and this masks what is stored already")
    report = redact_command.run_rescan(
        settings_file.load(), dry_run=dry_run, say=lambda text: typer.echo(text, err=True)
    )
    _show((asdict(report), None), lambda _: redact_command.render(report), as_json)
    if report.problems:
        raise typer.Exit(1)


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


@config_app.command("set", context_settings={"ignore_unknown_options": True})  # -5 is a value, if a wrong one
def config_set(name: str, value: str) -> None:
    """Store a setting; it then wins over environment and file."""
    notes = config_command.store_setting(settings_file.load(), name, value)
    typer.echo("\n".join([f"{name} is stored", *notes]))
    if name == "model":
        typer.echo("searches move to it once everything is embedded with it; watch that with: anamnesis reembed")


@config_app.command("unset")
def config_unset(name: str) -> None:
    """Forget a stored setting."""
    had, reload = config_command.unstore_setting(settings_file.load(), name)
    typer.echo(f"{name} is no longer stored" if had else f"{name} was not stored")
    if reload:
        typer.echo(reload)


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


@projects_app.command("list")
def projects_list(
    private: Annotated[bool, typer.Option("--private", help="Also what is private.")] = False,
) -> None:
    """Every project with its episodes and other names, and which seem to be worktrees of one repository."""
    typer.echo(projects_command.listed(settings_file.load(), private=private))


@projects_app.command("join")
def projects_join(
    target: Annotated[
        str, typer.Argument(metavar="REPOSITORY", help="A repository that `projects list` offers, or part of its name.")
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Give its worktrees their own names back.")] = False,
) -> None:
    """Merge the worktrees whose folders are gone into their repository."""
    typer.echo(projects_command.join(settings_file.load(), target, undo=undo))


@projects_app.command("alias")
def projects_alias(
    name: Annotated[str, typer.Argument(metavar="FROM", help="The project that is to have another name.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The project that it belongs to.")],
) -> None:
    """Merge a project into another: what is stored, and what comes."""
    typer.echo(projects_command.alias(settings_file.load(), name, target))


@projects_app.command("unalias")
def projects_unalias(name: Annotated[str, typer.Argument(metavar="FROM", help="A project that was merged.")]) -> None:
    """Give a project its own name back."""
    typer.echo(projects_command.unalias(settings_file.load(), name))


@dead_letters_app.command("list")
def dead_letters_list() -> None:
    """Where they are, and why they could not be read."""
    typer.echo(dead_letters_command.render(*dead_letters_command.letters(settings_file.load())))


@dead_letters_app.command("retry")
def dead_letters_retry() -> None:
    """Read them again with this version, and publish what can be read now."""
    dead_letters_command.retry(settings_file.load(), typer.echo)


def _show(answer: Answer, render: Callable[[Any], str], as_json: bool = False) -> None:
    body, remark = answer
    if remark:
        typer.echo(f"anamnesis: {remark}; asked the store itself", err=True)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))


if __name__ == "__main__":
    main()
