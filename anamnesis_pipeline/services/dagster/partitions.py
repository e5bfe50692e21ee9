"""Partitions, which must exist before a backfill can name them."""

from collections.abc import Iterable, Sequence

from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.services.dagster.graphql import REPOSITORY, GraphQl

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
            self._add_keys(dimension, missing[first : first + _KEYS_PER_CALL])

    def _add_keys(self, dimension: str, keys: Sequence[str]) -> None:
        declared = "".join(f", $k{n}: String!" for n in range(len(keys)))
        calls = "\n  ".join(_ADD_KEY.format(n=n) for n in range(len(keys)))
        query = f"mutation($repository: RepositorySelector!, $dimension: String!{declared}) {{\n  {calls}\n}}"
        variables = {"repository": REPOSITORY, "dimension": dimension, **{f"k{n}": key for n, key in enumerate(keys)}}
        for result in self.ask(query, variables).values():
            # a duplicate: a sensor was faster
            self._expect(result, "AddDynamicPartitionSuccess", "DuplicateDynamicPartitionError")
