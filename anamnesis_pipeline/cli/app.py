"""The `anamnesis` command: thin calls into the commands, the supervisor and search.

Commands work on the memory in `ANAMNESIS_HOME` and ask its running service where there is one. Exit status: 0 if all
went well, 1 if the command failed, found nothing, or found something wrong (the message is on stderr), 2 if an argument
or option is invalid.

Times are in the local zone: a day, month or moment (`2026-03-14`, `2026-02`, `2026-03-14T09:00`) or a word such as
`yesterday`. `--since` is inclusive, `--until` is exclusive, and a day or month stands for its first moment. Text of
private projects is left out unless `--project` names one or `--private` is given; `search` and `sessions` include the
private project of the current folder. `--json` prints JSON instead of text.
"""

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
from anamnesis_pipeline.cli import asking as asking_command
from anamnesis_pipeline.cli import config as config_command
from anamnesis_pipeline.cli import doctor as doctor_command
from anamnesis_pipeline.cli import dream as dream_command
from anamnesis_pipeline.cli import exclude as exclude_command
from anamnesis_pipeline.cli import forget as forget_command
from anamnesis_pipeline.cli import ingest as ingest_command
from anamnesis_pipeline.cli import model as model_command
from anamnesis_pipeline.cli import projects as projects_command
from anamnesis_pipeline.cli import redact as redact_command
from anamnesis_pipeline.cli import reembed as reembed_command
from anamnesis_pipeline.cli import search as search_command
from anamnesis_pipeline.cli import status as status_command
from anamnesis_pipeline.cli import summaries as summaries_command
from anamnesis_pipeline.cli.archive import archive_app
from anamnesis_pipeline.cli.asking import blame, fix, how
from anamnesis_pipeline.cli.codebase import codebase as codebase_command
from anamnesis_pipeline.cli.copies import backup, migrate, restore
from anamnesis_pipeline.cli.drift import drift as drift_command
from anamnesis_pipeline.cli.entities import entities as entities_command
from anamnesis_pipeline.cli.entities import entity as entity_command
from anamnesis_pipeline.cli.exporting import export, import_file
from anamnesis_pipeline.cli.gc import gc
from anamnesis_pipeline.cli.install import install as install_command
from anamnesis_pipeline.cli.install import uninstall as uninstall_command
from anamnesis_pipeline.cli.rebuild import rebuild as rebuild_command
from anamnesis_pipeline.cli.reembed import Answer
from anamnesis_pipeline.cli.remember import note, remember
from anamnesis_pipeline.cli.search import queries as queries_command
from anamnesis_pipeline.cli.sessions import remember_shown
from anamnesis_pipeline.cli.sessions import sessions as sessions_command
from anamnesis_pipeline.cli.sessions import show as show_command
from anamnesis_pipeline.cli.sources import sources_app
from anamnesis_pipeline.cli.topics import lessons as lessons_command
from anamnesis_pipeline.cli.topics import topics as topics_command
from anamnesis_pipeline.cli.up import Up, run_demo
from anamnesis_pipeline.cli.uploads import upload as upload_command
from anamnesis_pipeline.cli.uploads import uploads_app
from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.runtime.home_wiring import home_problem
from anamnesis_pipeline.runtime.log_roots import examples_advice
from anamnesis_pipeline.runtime.up_lock import settings_in_use
from anamnesis_pipeline.search.query import LISTS, Mode
from anamnesis_pipeline.services.asking import MAX_ITEMS, question_of
from anamnesis_pipeline.services.dagster.api import open_dagster
from anamnesis_pipeline.settings import chosen_home

