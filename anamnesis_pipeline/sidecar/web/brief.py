"""Briefing page: what is known of a question, and how it compares with another one."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.search.project_labels import ALL
from anamnesis_pipeline.services.briefing import BriefRequest, brief_body, compared_body
from anamnesis_pipeline.sidecar.admission import Admission
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.sidecar.web import asking
from anamnesis_pipeline.sidecar.web.html import page, page_router
from anamnesis_pipeline.sidecar.web.undo import undo_of

PATH = "/dashboard/brief"

router = page_router()


@router.get(PATH)
async def brief_page(
    request: Request,
    services: Uses,
    q: Annotated[str, Query(max_length=10_000)] = "",
    with_: Annotated[str, Query(alias="with", max_length=10_000)] = "",
    project: Annotated[str, Query(max_length=200)] = "",
    private: Annotated[bool, Query()] = False,
) -> Response:
    """Show the form and the briefing; `with`: another question to compare it with."""
    question, other = q.strip(), with_.strip()
    admission: Admission = request.app.state.admission

    def shown() -> Response:
        asked = asking.filled(request.query_params)
        told: dict[str, Any] = {"asked": asked, "brief": None, "compared": None}
        told["names"] = asking.names_offered(services, asked)
        if question:
            included = (ALL,) if private else ()
            first, second = (BriefRequest(text, project.strip() or None, 1_500, included) for text in (question, other))
            hidden = undo_of(request).waiting()
            brief = brief_body(services.store, services.engine, first, datetime.now(UTC))
            brief["memories"] = [each for each in brief["memories"] if each["episode_id"] not in hidden]
            told["brief"] = brief
            told["compared"] = compared_body(services.engine, first, second) if other else None
            told["follow_ups"] = [
                (text, asking.address_with(PATH, asked, q=text, **{"with": None})) for text in brief["follow_ups"]
            ]
        return page(request, "brief.html", "Briefing", **told)

    return await admission.run(shown)
