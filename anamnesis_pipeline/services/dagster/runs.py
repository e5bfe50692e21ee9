"""Runs of Dagster: of `ingest`, of jobs without partitions, and the sensors and schedules that request them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.services.dagster.graphql import REPOSITORY, STATE_TIMEOUT_S, GraphQl, ask_by_command

CUT_OFF = "ingest.cut_off"
"""Setting with the id of the last run of `ingest` that a system shutdown interrupted."""
AUTOMATIC_TAG = "anamnesis/automatic"
"""Tag of a run requested by neither a person, a sensor nor a schedule: a paid LLM needs a budget in it."""
POSTED_JOB = "finish_posted"
"""Summarizes uploads, and finishes interrupted work on text without a log."""
EPISODES_WRITTEN = "episodes written"
"""Metadata label of the asset `episodes`."""

_INGEST_RUNS = """
query($interrupted: String) {
  unfinished: runsOrError(filter: {
    pipelineName: "ingest", statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING]
  }, limit: 500) { ...Found }
  last: runsOrError(filter: {pipelineName: "ingest", statuses: [SUCCESS, FAILURE, CANCELED]}, limit: 1) {
    ...Found ... on Runs { results { assetMaterializations {
      metadataEntries { label ... on IntMetadataEntry { intValue } }
    } } }
  }
  interrupted: runsOrError(
    filter: {pipelineName: "ingest", runIds: [$interrupted]}, limit: 1
  ) { ...Found }
}
fragment Found on RunsOrError {
  ... on Runs { results { runId status startTime endTime tags { key value } } } ... on Error { message }
}
"""
_LAUNCH_JOB = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message }
} }
"""
_LATEST_RUN = """
query($job: String!) { runsOrError(filter: {pipelineName: $job}, limit: 1) {
  __typename ... on Runs { results { runId status } } ... on Error { message }
} }
"""
_STOP = """
mutation($ids: [String!]!) { terminateRuns(runIds: $ids, terminatePolicy: SAFE_TERMINATE) {
  __typename ... on Error { message }
} }
"""
_MARK_CANCELED = """
mutation($ids: [String!]!) { terminateRuns(runIds: $ids, terminatePolicy: MARK_AS_CANCELED_IMMEDIATELY) {
  __typename ... on Error { message }
  ... on TerminateRunsResult { results: terminateRunResults { __typename ... on TerminateRunFailure { message } } }
} }
"""
_MARKED_PER_CALL = 500
_AUTOMATIONS = """
query($repository: RepositorySelector!) { repositoryOrError(repositorySelector: $repository) {
  __typename ... on Error { message } ... on Repository {
    sensors { name defaultStatus state: sensorState { status } }
    schedules { name defaultStatus state: scheduleState { status } }
  }
} }
"""
_RESET = {
    "sensor": """mutation($selector: SensorSelector!) { reset: resetSensor(sensorSelector: $selector) {
  __typename ... on Error { message }
} }""",
    "schedule": """mutation($selector: ScheduleSelector!) { reset: resetSchedule(scheduleSelector: $selector) {
  __typename ... on Error { message }
} }""",
}


@dataclass(frozen=True, slots=True)
class Automation:
    """A sensor or schedule of the pipeline; `kind` says which."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class IngestRun:
    """A run of `ingest` for one source. `status` is one of GraphQL's `RunStatus`; times are seconds since 1970.
    `ingested`: episodes written; None: not reached, or not queried.
    """

    run_id: str
    source: str
    status: str
    started_at: float | None
    ended_at: float | None
    ingested: int | None = None


@dataclass(frozen=True, slots=True)
class IngestRuns:
    """The unfinished runs, the last finished one, and the last interrupted one."""

    unfinished: tuple[IngestRun, ...]
    last: IngestRun | None
    interrupted: IngestRun | None = None


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run of a job. `status` is one of GraphQL's `RunStatus`."""

    run_id: str
    status: str

    @property
    def ended(self) -> bool:
        """Whether it has finished."""
        return self.status in ("SUCCESS", "FAILURE", "CANCELED")


