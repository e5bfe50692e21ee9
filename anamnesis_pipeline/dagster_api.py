"""What is asked of Dagster, over GraphQL: partitions, runs of `ingest`, and the backfill that a re-embed is.

The texts fit dagster-graphql 1.13. Open-source Dagster has no authentication: it listens on loopback, or inside the
network of the containers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.settings import Settings

LOOPBACK = "127.0.0.1"
CODE_LOCATION = "anamnesis"
"""As workspace.yaml names it."""
EMBED_TAG = "anamnesis/embed"
"""On whatever embeds, with the space as its value; dagster.yaml lets one run per space go at a time."""
INTERRUPTED_TAG = "anamnesis/interrupted"
"""On a run that an end of the whole system cut off."""
EPISODES_WRITTEN = "episodes written"
"""Of the metadata of the asset `episodes`."""

_REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": CODE_LOCATION}
_INGEST_PARTITIONS = "ingest_partition_set"
_CONNECT_TIMEOUT_S = 2.0
_TIMEOUT_S = 30.0
_STATE_TIMEOUT_S = 5.0
"""Whoever asks how a backfill is doing waits for the answer, and can do without it."""
_KEYS_PER_CALL = 100
_MAX_TITLE = 100
_MAX_REASON = 300
_ENDED = frozenset({"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"})

_KNOWN_KEYS = """
query { assetNodeOrError(assetKey: {path: ["embeddings"]}) {
  ... on AssetNode { partitionKeysByDimension { name partitionKeys } }
} }
"""
_ADD_KEY = """a{n}: addDynamicPartition(
    repositorySelector: $repository, partitionsDefName: $dimension, partitionKey: $k{n}
  ) {{ __typename ... on Error {{ message }} }}"""
_LAUNCH = """
mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on Error { message }
} }
"""
_CANCEL = """
mutation($id: String!) { cancelPartitionBackfill(backfillId: $id) {
  __typename ... on Error { message }
} }
"""
_UNFINISHED = """
query { partitionBackfillsOrError(limit: 100, filters: {statuses: [REQUESTED]}) {
  __typename
  ... on PartitionBackfills { results {
    id partitionSetName assetSelection { path } unfinishedRuns(limit: 1) { id } runs(limit: 1) { id }
    assetBackfillData { rootTargetedPartitions { partitionKeys } }
  } }
  ... on Error { message }
} }
"""
_STATE = """
query($id: String!) { partitionBackfillOrError(backfillId: $id) {
  __typename
  ... on PartitionBackfill { status numPartitions error { message } assetBackfillData { assetBackfillStatuses {
    ... on AssetPartitionsStatusCounts {
      numPartitionsMaterialized numPartitionsInProgress numPartitionsFailed
    }
  } } }
} }
"""
_INGEST_RUNS = """
query($interrupted: String!) {
  unfinished: runsOrError(filter: {
    pipelineName: "ingest", statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING]
  }, limit: 500) { ...Found }
  last: runsOrError(filter: {pipelineName: "ingest", statuses: [SUCCESS, FAILURE, CANCELED]}, limit: 1) {
    ...Found ... on Runs { results { assetMaterializations {
      metadataEntries { label ... on IntMetadataEntry { intValue } }
    } } }
  }
  interrupted: runsOrError(
    filter: {pipelineName: "ingest", tags: [{key: $interrupted, value: "true"}]}, limit: 1
  ) { ...Found }
}
fragment Found on RunsOrError {
  ... on Runs { results { runId status startTime endTime tags { key value } } } ... on Error { message }
}
"""
_SOURCE_KEYS = """
query { assetNodeOrError(assetKey: {path: ["exchanges"]}) { ... on AssetNode { partitionKeys } } }
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


@dataclass(frozen=True, slots=True)
class IngestRun:
    """A run of `ingest` for one source. `status` is one of GraphQL's `RunStatus`; times are seconds since 1970.

    `ingested`: the episodes it wrote; None: it did not come so far, or was not asked.
    """

    run_id: str
    source: str
    status: str
    started_at: float | None
    ended_at: float | None
    ingested: int | None = None


