"""Map page: all episodes at a glance, similar ones close together. The asset `memory_map` computes it."""

from typing import Annotated, Any

from fastapi import Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError, StoreCorrupt
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.memory_map import MIN_EPISODES, MemoryMap
from anamnesis_pipeline.runtime.dagster_home import dagster_link
from anamnesis_pipeline.services.map_picture import COLOURED
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.map_view import MAX_FOUND, Group, MapState, MapView, Shows, points_body
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web.html import HEADERS, episode_link, live, page, page_router, told
from anamnesis_pipeline.sidecar.web.undo import undo_of

PATH = "/dashboard/map"
PROJECTS_LISTED = 100
SUMMARY_CHARS = 300
FOUND_LISTED = 20
NO_STORE = {"Cache-Control": "no-store", **HEADERS}

router = page_router()

Private = Annotated[bool, Query(description="Private projects, too")]
Mark = Annotated[str, Query(alias="map", max_length=40, description="Of the map that the page shows")]


@router.get(PATH)
def map_page(request: Request, services: Uses, private: Private = False) -> Response:
    """Show the page, without the points and without Dagster's state."""
    state = _view(request).state(asks=False)
    hidden = undo_of(request).waiting()
    groups = _view(request).groups(state.made, with_private=private, hidden=hidden) if state.made else []
    held = len(state.made.counts) if state.made else 0
    return page(
        request,
        "memory_map.html",
        "Map",
        **_shown(services, state),
        groups=groups[:PROJECTS_LISTED],
        legend=groups[:COLOURED],
        others=_sum_of(groups[COLOURED:]),
        projects=len(groups),
        points=sum(group.count for group in groups),
        private=private,
        lacks_some=len(groups) < held,
        listed=PROJECTS_LISTED,
    )


@router.get(PATH + "/state")
def map_state(request: Request, services: Uses, seen: str = "", shows: Shows = "map") -> Response:
    """Show the state of the map, with Dagster's part. A page without a map reloads when there is more to show."""
    state = _view(request).state(asks=True)
    if shows not in ("map", state.shows):
        return Response(status_code=204, headers={"HX-Refresh": "true", **NO_STORE})
    return live("memory_map_state.html", seen, **_shown(services, state))


@router.post(PATH + "/draw")
def draw(request: Request) -> Response:
    """Start drawing a new map."""
    try:
        link, went_on = _view(request).draw()
    except AnamnesisError as exc:
        return told(f"Not started: {exc}", bad=True)
    now = "It is being drawn already." if went_on else "The map is being drawn; this may take minutes."
    return told(now, link=link)


@router.get(PATH + "/points")
def points(request: Request, mark: Mark, private: Private = False) -> Response:
    """Return all points, encoded by `points_body`."""
    made, view = _same(request, mark), _view(request)
    body = points_body(made, view.groups(made, with_private=private, hidden=undo_of(request).waiting()))
    return Response(body, headers={"Content-Type": "application/octet-stream", **NO_STORE})


@router.get(PATH + "/point")
def point(request: Request, mark: Mark, at: Annotated[int, Query(ge=0)], private: Private = False) -> Response:
    """Return the episode of a point."""
    made = _same(request, mark)
    hidden = undo_of(request).waiting()
    head = _view(request).point(made, at, with_private=private, hidden=hidden) if at < len(made.passages) else None
    if head is None:
        raise HTTPException(404, "This episode was changed or removed since the map was drawn.")
    body = {
        "link": episode_link(head.episode_id),
        "summary": head.summary[:SUMMARY_CHARS],
        "project": head.project,
        "kind": head.kind,
        "at": utc_text(head.timestamp),
    }
    return json_reply(body, headers=NO_STORE)


@router.get(PATH + "/found")
async def found(
    request: Request, mark: Mark, q: Annotated[str, Query(min_length=1, max_length=2_000)], private: Private = False
) -> Response:
    """Search and return the hits' points, the best also by name: a canvas has nothing for a screen reader."""
    admission: Admission = request.app.state.admission

    def answer() -> Response:
        hidden = undo_of(request).waiting()
        hits = _view(request).found(_same(request, mark), q, with_private=private, hidden=hidden)
        words = (
            f"The best {MAX_FOUND} episodes." if len(hits) == MAX_FOUND else f"{counted(len(hits), 'episode')} found."
        )
        best = [
            {"link": episode_link(each.episode_id), "summary": each.summary[:SUMMARY_CHARS] or each.episode_id}
            for _, each in hits[:FOUND_LISTED]
        ]
        return json_reply({"points": [at for at, _ in hits], "told": words, "best": best}, headers=NO_STORE)

    return await admission.run(answer)


def _view(request: Request) -> MapView:
    view: MapView = request.app.state.map_view
    return view


def _same(request: Request, mark: str) -> MemoryMap:
    """Return the map that the page shows.

    :raises HTTPException: 409, there is another one, or none.
    """
    try:
        made = _view(request).current()
    except StoreCorrupt:
        made = None
    if made is None or made.mark != mark:
        raise HTTPException(409, "The map was drawn again meanwhile: reload the page.")
    return made


def _shown(services: Services, state: MapState) -> dict[str, Any]:
    return {"state": state, "least": MIN_EPISODES, "dagster": dagster_link(services.settings)}


def _sum_of(groups: list[Group]) -> dict[str, int]:
    return {"projects": len(groups), "points": sum(group.count for group in groups)}
