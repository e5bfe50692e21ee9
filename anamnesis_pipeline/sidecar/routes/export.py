"""Episodes as a file: JSON lines to import, or Markdown to read."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from anamnesis_pipeline.services.exporting import Format, exported
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES, Filter, IncludePrivate
from anamnesis_pipeline.sidecar.services import Uses

router = APIRouter(tags=["episodes"], responses=PROBLEMS)

_FILES = {"jsonl": ("application/jsonl", "memory.jsonl"), "markdown": ("text/markdown; charset=utf-8", "memory.md")}
"""Format -> media type, and the name under which a browser keeps it."""


@router.get(
    "/api/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/jsonl": {}, "text/markdown": {}}, "description": "Oldest first"}},
)
def export_episodes(
    services: Uses,
    where: Filter,
    format: Annotated[Format, Query(description="`jsonl` can be imported, `markdown` is to be read")] = "jsonl",
    include_private: IncludePrivate = NO_NAMES,
) -> StreamingResponse:
    """Stream the episodes that pass the filters, oldest first, as `anamnesis export` writes them: one JSON object a
    line, or a section of Markdown each. What ends early lacks episodes; the store's errors cannot be told then.
    """
    media_type, name = _FILES[format]
    shown = services.engine.visible(where, include_private)
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(exported(services.store, shown, format), media_type=media_type, headers=headers)
