"""`anamnesis codebase`: an overview of a project's code, as it was crawled."""

import json
import os
from contextlib import closing
from typing import Annotated

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored
from anamnesis_pipeline.cli.search import no_project
from anamnesis_pipeline.cli.sessions import AsJson
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import printable
from anamnesis_pipeline.services.codebase import MAX_TOKENS, codebases_of
from anamnesis_pipeline.services.folder_project import current_project
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private


def codebase(
    project: Annotated[str, typer.Argument(metavar="[PROJECT]", help="Default: that of the current folder.")] = "",
    max_tokens: Annotated[int, typer.Option(min=100, max=MAX_TOKENS, help="Max tokens of one overview.")] = 20_000,
    as_json: AsJson = False,
) -> None:
    """Print the files, signatures and imports of a project, in at most a tenth of the tokens of its code. Exit status
    1: none of its code was crawled.
    """
    settings = settings_file.load()
    require_stored(settings)
    mention_other_store(settings)
    with closing(open_to_read(settings)) as store:
        private = what_is_private(store)
        named = project or current_project(store, os.getcwd(), settings.machine, private).project or ""
        if unknown := no_project(store, named):
            raise GiveUp(unknown)
        found = codebases_of(store, private.visible(store, EpisodeFilter(projects=(named,)), ()), max_tokens)
    if as_json:
        typer.echo(json.dumps({"items": found}, ensure_ascii=False, indent=2))
    elif found:
        for each in found:
            typer.echo(printable(each["text"]))
            typer.echo(f"({each['tokens']:,} tokens for {each['code_tokens']:,} of code; {each['detail']})")
    else:
        typer.echo(f"No code of {named} was crawled; crawl its folder with: anamnesis sources add FOLDER")
    raise typer.Exit(0 if found else 1)
