"""Overview page: what the memory holds, how it grows, and present problems."""

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.services.counting import SHOWN
from anamnesis_pipeline.services.embedding_control import coverage
from anamnesis_pipeline.sidecar.overview_stats import Overview, points_of, private_of, totals_of
from anamnesis_pipeline.sidecar.resources import AUTOMATIONS, Resources
from anamnesis_pipeline.sidecar.routes.consolidation import consolidation_body
from anamnesis_pipeline.sidecar.routes.dashboard import present_state
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web.html import live, page, page_router
from anamnesis_pipeline.sidecar.web.review import LATE_DAYS
from anamnesis_pipeline.sidecar.web.undo import shown_of, undo_of
from anamnesis_pipeline.store.records.overview import EVERYTHING, Grouping

PATH = "/dashboard"
BARS = 10
"""Bars shown at first; the others can be expanded."""
MAX_BARS = 200
SEEN_TO_ON = {
    "sources": "/dashboard/sources",
    "reading": "/dashboard/sources",
    "dead letters": "/dashboard/logs",
    "summaries": "/dashboard/logs",
    "coverage": "/dashboard/embedding",
    "re-embed": "/dashboard/embedding",
    "model": "/dashboard/embedding",
}
"""Finding -> the page for it; all others are on Health."""
DIRECT_NAMES = {"direct": "Posted over the API or MCP", "uploads": "Uploaded documents", "chat": "Conversations here"}

router = page_router()


@router.get(PATH)
def overview_page(request: Request, services: Uses) -> Response:
    """Show the page; network services appear as of their last probe."""
    overview: Overview = request.app.state.overview
    census, covered = overview.census(), coverage(services.store)
    days = overview.days(EVERYTHING)
    points, step = points_of(days)
    state, wrong = present_state(request.app.state)
    waiting = undo_of(request).waiting()
    return page(
        request,
        "overview.html",
        "Overview",
        state=state,
        wrong=wrong,
        seen_to_on=SEEN_TO_ON,
        automations=AUTOMATIONS,
        totals=totals_of(census),
        private=private_of(census),
        passages=covered["stored"],
        embedded=covered["embedded"] / covered["stored"] if covered["stored"] else None,
        bars={
            "project": bars_of("project", census.projects),
            "instance": bars_of("instance", census.instances),
            **{
                name: bars_of(name, {each["value"]: each["episodes"] for each in overview.counts(name)["counts"]})
                for name in SHOWN
                if name != "project"
            },
        },
        shown_bars=BARS,
        most_bars=MAX_BARS,
        points=points,
        step=step,
        first=min(days, default=None),
        busiest=max(days.items(), key=lambda day: day[1], default=None),
        recent=shown_of(overview.recent(), waiting),
        most_retrieved=shown_of(overview.most_retrieved(), waiting),
        hot=[each for each in overview.hot()["episodes"] if each["episode_id"] not in waiting],
        consolidation=consolidation_body(services),
        waits=request.app.state.waits.get(None),
        late_days=LATE_DAYS,
        direct=overview.direct(),
        direct_names=DIRECT_NAMES,
    )


def bars_of(by: Grouping, counts: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """Return value, episodes and the address of their list; empty: no filter selects them. Pure."""
    return [(value, number, _list_of(by, value)) for value, number in counts.items()]


def _list_of(by: Grouping, value: str) -> str:
    if by == "month":
        first = date.fromisoformat(f"{value}-01")
        asked = {"since": first.isoformat(), "until": (first + timedelta(days=31)).replace(day=1).isoformat()}
    elif by == "type" and not value:
        return ""
    else:
        asked = {by: value}
    return f"/dashboard/episodes?{urlencode({**asked, 'status': 'all'}, quote_via=quote)}"


@router.get(f"{PATH}/now")
def now(request: Request, seen: Annotated[str, Query(max_length=16)] = "") -> Response:
    """Show present problems; probe store, model, Dagster and LLMs if the last probe is half a minute old."""
    resources: Resources = request.app.state.resources
    resources.status()
    state, wrong = present_state(request.app.state)
    return live("overview_now.html", seen, state=state, wrong=wrong, seen_to_on=SEEN_TO_ON, automations=AUTOMATIONS)


@router.post(f"{PATH}/start")
def start_stopped(request: Request, services: Uses) -> Response:
    """Start the stopped sensors and schedules; show the remaining problems."""
    try:
        started = [each.name for each in services.dagster.start_automations()]
        toast = f"Started: {', '.join(started)}." if started else "Nothing was stopped."
    except ServiceUnreachable as exc:
        toast = str(exc)
    resources: Resources = request.app.state.resources
    resources.status(now=True)
    state, wrong = present_state(request.app.state)
    return live(
        "overview_now.html", toast=toast, state=state, wrong=wrong, seen_to_on=SEEN_TO_ON, automations=AUTOMATIONS
    )
