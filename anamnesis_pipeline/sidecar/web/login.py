"""Login form for the token, if one is set, and its cookie."""

import hmac
from typing import Annotated

from fastapi import Form, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from anamnesis_pipeline.sidecar.security import COOKIE, PAGES, LoginRateLimiter, client_of, session_value
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web.html import page, page_router

router = page_router()

HOME = PAGES[0]
KEPT_S = 30 * 24 * 3600
LONGEST = 32_000
"""Max characters of the target URL: a search page's contains its query."""


@router.get("/login")
def show_form(
    request: Request, services: Uses, after: Annotated[str, Query(alias="next", max_length=LONGEST)] = HOME
) -> Response:
    """Show the form; redirect to the pages if no token is required."""
    if services.settings.api_token is None:
        return RedirectResponse(_own(after), 303)
    return page(request, "login.html", "Log in", after=_own(after), problem=None)


@router.post("/login")
async def log_in(
    request: Request,
    services: Uses,
    token: Annotated[str, Form(max_length=1_000)] = "",
    after: Annotated[str, Form(max_length=LONGEST)] = HOME,
) -> Response:
    """With the right token: set the cookie and redirect to the requested page."""
    wanted = services.settings.api_token
    if wanted is None:
        return RedirectResponse(_own(after), 303)
    expected = wanted.get_secret_value()
    if not hmac.compare_digest(token.strip().encode(), expected.encode()):
        guesses: LoginRateLimiter = request.app.state.guesses
        guesses.wrong(client_of(request.scope))
        told = "That is not the token. It is what ANAMNESIS_API_TOKEN says on the machine that runs this."
        return page(request, "login.html", "Log in", status=401, after=_own(after), problem=told)
    response = RedirectResponse(_own(after), 303)
    is_secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, session_value(expected), max_age=KEPT_S, httponly=True, samesite="strict", secure=is_secure
    )
    return response


@router.post("/logout")
def log_out() -> Response:
    """Delete the cookie."""
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


def _own(path: str) -> str:
    """Return the path if it is one of our pages, else home: other sites must not choose the redirect target."""
    bare = path.partition("?")[0]
    is_ours = bare in PAGES or bare.startswith(tuple(f"{each}/" for each in PAGES))
    return path if is_ours else HOME
