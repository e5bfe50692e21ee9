"""`anamnesis export` and `anamnesis import`: episodes as JSON lines, or as Markdown to read."""

import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Annotated, BinaryIO, cast, get_args

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored, store_to_write
from anamnesis_pipeline.cli.redact import now_and_then
from anamnesis_pipeline.cli.search import no_project
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import counted, one_line
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.search.project_labels import ALL
from anamnesis_pipeline.search.time_bounds import bounds_of
from anamnesis_pipeline.services import exporting
from anamnesis_pipeline.services.backup import is_backup
from anamnesis_pipeline.services.exporting import Format
from anamnesis_pipeline.services.importing import ODD_TIME, Importer, ImportReport
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.schemas import TypeName
from anamnesis_pipeline.services.whole_file import appearing
from anamnesis_pipeline.services.wiring import effective_settings, open_pieces, open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.memory_layers import Layer
from anamnesis_pipeline.store.records.overview import EVERYTHING

SHOWN = 20
STANDARD = Path("-")


def export(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Path, compressed if it ends in `.zst` or `.gz`; `-`: standard output."),
    ],
    format: Annotated[Format, typer.Option(help="`jsonl` can be imported, `markdown` is to be read.")] = "jsonl",
    project: Annotated[str | None, typer.Option(help="Only this project; `api` also matches `acme/api`.")] = None,
    layer: Annotated[list[Layer] | None, typer.Option(help="Only this layer; repeatable (any of them).")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; repeatable (any of them).")] = None,
    type: Annotated[
        list[str] | None, typer.Option(help="Only what states this, e.g. decision; repeatable (any of them).")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Start time, inclusive (local zone): 2026-02, yesterday.")] = None,
    until: Annotated[str | None, typer.Option(help="End time, exclusive (local zone).")] = None,
    private: Annotated[bool, typer.Option("--private", help="Include private projects and sources.")] = False,
) -> None:
    """Write episodes as JSON lines, superseded ones too, in an open format (docs/reference/export-format.md), or as
    Markdown.
    """
    if unknown := sorted({*(type or ())} - {*get_args(TypeName)}):
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(get_args(TypeName))}", param_hint="--type")
    settings = settings_file.load()
    mention_other_store(settings)
    first, end = bounds_of(since, until, now := datetime.now(UTC))
    where = EpisodeFilter(
        projects=(project,) if project else (),
        layers=tuple(map(str, layer or ())),
        layers_at=now if layer else None,
        kinds=tuple(kind or ()),
        types=tuple(type or ()),
        since=first,
        until=end,
        include_superseded=True,
    )
    count = run_export(settings, file, where, format, private=private)
    place = "written to standard output" if file == STANDARD else f"in {file}"
    typer.echo(f"{counted(count, 'episode')} {place}", err=file == STANDARD)


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, compressed or not; `-`: standard input.")],
) -> None:
    """Import episodes of an export, with secrets masked. Episodes that are stored, or were deleted here, do not
    change.
    """
    say = now_and_then(lambda text: typer.echo(text, err=True))
    report = run_import(settings_file.load(), file, lambda number: say(f"{counted(number, 'line')} read", False))
    typer.echo(render(report))
    if report.problems:
        raise typer.Exit(1)


def run_export(
    settings: Settings,
    file: Path,
    wanted: EpisodeFilter = EVERYTHING,
    format: Format = "jsonl",
    *,
    private: bool = False,
) -> int:
    """Write the episodes that pass a filter; return how many. Say on stderr how many private ones were not.

    :raises GiveUp: nothing is stored, the file is there already, or there is no such project.
    """
    require_stored(settings)
    with closing(open_to_read(settings)) as store:
        where = what_is_private(store).visible(store, wanted, [ALL] if private else [])
        if wanted.projects and not set(where.projects) & set(store.projects.all()):
            name = wanted.projects[0]
            raise GiveUp(no_project(store, name) or f"nothing of {name} is stored")
        left_out = 0 if wanted.projects or private else store.episodes.count(wanted) - store.episodes.count(where)
        if left_out:
            typer.echo(f"{counted(left_out, 'private episode')} left out; --private writes them too", err=True)
        with _written(file) as out, exporting.packing(out, file.name) as packed:
            return exporting.export(store, where, packed, format)


def run_import(settings: Settings, file: Path, say: Callable[[int], None]) -> ImportReport:
    """Import the episodes of a file.

    :param say: told the number of each line that was read.
    :raises GiveUp: the file cannot be read, or is damaged; what came before is stored.
    """
    with _read(file) as content, store_to_write(settings) as store:
        pieces = open_pieces()
        poster = EpisodeWriter(store, open_redactor(effective_settings(store)).mask_text, pieces, None)
        with exporting.unpacking(content, file) as lines:
            if is_backup(lines.peek(tarfile.BLOCKSIZE)):
                name = "FILE" if file == STANDARD else file
                raise GiveUp(f"this is a backup, no export: make a memory of it with: anamnesis restore {name}")
            return Importer(store, poster, pieces).take(lines, say)


def render(report: ImportReport) -> str:
    """Render the outcome of the lines. Pure."""
    lines = [f"{counted(report.created, 'episode')} stored, {report.unchanged:,} stored already"]
    if report.tombstoned:
        lines.append(f"{report.tombstoned:,} kept away: they were deleted or forgotten here")
    if report.moved:
        moved = counted(report.moved, "line")
        lines.append(f"{moved} had a time that cannot be, kept as {ODD_TIME}, and took that of a neighbour")
    if report.differing:
        named = ", ".join(report.differing[:SHOWN])
        lines.append(f"{len(report.differing):,} stored here with other content, which stays: {named}")
    lines += report.problems[:SHOWN]
    if len(report.problems) > SHOWN:
        lines.append(f"... and {counted(len(report.problems) - SHOWN, 'more line')}")
    return "\n".join(one_line(line) for line in lines)


@contextmanager
def _written(file: Path) -> Iterator[BinaryIO]:
    """Yield standard output, or a new file that appears once complete."""
    if file == STANDARD:
        yield sys.stdout.buffer
        return
    with appearing(file) as out:
        yield out


@contextmanager
def _read(file: Path) -> Iterator[BufferedReader]:
    if file == STANDARD:
        yield cast(BufferedReader, sys.stdin.buffer)
        return
    try:
        content = file.open("rb")
    except OSError as problem:
        raise GiveUp(f"{file} cannot be read: {problem.strerror}") from problem
    with content:
        yield content
