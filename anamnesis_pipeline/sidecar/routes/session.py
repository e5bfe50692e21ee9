"""Sessions: list them, and read one from its beginning."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from pydantic import TypeAdapter
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.text.transcripts import SPEAKERS
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.session_reading import (
    CHUNK_CURSOR,
    SPOKEN,
    Chunk,
    SessionRow,
    chunk_page,
    find_session,
    session_page,
)
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES, Order, filter_of_time
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.store.values import CURSOR_PATTERN

_ROWS = TypeAdapter(list[SessionRow])

router = APIRouter(prefix="/api/sessions", tags=["sessions"], responses=PROBLEMS)


class SaidOut(TypedDict):
    """A run of text in a session: who said it or what it is, when, and the record of the log that holds it."""

    kind: str
    who: str
    text: str
    at: str | None
    message_id: str


class ChunkOut(TypedDict):
    """A piece of a session. `path`: the log that it stands in. `said` is empty for what was posted about a session."""

    episode_id: str
    timestamp: str
    kind: str
    summary: str
    path: str
    said: list[SaidOut]


class SessionsOut(TypedDict):
    """Sessions by the time at which they began; `next_cursor` is null on the last page."""

    items: list[SessionRow]
    next_cursor: str | None


class SessionOut(TypedDict):
    """A session, and a page of what was said and done in it."""

    session: SessionRow
    chunks: list[ChunkOut]
    next_cursor: str | None


IncludePrivate = Annotated[
    list[Name],
    Query(max_length=50, description="Private projects and sources to include without `project`; `*`: all"),
]


@router.get("", response_model=SessionsOut)
def list_sessions(
    *,
    services: Uses,
    where: Annotated[EpisodeFilter, Depends(filter_of_time)],
    limit: Annotated[int, Query(ge=1, le=500, description="Max sessions of a page")] = 20,
    cursor: Annotated[str | None, Query(pattern=CURSOR_PATTERN, description="`next_cursor` of the page before")] = None,
    order: Order = "newest",
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """List sessions, newest first unless `order` says otherwise, open ones before all others. Each has title, first
    prompt, outcome, files, commits, tests, decisions and open items.
    """
    filtered = services.engine.visible(where, include_private)
    page = session_page(services.store, filtered, limit, cursor, oldest_first=order == "oldest")
    return json_reply({"items": _ROWS.dump_python(page.items, mode="json"), "next_cursor": page.next_cursor})


@router.get("/{session_id}", response_model=SessionOut)
def get_session(
    session_id: Annotated[
        str, Path(max_length=200, description="Id of a session, or a unique prefix of at least 4 characters")
    ],
    services: Uses,
    limit: Annotated[int, Query(ge=1, le=200, description="Max exchanges of a page")] = 50,
    cursor: Annotated[str | None, Query(pattern=CHUNK_CURSOR, description="`next_cursor` of the page before")] = None,
    tools: Annotated[bool, Query(description="Include thoughts, tool calls and their output")] = False,
) -> Response:
    """Return a session from its beginning, with sessions joined to it. `tools=true` adds thoughts and tool calls."""
    row = find_session(services.store, session_id, EpisodeFilter())
    said = services.engine.private().visible_of(services.store, row.session_id, row.project)
    page = chunk_page(services.store, row, said, limit, cursor)
    chunks = [_chunk_body(chunk, tools=tools) for chunk in page.items]
    session: dict[str, Any] = _ROWS.dump_python([row], mode="json")[0]
    return json_reply({"session": session, "chunks": chunks, "next_cursor": page.next_cursor})


def _chunk_body(chunk: Chunk, *, tools: bool) -> ChunkOut:
    episode = chunk.episode
    segments = chunk.part.segments if chunk.part else ()
    return {
        "episode_id": episode.episode_id,
        "timestamp": utc_text(episode.timestamp),
        "kind": episode.kind,
        "summary": episode.summary,
        "path": episode.path,
        "said": [
            {
                "kind": segment.kind.value,
                "who": segment.sender or SPEAKERS[segment.kind],
                "text": segment.text,
                "at": utc_text(segment.timestamp) if segment.timestamp else None,
                "message_id": segment.uuid,
            }
            for segment in segments
            if tools or segment.kind in SPOKEN
        ],
    }
