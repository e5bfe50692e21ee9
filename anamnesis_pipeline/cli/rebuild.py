"""`anamnesis rebuild`: indexes from the stored passages, or an empty store from the archive."""

from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.ingest import Say, run_ingest, source_text
from anamnesis_pipeline.cli.local_services import require_stored, store_to_write
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.archive_catalog import adopt_archive
from anamnesis_pipeline.runtime.home_wiring import open_archive
from anamnesis_pipeline.services.ingest import ingest_source
from anamnesis_pipeline.services.wiring import effective_settings, open_pipeline
from anamnesis_pipeline.settings import Settings

ONLY_IN_A_STORE = (
    "What only a store holds is not in the archive: posts and notes, edits, decisions on proposals, project names, "
    "exclusion rules, what was forgotten, and stored settings; a backup has them"
)
SAID_EVERY = 20
"""Transactions between two lines of progress."""


def rebuild(
    from_archive: Annotated[
        bool,
        typer.Option(
            "--from-archive",
            help="Fill an empty store from the archived lines; one with content keeps it, and gets what it lacks.",
        ),
    ] = False,
) -> None:
    """Make the indexes of words and vectors again from the stored passages, while the service runs: searches use the
    former index until the new one is complete. With `--from-archive`: read archived files that the store does not know.
    """
    settings = settings_file.load()
    if from_archive:
        rebuild_from_archive(settings, typer.echo)
    else:
        rebuild_indexes(settings, typer.echo)


def rebuild_indexes(settings: Settings, say: Say) -> None:
    """Make full text and vector indexes again.

    :raises GiveUp: nothing is stored, or a server keeps the indexes.
    :raises RetryLater: another rebuild or a forgetting removed the unfinished index.
    """
    require_stored(settings)
    with store_to_write(settings) as store:
        done = of = 0
        for step, (done, of) in enumerate(store.text.rebuild(), 1):
            if step % SAID_EVERY == 0:
                say(f"Full text: {done:,} of {of:,} passages")
        say(f"Full text: {counted(done, 'passage')} indexed again")
        for space in store.spaces.all():
            report = store.vectors.build(space.key, force=True)
            say(f"Vectors of {space.key}: {report.indexed:,} of {report.vectors:,} in the index")


def rebuild_from_archive(settings: Settings, say: Say) -> None:
    """Make archived files known that the store does not know, then ingest everything.

    :raises GiveUp: there is no catalog, or another memory writes the archive.
    :raises StoreCorrupt: the store is damaged: it is moved away first.
    """
    archive = open_archive(settings)
    if not archive.catalogs():
        raise GiveUp(
            f"{settings.archive_dir} has no catalog of its files, so nothing can be taken from it; restore a backup, "
            "or read the logs that still exist: anamnesis ingest"
        )
    with store_to_write(settings) as store:
        report = adopt_archive(store, archive)
        for problem in report.problems:
            say(problem)
        known = f"; {counted(report.known, 'file')} known before, and unchanged" if report.known else ""
        say(f"Archive: {counted(report.files, 'file')}, {counted(report.lines, 'line')} taken over{known}")
        pipeline = open_pipeline(effective_settings(store), store)
        for source in report.sources:
            say(source_text(ingest_source(pipeline, source)))
    run_ingest(settings, say)
    say(ONLY_IN_A_STORE)