class Runs(GraphQl):
    """Queries and mutations about runs."""

    def ingest_runs(self, cut_off: str | None = None) -> IngestRuns:
        """Return the state of `ingest` and its last result.

        :param cut_off: the id of the run to return as the interrupted one.
        """
        data = self.ask(_INGEST_RUNS, {"interrupted": cut_off or ""}, STATE_TIMEOUT_S)
        unfinished = [_ingest_run(run) for run in data["unfinished"].get("results") or []]
        last = [_ingest_run(run) for run in data["last"].get("results") or []]
        interrupted = [_ingest_run(run) for run in data["interrupted"].get("results") or []]
        return IngestRuns(tuple(unfinished), next(iter(last), None), next(iter(interrupted), None))

    def launch_job(self, job: str) -> str:
        """Launch a run of a job without partitions; return its id."""
        selector = {**REPOSITORY, "jobName": job}
        params = {"selector": selector, "runConfigData": {}, "mode": "default"}
        result = self.ask(_LAUNCH_JOB, {"params": params}).get("launchRun") or {}
        self._expect(result, "LaunchRunSuccess")
        return str(result["run"]["runId"])

    def latest_run(self, job: str) -> JobRun | None:
        """Return the latest run of a job; None: there was none."""
        found = self.ask(_LATEST_RUN, {"job": job}, STATE_TIMEOUT_S).get("runsOrError") or {}
        self._expect(found, "Runs")
        return next((JobRun(run["runId"], run["status"]) for run in found["results"]), None)

    def stop_runs(self, run_ids: Sequence[str]) -> None:
        """Stop runs; each ends at its next interruptible moment, and keeps its output."""
        result = self.ask(_STOP, {"ids": list(run_ids)}).get("terminateRuns") or {}
        self._expect(result, "TerminateRunsResult")

    def stopped_automations(self) -> list[Automation]:
        """Return sensors and schedules that the code declares as running but are stopped.

        :raises ServiceUnreachable: Dagster does not answer, or has not loaded the pipeline's definitions.
        """
        found = self.ask(_AUTOMATIONS, {"repository": REPOSITORY}, STATE_TIMEOUT_S).get("repositoryOrError") or {}
        self._expect(found, "Repository")
        declared = [("sensor", each) for each in found["sensors"]] + [("schedule", each) for each in found["schedules"]]
        return [
            Automation(kind, each["name"])
            for kind, each in declared
            if (each["defaultStatus"], each["state"]["status"]) == ("RUNNING", "STOPPED")
        ]

    def start_automations(self) -> list[Automation]:
        """Reset the stopped ones to their declared status; return them."""
        stopped = self.stopped_automations()
        for each in stopped:
            selector = {**REPOSITORY, f"{each.kind}Name": each.name}
            result = self.ask(_RESET[each.kind], {"selector": selector}).get("reset") or {}
            self._expect(result, "Sensor", "ScheduleStateResult")
        return stopped

    def run_link(self, run_id: str) -> str:
        """Return the URL of a run in the UI."""
        return f"{self._link}/runs/{run_id}"


def mark_canceled(run_ids: Sequence[str]) -> None:
    """Mark runs without a process as canceled, in the instance of DAGSTER_HOME.

    :raises ServiceUnreachable: Dagster's command fails.
    """
    for first in range(0, len(run_ids), _MARKED_PER_CALL):
        chunk = list(run_ids[first : first + _MARKED_PER_CALL])
        result = ask_by_command(_MARK_CANCELED, {"ids": chunk}).get("terminateRuns") or {}
        for each in (result, *result.get("results", ())):
            if each.get("message"):
                raise ServiceUnreachable(f"dagster-graphql refuses: {each['message']}")


def _ingest_run(run: Mapping[str, Any]) -> IngestRun:
    tags = {tag["key"]: tag["value"] for tag in run.get("tags") or []}
    entries = (entry for made in run.get("assetMaterializations") or () for entry in made["metadataEntries"])
    return IngestRun(
        run["runId"],
        tags.get("dagster/partition", ""),
        run["status"],
        run.get("startTime"),
        run.get("endTime"),
        next((entry["intValue"] for entry in entries if entry["label"] == EPISODES_WRITTEN), None),
    )
