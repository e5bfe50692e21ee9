"""Events page: recent changes to the memory by all processes, live."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio.to_thread
from fastapi import Header, Query
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.sidecar.event_feed import EventFeed, TooManyWatchersError, without_private
from anamnesis_pipeline.sidecar.event_windows import Row, Windows
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web.asking import address_with
from anamnesis_pipeline.sidecar.web.episodes import PATH as EPISODES
from anamnesis_pipeline.sidecar.web.html import HEADERS, episode_link, page, page_router
from anamnesis_pipeline.store.records.events import EVENTS_KEPT, Happening

PATH = "/dashboard/events"
ROWS_KEPT = 200
EVENTS_READ = 1_000
"""Events read for the first rows; a busy second may have dozens that form one row."""
RETRY_MS = 3_000

LABELS = {
    Happening.WRITE: ("Written", "added, or made again from a log or document"),
    Happening.READ: ("Read", "were found by a search, or opened"),
    Happening.EDIT: ("Edited", "changed by a person"),
    Happening.PROMOTE: ("Promoted", "kept permanently by a person"),
    Happening.FORGET: ("Forgotten", "removed on request"),
    Happening.CONSOLIDATION: ("Consolidated", "stand for others, or do no more"),
    Happening.STATUS: ("Replaced", "sections of documents that were superseded, or came back"),
}

router = page_router()

Kinds = Annotated[list[Happening], Query()]


@router.get(PATH)
def events_page(request: Request, services: Uses, kind: Kinds = []) -> Response:  # noqa: B006 - FastAPI copies it
    """Show the latest rows; the stream sends later ones."""
    records, kinds = services.store.events, list(dict.fromkeys(kind))
    found = records.latest(EVENTS_READ, kinds)
    rows = [row_body(row) for row in Windows().add(without_private(services, found))][-ROWS_KEPT:]
    return page(
        request,
        "events.html",
        "Events",
        rows=rows[::-1],
        counts=records.counts(),
        kinds=kinds,
        labels=LABELS,
        last=found[-1].number if found else _latest(services),
        most=ROWS_KEPT,
        kept=EVENTS_KEPT,
    )


@router.get(PATH + "/stream")
async def stream(
    request: Request,
    services: Uses,
    kind: Kinds = [],  # noqa: B006
    after: Annotated[int | None, Query(ge=0)] = None,
    seen: Annotated[str, Header(alias="last-event-id", max_length=20)] = "",
) -> Response:
    """Stream new and changed rows, with a heartbeat after each batch, at least every second; from number `after` on,
    else from now on.

    A reconnecting client gets the missed ones (`Last-Event-ID`). 429: too many watchers.
    """
    feed: EventFeed = request.app.state.event_feed
    start = int(seen) if seen.isascii() and seen.isdigit() else after
    if start is None:
        start = await anyio.to_thread.run_sync(_latest, services)
    if feed.is_full:
        raise HTTPException(429, f"{feed.most} pages watch already; close one, or try again later")
    return EventSourceResponse(_told(feed, start, frozenset(kind)), headers={**HEADERS, "Cache-Control": "no-store"})


async def _told(feed: EventFeed, after: int, kinds: frozenset[Happening]) -> AsyncIterator[bytes]:
    windows = Windows()
    yield format_sse_event(comment="what happens to episodes", retry=RETRY_MS)
    try:
        async with feed.watching(after) as batches:
            async for batch in batches:
                for row in windows.add(event for event in batch if not kinds or event.kind in kinds):
                    body = json.dumps(row_body(row), ensure_ascii=False)
                    yield format_sse_event(event="row", data_str=body)
                seen = str(batch[-1].number) if batch else None  # a disconnect within a batch repeats it
                yield format_sse_event(event="heartbeat", data_str="{}", id=seen)
    except TooManyWatchersError as exc:  # another watcher connected meanwhile
        yield format_sse_event(event="problem", data_str=json.dumps({"error": str(exc)}))


def row_body(row: Row) -> dict[str, Any]:
    """Return a row for JSON and the template."""
    label, _ = LABELS[row.kind]
    return {
        "number": row.number,
        "at": utc_text(row.at),
        "kind": row.kind.value,
        "label": label,
        "process": row.process,
        "project": row.project,
        "episode_id": row.episode_id,
        "link": episode_link(row.episode_id),
        "events": row.events,
        "episodes": row.episodes,
        "all": list_of(row),
    }


def list_of(row: Row) -> str:
    """Return the URL of the list with a row's episodes; empty if it has only one, or they are gone or private. Pure."""
    if row.episodes < 2 or not row.episode_id or row.kind == Happening.FORGET:
        return ""
    asked = {"project": row.project} if row.project else {}
    replaced = row.kind in (Happening.STATUS, Happening.CONSOLIDATION)
    return address_with(EPISODES, asked, **({"status": "all"} if replaced else {}))


def _latest(services: Uses) -> int:
    """Return the number of the newest event; 0 if there is none."""
    latest = services.store.events.latest(1)
    return latest[-1].number if latest else 0
