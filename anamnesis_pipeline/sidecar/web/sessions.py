"""Sessions: a list, and a page to read one from top to bottom."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Form, Path, Query
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.model import EpisodeFilter, Segment
from anamnesis_pipeline.parsing.text.transcripts import SPEAKERS
from anamnesis_pipeline.services.rolling import MAX_DELTA_CHARS, diary_entry, upsert
from anamnesis_pipeline.services.session_reading import (
    CHUNK_CURSOR,
    SPOKEN,
    Chunk,
    SessionRow,
    chunk_page,
    find_session,
    session_page,
    session_to_resume,
)
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import fragment, page, page_router, session_link, told
from anamnesis_pipeline.sidecar.web.undo import undo_of

PATH = "/dashboard/sessions"
PER_PAGE = 50
CHUNKS = 40
"""Chunks of a session on one page."""
LINES = 200
"""Chunks shown when a session in the timeline is expanded."""
RUN_CHARS = 6_000
"""Max characters of one run; the page of its episode has the rest."""

router = page_router()


@dataclass(frozen=True, slots=True)
class Run:
    """The shown text of a run in a session. `is_folded`: a click opens it."""

    who: str
    kind: str
    text: str
    at: datetime | None
    message_id: str
    is_cut: bool
    is_folded: bool


@router.get(PATH)
def sessions_page(request: Request, services: Uses) -> Response:
    """Show the list."""
    asked = asking.filled(request.query_params)
    names = asking.names_offered(services, asked)
    try:
        shown, status = _listed(request, services, asked), 200
    except RequestValidationError as exc:
        shown = {"asked": asked, "rows": [], "newest": None, "older": None, "problem": asking.told(exc)}
        status = 422
    return page(request, "sessions.html", "Sessions", status=status, names=names, **shown)


@router.get(f"{PATH}/lines")
def session_lines(
    request: Request, services: Uses, session_id: Annotated[str, Query(min_length=1, max_length=200)]
) -> Response:
    """Show the chunks of a session, one per line, when a list entry is expanded."""
    row = find_session(services.store, session_id, EpisodeFilter())
    found = chunk_page(services.store, row, _said_in(services, row), LINES)
    waiting = undo_of(request).waiting()
    episodes = [chunk.episode for chunk in found.items if chunk.episode.episode_id not in waiting]
    return fragment("session_lines.html", row=row, episodes=episodes, is_more=found.next_cursor is not None)


@router.post(f"{PATH}/note")
def add_note(
    services: Uses,
    text: Annotated[str, Form(max_length=MAX_DELTA_CHARS)],
    session_id: Annotated[str, Form(max_length=200)] = "",
    project: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Add a note to a session, or to today's diary."""
    if not text.strip():
        raise HTTPException(422, "Write the note first.")
    machine, now = services.settings.machine, datetime.now(UTC)
    if session_id:
        row = find_session(services.store, session_id, EpisodeFilter())
        delta = diary_entry(text, row.machine or machine, row.project, now, row.session_id)
    else:
        delta = diary_entry(text, machine, project.strip(), now)
    rolled = upsert(services.store, services.poster, delta, lambda: now)
    return told(f"Noted{'' if rolled.appended else ' already'}: {rolled.episode.episode_id}")


@router.get(f"{PATH}/{{session_id}}")
def session_page_of(
    request: Request,
    services: Uses,
    session_id: Annotated[str, Path(max_length=200)],
    cursor: Annotated[str | None, Query(pattern=CHUNK_CURSOR)] = None,
) -> Response:
    """Show one session, from its beginning or from a cursor."""
    row = find_session(services.store, session_id, EpisodeFilter())
    found = chunk_page(services.store, row, _said_in(services, row), CHUNKS, cursor)
    waiting = undo_of(request).waiting()
    chunks = [(chunk.episode, runs_of(chunk)) for chunk in found.items if chunk.episode.episode_id not in waiting]
    address = session_link(row.session_id)
    return page(
        request,
        "session.html",
        row.title or "Session",
        row=row,
        resumed=session_to_resume(services.store, row),
        chunks=chunks,
        beginning=address if cursor else None,
        later=asking.address_with(address, {}, cursor=found.next_cursor) if found.next_cursor else None,
    )


def _said_in(services: Services, row: SessionRow) -> EpisodeFilter:
    return services.engine.private().visible_of(services.store, row.session_id, row.project)


def runs_of(chunk: Chunk) -> list[Run]:
    """Return the runs of a chunk. Pure."""
    if chunk.part is None:
        text = chunk.episode.raw_exchange or chunk.episode.summary
        return [_run(chunk.episode.kind.capitalize(), "posted", text, chunk.episode.timestamp, "", is_folded=False)]
    return [_run_of(segment) for segment in chunk.part.segments]


def _run_of(segment: Segment) -> Run:
    who = SPEAKERS[segment.kind] + (f" ({segment.sender})" if segment.sender else "")
    is_folded = segment.kind not in SPOKEN
    return _run(who, segment.kind.value, segment.text, segment.timestamp, segment.uuid, is_folded=is_folded)


def _run(who: str, kind: str, text: str, at: datetime | None, message_id: str, *, is_folded: bool) -> Run:
    return Run(who, kind, text[:RUN_CHARS], at, message_id, len(text) > RUN_CHARS, is_folded)


def _listed(request: Request, services: Services, asked: dict[str, str]) -> dict[str, Any]:
    """Return the template's data; raise RequestValidationError for an invalid filter."""
    listed = asking.read_list(asked)
    where = services.engine.visible(listed.where(), ["*"] if listed.private else [])
    found = session_page(services.store, where, PER_PAGE, listed.cursor)
    waiting = undo_of(request).waiting()
    rows: list[SessionRow] = [row for row in found.items if row.episode_id not in waiting]
    shown = ("project", "instance", "since", "until", "private")
    filters = {name: value for name, value in asked.items() if name in shown}
    return {
        "asked": filters,
        "rows": rows,
        "newest": asking.address_with(PATH, filters) if listed.cursor else None,
        "older": asking.address_with(PATH, filters, cursor=found.next_cursor) if found.next_cursor else None,
        "problem": None,
    }
