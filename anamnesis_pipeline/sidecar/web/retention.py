"""Retention page: the three curves, drawn for a half-life and a trust."""

from collections.abc import Mapping
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.search.retention import DERIVED, INGEST, INSTANCE, PERSON, SESSION, Curve
from anamnesis_pipeline.services.importance import RetentionOut, retention_body
from anamnesis_pipeline.sidecar.routes.value import Accesses, HalfLife, Trusted
from anamnesis_pipeline.sidecar.web.html import fragment, page, page_router

DAYS, WIDTH, HEIGHT = 180, 640, 240
TRUSTS = (
    ("Written down by a person", PERSON),
    ("Noted by an instance", INSTANCE),
    ("Said in a session", SESSION),
    ("Read from a file", INGEST),
    ("Derived from others", DERIVED),
)

router = page_router()


@router.get("/dashboard/retention")
def retention_page(
    request: Request, half_life_days: HalfLife = 30.0, trust: Trusted = 1.0, accesses: Accesses = 0
) -> Response:
    """Show the curves with their sliders."""
    view = _view(half_life_days, trust, accesses)
    return page(request, "retention.html", "Retention", trusts=TRUSTS, **view)


@router.get("/dashboard/retention/curves")
def curves(half_life_days: HalfLife = 30.0, trust: Trusted = 1.0, accesses: Accesses = 0) -> Response:
    """Draw the curves."""
    return fragment("retention_curves.html", **_view(half_life_days, trust, accesses))


def _view(half_life_days: float, trust: float, accesses: int) -> dict[str, Any]:
    body = retention_body(half_life_days, trust, accesses, DAYS)
    return {
        "asked": {"half_life_days": half_life_days, "trust": trust, "accesses": accesses},
        "body": body,
        "lines": [(curve.value, _points(body, curve)) for curve in Curve],
        "table": [point for point in body["points"] if point["days"] % 30 == 0],
        "days": DAYS,
        "width": WIDTH,
        "height": HEIGHT,
    }


def _points(body: RetentionOut, curve: Curve) -> str:
    """Return a curve as the points of an SVG line."""
    kept = [(point["days"], cast("Mapping[str, float]", point)[curve.value]) for point in body["points"]]
    return " ".join(f"{40 + WIDTH * days / DAYS:.1f},{10 + HEIGHT * (1 - share):.1f}" for days, share in kept)
