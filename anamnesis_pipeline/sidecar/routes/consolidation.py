"""Consolidation: the newest of a session stands for what it repeats; an LLM merges what different origins tell."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired

from fastapi import APIRouter
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from typing_extensions import TypedDict

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.pipeline.consolidation import LAST_RUN, consolidate_sessions, stats_of
from anamnesis_pipeline.pipeline.daily import timings
from anamnesis_pipeline.search.project_labels import PRIVATE
from anamnesis_pipeline.services.fields import WHOLE, EpisodeId
from anamnesis_pipeline.services.log_ingest import JsonlControl, Schedule
from anamnesis_pipeline.services.merging import MergeReport, MergeRules, Proposal
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.wiring import effective_settings, open_merger
from anamnesis_pipeline.settings import limits_of, words_of
from anamnesis_pipeline.sidecar.documentation import PROBLEMS
from anamnesis_pipeline.sidecar.problems import json_reply
from anamnesis_pipeline.sidecar.routes.embedding import refusing
from anamnesis_pipeline.sidecar.services import Services, Uses

router = APIRouter(prefix="/api/consolidation", tags=["consolidation"], responses=PROBLEMS)

_RULES = MergeRules()
Cosine = Annotated[float, limits_of("merge_cosine")]


class MergeIn(BaseModel):
    """How to merge; what is left out is as `/regime_2/defaults` says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dry_run: Annotated[bool, Field(description="Only propose: no LLM is asked and nothing is written")] = True
    threshold: Annotated[Cosine | None, Field(description="Cosine; default: the setting `merge_cosine`")] = None
    neighbours: Annotated[int, Field(ge=1, le=50, description="Nearest passages compared with each"), WHOLE] = (
        _RULES.neighbours
    )
    cluster_most: Annotated[int, Field(ge=2, le=5, description="Max episodes of a cluster"), WHOLE] = (
        _RULES.cluster_most
    )
    sample: Annotated[int, Field(ge=2, le=2_000, description="Episodes looked at"), WHOLE] = _RULES.sample
    most: Annotated[int, Field(ge=1, le=50, description="Max clusters"), WHOLE] = _RULES.most


