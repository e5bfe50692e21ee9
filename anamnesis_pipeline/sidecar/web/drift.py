"""Drift: the score of each project, and what its texts claim and its files do not hold."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.services.drift import drift_body, drift_of
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router

PATH = "/dashboard/drift"

router = page_router()


@router.get(PATH)
def drift_page(request: Request, services: Uses) -> Response:
    """Show the drift of a project, or of all."""
    given = asking.filled(request.query_params)
    asked, problem = asking.read_or_told(asking.OfProject, given)
    reports = drift_of(services.store, services.engine.private(), datetime.now(UTC), asked.project, asked.included)
    return page(
        request,
        "drift.html",
        "Drift",
        status=422 if problem else 200,
        names=asking.names_offered(services, given),
        problem=problem,
        asked=given,
        reports=drift_body(reports)["projects"],
    )
