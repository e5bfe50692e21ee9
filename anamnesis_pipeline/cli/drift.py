"""`anamnesis drift`: what curated texts and notes claim of a project, and its files do not hold."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored
from anamnesis_pipeline.cli.search import no_project, private_here
from anamnesis_pipeline.cli.sessions import AsJson
from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.parsing.text.wording import counted, one_line, printable, project_name
from anamnesis_pipeline.services.drift import DriftOut, DriftReportOut, drift_body, drift_of
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings

HOOK_SECONDS = 10.0
"""After which the line after a commit is given up."""
LOW, FAIR = 50, 80
"""Scores below which a line is red, and yellow."""


def drift(
    project: Annotated[
        str, typer.Argument(metavar="[PROJECT]", help="Default: all; `api` also means `acme/api`.")
    ] = "",
    root: Annotated[str, typer.Option(help="Folder with the project's files. Default: where they were seen.")] = "",
    min_score: Annotated[int, typer.Option(min=0, max=100, help="Exit with 1 if a score is lower.")] = 0,
    no_functions: Annotated[bool, typer.Option("--no-functions", help="Leave out functions and classes.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Include private projects and sources.")] = False,
    hook: Annotated[
        bool, typer.Option("--hook", help="Print one line, none if the score is 100; never fail. For git hooks.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check paths, functions, commands, packages and variables that curated texts and notes name against the files."""
    settings = settings_file.load()
    if hook:
        _after_commit(settings, project, root or os.getcwd(), functions=not no_functions)
        return
    require_stored(settings)
    mention_other_store(settings)
    body = _body(settings, project, root, functions=not no_functions, private=private)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else "\n".join(lines_of(body)))
    if any(each["score"] < min_score for each in body["projects"]):
        raise typer.Exit(1)


def lines_of(body: DriftOut) -> Iterator[str]:
    """Yield the lines of reports. Pure."""
    if not body["projects"]:
        yield "No text claims anything yet. Curated files (CLAUDE.md, topics) of a source and notes are checked."
    for report in body["projects"]:
        yield _head(report)
        for each in report["findings"]:
            moved = f"; now {each['suggestion']}?" if each["suggestion"] else ""
            yield one_line(f"  {each['severity']:<7} {each['kind']} {each['value']}: {each['problem']}{moved}")
            place = f"{each['path']}:{each['line']}" if each["line"] else each["path"] or "note"
            yield one_line(f"          {place} [{each['episode_id'][:12]}] {printable(each['quote'])[:200]}")
        for place in report["looked_at"]:
            yield one_line(f"  looked at {place}")


def _head(report: DriftReportOut) -> str:
    claims = f"{counted(report['claims'], 'claim')} in {counted(report['texts'], 'text')}"
    unknown = f", {report['unknown']} unknown" if report["unknown"] else ""
    found = counted(len(report["findings"]), "finding")
    return one_line(f"{project_name(report['project'])}: {report['score']}/100, {found} ({claims}{unknown})")


def _body(settings: Settings, project: str, root: str, *, functions: bool, private: bool) -> DriftOut:
    included = ["*"] if private else private_here(settings)
    with closing(open_to_read(settings)) as store:
        if project and (unknown := no_project(store, project)):
            raise GiveUp(unknown)
        now, hidden = datetime.now(UTC), what_is_private(store)
        return drift_body(drift_of(store, hidden, now, project, included, root=root, functions=functions))


def _after_commit(settings: Settings, project: str, root: str, *, functions: bool) -> None:
    """Print the line of a git hook. A commit is neither delayed for long nor disturbed by what goes wrong here."""
    end = threading.Timer(HOOK_SECONDS, os._exit, (0,))
    end.daemon = True
    end.start()
    try:
        body = _body(settings, project, root, functions=functions, private=True) if settings.has_store else None
    except (AnamnesisError, OSError):
        return
    finally:
        end.cancel()
    for report in body["projects"] if body else ():
        score = report["score"]
        if score < 100:
            color = typer.colors.RED if score < LOW else typer.colors.YELLOW if score < FAIR else None
            typer.secho(f"anamnesis drift: {_head(report)}; see: anamnesis drift {report['project']}", fg=color)
