"""All pages and their static files."""

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from anamnesis_pipeline.sidecar.web import (
    brief,
    chat,
    context,
    drift,
    embedding,
    entities,
    episode,
    episodes,
    events,
    health,
    interface,
    login,
    logs,
    memory_map,
    overview,
    retention,
    review,
    search,
    sessions,
    sources,
    static,
    timeline,
    topics,
    undo,
)
from anamnesis_pipeline.sidecar.web.html import page_router

router = APIRouter(include_in_schema=False)
PAGES = (
    static,
    login,
    overview,
    search,
    brief,
    episodes,
    episode,
    undo,
    sessions,
    timeline,
    topics,
    entities,
    review,
    drift,
    logs,
    embedding,
    events,
    health,
    retention,
    sources,
    context,
    chat,
    memory_map,
    interface,
)
for each in PAGES:
    router.include_router(each.router)

_rest = page_router()


@_rest.get("/")
async def home() -> Response:
    """Redirect the bare URL, as `anamnesis up` prints it, to the pages."""
    return RedirectResponse(overview.PATH)


@_rest.get("/chat/")
@_rest.get("/dashboard/{rest:path}")
async def no_page(request: Request) -> Response:
    """Redirect a path with a trailing slash; show 404 as a page."""
    path, query = request.url.path, request.url.query
    if not path.endswith("/"):
        raise HTTPException(404)
    return RedirectResponse(path.rstrip("/") + (f"?{query}" if query else ""))


router.include_router(_rest)  # last: it matches every path
