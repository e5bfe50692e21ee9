"""`anamnesis sessions` and `anamnesis show`: which sessions there were, and one session or episode to read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.cli.local_services import mention_other_store, require_stored
from anamnesis_pipeline.cli.search import no_project, private_here
from anamnesis_pipeline.errors import EpisodeNotFound, GiveUp
from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.plain_text import without_markup
from anamnesis_pipeline.parsing.text.transcripts import SPEAKERS
from anamnesis_pipeline.parsing.text.wording import counted, one_line, printable, project_name
from anamnesis_pipeline.search.time_bounds import bounds_of
from anamnesis_pipeline.services.rendering import episode_body
from anamnesis_pipeline.services.session_reading import (
    SPOKEN,
    Chunk,
    SessionRow,
    chunk_page,
    find_session,
    session_page,
    session_to_resume,
)
from anamnesis_pipeline.services.short_ids import find_episode
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.statuses import StatusChange
from anamnesis_pipeline.store.session_model import SESSION_KIND

LAST_SEARCH = "last_search.json"
"""File of the home with the ids that the last `anamnesis search` showed, in their order."""
CHUNKS_AT_ONCE = 100
CHANGES_SHOWN = 20
LINE_CHARS = 100
LISTED = {
    "Decided": "decisions",
    "Left open": "open_items",
    "Commits": "commits",
    "Tests": "tests",
    "Files changed": "files",
    "Commands": "commands",
}
_ROWS = TypeAdapter(list[SessionRow])
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def sessions(
    project: Annotated[str | None, typer.Option(help="Only this project; `api` also matches `acme/api`.")] = None,
    since: Annotated[str | None, typer.Option(help="Start time, inclusive (local zone): 2026-02, yesterday.")] = None,
    until: Annotated[str | None, typer.Option(help="End time, exclusive (local zone).")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Max sessions.")] = 20,
    private: Annotated[bool, typer.Option("--private", help="Include private projects and sources.")] = False,
    as_json: AsJson = False,
) -> None:
    """List sessions, newest first: first prompt, outcome, commits."""
    settings = settings_file.load()
    require_stored(settings)
    mention_other_store(settings)
    first, end = bounds_of(since, until, datetime.now(UTC))
    where = EpisodeFilter(projects=(project,) if project else (), since=first, until=end)
    included = ["*"] if private else private_here(settings)
    with closing(open_to_read(settings)) as store:
        rows = session_page(store, what_is_private(store).visible(store, where, included), limit).items
        if project and not rows and (unknown := no_project(store, project)):
            raise GiveUp(unknown)
    if as_json:
        typer.echo(json.dumps(_ROWS.dump_python(rows, mode="json"), ensure_ascii=False, indent=2))
    else:
        typer.echo("\n".join(line for row in rows for line in row_lines(row)) or "No session.")


def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Id of an episode or session, a unique prefix, or the number of a hit of the last search.",
        ),
    ],
    around: Annotated[int, typer.Option(min=0, max=50, help="Number of episodes before and after to show too.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show an episode or a session word for word."""
    settings = settings_file.load()
    require_stored(settings)
    mention_other_store(settings)
    with closing(open_to_read(settings)) as store:
        wanted = _numbered(settings, name)
        episode = None
        with suppress(EpisodeNotFound):  # then a session may be meant
            episode = find_episode(store, wanted)
        if episode is None:
            _show_session(store, wanted, as_json=as_json)
        elif as_json:
            typer.echo(json.dumps(episode_body(episode, {"raw"}), ensure_ascii=False, indent=2))
        else:
            before, after = _neighbours(store, episode, around) if around else ([], [])
            head = f"{episode.timestamp.astimezone():%Y-%m-%d %H:%M}  {project_name(episode.project)}  {episode.kind}"
            lines = [*_listed("Before it:", before), one_line(f"{head}  {episode.episode_id}")]
            if episode.path:
                lines.append(one_line(f"from {episode.machine}:{episode.path}"))
            lines += map(_change_line, store.statuses.history(episode.episode_id, CHANGES_SHOWN))
            lines += ["", printable(episode.summary)]
            lines += ["", printable(episode.raw_exchange)] if episode.raw_exchange else []
            typer.echo("\n".join([*lines, *_listed("After it:", after)]))


def _change_line(change: StatusChange) -> str:
    """Return a change of the status on one line."""
    successor = f" by {change.successor}" if change.successor else ""
    reason = f": {change.reason}" if change.reason else ""
    return one_line(f"{change.at.astimezone():%Y-%m-%d %H:%M}  {change.status}{successor}, says {change.by}{reason}")


def remember_shown(settings: Settings, answer: Mapping[str, Any]) -> None:
    """Keep the ids of what a search showed, for `anamnesis show 2`. A home that cannot be written keeps none."""
    with suppress(OSError):
        path = settings.home / LAST_SEARCH
        new = path.with_suffix(".new")
        new.write_text(json.dumps([hit["episode_id"] for hit in answer["results"]]), encoding="utf-8")
        new.replace(path)


