"""The whole memory in figures, in one sentence, and how everything is that the service stands on."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.services.counting import MAX_VALUES, CountsOut, counts_body
from anamnesis_pipeline.services.embedding_control import coverage
from anamnesis_pipeline.services.machine_checks import Finding
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.sidecar.cache import TtlCache
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.host_state import HostOut, host_state
from anamnesis_pipeline.sidecar.overview_stats import Overview, StatsOut, sentence_of
from anamnesis_pipeline.sidecar.present_problems import present_problems
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.resources import Resource, Resources
from anamnesis_pipeline.sidecar.routes.episodes import NO_NAMES, Filter, IncludePrivate
from anamnesis_pipeline.sidecar.services import Uses
from anamnesis_pipeline.store.records.overview import Grouping

router = APIRouter(prefix="/api", tags=["service"], responses=PROBLEMS)

SUMMARY_KEPT_S = 60.0


class StatusSummaryOut(TypedDict):
    """The state in one sentence, how many things are wrong, and when that was so."""

    text: str
    wrong: int
    at: str


class ResourceOut(TypedDict):
    """Something that the service stands on, or may use (`used`: work waits for it). `stale`: it answered before, and
    missed one or two times; `loading`: the model; `off`: it may not be asked. `key`: its key, masked.
    """

    name: str
    kind: Literal["store", "model", "dagster", "llm"]
    where: str
    state: Literal["up", "loading", "stale", "down", "off"]
    detail: str
    advice: str
    key: str | None
    used: bool
    failures: int
    last_ok: str | None
    checked_at: str
    took_ms: float | None


class ResourcesOut(TypedDict):
    """All of them, as they were within the last 25 seconds."""

    resources: list[ResourceOut]


@router.get("/dashboard/stats", response_model=StatsOut)
def dashboard_stats(request: Request) -> Response:
    """Return totals, the number of private episodes, episodes by project and instance, the newest, the most read,
    consolidation, episodes without a log, and proposals that wait. Counts are cached for 5 seconds.
    """
    overview: Overview = request.app.state.overview
    return json_reply(overview.stats())


@router.get("/counts", response_model=CountsOut)
def count_episodes(
    services: Uses,
    where: Filter,
    by: Annotated[Grouping, Query(description="Field to count by")],
    limit: Annotated[int, Query(ge=1, le=MAX_VALUES, description="Max values; the others are counted together")] = 100,
    include_private: IncludePrivate = NO_NAMES,
) -> Response:
    """Count the episodes that pass the filters by layer, kind, project, type, source or instance, those with the most
    episodes first; or by month, day or hour (UTC), the latest first. Each episode counts once. Without filters,
    private episodes are counted together, and not named.
    """
    private, now = services.engine.private(), datetime.now(UTC)
    return json_reply(counts_body(services.store, private, by, now, where, include_private, limit))


@router.get("/status/summary", response_model=StatusSummaryOut)
def status_summary(request: Request) -> Response:
    """Return the state of the memory in one plain sentence, cached for a minute, with the result of
    `/api/resources/status`. No LLM writes it.
    """
    kept: TtlCache[None, StatusSummaryOut] = request.app.state.status_summary
    return json_reply(kept.get(None))


@router.get("/resources/status", response_model=ResourcesOut)
def resource_status(request: Request) -> Response:
    """Check store, model, Dagster and each configured LLM in parallel, for 5 seconds at most, with calls that cost
    nothing. A resource that fails once or twice is `stale`, then `down`.
    """
    resources: Resources = request.app.state.resources
    return json_reply({"resources": [_resource_body(each) for each in resources.status()]})


@router.get("/host", response_model=HostOut)
def host() -> Response:
    """Return the load of the machine: processors, load average, memory, GPUs, uptime; null for a figure that the
    system does not provide.
    """
    return json_reply(host_state())


def present_state(state: State) -> tuple[str, list[Finding]]:
    """The sentence, and what is wrong; of what is asked over the network, as it was when it was asked last.

    :param state: of the application.
    """
    services, overview = state.services, state.overview
    wrong = present_problems(services, state.room, state.growth, state.resources.last()) + state.background.findings()
    covered = coverage(services.store)
    embedded = covered["embedded"] / covered["stored"] if covered["stored"] else None
    newest = services.store.episodes.page(EpisodeFilter(), 1).items
    at = newest[0].timestamp if newest else None
    return sentence_of(overview.census(), embedded, at, len(wrong), datetime.now(UTC)), wrong


def summary_body(state: State) -> StatusSummaryOut:
    """The same, JSON-ready, after all that it stands on was asked."""
    state.resources.status()
    text, wrong = present_state(state)
    return {"text": text, "wrong": len(wrong), "at": utc_text(datetime.now(UTC))}


def _resource_body(found: Resource) -> ResourceOut:
    return {
        "name": found.name,
        "kind": found.kind,
        "where": found.where,
        "state": found.state,
        "detail": found.detail,
        "advice": found.advice,
        "key": found.key,
        "used": found.is_used,
        "failures": found.failures,
        "last_ok": utc_text(found.last_ok) if found.last_ok else None,
        "checked_at": utc_text(found.checked_at),
        "took_ms": found.took_ms,
    }
