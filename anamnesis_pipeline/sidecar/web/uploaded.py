"""List of uploaded documents and web pages; the upload itself uses the API (`sources.js`)."""

from typing import Any

from starlette.responses import Response

from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.sidecar.routes.upload import UploadId, forget_upload, uploads_of
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web.html import fragment, page_router

PATH = "/dashboard/sources/uploads"
SHOWN = 10

router = page_router()


@router.get(PATH)
def list_uploads(services: Uses) -> Response:
    """Show the newest uploads."""
    return fragment("sources_uploads.html", **shown(services))


@router.post(PATH + "/{upload_id}/delete")
def delete(upload_id: UploadId, services: Uses) -> Response:
    """Delete an upload, as `DELETE /api/uploads/{upload_id}`."""
    toast = (
        "Deleted, with everything made from it." if forget_upload(services, upload_id) else "It was deleted already."
    )
    return fragment("sources_uploads.html", toast=toast, **shown(services))


def shown(services: Services) -> dict[str, Any]:
    """Return the newest uploads, their total, the number in private projects, and whether web pages may be fetched."""
    private, every = services.engine.private(), uploads_of(services).listed()
    found = [each for each in every if not private.is_of(each.project)]
    may_fetch = not effective_settings(services.store).local_only
    return {
        "uploads": found[:SHOWN],
        "uploads_all": len(found),
        "uploads_private": len(every) - len(found),
        "may_fetch": may_fetch,
    }
