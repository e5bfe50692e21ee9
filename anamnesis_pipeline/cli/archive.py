"""`anamnesis archive extract`: archived logs as JSONL files again."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import require_stored
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.runtime.crawler_wiring import configured_specs
from anamnesis_pipeline.runtime.home_wiring import open_archive
from anamnesis_pipeline.services.extract import EVERY, ExtractReport, extract, extractable, without_private
from anamnesis_pipeline.services.wiring import effective_settings, open_store, what_is_private
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.specs import sources_named

archive_app = typer.Typer(help="The archive of all lines that were read.", no_args_is_help=True)


@archive_app.command("extract")
def _extract(
    to: Annotated[Path, typer.Option(help="Output folder.")],
    session_id: Annotated[
        str | None, typer.Argument(help="Id of a session; includes its subagents and moved-out output.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="All files of a source (`sources list`).")] = None,
    path: Annotated[str | None, typer.Option(help="File or folder, by its path on its machine.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All files.")] = False,
    generation: Annotated[str | None, typer.Option(help="Number of an earlier version of the files, or `all`.")] = None,
    private: Annotated[
        bool,
        typer.Option("--private", help="Include private files in --all; else they are counted."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write archived logs and documents to files, byte for byte except masked secrets. Select a session, `--source`,
    `--path` or `--all`. Exit status 1: an archived file is damaged; the others are written.
    """
    report = run_extract(
        settings_file.load(),
        to,
        session_id=session_id,
        source=source,
        path=path,
        everything=everything,
        generation=generation,
        private=private,
        force=force,
    )
    held = f"{counted(report.files, 'file')}, {counted(report.lines, 'line')}, {report.bytes / 1e6:.1f} MB are in {to}"
    typer.echo("\n".join([held, *(f"Not written: {damage}" for damage in report.damaged)]))
    if report.damaged:
        raise typer.Exit(1)


def run_extract(
    settings: Settings,
    to: Path,
    *,
    session_id: str | None,
    source: str | None,
    path: str | None,
    everything: bool,
    generation: str | None,
    private: bool = False,
    force: bool = False,
) -> ExtractReport:
    """Write what is asked for below `to`. Says on stderr how many private files were not.

    :raises GiveUp: none or several of the four ways to say what; nothing archived fits; a file is there already.
    """
    if sum(map(bool, (session_id, source, path, everything))) != 1:
        raise GiveUp("say what to extract, in one way: a session id, --source NAME, --path PATH or --all")
    require_stored(settings)
    with closing(open_store(settings)) as store:
        keys = None
        if source:
            found = sources_named(source, store.files.sources(), configured_specs(effective_settings(store), store))
            if not found:
                raise GiveUp(f"no source {source!r} is archived; `anamnesis sources list` names all")
            keys = {each.key for each in found}
        number = None
        if generation == "all":
            number = EVERY
        elif generation is not None:
            if not generation.isdecimal():
                raise GiveUp(f"--generation {generation!r} is neither a number nor `all`")
            number = int(generation)
        fitting = extractable(store, session_id=session_id or "", keys=keys, path=path or "", generation=number)
        named = private or session_id or source
        wanted = fitting if named else without_private(store, what_is_private(store), fitting, path or "")
        if left_out := len(fitting) - len(wanted):
            typer.echo(f"{counted(left_out, 'private file')} left out; --private writes them too", err=True)
        if not wanted:
            raise GiveUp("nothing in the archive fits; `anamnesis sources list` names the sources, --all extracts all")
        return extract(store, open_archive(settings), wanted, to, force=force)
