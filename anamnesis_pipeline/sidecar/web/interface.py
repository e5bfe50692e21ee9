"""The HTTP API in Swagger UI, from the files of `fastapi-offline`, so that nothing comes from another host."""

from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.sidecar.web.html import page, page_router

router = page_router()


@router.get("/docs")
async def interface_page(request: Request) -> Response:
    """Show every operation and schema of `/openapi.json`, and call them."""
    return page(request, "interface.html", "HTTP interface")
