"""`anamnesis gc`: session summaries whose text is stored no longer."""

from contextlib import closing
from itertools import islice
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import require_stored, store_to_write
from anamnesis_pipeline.parsing.text.wording import counted, local_time, one_line, project_name
from anamnesis_pipeline.services.session_gc import Stranded, remove, stranded
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings

MAX_LISTED = 1_000
"""Max summaries of one run; the next one goes on."""


def gc(
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without it they are only listed.")] = False,
    private: Annotated[bool, typer.Option("--private", help="Include private projects and sources.")] = False,
) -> None:
    """List summaries of sessions whose text is stored no longer, and with --yes remove them."""
    found = run_gc(settings_file.load(), yes=yes, private=private)
    typer.echo(render(found, yes=yes))


def run_gc(settings: Settings, *, yes: bool = False, private: bool = False) -> list[Stranded]:
    """Return the summaries that would be or were removed, newest first.

    :raises GiveUp: nothing is stored.
    """
    require_stored(settings)
    if not yes:
        with closing(open_to_read(settings)) as store:
            return list(islice(stranded(store, what_is_private(store), with_private=private), MAX_LISTED))
    with store_to_write(settings) as store:
        found = list(islice(stranded(store, what_is_private(store), with_private=private), MAX_LISTED))
        return [each for each in found if remove(store, each)]


def render(found: list[Stranded], *, yes: bool) -> str:
    """Render the result. Pure."""
    if not found:
        return "Every session summary has its text."
    lines = [
        f"  {local_time(each.timestamp.isoformat(), None)}  {project_name(each.project)}  {one_line(each.title)}"
        f"  {each.episode_id}"
        for each in found
    ]
    summaries = f"{counted(len(found), 'session summary', 'session summaries')} whose text is stored no longer"
    if yes:
        return "\n".join([f"Removed {summaries}:", *lines])
    return "\n".join([f"{summaries}:", *lines, "Nothing was changed. Say --yes to remove them."])
