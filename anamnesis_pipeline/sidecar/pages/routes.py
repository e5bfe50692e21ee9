"""All pages, and the files that they load."""

from fastapi import APIRouter
from starlette.exceptions import HTTPException

from anamnesis_pipeline.sidecar.pages import (
    chat,
    context,
    embedding,
    episode,
    episodes,
    events,
    login,
    logs,
    memory_map,
    search,
    sources,
    static,
    undo,
)
from anamnesis_pipeline.sidecar.pages.routing import page_router

router = APIRouter(include_in_schema=False)
for each in (static, login, search, episodes, episode, undo, logs, embedding, events, sources, context, chat, memory_map):
    router.include_router(each.router)

_rest = page_router()


@_rest.get("/dashboard/{rest:path}")
async def unknown_page(rest: str) -> None:
    """No such page: told as a page."""
    raise HTTPException(404)


router.include_router(_rest)  # last: it takes every address
