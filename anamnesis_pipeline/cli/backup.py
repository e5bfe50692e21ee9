"""`anamnesis backup` and `anamnesis restore`: all of a memory in one file, and a memory made of it."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.copy_progress import index_told, shown
from anamnesis_pipeline.cli.searched_store import mention_other_store, require_stored
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.text.wording import counted, local_time
from anamnesis_pipeline.runtime.home_wiring import make_private, open_archive
from anamnesis_pipeline.runtime.up_lock import is_held
from anamnesis_pipeline.services.backup import BackupReport, Home, back_up
from anamnesis_pipeline.services.exporting import is_export
from anamnesis_pipeline.services.restore import RestoreReport
from anamnesis_pipeline.services.restore import restore as restore_file
from anamnesis_pipeline.services.store_copies import Tell, make_fast
from anamnesis_pipeline.services.wiring import open_copy, open_to_read, store_place
from anamnesis_pipeline.settings import Settings

BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="Path of the backup, e.g. memory.backup.")]


def backup(
    file: BackupFile,
    no_archive: Annotated[
        bool, typer.Option("--no-archive", help="Leave out the archive, if it is saved in another way.")
    ] = False,
) -> None:
    """Write memory, archive and `config.toml` into one file, while everything runs. Protect it like the memory itself.
    Exit status 1: an archived file is damaged.
    """
    settings = settings_file.load()
    mention_other_store(settings)
    with shown(Console(stderr=True), "no file was made") as tell:
        report = run_backup(settings, file, tell, with_archive=not no_archive)
    typer.echo(render_backup(report, file))
    if report.problems:
        raise typer.Exit(1)


def restore(file: BackupFile) -> None:
    """Restore a backup into an empty home, with either store. An interrupted restore continues."""
    settings = settings_file.load()
    with shown(Console(stderr=True), "the same command goes on where this one was") as tell:
        report = run_restore(settings, file, tell)
    typer.echo(render_restored(report, store_place(settings), store_place(settings_file.load())))


def run_backup(settings: Settings, file: Path, tell: Tell, *, with_archive: bool = True) -> BackupReport:
    """Write a backup of the memory to `file`.

    :raises GiveUp: nothing is stored, or the file is there already.
    """
    require_stored(settings)
    with closing(open_to_read(settings)) as store:
        return back_up(store, _home(settings), file.absolute(), settings.store, tell, with_archive=with_archive)


def run_restore(settings: Settings, file: Path, tell: Tell) -> RestoreReport:
    """Make the empty home and store of `settings` what a backup holds.

    :raises GiveUp: it runs, is not empty, or the file is damaged or an export.
    """
    if is_export(file):
        raise GiveUp(f"{file} is an export, no backup; take it in with: anamnesis import {file}")
    if is_held(settings.home / "up.lock"):
        raise GiveUp(f"`anamnesis up` runs on {settings.home}; stop it first, or set ANAMNESIS_HOME to an empty folder")
    make_private(settings.home)
    with closing(open_copy(settings)) as store:
        report = restore_file(file.absolute(), store, _home(settings), store_place(settings), tell)
        report.index_problem = make_fast(store, tell)
    return report


def render_backup(report: BackupReport, file: Path) -> str:
    """What was written, for people. Pure."""
    held = f"{counted(report.rows, 'row')} and {counted(report.files, 'file')}"
    problems = [f"Not whole: {problem}" for problem in report.problems]
    return "\n".join(
        [f"{file}: {held} as of {report.taken_at:%Y-%m-%d %H:%M:%S} UTC, {report.bytes / 1e6:,.2f} MB", *problems]
    )


def render_restored(report: RestoreReport, place: str, named: str) -> str:
    """What was made, for people. Pure.

    :param named: the place of the store that the settings name now, with what the backup's config.toml says.
    """
    taken = f"of the backup that anamnesis {report.header.version} took at {local_time(report.header.taken_at)}"
    held = f"{counted(report.changes.rows, 'row')} and {counted(report.files, 'file')}"
    lines = [f"{place} holds the memory {taken}: {held}, compared row by row"]
    if not report.header.with_archive:
        lines.append("The backup has no archive: put the saved one back, or what was read cannot be read again")
    if named != place:
        lines.append(
            f"config.toml is the backup's, and names another store, {named}: change `store` in it before a start"
        )
    if report.index_problem:
        lines.append(index_told(report.index_problem))
    return "\n".join([*lines, *(f"{path} existed already and is unchanged" for path in report.kept)])


def _home(settings: Settings) -> Home:
    return Home(settings.home, open_archive(settings), settings.archive_dir)
