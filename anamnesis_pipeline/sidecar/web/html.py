"""Template rendering. Stored text is escaped: only a template's own markup is markup."""

import hashlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

import jinja2
from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.parsing.text.plain_text import without_markup
from anamnesis_pipeline.parsing.text.titles import title_of
from anamnesis_pipeline.parsing.text.wording import counted, kind_label, noun
from anamnesis_pipeline.runtime.dagster_home import dagster_link
from anamnesis_pipeline.services.dagster.api import ASSET_PAGES
from anamnesis_pipeline.services.session_reading import row_of
from anamnesis_pipeline.sidecar.problems import sentence_of, status_of
from anamnesis_pipeline.sidecar.web import static

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
"""Content Security Policy of every page: only our own scripts and styles, nothing of other hosts, never in a frame.
Without a referrer, browsers would send the origin of our own forms as `null`, which is refused.
"""
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin", "X-Frame-Options": "DENY"}


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation."""

    path: str
    label: str
    key: str
    """Keyboard shortcut, a single key."""


REVIEW = "/dashboard/review"
"""The page whose link shows how many proposals are open."""
NAVIGATION = (
    Link("/dashboard", "Overview", "o"),
    Link("/dashboard/search", "Search", "s"),
    Link("/dashboard/episodes", "Episodes", "e"),
    Link("/dashboard/sessions", "Sessions", "n"),
    Link("/dashboard/timeline", "Timeline", "t"),
    Link("/dashboard/topics", "Topics", "i"),
    Link("/dashboard/entities", "Entities", "g"),
    Link(REVIEW, "Review", "w"),
    Link("/dashboard/drift", "Drift", "d"),
    Link("/dashboard/map", "Map", "m"),
    Link("/dashboard/context", "Context", "x"),
    Link("/dashboard/sources", "Sources", "r"),
    Link("/dashboard/logs", "Logs", "l"),
    Link("/dashboard/embedding", "Embedding", "b"),
    Link("/dashboard/health", "Health", "h"),
    Link("/dashboard/events", "Events", "v"),
    Link("/chat", "Chat", "c"),
    Link("/docs", "API", "a"),
)


def page(request: Request, template: str, title: str, *, status: int = 200, **context: Any) -> Response:
    """Render a whole page: `template` extends `base.html`."""
    settings, path = request.app.state.services.settings, request.url.path
    assets = [
        name for name, shows in ASSET_PAGES.items() if f"{path}/".startswith(f"{shows}/") and shows != "/dashboard"
    ]
    shared = {
        "title": title,
        "open_proposals": _open_proposals(request),
        "review": REVIEW,
        "own_keys": {},
        "path": path,
        "navigation": NAVIGATION,
        "dagster_link": dagster_link(settings),
        "assets": assets or [name for name, shows in ASSET_PAGES.items() if shows == path],
        "has_login": settings.api_token is not None,
    }
    return HTMLResponse(_environment().get_template(template).render(**shared | context), status, HEADERS)


def fragment(template: str, *, toast: str | None = None, undo: str | None = None, **context: Any) -> Response:
    """Render a part of a page for htmx.

    :param toast: a message to the user.
    :param undo: a URL; a POST to it undoes the action while the toast is shown.
    """
    headers = dict(HEADERS)
    if toast is not None:
        told = {"text": toast, "undo": undo}
        headers["HX-Trigger"] = json.dumps({"toast": told})  # ASCII only, as headers require
    return HTMLResponse(_environment().get_template(template).render(**context), headers=headers)


def _open_proposals(request: Request) -> int:
    try:
        return int(request.app.state.waits.get(None).open)
    except AnamnesisError:  # the page itself says what is wrong with the store
        return 0


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("anamnesis_pipeline.sidecar.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., Any]] = {
        "title_of": title_of,
        "moment": moment,
        "count": count,
        "counted": counted,
        "noun": noun,
        "share": share,
        "size": size,
        "episode_link": episode_link,
        "session_link": session_link,
        "session_row": row_of,
        "kind_label": kind_label,
        "without_markup": without_markup,
    }
    environment.filters.update(filters)
    environment.globals["asset"] = static.address
    return environment


def moment(at: datetime | str | None) -> Markup:
    """Return a `<time>` that the browser shows in its time zone (`app.js`); UTC without scripts."""
    if not at:
        return Markup('<span class="muted">never</span>')
    instant = datetime.fromisoformat(at) if isinstance(at, str) else at
    utc = instant.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        utc.isoformat(timespec="seconds").replace("+00:00", "Z"), f"{utc:%Y-%m-%d %H:%M} UTC"
    )


def episode_link(episode_id: str) -> str:
    """Return the URL of an episode's page, with the id escaped."""
    return "/dashboard/episodes/" + quote(episode_id, safe="/:")


def session_link(session_id: str) -> str:
    """Return the URL of a session's page, with the id escaped."""
    return "/dashboard/sessions/" + quote(session_id, safe="")


def count(number: int | float | None) -> str:
    """Format 12345 as 12,345; None as a dash."""
    return "–" if number is None else f"{number:,}"


def share(part: float | None) -> str:
    """Format 0.734 as 73%; None as a dash."""
    return "–" if part is None else f"{part:.0%}"


def size(octets: float) -> str:
    """Format bytes in a short decimal unit, as the commands do."""
    for unit in ("B", "kB", "MB", "GB"):
        if octets < 1000:
            return f"{octets:.0f} {unit}" if octets >= 10 or unit == "B" else f"{octets:.1f} {unit}"
        octets /= 1000
    return f"{octets:.1f} TB"


# --- live ------------------------------------------------------------------------------------------------

# Parts of pages that are polled every few seconds: an unchanged part is not sent again.

_MARK = Markup('<input type="hidden" name="seen" value="{}">')


def live(template: str, seen: str = "", **context: Any) -> Response:
    """Return the part with a digest of its content, or 204 if unchanged; `toast` and `undo` as in `fragment`.

    :param seen: the digest that the page has; empty: none.
    """
    reply = fragment(template, **context)
    mark = hashlib.sha256(reply.body).hexdigest()[:16]
    if mark == seen:
        return Response(status_code=204, headers=HEADERS)
    reply.body = bytes(reply.body) + _MARK.format(mark).encode()
    reply.headers["content-length"] = str(len(reply.body))
    return reply


def told(text: str, *, bad: bool = False, link: str | None = None) -> Response:
    """Show the outcome of an action beside its button; a success is a toast as well."""
    return fragment("told.html", toast=None if bad else text, text=text, bad=bad, link=link)


# --- routing ---------------------------------------------------------------------------------------------

# Errors of pages: browsers get a page, scripts a problem.

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
