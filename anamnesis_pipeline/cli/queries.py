"""`anamnesis queries`: how the questions that were asked fared, and which of them were missed."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import typer

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import ask_sidecar, refusal
from anamnesis_pipeline.errors import GiveUp, ServiceUnreachable
from anamnesis_pipeline.parsing.text.wording import counted, local_time, one_line
from anamnesis_pipeline.runtime.advice import start_it
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.services.query_log import queries_body
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings

_EXCERPT_CHARS = 160
_WAYS = {"exact": "holds all its words", "semantic": "is near in meaning"}


def queries(
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="Max searches without a result that are tried again.")
    ] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Report how searches of the last 90 days fared, and which of those without a result another way of searching
    answers.
    """
    body, remark = _report(settings_file.load(), limit)
    if remark:
        typer.echo(f"anamnesis: {remark}", err=True)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render(body))


def _report(settings: Settings, limit: int) -> tuple[Mapping[str, Any], str]:
    try:
        status, answer = ask_sidecar(settings, "GET", f"/api/queries?limit={limit}", timeout_s=120.0)
    except ServiceUnreachable as exc:
        if not settings.has_store:
            raise GiveUp(f"{exc}, and nothing was asked in {settings.home} yet; {start_it(settings)}") from exc
        with closing(open_to_read(settings)) as store:
            engine = Engine(store, None, private=partial(what_is_private, store))
            return queries_body(store, engine, limit), f"{exc}; looked for words only"
    if status != 200:
        raise refusal(status, answer, "the report")
    return answer, ""


def render(body: Mapping[str, Any]) -> str:
    """The report for people. Pure."""
    if not body["queries"]:
        return "No search is remembered: there was none yet, or ANAMNESIS_QUERY_LOG is off."
    head = f"{counted(body['queries'], 'search', 'searches')}: {body['answered']:,} found something, "
    head += f"something found was read soon after {body['used']:,}."
    if not body["unanswered"]:
        return f"{head}\nNone without an answer."
    missed = body["missed"]
    looked = f"Of the latest {body['unanswered']:,} without an answer, {len(missed):,} could have had one"
    return "\n".join([head, looked + (":" if missed else "."), *(line for each in missed for line in _lines(each))])


def _lines(missed: Mapping[str, Any]) -> Iterator[str]:
    times = f", {missed['times']:,} times" if missed["times"] > 1 else ""
    where = f" in {missed['project']}" if missed["project"] else ""
    yield ""
    yield one_line(f"{missed['query']}  ({missed['mode']}{where}, {local_time(missed['asked_at'])}{times})")
    yield one_line(f"   {missed['episode_id']} {_WAYS[missed['found_by']]}:")
    yield one_line(f"   {' '.join(missed['excerpt'].split())[:_EXCERPT_CHARS]}")
