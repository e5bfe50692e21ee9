"""The definitions that Dagster has loaded: their schedules, and loading them again after a setting changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.services.dagster.graphql import REPOSITORY, STATE_TIMEOUT_S, GraphQl

RELOAD_TIMEOUT_S = 60.0
"""The code server imports the definitions in a new process before this answers."""
_RELOAD = """
mutation($location: String!) { reloadRepositoryLocation(repositoryLocationName: $location) {
  __typename ... on Error { message } ... on WorkspaceLocationEntry {
    loaded: locationOrLoadError { __typename ... on Error { message } }
  }
} }
"""
_SCHEDULES = """
query($repository: RepositorySelector!) { repositoryOrError(repositorySelector: $repository) {
  __typename ... on Error { message } ... on Repository { schedules {
    name cronSchedule executionTimezone scheduleState {
      status nextTick { timestamp } ticks(limit: 1, statuses: [SUCCESS, SKIPPED]) { timestamp }
      typeSpecificData { ... on ScheduleData { startTimestamp } }
    }
  } }
} }
"""


@dataclass(frozen=True, slots=True)
class LoadedSchedule:
    """A schedule as Dagster runs it.

    :param started_at: since when it runs; None before the daemon has seen it.
    :param evaluated_at: the latest tick that requested runs or skipped.
    :param next_at: the next tick; None where it is stopped.
    """

    name: str
    cron: str
    zone: str
    is_running: bool
    started_at: datetime | None
    evaluated_at: datetime | None
    next_at: datetime | None


class LoadedDefinitions(GraphQl):
    """What is asked about the definitions."""

    def schedules(self) -> list[LoadedSchedule]:
        """All schedules.

        :raises ServiceUnreachable: Dagster does not answer, or has not loaded the definitions.
        """
        found = self.ask(_SCHEDULES, {"repository": REPOSITORY}, STATE_TIMEOUT_S).get("repositoryOrError") or {}
        self._expect(found, "Repository")
        return [_loaded_schedule(each) for each in found["schedules"]]

    def reload_definitions(self, timeout_s: float = RELOAD_TIMEOUT_S) -> None:
        """Load the code location again, which reads the settings again. Runs under way go on.

        Needs a code server of `dagster code-server start`; one of `dagster api grpc` keeps what it has.

        :raises ServiceUnreachable: Dagster does not answer in time, or cannot load the definitions.
        """
        location = REPOSITORY["repositoryLocationName"]
        found = self.ask(_RELOAD, {"location": location}, timeout_s).get("reloadRepositoryLocation") or {}
        self._expect(found, "WorkspaceLocationEntry")
        self._expect(found["loaded"] or {}, "RepositoryLocation")


def _loaded_schedule(found: Mapping[str, Any]) -> LoadedSchedule:
    state = found["scheduleState"]
    started = (state["typeSpecificData"] or {}).get("startTimestamp")
    is_running = state["status"] == "RUNNING"
    return LoadedSchedule(
        name=found["name"],
        cron=found["cronSchedule"],
        zone=found["executionTimezone"],
        is_running=is_running,
        started_at=_moment(started) if started else None,
        evaluated_at=next((_moment(tick["timestamp"]) for tick in state["ticks"]), None),
        next_at=_moment(state["nextTick"]["timestamp"]) if is_running and state["nextTick"] else None,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
