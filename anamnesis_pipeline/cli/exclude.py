"""`anamnesis exclude`: what is never to come in again, with a reason."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli import forget as forget_command
from anamnesis_pipeline.cli.local_services import store_to_write
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.services.blocklist import (
    STAYS,
    Entry,
    add_rule,
    blocklist,
    exclude_episode,
    lift,
    matching_episodes,
    what_comes_back,
)
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.wiring import (
    effective_settings,
    open_copies,
    open_forgetter,
    open_store,
    what_is_private,
)
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind, checked, sha256_of
from anamnesis_pipeline.store.base import Store

SHOWN = 200

app = typer.Typer(help="Keep files, sessions, projects and texts out, and let them in again.", no_args_is_help=True)


@app.command("add")
def _add(
    path: Annotated[str | None, typer.Option(help="File, or folder with everything below it.")] = None,
    session: Annotated[str | None, typer.Option(help="Id of a session; includes its subagents.")] = None,
    project: Annotated[str | None, typer.Option(help="Project, by any of its names.")] = None,
    pattern: Annotated[str | None, typer.Option(help="Pattern of paths, as in a .gitignore, e.g. `*.pem`.")] = None,
    content_pattern: Annotated[str | None, typer.Option(help="Regular expression (RE2) in a chunk or section.")] = None,
    file: Annotated[Path | None, typer.Option(help="File of which every copy is kept out, by its content.")] = None,
    episode: Annotated[str | None, typer.Option(help="Id of an episode, which is also deleted.")] = None,
    machine: Annotated[str, typer.Option(help="Only on this machine; default: on all.")] = "",
    reason: Annotated[str, typer.Option(help="Reason, shown in the list.")] = "",
    forget: Annotated[bool, typer.Option("--forget", help="Also forget the stored texts for good.")] = False,
) -> None:
    """Keep files, sessions, projects or texts out from now on. Stored texts stay, unless `--forget` is given."""
    if path and path[1:2] != ":":  # else of another machine, with Windows
        path = os.path.abspath(os.path.expanduser(path))
    values = {
        RuleKind.PATH: path or None,
        RuleKind.SESSION: session,
        RuleKind.PROJECT: project_label(project) if project else None,
        RuleKind.PATTERN: pattern,
        RuleKind.CONTENT_PATTERN: content_pattern,
        RuleKind.CONTENT: _sha256(file) if file else None,
    }
    machines = dict.fromkeys((RuleKind.PATH, RuleKind.SESSION, RuleKind.PATTERN), machine)
    labels = {RuleKind.CONTENT: file.name if file else ""}
    rules = [
        checked(Rule(kind, value, machines.get(kind, ""), reason, label=labels.get(kind, "")))
        for kind, value in values.items()
        if value is not None
    ]
    said, problems = add(settings_file.load(), rules, episode, reason, file=file, forget=forget)
    for line in said:
        typer.echo(line)
    raise typer.Exit(1 if problems else 0)


@app.command("list")
def _list(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False) -> None:
    """List rules and deleted episodes, newest first, with the reason and the file."""
    entries = listed(settings_file.load())
    if as_json:
        body = [asdict(entry) | {"added_at": entry.added_at.isoformat()} for entry in entries]
        typer.echo(json.dumps(body, ensure_ascii=False, indent=2))
    else:
        typer.echo(render(entries))


@app.command("remove")
def _remove(
    entry_id: Annotated[str, typer.Argument(metavar="ID", help="Id of an entry (`exclude list`).")],
) -> None:
    """Lift a rule. The next crawl brings back what still exists: a deleted episode from the archive, a forgotten one
    from its log or file.
    """
    typer.echo(remove(settings_file.load(), entry_id))


def add(
    settings: Settings,
    rules: Sequence[Rule],
    episode: str | None,
    reason: str,
    *,
    file: Path | None = None,
    forget: bool = False,
) -> tuple[list[str], list[str]]:
    """Store rules, and exclude an episode. Return the lines to print, and what could not be forgotten.

    :param file: the one that the rule by content is made of.
    :param forget: also forget what is stored of what the rules mean.
    :raises GiveUp: nothing is asked for, or there is no such episode.
    """
    if not rules and not episode:
        raise GiveUp(
            "say what to exclude: --path, --session, --project, --pattern, --content-pattern, --file, --episode"
        )
    said: list[str] = []
    problems: list[str] = []
    with store_to_write(settings) as store:
        if episode and exclude_episode(store, episode, reason) is None:
            raise GiveUp(f"no episode {episode!r}; anamnesis search shows ids")
        said += [f"{episode} is deleted and excluded"] if episode else []
        for rule in rules:
            stored, is_new = add_rule(store, rule)
            named = f"{stored.value} ({stored.label})" if stored.label else stored.value
            said.append(f"{stored.kind} {named} is excluded{'' if is_new else ' already'}: {stored.rule_id}")
        if forget:
            settings = effective_settings(store)
            forgetter = open_forgetter(settings, store)
            for rule in rules:
                asked = _request(settings, store, rule, file)
                report = None if asked.is_empty else forgetter.forget(asked, rule.rule_id)
                problems += report.problems if report else []
                if report is None or not (report.episodes or report.files or report.problems):
                    of = f"the {rule.kind} {rule.label or rule.value}"
                    said.append(f"nothing that is stored is of {of}, so nothing is forgotten")
                else:
                    said.append(forget_command.render(report))
        elif rules:
            said.append(STAYS)
    return said, problems


def listed(settings: Settings) -> list[Entry]:
    """Return the newest entries; none without a store."""
    if not settings.has_store:
        return []
    with closing(open_store(settings)) as store:
        return blocklist(store, SHOWN, private=what_is_private(store))


def remove(settings: Settings, entry_id: str) -> str:
    """Lift an entry. Return the text to print.

    :raises GiveUp: there is none of this id.
    """
    with store_to_write(settings) as store:
        lifted = lift(store, entry_id)
    if lifted is None:
        raise GiveUp(f"nothing of the id {entry_id!r} is excluded; those that are: anamnesis exclude list")
    return f"{entry_id} is lifted: {what_comes_back(entry_id, lifted)}"


def render(entries: Sequence[Entry]) -> str:
    """Render one line per entry. Pure."""
    if not entries:
        return "Nothing is excluded."
    lines = []
    for entry in entries:
        where = f" on {entry.machine}" if entry.machine else ""
        held = f" ({counted(entry.held, 'part')} held back)" if entry.held else ""
        why = f": {entry.reason}" if entry.reason else ""
        value = f" {entry.value}" if entry.value else ""
        value += f" ({entry.label})" if entry.label else ""
        if entry.episode_id and entry.id != entry.episode_id:  # the rule beside the episode's tombstone
            value += f" (text of the episode {entry.episode_id}, lifted with it)"
        lines.append(f"{entry.added_at:%Y-%m-%d %H:%M}  {entry.id}  {entry.kind}{value}{where}{held}{why}")
    if len(entries) == SHOWN:
        lines.append("Older ones: GET /api/blocklist")
    return "\n".join("".join(c if c.isprintable() else " " for c in line) for line in lines)


def _request(settings: Settings, store: Store, rule: Rule, file: Path | None) -> ForgetRequest:
    """Return the stored content that a rule matches: whole files if it names them, else episodes. Pinned ones go too:
    the rule says that none of it may be here.
    """
    if not rule.machine and rule.kind is RuleKind.PATH:
        return ForgetRequest(path=rule.value, include_pinned=True)
    if not rule.machine and rule.kind is RuleKind.SESSION:
        return ForgetRequest(session_id=rule.value, include_pinned=True)
    if rule.kind is RuleKind.PROJECT:
        return ForgetRequest(project=rule.value, include_pinned=True)
    copies = open_copies(settings, store).of(file) if file and rule.kind is RuleKind.CONTENT else []
    return ForgetRequest(ids=tuple(matching_episodes(store, rule)), files=tuple(copies), include_pinned=True)


def _sha256(file: Path) -> str:
    try:
        return sha256_of(file.read_bytes())
    except OSError as problem:
        raise GiveUp(f"{file} cannot be read: {problem.strerror}") from problem