@dataclass(frozen=True, slots=True)
class IngestRuns:
    """Those that have not ended, the last one that has, and the last one that was cut off."""

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
        """Whether it does no more."""
        return self.status in ("SUCCESS", "FAILURE", "CANCELED")


def dagster_url(settings: Settings) -> str:
    """Base address of the Dagster UI, as this process reaches it."""
    return settings.dagster_url or f"http://{LOOPBACK}:{settings.dagster_port}"


def dagster_link(settings: Settings) -> str:
    """Base address of the Dagster UI, as whoever uses it reaches it."""
    return settings.dagster_link or dagster_url(settings)


def open_dagster(settings: Settings) -> "DagsterApi":
    """The Dagster of this deployment."""
    return DagsterApi(dagster_url(settings), dagster_link(settings))


@dataclass(frozen=True, slots=True)
class BackfillState:
    """A backfill as Dagster tells it. `status` is one of GraphQL's `BulkActionStatus`; the counts are partitions."""

    status: str
    targeted: int
    materialized: int
    in_progress: int
    failed: int
    problem: str | None

    @property
    def ended(self) -> bool:
        """Whether it will start no further run."""
        return self.status in _ENDED


@dataclass(frozen=True, slots=True)
class EmbeddingBackfill:
    """A backfill of `embeddings` that has work to do, and the spaces it embeds into."""

    backfill_id: str
    spaces: frozenset[str]