def row_lines(row: SessionRow, zone: tzinfo | None = None) -> Iterator[str]:
    """Yield the lines of a session in a list. Pure."""
    counts = [counted(row.messages, "message"), *([counted(len(row.commits), "commit")] if row.commits else [])]
    state = "  (goes on)" if row.is_open else ""
    when = f"{row.started.astimezone(zone):%Y-%m-%d %H:%M}"
    yield one_line(f"{when}  {project_name(row.project)}  {row.title or 'without a prompt'}{state}")
    if row.outcome:
        yield f"   {_clipped(without_markup(row.outcome))}"
    yield one_line(f"   {row.session_id}  {', '.join(counts)}")


def session_lines(row: SessionRow, resumed: str, zone: tzinfo | None = None) -> Iterator[str]:
    """Yield the lines of a session. Pure.

    :param resumed: the session to resume; empty: none.
    """
    yield one_line(row.title or "Session without a prompt")
    place = f"{project_name(row.project)}{f', branch {row.branch}' if row.branch else ''} on {row.machine}"
    span = f"{row.started.astimezone(zone):%Y-%m-%d %H:%M} to {row.ended.astimezone(zone):%Y-%m-%d %H:%M}"
    yield one_line(f"{place}, {span}, {counted(row.messages, 'message')}, {counted(row.errors, 'error')}")
    if resumed:
        yield one_line(f"To go on: claude --resume {resumed}")
    if row.outcome:
        yield from ("", "Outcome:", printable(row.outcome))
    for heading, field in LISTED.items():
        if lines := getattr(row, field):
            yield from ("", f"{heading}:", *(one_line(f"- {line}") for line in lines))


def _show_session(store: Store, name: str, *, as_json: bool) -> None:
    try:
        row = find_session(store, name, EpisodeFilter())
    except EpisodeNotFound as exc:
        raise GiveUp(
            f"nothing has the id {name}, or begins so; give the number of a result of the last search, or at least 4 "
            "characters of an id that `anamnesis search` or `anamnesis sessions` shows"
        ) from exc
    if as_json:
        typer.echo(json.dumps(_ROWS.dump_python([row], mode="json")[0], ensure_ascii=False, indent=2))
        return
    typer.echo("\n".join([*session_lines(row, session_to_resume(store, row)), "", "What was said:"]))
    said = what_is_private(store).visible_of(store, row.session_id, row.project)
    cursor: str | None = None
    while True:
        found = chunk_page(store, row, said, CHUNKS_AT_ONCE, cursor)
        for line in (line for chunk in found.items for line in _said_lines(chunk)):
            typer.echo(line)
        if (cursor := found.next_cursor) is None:
            return


def _said_lines(chunk: Chunk) -> Iterator[str]:
    """Yield the speech of a chunk, and the number of its other segments; nothing without speech."""
    if chunk.part is not None and not any(segment.kind in SPOKEN for segment in chunk.part.segments):
        return
    yield ""
    yield one_line(f"{chunk.episode.timestamp.astimezone():%Y-%m-%d %H:%M}  {chunk.episode.episode_id}")
    if chunk.part is None:
        yield printable(chunk.episode.raw_exchange or chunk.episode.summary)
        return
    for segment in chunk.part.segments:
        if segment.kind in SPOKEN:
            yield printable(f"{SPEAKERS[segment.kind]}: {segment.text}")
    if rest := sum(segment.kind not in SPOKEN for segment in chunk.part.segments):
        yield f"({counted(rest, 'thought or tool call', 'thoughts and tool calls')} not shown)"


def _neighbours(store: Store, episode: Episode, around: int) -> tuple[list[Episode], list[Episode]]:
    """Return the episodes just before and after one in its session, else in its project."""
    private = what_is_private(store)
    of_session = private.visible_of(store, episode.session_id, episode.project) if episode.session_id else None
    among = replace(of_session or EpisodeFilter(projects=(episode.project,)), hidden_kinds=(SESSION_KIND,))
    before = store.episodes.page(replace(among, until=episode.timestamp), around).items[::-1]
    later = store.episodes.page(replace(among, since=episode.timestamp), around + 1, oldest_first=True).items
    return before, [each for each in later if each.episode_id != episode.episode_id][:around]


def _numbered(settings: Settings, name: str) -> str:
    """Return the id for the number of a hit of the last search; any other text is an id."""
    if not name.isdecimal() or len(name) > 3:
        return name
    try:
        shown = json.loads((settings.home / LAST_SEARCH).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return name
    number = int(name)
    return str(shown[number - 1]) if isinstance(shown, list) and 1 <= number <= len(shown) else name


def _listed(title: str, episodes: Sequence[Episode]) -> list[str]:
    if not episodes:
        return []
    return ["", title, *(f"   {each.episode_id}  {_clipped(each.summary)}" for each in episodes)]


def _clipped(text: str) -> str:
    flat = one_line(" ".join(text.split()))
    return flat if len(flat) <= LINE_CHARS else flat[: LINE_CHARS - 1].rsplit(" ", 1)[0] + "…"
