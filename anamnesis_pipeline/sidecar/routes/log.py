"""The latest lines of the sidecar's own log."""

import logging
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.log_tail import KEPT, LogLine, LogTail
from anamnesis_pipeline.sidecar.problems import json_reply

router = APIRouter(prefix="/api", tags=["service"], responses=PROBLEMS)

Level = Literal["info", "warning", "error"]
LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LogLineOut(TypedDict):
    """One entry of the log. `number` grows, also over a restart."""

    number: int
    at: str
    level: str
    logger: str
    text: str


class LogLinesOut(TypedDict):
    """Entries in their order; ask on with `since` as `last`. `lost`: some that followed `since` are not kept now."""

    lines: list[LogLineOut]
    last: int
    lost: bool


@router.get("/logs", response_model=LogLinesOut)
def list_lines(
    request: Request,
    since: Annotated[int | None, Query(ge=0, description="Only entries after this number; default: the latest")] = None,
    limit: Annotated[int, Query(ge=1, le=KEPT, description="Max entries")] = 500,
    level: Annotated[Level, Query(description="The least level")] = "info",
) -> Response:
    """Return the latest entries of the service's log, without secrets, of 2,000 that are kept. Successful reads and
    the libraries' step by step messages are left out.
    """
    tail: LogTail = request.app.state.log_tail
    least = LEVELS[level]
    newest = tail.last
    lines = tail.latest(limit, least) if since is None else tail.since(since, limit, least)
    last = lines[-1].number if len(lines) == limit else max(newest, lines[-1].number if lines else 0)
    return json_reply(
        {"lines": [line_body(line) for line in lines], "last": last, "lost": since is not None and tail.lost(since)}
    )


def line_body(line: LogLine) -> LogLineOut:
    """An entry, JSON-ready. Pure."""
    return {
        "number": line.number,
        "at": utc_text(line.at),
        "level": line.level.lower(),
        "logger": line.logger,
        "text": line.text,
    }