class ScheduleChanges(TypedDict, total=False):
    """Settings to store; null lets environment, file or default count again. Names are those of the settings."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        extra="forbid", strict=True, json_schema_extra={"minProperties": 1}
    )

    consolidate_schedule: Annotated[Schedule | None, words_of("consolidate_schedule")]
    consolidate_hour: Annotated[
        Annotated[int, limits_of("consolidate_hour"), WHOLE] | None, words_of("consolidate_hour")
    ]


class ConsolidationRunOut(TypedDict):
    """What a run within sessions did. `waiting`: sessions whose vectors are still to come."""

    sessions: int
    episodes: int
    superseded: int
    revived: int
    waiting: int
    problem: str
    started_at: str
    seconds: float


class ClusterOut(TypedDict):
    """A cluster and what became of it: `proposed`, `merged`, `not the same`, `private`, `too long`, `changed` or
    `no answer`. `similarity` is the lowest cosine of a pair. Of what is private the project is `private`, and no id is
    named.
    """

    members: list[str]
    project: str
    similarity: float
    outcome: str
    merged_into: str | None


class MergedOut(TypedDict):
    """`counts`: outcome -> clusters. `problem`: why the LLM was not asked, or not any more."""

    dry_run: bool
    sampled: int
    counts: dict[str, int]
    proposals: list[ClusterOut]
    problem: str


class UnsupersededOut(TypedDict):
    """Episodes that are active again, and the merged one that is superseded instead."""

    restored: list[str]
    retired: str | None


class MergeDefaultsOut(TypedDict):
    """What `/run_regime_2` does when nothing is said. A cluster has two members or more."""

    dry_run: bool
    threshold: float
    neighbours: int
    cluster_least: int
    cluster_most: int
    sample: int
    most: int


class ScheduleOut(TypedDict):
    """When consolidation within sessions runs. `reload`: what Dagster did about times, where this call changed some."""

    consolidate_schedule: Schedule
    consolidate_hour: int
    timezone: str
    next_run: str | None
    reload: NotRequired[str]


class ConsolidationOut(TypedDict):
    """`counts`: episodes that are hidden, by regime (`session`, `merge`), and links that a person `undone`. `changed`:
    sessions to look at in the next run.
    """

    counts: dict[str, int]
    changed: int
    threshold: float
    last_run: ConsolidationRunOut | None
    schedule: ScheduleOut


@router.post("/run", response_model=ConsolidationRunOut)
def run(services: Uses) -> Response:
    """Consolidate the sessions that changed: an episode that a later one repeats in full is superseded by it. Nothing
    is deleted.
    """
    threshold = effective_settings(services.store).consolidate_cosine
    return json_reply(stats_of(consolidate_sessions(services.store, threshold)))


@router.post("/run_regime_2", response_model=MergedOut)
def run_regime_2(services: Uses, wish: MergeIn | None = None) -> Response:
    """Propose merges of episodes of different origin that say the same. With `dry_run: false` an LLM merges them,
    which may take minutes. Text of private projects goes to no LLM on another machine.
    """
    wish = wish or MergeIn()
    settings = effective_settings(services.store)
    chosen = wish.model_dump(exclude={"dry_run", "threshold"})
    if wish.threshold is not None:
        settings = settings.model_copy(update={"merge_cosine": wish.threshold})
    report = open_merger(settings, services.store, services.poster, **chosen).run(dry_run=wish.dry_run)
    return json_reply(_merged(report, services))


@router.post("/unsupersede/{episode_id:path}", response_model=UnsupersededOut)
def unsupersede(episode_id: Annotated[EpisodeId, InPath()], services: Uses) -> Response:
    """Undo what consolidation did to an episode, for good: it is active again. For a merged episode, its members are
    active again and it is superseded. 404 if there is nothing to undo.
    """
    undone = services.store.consolidation.unsupersede(episode_id)
    return json_reply({"restored": list(undone.restored), "retired": undone.retired})


@router.get("/status", response_model=ConsolidationOut)
def status(services: Uses) -> Response:
    """Return the episodes hidden by each regime, the sessions pending, the last run and the next one."""
    return json_reply(consolidation_body(services))


@router.get("/regime_2/defaults", response_model=MergeDefaultsOut)
def merge_defaults(services: Uses) -> Response:
    """Return the defaults of a merge; cosines are of the active space."""
    rules = asdict(MergeRules(threshold=effective_settings(services.store).merge_cosine))
    return json_reply({"dry_run": True, "cluster_least": 2, **rules})


@router.get("/schedule", response_model=ScheduleOut)
def get_schedule(services: Uses) -> Response:
    """Return the schedule of consolidation."""
    return json_reply(_schedule(services))


@router.put("/schedule", response_model=ScheduleOut)
def put_schedule(changes: ScheduleChanges, services: Uses) -> Response:
    """Store the schedule of consolidation and reload Dagster's definitions; `reload` reports the result."""
    try:
        reload = JsonlControl(services.store, services.dagster).change_settings(changes)
    except BadSetting as exc:
        with refusing(next((name for name in changes if name in str(exc)), "consolidate_schedule")):
            raise
    return json_reply(_schedule(services, reload))


def consolidation_body(services: Services) -> dict[str, Any]:
    """How consolidation is doing, JSON-ready."""
    store = services.store
    return {
        "counts": store.consolidation.counts(),
        "changed": store.consolidation.changed_count(),
        "threshold": effective_settings(store).consolidate_cosine,
        "last_run": store.settings.get(LAST_RUN),
        "schedule": _schedule(services),
    }


def _schedule(services: Services, reload: str = "") -> dict[str, Any]:
    settings = effective_settings(services.store)
    tick = timings(settings)["daily_consolidation"].next_tick(datetime.now(UTC))
    return {
        "consolidate_schedule": settings.consolidate_schedule,
        "consolidate_hour": settings.consolidate_hour,
        "timezone": settings.timezone,
        "next_run": utc_text(tick) if tick else None,
    } | ({"reload": reload} if reload else {})


def _merged(report: MergeReport, services: Services) -> dict[str, Any]:
    private = services.engine.private()
    heads = services.store.episodes.heads([name for each in report.proposals for name in each.members])

    def shown(proposal: Proposal) -> Proposal:
        if any(map(private.holds, (heads[name] for name in proposal.members if name in heads))):
            return replace(proposal, members=(), project=PRIVATE, merged_into=None)
        return proposal

    return {
        "dry_run": report.dry_run,
        "sampled": report.sampled,
        "counts": dict(report.counts),
        "proposals": [asdict(shown(proposal)) for proposal in report.proposals],
        "problem": report.problem,
    }
