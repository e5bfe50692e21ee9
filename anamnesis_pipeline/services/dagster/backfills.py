"""Backfills of Dagster: of `embeddings`, for a re-embed, and of `ingest`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.services.dagster.graphql import REPOSITORY, STATE_TIMEOUT_S, GraphQl, first_line

_KEYS_PER_CALL = 100
_KNOWN_KEYS = """
query { assetNodeOrError(assetKey: {path: ["embeddings"]}) {
  ... on AssetNode { partitionKeysByDimension { name partitionKeys } }
} }
"""
_ADD_KEY = """a{n}: addDynamicPartition(
    repositorySelector: $repository, partitionsDefName: $dimension, partitionKey: $k{n}
  ) {{ __typename ... on Error {{ message }} }}"""
_SOURCE_KEYS = """
query { assetNodeOrError(assetKey: {path: ["exchanges"]}) { ... on AssetNode { partitionKeys } } }
"""


class Partitions(GraphQl):
    """The source and space partitions of Dagster."""

    def add_partitions(self, space: str, sources: Sequence[str]) -> None:
        """Add the partition `source|space` of `embeddings` for each of these sources. Existing ones stay.

        :raises ServiceUnreachable: Dagster does not answer, or has not loaded the pipeline's definitions.
        """
        node = self.ask(_KNOWN_KEYS).get("assetNodeOrError") or {}
        known = {each["name"]: each["partitionKeys"] for each in node.get("partitionKeysByDimension") or []}
        if not known.keys() >= {"space", "source"}:
            raise self._unknown("embeddings")
        self._add_missing("space", [space], known["space"])
        self._add_missing("source", sources, known["source"])

    def _add_sources(self, sources: Sequence[str]) -> None:
        """Add each source to the partitions of `ingest`."""
        node = self.ask(_SOURCE_KEYS).get("assetNodeOrError") or {}
        if "partitionKeys" not in node:
            raise self._unknown("exchanges")
        self._add_missing("crawled_source", sources, node["partitionKeys"])

    def _unknown(self, asset: str) -> ServiceUnreachable:
        return ServiceUnreachable(
            f"Dagster on {self._url} does not know the asset {asset}: its code server is starting or has failed"
        )

    def _add_missing(self, dimension: str, wanted: Sequence[str], known: Iterable[str]) -> None:
        there = set(known)
        missing = [key for key in dict.fromkeys(wanted) if key not in there]
        for first in range(0, len(missing), _KEYS_PER_CALL):
            keys = missing[first : first + _KEYS_PER_CALL]
            declared = "".join(f", $k{n}: String!" for n in range(len(keys)))
            calls = "\n  ".join(_ADD_KEY.format(n=n) for n in range(len(keys)))
            query = f"mutation($repository: RepositorySelector!, $dimension: String!{declared}) {{\n  {calls}\n}}"
            variables = {
                "repository": REPOSITORY,
                "dimension": dimension,
                **{f"k{n}": key for n, key in enumerate(keys)},
            }
            for result in self.ask(query, variables).values():
                # a duplicate: a sensor was faster
                self._expect(result, "AddDynamicPartitionSuccess", "DuplicateDynamicPartitionError")


EMBED_TAG = "anamnesis/embed"
"""Tag of every embedding run, with the space as its value; dagster.yaml allows one run per space at a time."""
BACKFILL_TAG = "dagster/backfill"
"""Tag of every run of a backfill."""
STARTING_RUNS = "REQUESTED"
"""Status of a backfill that starts runs."""
UNFINISHED_BACKFILLS = (STARTING_RUNS, "CANCELING", "FAILING")

_INGEST_PARTITIONS = "ingest_partition_set"
_MAX_TITLE = 100
MAX_DIRECT_RUNS = 20
"""Limit per call: each takes Dagster about 50 ms, and the client waits."""
_ENDED = frozenset({"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"})
_LAUNCH = """
mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on Error { message }
} }
"""
_LAUNCH_RUNS = """
mutation($runs: [ExecutionParams!]!) { launchMultipleRuns(executionParamsList: $runs) {
  __typename ... on Error { message } ... on LaunchMultipleRunsResult { runs: launchMultipleRunsResult {
    __typename ... on LaunchRunSuccess { run { runId } } ... on Error { message }
  } }
} }
"""
_CANCEL = """
mutation($id: String!) { cancelPartitionBackfill(backfillId: $id) {
  __typename ... on Error { message }
} }
"""
_UNFINISHED = """
query($statuses: [BulkActionStatus!]) { partitionBackfillsOrError(limit: 100, filters: {statuses: $statuses}) {
  __typename
  ... on PartitionBackfills { results {
    id status partitionSetName assetSelection { path } assetBackfillData { rootTargetedPartitions { partitionKeys } }
  } }
  ... on Error { message }
} }
"""
_RUNS = """
query($tags: [ExecutionTag!]!) {
  unfinished: runsOrError(
    filter: {tags: $tags, statuses: [QUEUED, NOT_STARTED, STARTING, STARTED, CANCELING]}, limit: 1
  ) { ... on Runs { results { id } } }
  begun: runsOrError(filter: {tags: $tags}, limit: 1) { ... on Runs { results { id } } }
}
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


@dataclass(frozen=True, slots=True)
class BackfillState:
    """State of a backfill. `status` is one of GraphQL's `BulkActionStatus`; the counts are partitions."""

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
class Launched:
    """Requested runs: the id of one, or of the backfill that starts some, and their URL in the UI."""

    launch_id: str
    link: str


