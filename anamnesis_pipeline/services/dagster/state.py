"""Dagster's daemons and runs, as `status` and `doctor` need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.runtime.up_lock import settings_in_use
from anamnesis_pipeline.services.dagster.api import DagsterApi, open_dagster
from anamnesis_pipeline.settings import Settings

_QUERY = """
query {
  instance { daemonHealth { allDaemonStatuses { daemonType required healthy } } }
  last: runsOrError(filter: {pipelineName: "ingest", statuses: [SUCCESS]}, limit: 1) {
    ... on Runs { results { runId endTime } }
  }
  unfinished: runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING]}, limit: 200) {
    ... on Runs { results { runId jobName status updateTime creationTime } }
  }
}
"""

_PATIENCE_S = {"QUEUED": 6 * 3600, "NOT_STARTED": 600, "STARTING": 600, "STARTED": 12 * 3600, "CANCELING": 600}
"""Seconds in one state without an event after which a run counts as stuck."""


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """An unfinished run; `changed_at` is its last event."""

    run_id: str
    job: str
    status: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class DagsterState:
    """`daemons` maps each required daemon to its health. `last_ingest` is the end of the last successful run. `stopped`
    names sensors and schedules that should run.
    """

    daemons: Mapping[str, bool]
    last_ingest: datetime | None
    unfinished: tuple[UnfinishedRun, ...]
    stopped: tuple[str, ...] = ()


def dagster_in_use(settings: Settings) -> DagsterApi | None:
    """Return the Dagster of this home; None if nothing shows that the server at its port belongs to this home."""
    current = settings_in_use(settings)
    known = current.dagster_url or "dagster_port" in current.model_fields_set
    return open_dagster(current) if known else None


def dagster_state(settings: Settings) -> DagsterState:
    """Query the webserver of this home.

    :raises ServiceUnreachable: it does not answer, or is not known to belong to this home.
    """
    dagster = dagster_in_use(settings)
    if dagster is None:
        raise ServiceUnreachable(f"`anamnesis up` does not run on {settings.home}")
    state = read_state(dagster.ask(_QUERY))
    try:
        return replace(state, stopped=tuple(each.name for each in dagster.stopped_automations()))
    except ServiceUnreachable:  # the code server starts or failed; the daemons' heartbeat shows that
        return state


def read_state(data: Mapping[str, Any]) -> DagsterState:
    """Parse the answer to the query. Pure."""
    statuses = data["instance"]["daemonHealth"]["allDaemonStatuses"]
    last = data["last"].get("results") or [{}]
    return DagsterState(
        daemons={d["daemonType"]: bool(d["healthy"]) for d in statuses if d["required"]},
        last_ingest=_moment(last[0].get("endTime")),
        unfinished=tuple(
            UnfinishedRun(
                run["runId"],
                run["jobName"],
                run["status"],
                _moment(run.get("updateTime") or run.get("creationTime")) or datetime.now(UTC),
            )
            for run in data["unfinished"].get("results") or []
        ),
    )


def stopped_text(names: Sequence[str]) -> str:
    """Describe the effect of these stopped automations. Pure."""
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} stopped: no run is requested there any more"


def stuck(runs: tuple[UnfinishedRun, ...], now: datetime) -> list[UnfinishedRun]:
    """Return the runs without an event for longer than their state explains. Pure."""
    return [run for run in runs if (now - run.changed_at).total_seconds() > _PATIENCE_S.get(run.status, 3600)]


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
