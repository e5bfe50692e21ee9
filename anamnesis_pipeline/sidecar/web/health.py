"""Health page: findings of `doctor`, state of the services, and disk use.

Slow parts, which query services or read the whole database, load after the page.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.services.crawler_control import CrawlerControl
from anamnesis_pipeline.services.embedding_control import EmbeddingControl, coverage
from anamnesis_pipeline.services.log_ingest import llm_state
from anamnesis_pipeline.services.machine_checks import CHECKS, Finding, dagster, run_checks
from anamnesis_pipeline.services.store_checks import OTHER_STORE_CHECKS
from anamnesis_pipeline.services.wiring import effective_settings, store_place
from anamnesis_pipeline.sidecar.cache import TtlCache
from anamnesis_pipeline.sidecar.disk_use import DiskUse, disk_use
from anamnesis_pipeline.sidecar.resources import Resources
from anamnesis_pipeline.sidecar.routes.consolidation import consolidation_body
from anamnesis_pipeline.sidecar.routes.overview import QualityOut, quality_body
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web.html import fragment, live, page, page_router
from anamnesis_pipeline.store.base import Store

PATH = "/dashboard/health"
SHOWN_ENTRIES = 12
"""Largest entries of the home shown."""
EXAMINED_FOR_S = 60.0
"""Cache TTL of the findings."""
COMPARED_FOR_S = 600.0
"""Cache TTL of the full-text comparison: it takes a core for a minute in a large store."""

STAGE_NAMES = {
    "words_text": "Words",
    "words_context": "Words, with their context",
    "embed": "Question to a vector",
    "dense_text": "Meaning",
    "dense_context": "Meaning, with its context",
    "exact": "Literal tokens",
    "rare": "Rare words",
    "all_words": "All words of the question",
    "lists": "All lists together",
    "late": "Word by word",
    "order": "Ranking",
    "read": "Reading the texts",
    "fold": "Collapsing near-duplicates",
    "show": "Excerpts",
}

router = page_router()


@dataclass(frozen=True, slots=True)
class Examination:
    """Results of the slow checks. `quality` is None if the store does not answer."""

    findings: list[Finding]
    disk: DiskUse
    quality: QualityOut | None
    at: datetime


@router.get(PATH)
def health_page(request: Request, services: Uses) -> Response:
    """Show the page, with what is known at once."""
    resources: Resources = request.app.state.resources
    stages = stages_of(services)
    try:
        cards, problem = cards_of(services), ""
    except AnamnesisError as exc:  # users open this page when the store fails
        cards, problem = None, str(exc)
    return page(
        request,
        "health.html",
        "Health",
        resources=resources.last(),
        cards=cards,
        problem=problem,
        stages=stages,
        stage_names=STAGE_NAMES,
        slowest=max((mean for _, mean in stages.values()), default=1),
        place=store_place(services.settings),
    )


@router.get(f"{PATH}/resources")
def show_resources(request: Request, seen: Annotated[str, Query(max_length=16)] = "") -> Response:
    """Show the state of the services, at most half a minute old."""
    resources: Resources = request.app.state.resources
    return live("health_resources.html", seen, resources=resources.status())


@router.post(f"{PATH}/resources")
def ask_again(request: Request) -> Response:
    """Probe the services now and show their state."""
    resources: Resources = request.app.state.resources
    return live("health_resources.html", toast="Asked again.", resources=resources.status(now=True))


@router.get(f"{PATH}/checks")
def show_checks(request: Request) -> Response:
    """Show the findings of `doctor`, at most a minute old; slow ones ten minutes."""
    return fragment("health_checks.html", **_examined(request, again=False))


@router.post(f"{PATH}/checks")
def check_again(request: Request) -> Response:
    """Run the checks now."""
    return fragment("health_checks.html", toast="Checked again.", **_examined(request, again=True))


def examine(services: Services, compared: TtlCache[None, Finding]) -> Examination:
    """Run all checks of `doctor` except that of this service; measure quality and disk use.

    :param compared: cached result of the slow check.
    """

    def store_integrity(_: Store) -> Finding:
        found = compared.get(None)
        if not found.ok:  # it may be repaired by now
            compared.forget()
        return found

    try:
        settings = effective_settings(services.store)
    except AnamnesisError:
        settings = services.settings
    findings = [
        *run_checks((*CHECKS, dagster), settings),
        *run_checks((store_integrity, *OTHER_STORE_CHECKS), services.store),
    ]
    try:
        quality = quality_body(services.store)
    except AnamnesisError:  # a finding reports it
        quality = None
    return Examination(findings, disk_use(services.settings.home), quality, datetime.now(UTC))


def cards_of(services: Services) -> dict[str, Any]:
    """Return the cards' data, from the store and from memory.

    :raises AnamnesisError: the store does not answer.
    """
    store = services.store
    settings = effective_settings(store)
    crawler = CrawlerControl(store, settings).state()
    return {
        "counts": store.overview.counts(),
        "covered": coverage(store),
        "reembed": EmbeddingControl(store).reembed_status(),
        "pool": services.pool,
        "sources": len(crawler.sources),
        "away": sum(host.state == "away" for host in crawler.hosts),
        "stale": sum(not row.fresh for row in crawler.sources),
        "behind": sum(row.behind for row in crawler.sources),
        "llm": llm_state(store, settings, datetime.now(UTC)),
        "consolidation": consolidation_body(services),
    }


def stages_of(services: Services) -> dict[str, tuple[int, float]]:
    """Return search stage -> number of runs since the start, and mean in milliseconds."""
    return {
        stage: (sum(known.counts), known.total_s * 1e3 / sum(known.counts))
        for stage, known in services.engine.times.all().items()
    }


def _examined(request: Request, *, again: bool) -> dict[str, Any]:
    state = request.app.state
    if again:
        state.comparison.forget()
        state.examination.forget()
    found: Examination = state.examination.get(None)
    wrong = [*(finding for finding in found.findings if not finding.ok), *state.background.findings()]
    return {
        "wrong": wrong,
        "well": [finding for finding in found.findings if finding.ok],
        "disk": found.disk,
        "quality": found.quality,
        "at": found.at,
        "shown_entries": SHOWN_ENTRIES,
    }
