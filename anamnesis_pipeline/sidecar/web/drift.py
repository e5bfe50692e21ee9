"""Drift: the score of each project, and what its texts claim and its files do not hold."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.services.drift import drift_body, drift_of
from anamnesis_pipeline.services.fields import Name
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router

PATH = "/dashboard/drift"

router = page_router()


class _Asked(BaseModel):
    """The filters of the page."""

    model_config = ConfigDict(extra="ignore")

    project: Name = ""
    private: bool = False


@router.get(PATH)
def drift_page(request: Request, services: Uses) -> Response:
    """Show the drift of a project, or of all."""
    given = asking.filled(request.query_params)
    names, problem, status = asking.names_offered(services, given), None, 200
    try:
        asked = _Asked.model_validate(given)
    except ValidationError as exc:
        asked, status, problem = _Asked(), 422, asking.told(asking.invalid(exc))
    included = ["*"] if asked.private else []
    reports = drift_of(services.store, services.engine.private(), datetime.now(UTC), asked.project, included)
    return page(
        request,
        "drift.html",
        "Drift",
        status=status,
        names=names,
        problem=problem,
        asked={key: value for key, value in given.items() if key in _Asked.model_fields},
        reports=drift_body(reports)["projects"],
    )
