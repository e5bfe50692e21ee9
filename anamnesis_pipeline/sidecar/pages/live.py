"""Parts of pages that are asked for every few seconds: nothing is sent, and nothing moves, while they stay the same."""

import hashlib
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from anamnesis_pipeline.sidecar.pages.html import HEADERS, fragment

_MARK = Markup('<input type="hidden" name="seen" value="{}">')


def live(template: str, seen: str = "", **context: Any) -> Response:
    """The part, with a mark of what it says, or 204 when its reader has it; `toast` and `undo` as of `fragment`.

    :param seen: the mark that the reader has; empty: none.
    """
    reply = fragment(template, **context)
    mark = hashlib.sha256(reply.body).hexdigest()[:16]
    if mark == seen:
        return Response(status_code=204, headers=HEADERS)
    reply.body = bytes(reply.body) + _MARK.format(mark).encode()
    reply.headers["content-length"] = str(len(reply.body))
    return reply


def told(text: str, *, bad: bool = False, link: str | None = None) -> Response:
    """What became of an action, for the place beside its button; what worked is a toast as well."""
    return fragment("told.html", toast=None if bad else text, text=text, bad=bad, link=link)
