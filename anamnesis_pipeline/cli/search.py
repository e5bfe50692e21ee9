"""`anamnesis search` and `anamnesis queries`: asks the running sidecar, else the store itself, and shows the answer."""

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import ask_sidecar, other_store, refusal, search_sidecar, sidecar_status
from anamnesis_pipeline.embeddings.base import QueryVectors, query_vectors
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.errors import AnamnesisError, GiveUp, ServiceUnreachable
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.parsing.text.wording import (
    NOTHING_GOOD,
    counted,
    kind_label,
    local_time,
    one_line,
    printable,
    project_name,
    session_text,
    shown_name,
)
from anamnesis_pipeline.runtime.advice import start_it
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.freshness import EMBEDDING, backlog_notes
from anamnesis_pipeline.search.query import Mode
from anamnesis_pipeline.search.time_bounds import bound_texts
from anamnesis_pipeline.services.asking import changed_since, resume_text
from anamnesis_pipeline.services.fields import field_errors
from anamnesis_pipeline.services.folder_project import projects_of_folder
from anamnesis_pipeline.services.query_log import queries_body
from anamnesis_pipeline.services.schemas import SearchIn
from anamnesis_pipeline.services.searching import answer_question
from anamnesis_pipeline.services.wiring import open_pool_of, open_to_read, ranking_numbers, what_is_private
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

QUOTE_TOKENS = 90
"""Of the sentences that are quoted of a hit; about as many as its lines hold."""
_EXCERPT_LINES = 4
_NAMED = 20
"""Projects that a hint names."""


def search_body(
    query: str,
    *,
    top_k: int,
    mode: Mode,
    project: str | None,
    instance: str | None,
    since: str | None,
    until: str | None,
    kinds: Sequence[str],
    tags: Sequence[str],
    types: Sequence[str] = (),
    session: str | None = None,
    decay_weight: float | None = None,
    lists: Sequence[str] = (),
    as_of: str | None = None,
    include_superseded: bool = False,
    private: bool = False,
    explain: bool = False,
) -> dict[str, Any]:
    """Return the request body of the search API.

    :raises GiveUp: a time cannot be read.
    """
    return {
        "query": query,
        "top_k": top_k,
        "mode": mode.value,
        "project": project,
        "instance": instance,
        **bound_texts(since, until, datetime.now(UTC)),
        "kind": list(kinds),
        "tags": list(tags),
        "type": list(types),
        "session_id": session,
        "decay_weight": decay_weight,
        "lists": list(lists),
        "as_of": bound_texts(as_of, None, datetime.now(UTC))["since"] if as_of else None,
        "include_superseded": include_superseded,
        "include_private": ["*"] if private else [],
        "explain": explain,
        "quote_tokens": QUOTE_TOKENS,
    }