app = typer.Typer(
    help="Lasting episodic memory for Claude: your Claude Code logs, searchable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(
    help="Show every setting of this shell with its value and its origin; store and remove settings.",
    invoke_without_command=True,
)
app.add_typer(config_app, name="config")
model_app = typer.Typer(
    help="Show the embedding model, its cores, every space with its coverage, and known models; add, use and drop.",
    invoke_without_command=True,
)
app.add_typer(model_app, name="model")
reembed_app = typer.Typer(
    help="Show progress, time left and link of the re-embed; start, pause and resume it.", invoke_without_command=True
)
app.add_typer(reembed_app, name="reembed")
projects_app = typer.Typer(help="List projects, merge and split them.", no_args_is_help=True)
app.add_typer(projects_app, name="projects")
app.add_typer(sources_app, name="sources")
dead_letters_app = typer.Typer(help="Lines of logs that could not be parsed.", no_args_is_help=True)
app.add_typer(dead_letters_app, name="dead-letters")
app.add_typer(exclude_command.app, name="exclude")
app.add_typer(archive_app, name="archive")
app.command("backup")(backup)
app.command("restore")(restore)
app.command("migrate")(migrate)
app.command("export")(export)
app.command("import")(import_file)
app.command("gc")(gc)
app.command("upload")(upload_command)
app.command("remember")(remember)
app.command("note")(note)
app.command("queries")(queries_command)
app.command("rebuild")(rebuild_command)
app.command("sessions")(sessions_command)
app.command("show")(show_command)
app.command("blame")(blame)
app.command("fix")(fix)
app.command("how")(how)
app.command("topics")(topics_command)
app.command("lessons")(lessons_command)
app.command("drift")(drift_command)
app.command("codebase")(codebase_command)
app.command("entities")(entities_command)
app.command("entity")(entity_command)
app.command("install")(install_command)
app.command("uninstall")(uninstall_command)
app.add_typer(uploads_app, name="uploads")
app.add_typer(dream_command.app, name="dream")

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
    """Start the service and Dagster, and keep both running until Ctrl-C; `make up` calls this."""
    settings = settings_file.load()
    if advice := examples_advice(settings.log_roots, settings.home):
        typer.echo(advice)
    raise typer.Exit(Up(settings, Console(highlight=False)).run())


@app.command()
def mcp() -> None:
    """Serve the MCP tools over standard input and output; MCP clients start this command, e.g. `claude mcp add`."""
    os.execv(sys.executable, [sys.executable, "-m", "anamnesis_pipeline.sidecar.mcp.stdio"])


@app.command()
def demo() -> None:
    """Run `anamnesis up` on a temporary home with the bundled example logs; the home is deleted at the end."""
    raise typer.Exit(run_demo(Console(highlight=False)))


