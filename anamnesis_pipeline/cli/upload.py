"""`anamnesis upload`: documents of this machine, handed in by name."""

import mimetypes
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.searched_store import store_to_write
from anamnesis_pipeline.errors import AnamnesisError, GiveUp
from anamnesis_pipeline.parsing.text.wording import counted, project_name
from anamnesis_pipeline.services.uploads import MOST_BYTES, Handed, Upload
from anamnesis_pipeline.services.wiring import effective_settings, open_uploads
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
    """Hand in each file; returns what to say and how many failed. One that cannot be read stops no other.

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
                said.append(_sentence(uploads.take(_handed(file, given))))
            except AnamnesisError as problem:
                said.append(f"{file}: {str(problem).removeprefix(f'{file.name}: ')}")
                failed += 1
    return said, failed


def _handed(file: Path, given: Handed) -> Handed:
    try:
        with file.open("rb") as content:
            data = content.read(MOST_BYTES + 1)
    except OSError as problem:
        raise GiveUp(f"it cannot be read: {problem.strerror}") from problem
    media_type = mimetypes.guess_type(file.name)[0] or ""
    return replace(given, filename=file.name, data=data, media_type=media_type, path=os.path.abspath(file))


def _sentence(taken: Upload) -> str:
    if taken.duplicate:
        return f"{taken.filename} was there already, in {project_name(taken.project)}: {taken.upload_id}{_but(taken)}"
    return f"{taken.filename}: {counted(len(taken.episode_ids), 'section')}, {taken.upload_id}{_but(taken)}"


def _but(taken: Upload) -> str:
    return f"; {taken.note}" if taken.note else ""