@dataclass(frozen=True, slots=True)
class EmbeddingBackfill:
    """A backfill of `embeddings` with work to do, and its spaces. `status`: one of `UNFINISHED_BACKFILLS`."""

    backfill_id: str
    spaces: frozenset[str]
    status: str = STARTING_RUNS


class Backfills(Partitions):
    """Queries and mutations about backfills."""

    def launch_embedding_backfill(self, space: str, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> str:
        """Add the partitions and backfill `embeddings` for these sources in a space; return the backfill's id.

        :param title: for the UI; truncated, without the characters that Dagster forbids.
        :param tags: of the backfill and of its runs.
        """
        self.add_partitions(space, sources)
        names = [f"{source}|{space}" for source in sources]
        return self._launch({"assetSelection": [{"path": ["embeddings"]}], "partitionNames": names}, title, tags)

    def launch_ingest_backfill(self, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> str:
        """Add the partitions and run `ingest` once for each of these sources; return the backfill's id."""
        self._add_sources(sources)
        selector = {"partitionSetName": _INGEST_PARTITIONS, "repositorySelector": REPOSITORY}
        return self._launch({"selector": selector, "partitionNames": list(dict.fromkeys(sources))}, title, tags)

    def launch_ingest(self, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> Launched:
        """Add the partitions and run `ingest` once for each of these sources. The first MAX_DIRECT_RUNS are queued on
        return; the others get a backfill, which Dagster polls every half minute.
        """
        wanted = list(dict.fromkeys(sources))
        self._add_sources(wanted)
        runs = [
            {
                "selector": {**REPOSITORY, "jobName": "ingest"},
                "runConfigData": {},
                "executionMetadata": {
                    "tags": [{"key": k, "value": v} for k, v in {**tags, "dagster/partition": source}.items()]
                },
            }
            for source in wanted[:MAX_DIRECT_RUNS]
        ]
        result = self.ask(_LAUNCH_RUNS, {"runs": runs}).get("launchMultipleRuns") or {}
        self._expect(result, "LaunchMultipleRunsResult")
        for each in result["runs"]:
            self._expect(each, "LaunchRunSuccess")
        if later := wanted[MAX_DIRECT_RUNS:]:
            backfill_id = self.launch_ingest_backfill(later, title, tags)
            return Launched(backfill_id, self.link(backfill_id))
        run_id = str(result["runs"][0]["run"]["runId"])
        return Launched(run_id, f"{self._link}/runs/{run_id if len(runs) == 1 else '?q%5B0%5D=job%3Aingest'}")

    def _launch(self, selected: Mapping[str, Any], title: str, tags: Mapping[str, str]) -> str:
        params = {
            **selected,
            "title": re.sub(r'[%*"]', "", title)[:_MAX_TITLE],
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
        }
        result = self.ask(_LAUNCH, {"params": params}).get("launchPartitionBackfill") or {}
        self._expect(result, "LaunchBackfillSuccess")
        return str(result["backfillId"])

    def cancel_backfill(self, backfill_id: str) -> None:
        """Cancel a backfill and its runs; takes Dagster up to a minute after this call."""
        result = self.ask(_CANCEL, {"id": backfill_id}).get("cancelPartitionBackfill") or {}
        self._expect(result, "CancelBackfillSuccess")

    def unfinished_backfills(self, statuses: Sequence[str] = (STARTING_RUNS,)) -> list[EmbeddingBackfill]:
        """Return the backfills of `embeddings` in these states that have work to do, from any launcher.

        One whose runs have all ended has none, though Dagster takes up to a minute to notice.
        """
        return [
            EmbeddingBackfill(each["id"], _spaces(each), each["status"])
            for each in self._unfinished(statuses)
            if {"path": ["embeddings"]} in (each["assetSelection"] or ()) and self._has_work(each["id"])
        ]

    def _has_work(self, backfill_id: str) -> bool:
        # A backfill's own `runs(limit: 1)` fails on Dagster 1.12 and 1.13.0, though their schema has that limit.
        found = self.ask(_RUNS, {"tags": [{"key": BACKFILL_TAG, "value": backfill_id}]})
        return bool(found["unfinished"].get("results")) or not found["begun"].get("results")

    def unfinished_ingest_backfills(self) -> list[str]:
        """Return the ids of the backfills of `ingest` that may still start runs."""
        return [
            each["id"] for each in self._unfinished((STARTING_RUNS,)) if each["partitionSetName"] == _INGEST_PARTITIONS
        ]

    def _unfinished(self, statuses: Sequence[str]) -> list[dict[str, Any]]:
        found = self.ask(_UNFINISHED, {"statuses": list(statuses)}).get("partitionBackfillsOrError") or {}
        self._expect(found, "PartitionBackfills")
        results: list[dict[str, Any]] = found["results"]
        return results

    def backfill_state(self, backfill_id: str) -> BackfillState | None:
        """Return its progress; None if Dagster does not know it (its storage was removed)."""
        found = self.ask(_STATE, {"id": backfill_id}, STATE_TIMEOUT_S).get("partitionBackfillOrError") or {}
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
            problem=first_line(found["error"]["message"]) if found.get("error") else None,
        )

    def link(self, backfill_id: str) -> str:
        """Return the URL of a backfill in the UI."""
        return f"{self._link}/runs/b/{backfill_id}"


def _spaces(backfill: Mapping[str, Any]) -> frozenset[str]:
    """Return the spaces of a backfill's partitions, `source|space`."""
    targeted = (backfill.get("assetBackfillData") or {}).get("rootTargetedPartitions") or {}
    return frozenset(name.partition("|")[2] for name in targeted.get("partitionKeys") or ())