def search(settings: Settings, body: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return the API's answer, and a remark for the user if it does not come from the sidecar.

    `degraded` says what is still to be read and embedded, also where something was found.
    Private projects and sources that the current folder is in are covered.

    :raises GiveUp: the question is refused, or there is nothing to search yet.
    """
    if not body.get("include_private") and not body.get("project"):
        body = {**body, "include_private": private_here(settings)}
    try:
        answer = search_sidecar(settings, body)
    except ServiceUnreachable as exc:
        return _search_store(settings, body, str(exc))
    if settings.has_store and (other := other_store(settings, sidecar_status(settings))) is not None:
        return (
            answer,
            f"the hits are of another memory: {other}; set ANAMNESIS_PORT to an unused port to search this one",
        )
    return _with_backlog(settings, answer, Mode(body["mode"]), body.get("project")), None


def private_here(settings: Settings) -> list[str]:
    """Return the names of private projects and the keys of private sources that the current folder is in."""
    if not settings.has_store:
        return []
    with suppress(AnamnesisError, OSError), closing(open_to_read(settings)) as store:
        private, folder = what_is_private(store), os.getcwd()
        projects = projects_of_folder(store, folder, settings.machine, is_here=True, private=private)
        return [*private.around(folder, settings.machine), *filter(private.is_of, projects)]
    return []


def _with_backlog(settings: Settings, answer: dict[str, Any], mode: Mode, project: str | None) -> dict[str, Any]:
    """Add the ingest backlog to an answer; to an empty one a hint if its project does not exist."""
    if not answer["results"] and project and settings.has_store:
        with suppress(AnamnesisError), closing(open_to_read(settings)) as store:
            return answer | ({"hint": hint} if (hint := no_project(store, project)) else {})
    if answer["results"] and settings.has_store:
        with suppress(AnamnesisError), closing(open_to_read(settings)) as store:  # the answer itself is here
            known = [note for note in answer["degraded"] if not note.startswith(EMBEDDING)]
            return answer | {"degraded": [*known, *backlog_notes(store, mode)]}
    return answer


def no_project(store: Store, name: str) -> str:
    """Return a hint that lists the projects if none has this name; else an empty text."""
    names = {known for own, called, _ in store.projects.names() for known in (own, called) if known}
    if any(known == name or known.endswith(f"/{name}") for known in names):
        return ""
    there = sorted(filter(None, what_is_private(store).open_projects(store)))
    more = f", and {len(there) - _NAMED:,} more: anamnesis projects list" if len(there) > _NAMED else ""
    return f"No project is called {name}; there are: {', '.join(there[:_NAMED]) or 'none'}{more}"


def _search_store(settings: Settings, body: Mapping[str, Any], reason: str) -> tuple[dict[str, Any], str]:
    if not settings.has_store:
        raise GiveUp(f"{reason}, and nothing is stored in {settings.home} yet; {start_it(settings)}")
    try:
        asked = SearchIn.model_validate(dict(body))
    except ValidationError as exc:
        found = field_errors(exc.errors())  # one about several fields has no path
        problems = "; ".join(": ".join(filter(None, (error["path"], error["message"]))) for error in found)
        raise GiveUp(f"the question is refused: {problems}") from exc
    question = asked.question()
    semantic = question.mode is Mode.SEMANTIC
    with closing(open_to_read(settings)) as store, _engine(settings, store, with_model=semantic) as engine:
        answer = dict(answer_question(store, engine, asked, settings.machine)[1])
    answer = _with_backlog(settings, answer, question.mode, body.get("project"))
    how = "by meaning only" if semantic else "by keywords only"
    return answer, f"{reason}; searched the store itself, {how}"


@contextmanager
def _engine(settings: Settings, store: Store, *, with_model: bool) -> Iterator[Engine]:
    numbers = partial(ranking_numbers, store, settings)
    if not with_model:
        yield Engine(store, None, private=partial(what_is_private, store), numbers=numbers)
        return
    active = store.spaces.active()
    if active is None:
        raise GiveUp(f"nothing is embedded yet, so nothing can be searched by meaning; {start_it(settings)}")
    with closing(open_pool_of(store, active, priority=Priority.QUERY)) as pool:
        pool.load()

        def embed(text: str, _space: Space) -> QueryVectors:
            return query_vectors(pool.embed_with_tokens([text], "query"))

        yield Engine(store, embed, private=partial(what_is_private, store), numbers=numbers)


def converse(answered: Callable[[str], object]) -> None:
    """Answer one query per line, until an empty line or the end of input.

    :raises GiveUp: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise GiveUp("say what to look for: anamnesis search WORDS")
    typer.echo("A question a line; an empty line ends.", err=True)
    with suppress(EOFError, KeyboardInterrupt):
        while words := input("search> ").strip():
            try:
                answered(words)
            except AnamnesisError as exc:  # the next one may be answered
                typer.echo(f"anamnesis: {exc}", err=True)


def render(answer: Mapping[str, Any], zone: tzinfo | None = None, width: int = 100) -> str:
    """Render an answer: rank, date, project, confidence, a star if more than its words counts for a hit, title,
    the sentences that answer best, id, where it is from. Styled, for `typer.echo`, which drops that where no terminal
    reads. Pure.

    :param zone: of the dates; None: the local one.
    """
    hits = answer["results"]
    blocks = [NOTHING_GOOD] if answer.get("weak") else []
    blocks += [_block(rank, hit, zone, width) for rank, hit in enumerate(hits, 1)] if hits else ["Nothing found."]
    blocks += [printable(answer["hint"])] if "hint" in answer else []
    blocks += [f"Incomplete: {problem}" for problem in answer["degraded"]]
    if explanation := answer.get("explanation"):
        blocks.append(printable("\n".join(answer_lines(explanation))))
    return "\n\n".join(blocks)


def _block(rank: int, hit: Mapping[str, Any], zone: tzinfo | None, width: int) -> str:
    when = datetime.fromisoformat(hit["timestamp"]).astimezone(zone)
    sure = hit.get("confidence", "")  # an older sidecar does not say
    head = f"{rank}. {when:%Y-%m-%d %H:%M}  {project_name(hit['project'])}  {kind_label(hit['kind'])}  {sure}".rstrip()
    indent = "   "
    text = " ".join(printable(hit.get("quote") or hit["excerpt"] or hit["summary"]).split())
    title = printable(hit.get("title", ""))
    lines = [f"{indent}{title}"] if title and not text.replace("`", "").startswith(title.removesuffix("…")) else []
    lines += textwrap.wrap(
        text,
        width=width,
        initial_indent=indent,
        subsequent_indent=indent,
        max_lines=_EXCERPT_LINES,
        placeholder=" ...",
    )
    also = f"  (and {len(hit['also'])} alike)" if hit.get("also") else ""
    tail = [f"{indent}{printable(hit['episode_id'])}{also}"]
    if where := place_of(hit["source"]):
        tail.append(f"{indent}{printable(where)}")
    if command := resume_text(hit["source"]):
        changed = f"  ({changed_since(hit['source']['ground'])})" if "ground" in hit["source"] else ""
        tail.append(f"{indent}{printable(command)}{changed}")
    if (standing := hit.get("status", "active")) != "active":
        at, by = hit.get("superseded_at"), hit.get("superseded_by")
        since = f" since {datetime.fromisoformat(at).astimezone(zone):%Y-%m-%d %H:%M}" if at else ""
        behind = f" by {by}" if by else ", with nothing in its place" if standing == "superseded" else ""
        tail.append(indent + printable(f"{standing}{since}{behind}"))
    if explanation := hit.get("explanation"):
        tail += [f"{indent}{printable(line)}" for line in hit_lines(explanation)]
    star = " ★" if hit.get("priority_multiplier", 1.0) > 1 else ""
    first, rest = typer.style(printable(head) + star, bold=True), (typer.style(line, dim=True) for line in tail)
    return "\n".join([first, *lines, *rest])


def place_of(source: Mapping[str, Any]) -> str:
    """Return the origin of a hit, in one line: machine, file, line and headings of a section, machine and session of
    speech; empty for posted episodes. Pure.
    """
    machine, path, session = source["machine"], shown_name(source["path"]), source["session_id"]
    if path and (titles := source.get("title")):
        line = next(iter(source.get("lines") or ()), 0)
        file = f"{machine}:{path}" if machine else f"upload {shown_name(source['path'].rpartition('/')[2])}"
        return f"{file}{f':{line}' if line else ''} ({' > '.join(titles)})"
    if session:
        return f"{machine}, session {shown_name(session_text(source))}"
    return f"{machine}:{path}" if path else str(machine)


# --- search explained ------------------------------------------------------------------------------------

# How a search came to its answer, as lines for people. Pure.


def hit_lines(explanation: Mapping[str, Any]) -> list[str]:
    """Return the ranks of a hit in each list, then the effect of later stages."""
    places = [f"{name} {place['rank']}" for name, place in explanation.items() if name != "stages"]
    stages = explanation.get("stages") or {}
    if late := stages.get("late"):
        places.append(f"late interaction {late['rank']}")
    worth = [f"speakers x{voice:g}"] if (voice := stages.get("voice")) else []
    worth += [f"{name} x{factor:g}" for name, factor in (stages.get("factors") or {}).items()]
    if company := stages.get("company"):
        worth.append(f"company +{company:g}")
    if (above := stages.get("nearness")) is not None:
        worth.append(f"{above:+.1f} deviations from what is unrelated")
    return [f"ranks: {', '.join(places) or 'none'}", *([f"then: {', '.join(worth)}"] if worth else [])]


def answer_lines(explanation: Mapping[str, Any]) -> list[str]:
    """Return the searched lists, the confidence, and what was omitted."""
    lists = [f"{name} {ranking['found']}" for name, ranking in explanation["lists"].items()]
    lines = [f"Lists (passages): {', '.join(lists) or 'none'}"]
    if numbers := explanation.get("ranking"):  # an older sidecar does not say
        lines.append(f"Ranking numbers changed: {', '.join(f'{name} {value:g}' for name, value in numbers.items())}")
    if times := explanation["time"]:
        span = f"{times['since'] or '...'} to {times['until'] or '...'}"
        lines.append(f"Time: {shown_name(times['words'])} ({times['relation']}), {span}")
    sure, floor = explanation["confidence"], explanation["floor"]
    if sure is not None:
        lines.append(f"Confidence: {sure:.2f}" + (f", the floor is {floor:.2f}" if floor is not None else ", no floor"))
    left = f"{explanation['below_floor']} below the floor, {explanation['folded']} folded into others or further down"
    return [*lines, f"Episodes: {explanation['candidates']} candidates, {left}"]


_MISSED_CHARS = 160
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
    settings = settings_file.load()
    try:
        status, body = ask_sidecar(settings, "GET", f"/api/queries?limit={limit}", timeout_s=120.0)
        if status != 200:
            raise refusal(status, body, "the report")
    except ServiceUnreachable as exc:
        if not settings.has_store:
            raise GiveUp(f"{exc}, and nothing was asked in {settings.home} yet; {start_it(settings)}") from exc
        with closing(open_to_read(settings)) as store:
            body = queries_body(store, Engine(store, None, private=partial(what_is_private, store)), limit)
        typer.echo(f"anamnesis: {exc}; looked for words only", err=True)
    typer.echo(json.dumps(body, ensure_ascii=False, indent=2) if as_json else render_queries(body))


def render_queries(body: Mapping[str, Any]) -> str:
    """Render the report. Pure."""
    if not body["queries"]:
        return "No search is remembered: there was none yet, or ANAMNESIS_QUERY_LOG is off."
    head = f"{counted(body['queries'], 'search', 'searches')}: {body['answered']:,} found something, "
    head += f"something found was read soon after {body['used']:,}."
    if not body["unanswered"]:
        return f"{head}\nNone without an answer."
    missed = body["missed"]
    looked = f"Of the latest {body['unanswered']:,} without an answer, {len(missed):,} could have had one"
    lines = [head, looked + (":" if missed else ".")]
    for each in missed:
        times = f", {each['times']:,} times" if each["times"] > 1 else ""
        where = f" in {each['project']}" if each["project"] else ""
        lines += [
            "",
            one_line(f"{each['query']}  ({each['mode']}{where}, {local_time(each['asked_at'])}{times})"),
            one_line(f"   {each['episode_id']} {_WAYS[each['found_by']]}:"),
            one_line(f"   {' '.join(each['excerpt'].split())[:_MISSED_CHARS]}"),
        ]
    return "\n".join(lines)
