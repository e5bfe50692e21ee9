"""`anamnesis upload` and `anamnesis uploads`: documents handed in by name, and taking one back."""

import json
import mimetypes
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from datetime import tzinfo
from pathlib import Path
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import store_to_write
from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.parsing.text.wording import counted, local_time, project_name
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.uploads import MAX_BYTES, Handed, Upload
from anamnesis_pipeline.services.wiring import (
    effective_settings,
    open_forgetter,
    open_store,
    open_uploads,
    what_is_private,
)
from anamnesis_pipeline.settings import Settings


def upload(
    files: Annotated[list[Path], typer.Argument(help="Markdown, text, code, PDF, office files, mails, ...")],
    project: Annotated[str, typer.Option(help="Project of the documents.")] = "",
    instance: Annotated[str, typer.Option(help="Instance of the documents; default: the name of this machine.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Tag; repeatable.")] = None,
    title: Annotated[str, typer.Option(help="Title in place of the file name, for a single file.")] = "",
) -> None:
    """Upload documents of this machine: found by words at once, by meaning once embedded. Only their text is stored,
    with secrets masked.
    """
    settings = settings_file.load()
    given = Handed(
        "",
        b"",
        project=project,
        tags=tuple(tag or ()),
        title=title,
        instance=instance,
        default_instance=settings.machine,
        machine=settings.machine,
    )
    said, failed = run_upload(settings, files, given)
    typer.echo("\n".join(said))
    if failed:
        raise typer.Exit(1)


def run_upload(settings: Settings, files: Sequence[Path], given: Handed) -> tuple[list[str], int]:
    """Upload each file. Return the lines to print, and the number of failures; a failure does not stop the others.

    :param given: what is said of all of them.
    :raises GiveUp: one title for several files.
    """
    if given.title and len(files) > 1:
        raise GiveUp("--title is of a single file; upload them one by one")
    said, failed = [], 0
    with store_to_write(settings) as store:
        uploads = open_uploads(effective_settings(store), store)
        for file in files:
            try:
                try:
                    with file.open("rb") as content:
                        data = content.read(MAX_BYTES + 1)
                except OSError as problem:
                    raise GiveUp(f"it cannot be read: {problem.strerror}") from problem
                media_type, place = mimetypes.guess_type(file.name)[0] or "", os.path.abspath(file)
                taken = uploads.take(replace(given, filename=file.name, data=data, media_type=media_type, path=place))
                text = f"{taken.filename}: {counted(len(taken.episode_ids), 'section')}, {taken.upload_id}"
                if taken.duplicate:
                    there = f"was there already, in {project_name(taken.project)}"
                    text = f"{taken.filename} {there}: {taken.upload_id}"
                said.append(f"{text}; {taken.note}" if taken.note else text)
            except AnamnesisError as problem:
                said.append(f"{file}: {str(problem).removeprefix(f'{file.name}: ')}")
                failed += 1
    return said, failed


uploads_app = typer.Typer(help="Uploaded documents.", no_args_is_help=True)


@uploads_app.command("list")
def uploads_list(
    private: Annotated[bool, typer.Option("--private", help="Include private projects.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List uploads, newest first."""
    found = run_list(settings_file.load(), private=private)
    body = [asdict(upload) | {"uploaded_at": upload.uploaded_at.isoformat()} for upload in found]
    typer.echo(json.dumps({"uploads": body}, ensure_ascii=False, indent=2) if as_json else render(found))


@uploads_app.command("remove")
def uploads_remove(
    upload_id: Annotated[str, typer.Argument(metavar="ID", help="Id of an upload, or a unique prefix.")],
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without it only print what would be removed.")] = False,
) -> None:
    """Remove an upload for good, with everything made of it. Without `--yes`, only print what would be removed."""
    typer.echo(run_remove(settings_file.load(), upload_id, yes=yes))


def run_list(settings: Settings, *, private: bool) -> list[Upload]:
    """Return all uploads, newest first; none without a store. Print on stderr how many private ones are omitted.

    :param private: those of private projects as well.
    """
    if not settings.has_store:
        return []
    with closing(open_store(settings)) as store:
        hidden = Private() if private else what_is_private(store)
        found = open_uploads(effective_settings(store), store).listed()
    shown = [each for each in found if not hidden.is_of(each.project)]
    if left_out := len(found) - len(shown):
        typer.echo(f"private: {left_out:,}; --private lists them too", err=True)
    return shown


def run_remove(settings: Settings, wanted: str, *, yes: bool) -> str:
    """Forget the upload whose id begins so, or say what would go; returns what to say.

    :raises GiveUp: none begins so, or several do; something of it could not be removed.
    """
    found = [upload for upload in run_list(settings, private=True) if wanted and upload.upload_id.startswith(wanted)]
    if len(found) != 1:
        raise GiveUp(f"{counted(len(found), 'upload')} begin with {wanted!r}; see them with: anamnesis uploads list")
    (upload,) = found
    what = f"{upload.filename} with {counted(len(upload.episode_ids), 'section')}"
    if not yes:
        return f"{what} would go for good; add --yes to do it"
    with store_to_write(settings) as store:
        current = effective_settings(store)
        forgetter = open_forgetter(current, store)
        open_uploads(current, store).forget(upload.upload_id, forgetter)
    if forgetter.problems:
        raise GiveUp(f"{what} is forgotten, but not all of it: {'; '.join(forgetter.problems)}")
    return f"{what} is forgotten; handing it in again brings it back"


def render(uploads: Sequence[Upload], zone: tzinfo | None = None) -> str:
    """Render one line per upload. Pure."""
    if not uploads:
        return "Nothing was uploaded; take in a document with: anamnesis upload FILE"
    return "\n".join(
        f"{each.upload_id}  {local_time(each.uploaded_at.isoformat(), zone)}  {each.filename}, "
        f"{counted(len(each.episode_ids), 'section')}, {project_name(each.project)}"
        + (f"; {each.note}" if each.note else "")
        for each in uploads
    )
