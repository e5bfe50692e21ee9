"""`anamnesis migrate`: the memory copied into another store, and proven equal."""

from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.console import Console

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.copy_progress import index_told, shown
from anamnesis_pipeline.cli.searched_store import mention_other_store
from anamnesis_pipeline.errors import GiveUp, StoreBusy
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.runtime.home_wiring import open_archive
from anamnesis_pipeline.runtime.up_lock import is_held
from anamnesis_pipeline.services.store_copies import MoveReport, Tell, make_fast, move, note_origin
from anamnesis_pipeline.services.wiring import impatient, open_copy, open_to_read, store_place
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

_WAIT_S = 10
"""Limit for a server's answer: a person waits, and may have named a wrong one."""


class Backend(StrEnum):
    """Where a memory can be."""

    SQLITE = "sqlite"
    MONGO = "mongo"


@dataclass(frozen=True, slots=True)
class Migration:
    """What was copied, from where to where, and when it began. `is_running`: an `anamnesis up` writes to the source.
    `index_problem`: why the vectors have no search index there yet.
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
    typer.echo(render(done))


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


def render(done: Migration) -> str:
    """What was copied, and how to switch, for people. Pure."""
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
