"""`anamnesis remember` and `note`: keep something for later, through the running service or in the store itself."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import ask_sidecar, refusal, require_stored, store_to_write
from anamnesis_pipeline.cli.sessions import AsJson
from anamnesis_pipeline.errors import GiveUp, ServiceUnreachable
from anamnesis_pipeline.parsing.text.wording import one_line, printable, project_name
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.services.folder_project import current_project, project_meant
from anamnesis_pipeline.services.posted import NO_PROJECT, note_of, posted_body
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.rolling import Delta, diary_entry, upsert
from anamnesis_pipeline.services.schemas import EpisodeIn, TypeName
from anamnesis_pipeline.services.short_ids import whole_session_id
from anamnesis_pipeline.services.wiring import effective_settings, open_pieces, open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings

SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Of Claude Code: such a session may begin before its log is read."""


def remember(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to keep: one fact, with names and numbers.")],
    type: Annotated[TypeName, typer.Option(help="What it states; `absent`: that something does not exist.")] = "note",
    why: Annotated[str, typer.Option(help="Its reason.")] = "",
    subject: Annotated[
        str | None, typer.Option(help="What it is about; the former statement on it is superseded.")
    ] = None,
    replaces: Annotated[str | None, typer.Option(metavar="ID", help="Episode that it takes the place of.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag; repeatable.")] = None,
    project: Annotated[str | None, typer.Option(help="Default: that of the current folder.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep one thing for later sessions, with secrets masked. Says what it replaced and what says nearly the same."""
    settings = settings_file.load()
    kept = note_of(
        text,
        project=_project_meant(settings, project) if project else _project_here(settings),
        instance=settings.machine,
        type=type,
        why=why,
        tags=tag or (),
        subject=subject,
        replaces=replaces,
    )
    body = keep(settings, kept, dry_run=dry_run)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body, dry_run=dry_run))


def note(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to note.")],
    session: Annotated[
        str | None, typer.Option(help="Session that it is about, or a unique prefix; default: today's diary.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Default: that of the session, or of the current folder.")] = None,
) -> None:
    """Add a line with its time to today's diary, or to the notes of a session."""
    settings = settings_file.load()
    session_id, now = "", datetime.now(UTC)
    if session is not None:
        require_stored(settings)
        with closing(open_to_read(settings)) as store:
            session_id = whole_session_id(store, session)
            if not store.sessions.beginning_with(session_id, 1) and not SESSION_ID.fullmatch(session_id):
                raise GiveUp(f"no session begins with {session!r}; those that there are: anamnesis sessions")
    own = _project_meant(settings, project) if project else "" if session_id else _project_here(settings)
    delta = diary_entry(text, settings.machine, "" if own == NO_PROJECT else own, now, session_id)
    typer.echo(f"Noted: {printable(note_down(settings, delta))}")


def note_down(settings: Settings, delta: Delta) -> str:
    """Return the id of the notes that a text was added to, by the running service or in the store itself.

    :raises GiveUp: it is refused.
    """
    body: dict[str, Any] = {
        "handle": delta.handle,
        "session_id": delta.session_id,
        "delta": delta.text,
        "machine": delta.machine,
        "tags": list(delta.tags),
        "project": delta.project or None,
    }
    try:
        status, answer = ask_sidecar(settings, "POST", "/api/episodes/rolling/upsert", body)
    except ServiceUnreachable:
        with store_to_write(settings) as store:
            redactor = open_redactor(effective_settings(store))
            writer = EpisodeWriter(store, redactor.mask_text, open_pieces(), None)
            return upsert(store, writer, delta, lambda: datetime.now(UTC)).episode.episode_id
    if status in {200, 201} and isinstance(answer, dict):
        return str(answer["episode_id"])
    raise refusal(status, answer, "the note")


def keep(settings: Settings, note: EpisodeIn, *, dry_run: bool) -> Mapping[str, Any]:
    """Return the answer of `POST /api/episodes`; without a running service that of the store itself.

    :raises GiveUp: it is refused, or a preview is asked for and no service runs.
    """
    path = "/api/episodes" + ("?dry_run=true" if dry_run else "")
    try:
        status, answer = ask_sidecar(settings, "POST", path, note.model_dump(mode="json", exclude_unset=True))
    except ServiceUnreachable as exc:
        if dry_run:
            raise GiveUp(f"a preview needs the running service ({exc}); start it with: anamnesis up") from exc
        with store_to_write(settings) as store:
            redactor = open_redactor(effective_settings(store))
            stored, created = EpisodeWriter(store, redactor.mask_text, open_pieces(), None).create(note.draft())
            return posted_body(store, what_is_private(store), stored, created=created)
    if status in {200, 201} and isinstance(answer, dict):
        return answer
    raise refusal(status, answer, "the note")


def render(body: Mapping[str, Any], *, dry_run: bool = False) -> str:
    """Say what was done, or would be. Pure."""
    done = {"added": "Kept", "updated": "Kept", "unchanged": "Kept already"}[body["operation"]]
    lines = [f"{'Would be kept' if dry_run and done == 'Kept' else done} in {project_name(body['project'])}"]
    lines[0] += f" as {printable(body['kind'])}: {printable(body['episode_id'])}"
    if body["novelty"] is not None:
        lines[0] += f", novelty {body['novelty']:.2f}"
    lines += [f"replaces {printable(name)}" for name in body["replaced"]]
    lines += [f"pinned, so challenged and not replaced: {printable(name)}" for name in body["challenged"]]
    if body["projects_alike"]:
        lines.append(one_line(f"other projects are called alike: {', '.join(body['projects_alike'])}"))
    lines += [one_line(f"much like {each['episode_id']}: {each['summary'][:100]}") for each in body["alike"]]
    return "\n".join(lines)


def _project_meant(settings: Settings, name: str) -> str:
    """Return the full name of a project: `api` also means `acme/api`."""
    if not settings.has_store:
        return name
    with closing(open_to_read(settings)) as store:
        return project_meant(store, what_is_private(store), name)


def _project_here(settings: Settings) -> str:
    """Return the project of the current folder, as ingest names it."""
    if not settings.has_store:
        return NO_PROJECT
    with closing(open_to_read(settings)) as store:
        found = current_project(store, os.getcwd(), settings.machine, what_is_private(store))
    return found.project or NO_PROJECT