class DagsterApi:
    """One Dagster webserver. Every call raises ServiceUnreachable, with the reason, when it cannot be done."""

    def __init__(self, url: str, link: str | None = None) -> None:
        """:param url: base address, without a slash at its end.
        :param link: the same for links, where it is another.
        """
        self._url = url
        self._link = link or url

    def ask(
        self, query: str, variables: Mapping[str, Any] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        """The `data` of one GraphQL query.

        :raises ServiceUnreachable: nobody answers, or Dagster answers with errors.
        """
        body = {"query": query, "variables": dict(variables or {})}
        status, answer = call_json("Dagster", httpx.Request("POST", f"{self._url}/graphql", json=body), timeout_s)
        if status != 200 or not isinstance(answer, dict) or answer.get("errors"):
            raise ServiceUnreachable(f"Dagster on {self._url} answers with an error: {_reason(status, answer)}")
        data = answer.get("data")
        return data if isinstance(data, dict) else {}

    def add_partitions(self, space: str, sources: Sequence[str]) -> None:
        """Make `source|space` a partition of `embeddings` for each of these sources. What is there already stays.

        :raises ServiceUnreachable: Dagster does not answer, or has not loaded the pipeline's definitions.
        """
        wanted = {"space": [space], "source": list(dict.fromkeys(sources))}
        known = self._known_keys()
        for dimension, keys in wanted.items():
            missing = [key for key in keys if key not in known[dimension]]
            for first in range(0, len(missing), _KEYS_PER_CALL):
                self._add_keys(dimension, missing[first : first + _KEYS_PER_CALL])

    def _known_keys(self) -> dict[str, set[str]]:
        node = self.ask(_KNOWN_KEYS).get("assetNodeOrError") or {}
        known = {each["name"]: set(each["partitionKeys"]) for each in node.get("partitionKeysByDimension") or []}
        if not known.keys() >= {"space", "source"}:
            raise ServiceUnreachable(
                f"Dagster on {self._url} does not know the asset embeddings: its code server is starting or has failed"
            )
        return known

    def _add_keys(self, dimension: str, keys: Sequence[str]) -> None:
        declared = "".join(f", $k{n}: String!" for n in range(len(keys)))
        calls = "\n  ".join(_ADD_KEY.format(n=n) for n in range(len(keys)))
        query = f"mutation($repository: RepositorySelector!, $dimension: String!{declared}) {{\n  {calls}\n}}"
        variables = {"repository": _REPOSITORY, "dimension": dimension, **{f"k{n}": key for n, key in enumerate(keys)}}
        for result in self.ask(query, variables).values():
            # a duplicate means that a sensor was faster
            self._expect(result, "AddDynamicPartitionSuccess", "DuplicateDynamicPartitionError")

    def launch_embedding_backfill(self, space: str, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> str:
        """Backfill `embeddings` for these sources in a space, adding the partitions first; the backfill's id.

        :param title: as the UI shows it; cut, and freed of what Dagster forbids in a title.
        :param tags: of the backfill and of every run of it.
        """
        self.add_partitions(space, sources)
        params = {
            "assetSelection": [{"path": ["embeddings"]}],
            "partitionNames": [f"{source}|{space}" for source in sources],
            "title": re.sub(r'[%*"]', "", title)[:_MAX_TITLE],
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        result = self.ask(_LAUNCH, {"params": params}).get("launchPartitionBackfill") or {}
        self._expect(result, "LaunchBackfillSuccess")
        return str(result["backfillId"])

    def launch_ingest_backfill(self, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> str:
        """Run `ingest` once for each of these sources, adding the partitions first; the backfill's id."""
        node = self.ask(_SOURCE_KEYS).get("assetNodeOrError") or {}
        if "partitionKeys" not in node:
            raise ServiceUnreachable(
                f"Dagster on {self._url} does not know the asset exchanges: its code server is starting or has failed"
            )
        missing = [key for key in dict.fromkeys(sources) if key not in set(node["partitionKeys"])]
        for first in range(0, len(missing), _KEYS_PER_CALL):
            self._add_keys("source", missing[first : first + _KEYS_PER_CALL])
        params = {
            "selector": {"partitionSetName": _INGEST_PARTITIONS, "repositorySelector": _REPOSITORY},
            "partitionNames": list(dict.fromkeys(sources)),
            "title": re.sub(r'[%*"]', "", title)[:_MAX_TITLE],
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        result = self.ask(_LAUNCH, {"params": params}).get("launchPartitionBackfill") or {}
        self._expect(result, "LaunchBackfillSuccess")
        return str(result["backfillId"])

    def ingest_runs(self) -> IngestRuns:
        """What `ingest` is doing, and how it ended last."""
        data = self.ask(_INGEST_RUNS, {"interrupted": INTERRUPTED_TAG}, _STATE_TIMEOUT_S)
        unfinished = [_ingest_run(run) for run in data["unfinished"].get("results") or []]
        last = [_ingest_run(run) for run in data["last"].get("results") or []]
        interrupted = [_ingest_run(run) for run in data["interrupted"].get("results") or []]
        return IngestRuns(tuple(unfinished), next(iter(last), None), next(iter(interrupted), None))

    def launch_job(self, job: str) -> str:
        """Run a job that has no partitions; the run's id."""
        selector = {**_REPOSITORY, "jobName": job}
        params = {"selector": selector, "runConfigData": {}, "mode": "default"}
        result = self.ask(_LAUNCH_JOB, {"params": params}).get("launchRun") or {}
        self._expect(result, "LaunchRunSuccess")
        return str(result["run"]["runId"])

    def latest_run(self, job: str) -> JobRun | None:
        """The run of a job that was launched last; None: there was none."""
        found = self.ask(_LATEST_RUN, {"job": job}, _STATE_TIMEOUT_S).get("runsOrError") or {}
        self._expect(found, "Runs")
        return next((JobRun(run["runId"], run["status"]) for run in found["results"]), None)

    def stop_runs(self, run_ids: Sequence[str]) -> None:
        """End runs; each stops at its next interruptible moment, and what it wrote is kept."""
        result = self.ask(_STOP, {"ids": list(run_ids)}).get("terminateRuns") or {}
        self._expect(result, "TerminateRunsResult")

    def run_link(self, run_id: str) -> str:
        """Where the UI shows a run."""
        return f"{self._link}/runs/{run_id}"

    def cancel_backfill(self, backfill_id: str) -> None:
        """Start no further run of it and end those that go; takes Dagster up to a minute after this call."""
        result = self.ask(_CANCEL, {"id": backfill_id}).get("cancelPartitionBackfill") or {}
        self._expect(result, "CancelBackfillSuccess")

    def unfinished_backfills(self) -> list[EmbeddingBackfill]:
        """Those of `embeddings` that go on or are about to, whoever launched them; not those that are being cancelled.

        One whose runs have all ended does no more, though Dagster takes up to a minute to see that.
        """
        return [
            EmbeddingBackfill(each["id"], _spaces(each))
            for each in self._unfinished()
            if {"path": ["embeddings"]} in (each["assetSelection"] or ())
            if each["unfinishedRuns"] or not each["runs"]
        ]

    def unfinished_ingest_backfills(self) -> list[str]:
        """Ids of the backfills of `ingest` that may start runs yet."""
        return [each["id"] for each in self._unfinished() if each["partitionSetName"] == _INGEST_PARTITIONS]

    def _unfinished(self) -> list[dict[str, Any]]:
        found = self.ask(_UNFINISHED).get("partitionBackfillsOrError") or {}
        self._expect(found, "PartitionBackfills")
        results: list[dict[str, Any]] = found["results"]
        return results

    def backfill_state(self, backfill_id: str) -> BackfillState | None:
        """How far it is; None when Dagster does not know it (its storage was removed)."""
        found = self.ask(_STATE, {"id": backfill_id}, _STATE_TIMEOUT_S).get("partitionBackfillOrError") or {}
        if found.get("__typename") != "PartitionBackfill":
            return None
        counts: dict[str, int] = next(
            iter((found.get("assetBackfillData") or {}).get("assetBackfillStatuses") or []), {}
        )
        return BackfillState(
            status=found["status"],
            targeted=found.get("numPartitions") or 0,
            materialized=counts.get("numPartitionsMaterialized", 0),
            in_progress=counts.get("numPartitionsInProgress", 0),
            failed=counts.get("numPartitionsFailed", 0),
            problem=_first_line(found["error"]["message"]) if found.get("error") else None,
        )

    def link(self, backfill_id: str) -> str:
        """Where the UI shows a backfill."""
        return f"{self._link}/runs/b/{backfill_id}"

    def _expect(self, result: Mapping[str, Any], *wanted: str) -> None:
        kind = result.get("__typename")
        if kind not in wanted:
            reason = _first_line(str(result.get("message") or kind or "no answer"))
            raise ServiceUnreachable(f"Dagster on {self._url} refuses: {reason}")


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


def call_json(who: str, request: httpx.Request, timeout_s: float = _TIMEOUT_S) -> tuple[int, Any]:
    """Status and decoded JSON body (None when it is empty) of one call to a service of this machine.

    :param who: the service, as an error names it.
    :raises ServiceUnreachable: nobody answers in time, or what answers is not JSON.
    """
    where = request.url.copy_with(path="/", query=None)
    timeout = httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S)
    try:
        # Without `trust_env` no proxy of the environment is asked to reach loopback.
        with httpx.Client(timeout=timeout, trust_env=False) as client:
            response = client.send(request)
            return response.status_code, response.json() if response.content else None
    except httpx.HTTPError as exc:
        raise ServiceUnreachable(f"{who} does not answer on {where} ({type(exc).__name__})") from exc
    except ValueError as exc:
        raise ServiceUnreachable(f"what answers on {where} is not {who}: its reply is not JSON") from exc


def _spaces(backfill: Mapping[str, Any]) -> frozenset[str]:
    """Of the partitions, `source|space`, that a backfill is about."""
    targeted = (backfill.get("assetBackfillData") or {}).get("rootTargetedPartitions") or {}
    return frozenset(name.partition("|")[2] for name in targeted.get("partitionKeys") or ())


def _reason(status: int, answer: Any) -> str:
    """The first message of a GraphQL answer, else the HTTP status."""
    return next((_first_line(message) for message in _messages(answer)), f"status {status}")


def _messages(answer: Any) -> Iterator[str]:
    """What went wrong: the errors of the query, else those of its fields, which Dagster sends with status 500."""
    if not isinstance(answer, dict):
        return
    data = answer.get("data")
    for error in [*(answer.get("errors") or []), *(data.values() if isinstance(data, dict) else [])]:
        if isinstance(error, dict) and error.get("message"):
            yield str(error["message"])


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")[:_MAX_REASON]
