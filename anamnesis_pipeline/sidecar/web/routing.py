"""Errors of pages: browsers get a page, scripts a problem."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.sidecar.problems import sentence_of, status_of
from anamnesis_pipeline.sidecar.web.html import page

_TITLES = {404: "Not found", 422: "Not understood", 429: "Too busy", 503: "Not available now"}


class PageRoute(APIRoute):
    """Renders errors as pages for browsers; a page's script gets the problem unchanged."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler with error rendering."""
        answer = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await answer(request)
            except (AnamnesisError, HTTPException, RequestValidationError) as exc:
                status, told = _told(exc)
                wants_page = "text/html" in request.headers.get("accept", "") and "hx-request" not in request.headers
                if not wants_page or status == 500:
                    raise
            return page(request, "error.html", _TITLES.get(status, "Something is wrong"), status=status, detail=told)

        return handler


def page_router() -> APIRouter:
    """Return a router for pages, which are not part of the documented API."""
    return APIRouter(include_in_schema=False, route_class=PageRoute)


def _told(exc: AnamnesisError | HTTPException | RequestValidationError) -> tuple[int, str]:
    if isinstance(exc, HTTPException):
        return exc.status_code, "There is no such page." if exc.status_code == 404 else str(exc.detail)
    if isinstance(exc, RequestValidationError):
        return 422, sentence_of(exc)
    return status_of(type(exc)), str(exc)
