"""`anamnesis sources`: what is crawled, trying it, adding and removing it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import tzinfo
from shlex import quote
from typing import Annotated, Any

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import require_searched
from anamnesis_pipeline.errors import BadSetting, GiveUp, HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.parsing.text.wording import counted, local_time, one_line, shown_name
from anamnesis_pipeline.pipeline.source_specs import spec_of_values
from anamnesis_pipeline.runtime.crawler_wiring import open_crawler
from anamnesis_pipeline.runtime.up_lock import is_held, log_roots_in_use, settings_in_use
from anamnesis_pipeline.services.crawler_control import CrawlerControl, source_out, trial_out
from anamnesis_pipeline.services.dagster.api import open_dagster
from anamnesis_pipeline.services.source_trial import Trial, guessed_kind
from anamnesis_pipeline.services.wiring import effective_settings, open_store
from anamnesis_pipeline.settings import MIN_INTERVAL_S, Settings
from anamnesis_pipeline.sources.base import SourceHost
from anamnesis_pipeline.sources.discovery import COWORK, PROJECTS, log_root
from anamnesis_pipeline.sources.specs import (
    CLAUDE_DOCUMENTS,
    CLAUDE_ROOT,
    DOCUMENTS,
    LOGS,
    SourceSpec,
    default_name,
    place_and_root,
    with_machine,
)
from anamnesis_pipeline.store.base import Store

KINDS = {"logs": LOGS, "documents": DOCUMENTS, "auto": ""}
_SHOWN = {LOGS: "logs", DOCUMENTS: "documents"}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """A requested source, as typed. `kind` is one of KINDS."""

    place: str
    kind: str = "auto"
    name: str = ""
    machine: str = ""
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    project: str = ""
    instance: str = ""
    interval_s: int | None = None
    private: bool = False
    max_mb: float = 1.0
    replace: bool = False


def run_list(settings: Settings) -> dict[str, Any]:
    """Return all sources with their state, JSON-ready."""
    with _control(settings) as (control, _, _):
        state = control.status()
        doing = {row["name"]: row for row in state["sources"]}
        return {
            "sources": [{**source, **doing[source["name"]]} for source in control.sources()],
            "hosts": state["hosts"],
            "warnings": control.warnings(),
        }


def run_add(settings: Settings, wish: SourceRequest, say: Say, *, test: bool = True) -> None:
    """Add what `wish` names: of a host without a root, its logs and Claude's own documents.

    :raises BadSetting: it cannot be, or is there already and is not to be replaced.
    :raises GiveUp: it was tried and does not work; nothing was added.
    """
    require_searched(settings)
    with _control(settings, asks_dagster=True) as (control, store, current):
        added: list[str] = []
        tried: list[Trial] = []
        for draft in _drafts(wish, current, store, is_asked=test):
            spec = _named(draft, wish, control.specs())
            if test:
                try:
                    tried.append(control.trial(spec))
                    say(render_trial({**source_out(spec), **trial_out(tried[-1])}))
                except (HostUnreachable, HostRefused, SourceUnreadable) as exc:
                    raise GiveUp(_not_added(f"{spec.name} was not", exc, "--no-test adds")) from exc
            done = "changed" if control.find(spec.name) else "added"
            control.put(spec)
            say(f"{spec.name} is {done}: {_SHOWN[spec.kind]} in {spec.root} of {spec.machine}")
            added.append(spec.name)
        for warning in control.warnings(tried):
            if any(name in warning.split() for name in added):
                say(f"Warning: {warning}")
        if look := control.first_look(added):
            say(f"{' and '.join(added)}: {look['text']}")
            for problem in look["problems"]:
                say(f"  {problem}")


def _named(draft: SourceSpec, wish: SourceRequest, specs: Sequence[SourceSpec]) -> SourceSpec:
    """Return the source with its name; if it replaces another, with name and machine of that one.

    :raises BadSetting: there is one of that name, which is not to be replaced.
    """
    mine = [spec for spec in specs if not spec.is_built_in] if wish.replace else []
    place = (draft.host, draft.root, draft.kind)
    former = next((spec for spec in mine if spec.name == draft.name), None)
    former = former or next((spec for spec in mine if (spec.host, spec.root, spec.kind) == place), None)
    if former is not None:
        keeps_machine = not wish.machine and former.host == draft.host
        return replace(draft, name=former.name, machine=former.machine if keeps_machine else draft.machine)
    taken = {spec.name for spec in specs}
    if draft.name in taken:
        raise BadSetting(f"there is a source {draft.name!r} already; give another --name, or change it with --replace")
    return replace(draft, name=draft.name or default_name(draft.machine, draft.root, draft.kind, taken))


def run_test(settings: Settings, text: str) -> dict[str, Any]:
    """Return what would be crawled of a source, by its name, or of a place; nothing is stored.

    :raises BadSetting: it is neither.
    """
    with _control(settings) as (control, store, current):
        spec = control.find(text)
        specs = [spec] if spec else _drafts(SourceRequest(text), current, store, is_asked=True)
        named = [
            spec if spec.name else replace(spec, name=default_name(spec.machine, spec.root, spec.kind, ()))
            for spec in specs
        ]
        return {"trials": [{**source_out(spec), **control.trial_out(spec)} for spec in named]}


def run_remove(settings: Settings, name: str) -> str:
    """Stop crawling a source; returns what to say.

    :raises BadSetting: none of that name can be removed.
    """
    require_searched(settings)
    with _control(settings) as (control, _, _):
        spec = control.remove(name)
    return (
        f"{name} is crawled no longer; what was read of it stays. To forget it as well: "
        f"anamnesis forget --machine {quote(spec.machine or settings.machine)} --source {quote(name)} "
        f"(see what would go first; it asks for --yes)"
    )


@contextmanager
def _control(settings: Settings, *, asks_dagster: bool = False) -> Iterator[tuple[CrawlerControl, Store, Settings]]:
    with closing(open_store(settings)) as store:
        current = effective_settings(store)
        current = current.model_copy(update={"log_roots": log_roots_in_use(current)})
        runs = asks_dagster and is_held(settings.home / "up.lock")
        dagster = open_dagster(settings_in_use(settings)) if runs else None
        yield CrawlerControl(store, current, dagster), store, current


def _drafts(wish: SourceRequest, settings: Settings, store: Store, *, is_asked: bool) -> list[SourceSpec]:
    """Return the sources that a request means, unnamed if it names none. Query their machine for the kind."""
    host, root = place_and_root(wish.place)
    values = {
        "name": wish.name or "draft",
        "kind": LOGS,
        "root": root or CLAUDE_ROOT,
        "host": host,
        "machine": wish.machine,
        "include": list(wish.include),
        "exclude": list(wish.exclude),
        "project": wish.project,
        "instance": wish.instance,
        "interval_s": wish.interval_s,
        "private": wish.private,
        "max_file_bytes": int(wish.max_mb * (1 << 20)),
    }
    spec = replace(with_machine(spec_of_values(values), settings.machine), name=wish.name)
    if not root:
        documents = f"{spec.name}-memory" if spec.name else ""
        include = spec.include or CLAUDE_DOCUMENTS
        return [
            replace(spec, root=f"{CLAUDE_ROOT}/{PROJECTS}", include=(), exclude=()),
            replace(spec, kind=DOCUMENTS, name=documents, include=include),
        ]
    if wish.kind not in KINDS:
        raise BadSetting(f"--kind is one of {', '.join(KINDS)}, not {wish.kind!r}")
    machine = open_crawler(settings, store, lasting=False).hosts.of_spec(spec) if is_asked else None
    return [_of_kind(spec, KINDS[wish.kind], machine)]


def _of_kind(spec: SourceSpec, kind: str, machine: SourceHost | None) -> SourceSpec:
    """Return the source as logs or documents; without a prompt its name decides.

    :raises GiveUp: its machine does not answer, or its root is no folder there.
    """
    if machine is None:
        looks_like_logs = spec.root.rstrip("/").endswith((f"/{PROJECTS}", f"/{COWORK}", "/.claude"))
        kind = kind or (LOGS if looks_like_logs else DOCUMENTS)
        return replace(spec, kind=kind)
    try:
        kind = kind or guessed_kind(machine, _absolute(machine, spec.root))
    except (HostUnreachable, HostRefused, SourceUnreadable) as exc:
        raise GiveUp(_not_added("Nothing was", exc, "--no-test with --kind logs or documents adds")) from exc
    root = log_root(machine, _absolute(machine, spec.root)) if kind == LOGS else spec.root
    return replace(spec, kind=kind, root=root)


def _not_added(what: str, problem: Exception, how: str) -> str:
    """Describe why a source was not added, with advice."""
    if "not a directory" in str(problem):
        return f"{problem}. {what} added: a source is a folder; name the one around it, with --include for the file"
    return f"{problem}. {what} added; {how} it all the same"


def _absolute(machine: SourceHost, root: str) -> str:
    return machine.home() + root[1:] if root == "~" or root.startswith("~/") else root


def render_list(found: Mapping[str, Any]) -> str:
    """Render two lines per source, and one per unreachable machine. Pure."""
    lines = []
    for row in found["sources"]:
        where = f"{row['host']}:{row['root']}" if row["host"] else row["root"]
        marks = [mark for mark, is_set in (("built in", row["built_in"]), ("private", row["private"])) if is_set]
        notes = f"  ({', '.join(marks)})" if marks else ""
        lines.append(f"{row['name']}  {_SHOWN[row['kind']]} in {where}{notes}")
        lines.append(f"    {row['machine']}, every {row['interval_s']} s: {source_state(row)}")
        lines += [f"    {one_line(problem)}" for problem in [*row["problems"], *row["errors"]][:5]]
    lines += [f"{host['machine']} is away: {host['error']}" for host in found["hosts"] if host["state"] == "away"]
    lines += [f"Warning: {warning}" for warning in found["warnings"]]
    return "\n".join(lines)


def source_state(row: Mapping[str, Any], zone: tzinfo | None = None) -> str:
    """Describe the state of a source. Pure."""
    if row["last_success"] is None:
        return "not seen yet" if row["fresh"] else "not seen yet: STALE"
    state = (
        f"{counted(row['files'], 'file')}, {row['bytes'] / 1e6:,.1f} MB, seen {local_time(row['last_success'], zone)}"
    )
    if row["behind"]:
        state += f", {counted(row['behind'], 'part')} with something new for {row['lag_s']:,.0f} s"
    return state if row["fresh"] else f"{state}: STALE"


def render_trials(found: Mapping[str, Any]) -> str:
    """Render dry runs. Pure."""
    return "\n\n".join(render_trial(trial) for trial in found["trials"])


def render_trial(trial: Mapping[str, Any]) -> str:
    """Render one dry run. Pure."""
    head = f"{trial['name']}: {_SHOWN[trial['kind']]} in {trial['root']} of {trial['machine']}"
    if not trial["ok"]:
        return f"{head}\n  {trial['problem']}"
    skew = trial["clock_skew_s"]
    clock = f", its clock is {abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}" if skew and abs(skew) >= 1 else ""
    total = f"{counted(trial['files'], 'file')}, {trial['bytes'] / 1e6:,.1f} MB"
    lines = [
        head,
        f"  {total} in {counted(trial['partitions'], 'source')}, listed in {trial['took_ms']:,.0f} ms{clock}",
        *(f"  {row['format']}: {counted(row['files'], 'file')}, {row['bytes']:,} bytes" for row in trial["formats"]),
    ]
    if trial["first"]:
        lines.append("  the first:" if trial["files"] > len(trial["first"]) else "  these:")
        lines += [f"    {shown_name(path)}" for path in trial["first"]]
    for why, count in trial["left_out"].items():
        examples = ", ".join(map(shown_name, trial["examples"].get(why, ())))
        lines.append(f"  left out, {one_line(why)}: {count:,}, such as {examples}")
    return "\n".join([*lines, *(f"  problem: {one_line(problem)}" for problem in trial["problems"])])


sources_app = typer.Typer(help="Sources: what is crawled, on this machine and on others.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@sources_app.command("list")
def sources_list(as_json: AsJson = False) -> None:
    """List sources with their state, and machines that do not answer."""
    _show(run_list(settings_file.load()), render_list, as_json)


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
        int | None,
        typer.Option(
            help=f"Polling interval, in seconds (min {MIN_INTERVAL_S}); default: the setting crawl_interval_s."
        ),
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
    wish = SourceRequest(
        place, kind, name, machine, include or (), exclude or (), project, instance, interval, private, max_mb, replace
    )
    run_add(settings_file.load(), wish, typer.echo, test=not no_test)


@sources_app.command("test")
def sources_test(
    source: Annotated[str, typer.Argument(metavar="NAME or PLACE", help="Name of a source, or [USER@HOST:]ROOT.")],
    as_json: AsJson = False,
) -> None:
    """Show which files would be crawled, and which are left out and why; nothing is stored. Exit status 1: the source
    cannot be read.
    """
    found = run_test(settings_file.load(), source)
    _show(found, render_trials, as_json)
    raise typer.Exit(0 if all(trial["ok"] for trial in found["trials"]) else 1)


@sources_app.command("remove")
def sources_remove(name: Annotated[str, typer.Argument(help="Name of a source (`sources list`).")]) -> None:
    """Stop crawling a source; its episodes stay."""
    typer.echo(run_remove(settings_file.load(), name))


def _show(body: Mapping[str, Any], render: Callable[[Mapping[str, Any]], str], as_json: bool) -> None:
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))
