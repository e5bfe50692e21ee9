"""Timeline: by day, one line per session or other episode, for a range selected on a strip or typed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.services import session_reading
from anamnesis_pipeline.sidecar.overview_stats import Overview, points_of
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router
from anamnesis_pipeline.sidecar.web.undo import shown_of, undo_of

PATH = "/dashboard/timeline"
PER_PAGE = 50
RANGES = {"Last 7 days": 7, "30 days": 30, "90 days": 90, "Year": 365}
"""Label -> days until now."""

router = page_router()


@router.get(PATH)
def timeline_page(request: Request, services: Uses) -> Response:
    """Show the page."""
    asked = asking.filled(request.query_params)
    names = asking.names_offered(services, asked)
    today = datetime.now(UTC).date()
    try:
        shown, status = _shown(request, services, asked), 200
    except RequestValidationError as exc:
        shown, status = {**_nothing(asked), "problem": asking.told(exc)}, 422
    return page(
        request,
        "timeline.html",
        "Timeline",
        status=status,
        names=names,
        statuses=asking.STATUSES,
        ranges=ranges_of(shown["asked"], today),
        **shown,
    )


def by_day(episodes: Sequence[Episode]) -> list[tuple[date, list[Episode]]]:
    """Group episodes by day (UTC), in order. Pure."""
    return [(day, list(those)) for day, those in groupby(episodes, key=lambda e: e.timestamp.astimezone(UTC).date())]


def ranges_of(asked: Mapping[str, str], today: date) -> list[tuple[str, str, bool]]:
    """Return label, URL and selection state of the ranges that end today. Pure."""
    found = [
        (words, {"since": (today - timedelta(days=days - 1)).isoformat(), "until": None})
        for words, days in RANGES.items()
    ]
    found.append(("All", {"since": None, "until": None}))
    return [
        (
            words,
            asking.address_with(PATH, asked, **bounds),
            all(asked.get(name) == value for name, value in bounds.items()),
        )
        for words, bounds in found
    ]


def _shown(request: Request, services: Services, asked: dict[str, str]) -> dict[str, Any]:
    """Return the template's data; raise RequestValidationError for an invalid filter."""
    listed = asking.read_list(asked)
    overview: Overview = request.app.state.overview
    where = services.engine.visible(listed.where(), ["*"] if listed.private else [])
    days = overview.days(replace(where, since=None, until=None))
    points, step = points_of(days)
    if listed.kind is None and listed.session_id is None and listed.status == "active":
        found = session_reading.timeline_page(services.store, where, PER_PAGE, listed.cursor)
    else:
        found = services.store.episodes.page(where, PER_PAGE, listed.cursor)
    filters = {name: value for name, value in asked.items() if name in type(listed).model_fields and name != "cursor"}
    return {
        **_nothing(filters),
        "days": by_day(shown_of(found.items, undo_of(request).waiting())),
        "per_day": days,
        "points": points,
        "step": step,
        "span": (min(days), max(days)) if days else None,
        "total": services.store.episodes.count(where),
        "newest": asking.address_with(PATH, filters) if listed.cursor else None,
        "older": asking.address_with(PATH, filters, cursor=found.next_cursor) if found.next_cursor else None,
    }


def _nothing(asked: dict[str, str]) -> dict[str, Any]:
    return {
        "asked": asked,
        "days": [],
        "per_day": {},
        "points": [],
        "step": 1,
        "span": None,
        "total": 0,
        "newest": None,
        "older": None,
        "problem": None,
    }
