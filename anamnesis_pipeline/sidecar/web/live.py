"""Parts of pages that are polled every few seconds: an unchanged part is not sent again."""

import hashlib
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from anamnesis_pipeline.sidecar.web.html import HEADERS, fragment

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
