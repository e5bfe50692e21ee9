"""`anamnesis backup`, `restore` and `migrate`: a memory in a file, restored from it, or copied into another store."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored
from anamnesis_pipeline.errors import GiveUp, StoreBusy
from anamnesis_pipeline.parsing.text.wording import counted, local_time
from anamnesis_pipeline.runtime.home_wiring import make_private, open_archive
from anamnesis_pipeline.runtime.up_lock import is_held
from anamnesis_pipeline.services.backup import BackupReport, Home, back_up
from anamnesis_pipeline.services.exporting import is_export
from anamnesis_pipeline.services.restore import RestoreReport
from anamnesis_pipeline.services.restore import restore as restore_file
from anamnesis_pipeline.services.store_copies import MoveReport, Tell, make_fast, move, note_origin
from anamnesis_pipeline.services.wiring import impatient, open_copy, open_to_read, store_place
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

_PLAIN_LINE_EVERY_S = 10.0


@contextmanager
def shown(console: Console, after: str) -> Iterator[Tell]:
    """Yield the progress callback for the steps of the block.

    :param after: how things are where Ctrl-C ended it.
    :raises GiveUp: Ctrl-C ended it, in words.
    """
    try:
        with _bar(console) if console.is_terminal else nullcontext(_plain(console)) as tell:
            yield tell
    except KeyboardInterrupt:
        raise GiveUp(f"interrupted; {after}") from None


@contextmanager
def _bar(console: Console) -> Iterator[Tell]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def tell(step: str, done: int, of: int) -> None:
            progress.update(task, description=step, completed=done, total=max(done, of))

        yield tell


def _plain(console: Console) -> Tell:
    said_at = time.monotonic()

    def tell(step: str, done: int, of: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _PLAIN_LINE_EVERY_S:
            said_at = time.monotonic()
            console.print(f"  {step}: {done:,} of {max(done, of):,}", soft_wrap=True, highlight=False)

    return tell


def index_told(problem: str) -> str:
    """Describe a complete copy without a search index. Pure."""
    return (
        f"Its search index could not be built in time: {problem}. The copy is whole all the same; until the index is "
        "there, searches by meaning read all vectors, or go without where there are many; `anamnesis doctor` tells."
    )


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
    """Render what was written. Pure."""
    held = f"{counted(report.rows, 'row')} and {counted(report.files, 'file')}"
    problems = [f"Not whole: {problem}" for problem in report.problems]
    return "\n".join(
        [f"{file}: {held} as of {report.taken_at:%Y-%m-%d %H:%M:%S} UTC, {report.bytes / 1e6:,.2f} MB", *problems]
    )


def render_restored(report: RestoreReport, place: str, named: str) -> str:
    """Render what was restored. Pure.

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


_WAIT_S = 10
"""Limit for a server's answer: a person waits, and may have named a wrong one."""


class Backend(StrEnum):
    """The stores that can hold a memory."""

    SQLITE = "sqlite"
    MONGO = "mongo"


@dataclass(frozen=True, slots=True)
class Migration:
    """A finished copy: what was copied, source and target, and its start. `is_running`: an `anamnesis up` writes to the
    source. `index_problem`: why the vectors have no search index there yet.
    """

    report: MoveReport
    source: str
    target: Settings
    began_at: datetime
    is_running: bool
    index_problem: str = ""


def migrate(
    to: Annotated[Backend, typer.Option(help="Target store.")],
    uri: Annotated[
        str | None, typer.Option(help="Connection string of MongoDB; use ANAMNESIS_MONGO_URI if it has a password.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="Name of the MongoDB database.")] = None,
) -> None:
    """Copy the memory into another, empty store, and compare both row by row. The source is not changed; an
    interrupted copy continues.
    """
    settings = settings_file.load()
    mention_other_store(settings)
    with shown(Console(stderr=True), "the same command goes on where this one was") as tell:
        done = run_migrate(settings, to, tell, uri=uri, database=database)
    typer.echo(render_migrated(done))


def run_migrate(
    settings: Settings, to: Backend, tell: Tell, *, uri: str | None = None, database: str | None = None
) -> Migration:
    """Copy the memory of `settings` into another store.

    :raises GiveUp: nothing is stored, the target is the source, or holds another memory.
    """
    if not settings.has_store:
        raise GiveUp(f"nothing is stored in {settings.home} yet; set ANAMNESIS_STORE={to} and start it: anamnesis up")
    if to is Backend.SQLITE and (uri or database):
        raise GiveUp("--uri and --database name a MongoDB; the SQLite file is the home's own (ANAMNESIS_HOME)")
    given = {"mongo_uri": SecretStr(uri) if uri else None, "mongo_database": database}
    target = settings.model_copy(update={"store": str(to)} | {name: value for name, value in given.items() if value})
    source, place = store_place(settings), store_place(target)
    if source == place:
        raise GiveUp(
            f"{place} is what this home opens itself; name another store with --to, --uri or --database, or "
            "take the settings of that one out of config.toml until the memory was copied to it"
        )
    began_at, is_running = datetime.now(UTC), is_held(settings.home / "up.lock")
    with closing(open_to_read(settings)) as old, closing(_open_target(target)) as new:
        report = move(old, new, place, tell)
        note_origin(new, source)
        open_archive(settings).hand_over()
        index_problem = make_fast(new, tell)
    return Migration(report, source, target, began_at, is_running, index_problem)


def _open_target(target: Settings) -> Store:
    """:raises StoreBusy: it does not answer; says what names it."""
    try:
        return open_copy(impatient(target, _WAIT_S))
    except StoreBusy as exc:
        raise StoreBusy(f"{exc}. Another place is named by --uri, or by ANAMNESIS_MONGO_URI") from exc


def render_migrated(done: Migration) -> str:
    """Render what was copied, and how to switch. Pure."""
    changes, place = done.report.changes, store_place(done.target)
    lines = [
        f"{place} holds what {done.source} held at {done.began_at:%H:%M:%S} UTC: {counted(changes.rows, 'row')}, "
        f"compared one by one ({changes.written:,} written, {changes.removed:,} removed)."
    ]
    if done.index_problem:
        lines.append(index_told(done.index_problem))
    if done.is_running:
        lines.append(
            "`anamnesis up` is running: what it writes from then on is not in the copy. Stop it and run this command "
            "again, which only copies what changed; then switch."
        )
    else:
        lines.append(
            f"Containers and other machines that write to {done.source} are not noticed from here: if any do, stop "
            "them and run this command again before the switch."
        )
    variables = [f"ANAMNESIS_STORE={done.target.store}"]
    if done.target.store == "mongo":
        variables += [
            "ANAMNESIS_MONGO_URI to where it answers",
            f"ANAMNESIS_MONGO_DATABASE={done.target.mongo_database}",
        ]
    lines.append(f"To switch: set {', '.join(variables)} (or in config.toml), then start `anamnesis up`.")
    lines.append(
        f"Archive, salt of the masks and config.toml are in no store: they stay in {done.target.home}, which the new "
        "store goes on with. For another home, another machine or containers, use `anamnesis backup` and `anamnesis "
        "restore` instead, which take them along."
    )
    lines.append(
        f"{done.source} is as it was. The archive has one writer: the first of the two stores that reads anything. "
        "Until then, to go back is to set what is set now; later, copy the memory back into an empty place."
    )
    return "\n".join(lines)