@app.command()
def search(
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORDS]", help="Query; omit for interactive mode."),
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, max=100, help="Max results.")] = 5,
    project: Annotated[str | None, typer.Option(help="Only this project; `api` also matches `acme/api`.")] = None,
    instance: Annotated[str | None, typer.Option(help="Only this instance.")] = None,
    since: Annotated[str | None, typer.Option(help="Start time, inclusive (local zone): 2026-02, yesterday.")] = None,
    until: Annotated[str | None, typer.Option(help="End time, exclusive (local zone).")] = None,
    mode: Annotated[Mode, typer.Option(help="Words and meaning, meaning only, or literal text.")] = Mode.HYBRID,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; repeatable (any of them).")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag; repeatable (all of them).")] = None,
    type: Annotated[
        list[str] | None, typer.Option(help="Only what states this, e.g. decision; repeatable (any of them).")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            "--session-id",
            help="Only this session, by its id or a unique prefix of at least 4 characters.",
        ),
    ] = None,
    decay_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="How much age counts: 0, not at all, to 1; default: not at all.")
    ] = None,
    lists: Annotated[
        list[str] | None,
        typer.Option("--list", help=f"Ask only this candidate list; repeatable. One of {', '.join(LISTS)}."),
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="As the memory would have answered then (local zone).")] = None,
    include_superseded: Annotated[
        bool, typer.Option("--include-superseded", help="Include superseded and removed texts.")
    ] = False,
    private: Annotated[bool, typer.Option("--private", help="Include private projects and sources.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Explain the rank of each hit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search the memory. Ask the running service, or the store itself if it is down. Without words on a terminal: read
    one query per line until an empty line. `★` marks a hit that its tags or kind raise besides its words. `blame:
    PATH`, `fix: ERROR` and `how: TASK` are answered as by these commands, in all projects unless `--project` is given.
    Exit status 1: nothing found.
    """

    def answered(words: str) -> bool:
        if (named := question_of(words)) is not None:
            return asking_command.answered(
                *named, project or asking_command.ALL, min(top_k, MAX_ITEMS), private=private, as_json=as_json
            )
        body = search_command.search_body(
            words,
            top_k=top_k,
            mode=mode,
            project=project,
            instance=instance,
            since=since,
            until=until,
            kinds=kind or (),
            tags=tag or (),
            types=type or (),
            session=session,
            decay_weight=decay_weight,
            lists=lists or (),
            as_of=as_of,
            include_superseded=include_superseded,
            private=private,
            explain=explain,
        )
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
    """Show what the memory holds and what is running. Exit status 1: the home cannot be used."""
    found = status_command.gather_status(settings_file.load())
    typer.echo(json.dumps(found, ensure_ascii=False, indent=2) if as_json else status_command.render(found))
    raise typer.Exit(1 if found["home_problem"] else 0)


@app.command()
def ingest() -> None:
    """Read all new logs and documents once, in this process, without Dagster."""
    ingest_command.run_ingest(settings_file.load(), typer.echo)


OnlyProject = Annotated[str | None, typer.Option("--project", help="Only this project; `api` also matches `acme/api`.")]
AtMost = Annotated[int | None, typer.Option("--limit", min=1, help="Max chunks, newest first.")]


@app.command()
def summarize(project: OnlyProject = None, limit: AtMost = None) -> None:
    """Write the missing summaries now, in this process. A paid LLM needs no budget for it."""
    summaries_command.run_summarize(settings_file.load(), typer.echo, project, limit)


@app.command()
def backfill(
    project: OnlyProject = None,
    limit: AtMost = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print their number and the expected cost.")] = False,
) -> None:
    """Summarize again everything that is worth it and was summarized by another model than the present one."""
    summaries_command.run_backfill(settings_file.load(), typer.echo, project=project, limit=limit, dry_run=dry_run)


@app.command()
def value(
    episode_id: Annotated[str, typer.Argument(help="Id of an episode, or a unique prefix.")] = "",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Compute all values again, by the present `value_weights`.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Explain why an exchange is worth an LLM's summary, or not."""
    if recompute:
        changed = summaries_command.recompute_values(settings_file.load())
        typer.echo(json.dumps({"changed": changed}) if as_json else f"{counted(changed, 'episode')} changed")
        return
    if not episode_id:
        raise GiveUp("name an episode, or say --recompute; anamnesis search shows ids")
    body = summaries_command.explain_value(settings_file.load(), episode_id)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else summaries_command.render_value(body))


@app.command()
def doctor(
    start: Annotated[
        bool, typer.Option("--start", help="First start the sensors and schedules of Dagster that are stopped.")
    ] = False,
) -> None:
    """Check Python, home, disk, logs, model, service, Dagster, store, archive, LLMs and coverage, and print what to do
    about each problem. Exit status 1: there is a problem.
    """
    if start:
        started = open_dagster(settings_in_use(settings_file.load())).start_automations()
        typer.echo(f"started: {', '.join(each.name for each in started) or 'nothing was stopped'}")
    findings = doctor_command.examine(settings_file.load())
    typer.echo(doctor_command.render(findings))
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


@app.command()
def forget(
    ids: Annotated[list[str] | None, typer.Option("--id", help="Id of an episode; repeatable.")] = None,
    session: Annotated[
        str | None, typer.Option(help="Id of a session, or a unique prefix of at least 4 characters.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Name of a project.")] = None,
    path: Annotated[str | None, typer.Option(help="File or folder, also as hits name it (machine:/path).")] = None,
    machine: Annotated[
        str | None, typer.Option(help="Only what was read on this machine; copies read elsewhere stay.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Only what was read of this source (`sources list`); copies read elsewhere stay.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Start time, inclusive (local zone): 2026-02, yesterday.")] = None,
    until: Annotated[str | None, typer.Option(help="End time, exclusive (local zone).")] = None,
    query: Annotated[str | None, typer.Option(help="Only texts that contain all of these words.")] = None,
    include_pinned: Annotated[
        bool, typer.Option("--include-pinned", help="Also pinned episodes that no --id names.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it only print what would be removed.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Only finish an interrupted run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove for good: episodes, their chunks and summaries, archived lines, and copies of these. All filters are
    combined with AND. Without `--yes`, only print what would be removed.
    """
    if resume:
        done, problems = forget_command.finish_forgetting(settings_file.load())
        typer.echo("what was interrupted is finished" if done else "nothing was interrupted")
        typer.echo("".join(f"Not done: {problem}\n" for problem in problems), nl=False)
        raise typer.Exit(1 if problems else 0)
    request = forget_command.request_of(
        ids=ids or (),
        session=session,
        project=project,
        path=path,
        machine=machine,
        source=source,
        since=since,
        until=until,
        query=query,
        include_pinned=include_pinned,
    )
    report = forget_command.run_forget(settings_file.load(), request, yes=yes)
    _show((asdict(report), None), lambda _: forget_command.render(report), as_json)
    raise typer.Exit(1 if report.problems else 0)


@app.command()
def redact(
    rescan: Annotated[bool, typer.Option("--rescan", help="Required: mask stored texts again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the secrets.")] = False,
    as_json: AsJson = False,
) -> None:
    """Apply the masking rules of this version to everything stored, the archive included. An interrupted run
    continues.
    """
    if not rescan:
        raise GiveUp("say --rescan: new texts are masked when they are read, and this masks what is stored already")
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
def config_set(
    name: Annotated[str, typer.Argument(help="Name of a setting.")],
    value: Annotated[str, typer.Argument(help="Its value, as the environment would have it.")],
) -> None:
    """Store a setting; it then overrides the environment and `config.toml` (see `lock_env`)."""
    notes = config_command.store_setting(settings_file.load(), name, value)
    typer.echo("\n".join([f"{name} is stored", *notes]))
    if name == "model":
        typer.echo("searches move to it once everything is embedded with it; watch that with: anamnesis reembed")


@config_app.command("unset")
def config_unset(name: Annotated[str, typer.Argument(help="Name of a setting.")]) -> None:
    """Remove a stored setting, so that environment, `config.toml` or default apply."""
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
    """Show the same as `anamnesis model`."""
    _show(model_command.describe(settings_file.load()), model_command.render, as_json)


@model_app.command("add")
def model_add(
    model_id: Annotated[str, typer.Argument(help="Name of a known model, a sentence-transformers id or a path.")],
) -> None:
    """Create a space for a model, without embedding anything yet; the Dagster UI can then fill it as a backfill."""
    space = model_command.add(settings_file.load(), model_id)
    typer.echo(f"{space.key} is {space.status}. Embed everything with it: anamnesis model use {space.key}")


@model_app.command("use")
def model_use(name: Annotated[str, typer.Argument(help="Name of a model, or key of a space.")]) -> None:
    """Answer searches with a model or a space: at once if it is complete, else once all passages are embedded. The
    active space ends a re-embed.
    """
    _show(model_command.use(settings_file.load(), name), model_command.render_started)


@model_app.command("drop")
def model_drop(key: Annotated[str, typer.Argument(help="Key of a space (`anamnesis model`).")]) -> None:
    """Delete a space and its vectors; not the active one."""
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the passages.")] = False,
) -> None:
    """Embed everything again in a new space; the active space answers searches meanwhile."""
    if dry_run:
        typer.echo(reembed_command.count(settings_file.load(), model_id))
    else:
        _show(reembed_command.start(settings_file.load(), model_id), model_command.render_started)


@reembed_app.command("pause")
def reembed_pause() -> None:
    """Pause the re-embed within one checkpoint; embedded passages are kept."""
    _show(reembed_command.pause(settings_file.load()), reembed_command.render)


@reembed_app.command("resume")
def reembed_resume() -> None:
    """Continue a paused re-embed."""
    _show(reembed_command.resume(settings_file.load()), reembed_command.render)


@reembed_app.command("status")
def reembed_status(as_json: AsJson = False) -> None:
    """Show the same as `anamnesis reembed`."""
    _show(reembed_command.status(settings_file.load()), reembed_command.render, as_json)


@projects_app.command("list")
def projects_list(
    private: Annotated[bool, typer.Option("--private", help="Include private projects.")] = False,
) -> None:
    """List projects with their episodes and other names, and projects that seem to be worktrees of one repository
    whose folders are gone.
    """
    typer.echo(projects_command.listed(settings_file.load(), private=private))


@projects_app.command("join")
def projects_join(
    target: Annotated[
        str, typer.Argument(metavar="REPOSITORY", help="Repository that `projects list` offers, or part of its name.")
    ],
    undo: Annotated[bool, typer.Option("--undo", help="Undo a merge.")] = False,
) -> None:
    """Merge the worktrees of a repository, whose folders are gone, into it."""
    typer.echo(projects_command.join(settings_file.load(), target, undo=undo))


@projects_app.command("alias")
def projects_alias(
    name: Annotated[str, typer.Argument(metavar="FROM", help="Project to rename.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Project that it becomes part of.")],
) -> None:
    """Merge a project into another: stored episodes and future ones."""
    typer.echo(projects_command.alias(settings_file.load(), name, target))


@projects_app.command("unalias")
def projects_unalias(name: Annotated[str, typer.Argument(metavar="FROM", help="Project that was merged.")]) -> None:
    """Give a merged project its own name back."""
    typer.echo(projects_command.unalias(settings_file.load(), name))


@dead_letters_app.command("list")
def dead_letters_list() -> None:
    """List the lines with their place and the reason."""
    typer.echo(ingest_command.render_letters(*ingest_command.dead_letters(settings_file.load())))


@dead_letters_app.command("retry")
def dead_letters_retry() -> None:
    """Parse the lines again with this version, after an upgrade, and publish those that can be parsed."""
    ingest_command.retry_letters(settings_file.load(), typer.echo)


def _show(answer: Answer, render: Callable[[Any], str], as_json: bool = False) -> None:
    body, remark = answer
    if remark:
        typer.echo(f"anamnesis: {remark}; asked the store itself", err=True)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))
