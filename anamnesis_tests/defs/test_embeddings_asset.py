"""The asset `embeddings` on a real store and a real Dagster instance; models hash words."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.embeddings import embeddings
from anamnesis_pipeline.defs.partitions import EMBEDDED_SOURCES, SPACES, embed_key
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.index import begin
from anamnesis_pipeline.pipeline.reembed_state import failure_of, set_paused, wanted_model
from anamnesis_pipeline.services import reembedding
from anamnesis_pipeline.services.dagster.api import DagsterApi
from anamnesis_pipeline.services.dagster.backfills import BACKFILL_TAG, EMBED_TAG
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.defs.conftest import Backfills, HashedModels, Launcher, MeasuredWords
from anamnesis_tests.support.spaces import write

OLD, NEW = Space("old", "model-old", 16), Space("new", "model-new", 24)
KEY = dg.AssetKey("embeddings")
CANCELED = dg.DagsterRunStatus.CANCELED


def run(
    memory: MemoryResource,
    instance: dg.DagsterInstance,
    space: Space,
    sources: Sequence[str] = ("direct", "chat"),
    tags: Mapping[str, str] | None = None,
) -> dg.ExecuteInProcessResult:
    """A run over the range of partitions between two sources, as the sensor and a backfill request it."""
    covered = {
        "dagster/asset_partition_range_start": embed_key(sources[0], space.key),
        "dagster/asset_partition_range_end": embed_key(sources[-1], space.key),
    }
    resources = {"memory": memory, "embedding_pool": EmbeddingPoolResource()}
    return dg.materialize(
        [embeddings], instance=instance, resources=resources, tags={**covered, **(tags or {})}, raise_on_error=False
    )


@dataclass
class Runs:
    """Those of one instance, and what came of them."""

    memory: MemoryResource
    instance: dg.DagsterInstance
    models: HashedModels

    def run(self, space: Space, sources: Sequence[str] = ("direct", "chat"), **tags: str) -> bool:
        return run(self.memory, self.instance, space, sources, tags).success

    def of_backfill(self, space: Space, backfill: str, sources: Sequence[str] = ("direct", "chat")) -> bool:
        return self.run(space, sources, **{BACKFILL_TAG: backfill})

    @property
    def newest(self) -> dg.DagsterRun:
        (record,) = self.instance.get_run_records(limit=1)
        return record.dagster_run

    @property
    def log(self) -> str:
        """Of the newest run, with its failures."""
        entries = self.instance.all_logs(self.newest.run_id)
        events = [entry.dagster_event for entry in entries]
        errors = [event.step_failure_data.error for event in events if event is not None and event.is_step_failure]
        return "\n".join([*(entry.message for entry in entries), *map(str, errors)])

    @property
    def materialized(self) -> set[str]:
        return set(self.instance.get_materialized_partitions(KEY))

    def last(self, partition: str) -> dg.AssetMaterialization:
        of_it = dg.AssetRecordsFilter(asset_key=KEY, asset_partitions=[partition])
        made = self.instance.fetch_materializations(of_it, limit=1).records[0].asset_materialization
        assert made is not None
        return made

    def metadata(self, partition: str) -> dict[str, object]:
        return {name: value.value for name, value in self.last(partition).metadata.items()}

    def data_version(self, partition: str) -> str:
        return (self.last(partition).tags or {})["dagster/data_version"]


@pytest.fixture
def runs(memory: MemoryResource, instance: dg.DagsterInstance, models: HashedModels) -> Runs:
    return Runs(memory, instance, models)


@pytest.fixture
def store(runs: Runs) -> Store:
    """An active space that lacks thirty episodes of each of two sources, and an added one that lacks the same."""
    store = runs.memory.store
    store.spaces.put(OLD)
    store.spaces.activate(OLD.key)
    store.spaces.put(NEW)
    write(store, 30, source="direct")
    write(store, 30, source="uploads", first=30)
    runs.instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["direct", "uploads", "chat"])
    runs.instance.add_dynamic_partitions(str(SPACES.name), [OLD.key, NEW.key])
    return store


def on_call(number: int, act: Callable[[], object]) -> Callable[[Space], LoadedModel]:
    """A model that does something ahead of one of its batches."""
    calls: list[int] = []

    def before(_: int) -> None:
        calls.append(1)
        if len(calls) == number:
            act()

    return lambda space: MeasuredWords(space.dim, before)


def test_run_fills_its_sources_and_describes_each_partition(runs: Runs, store: Store) -> None:
    assert runs.run(OLD, ["chat", "chat"])
    assert runs.models.opened == [], "nothing to do"
    store.settings.set("config.embed_cpu_pct", 1)
    assert runs.run(OLD)
    assert store.vectors.pending_sources(OLD.key) == {}
    assert runs.materialized == {f"{source}|old" for source in ("direct", "uploads", "chat")}
    about = runs.metadata("uploads|old")
    assert about["passages embedded"] == 30
    assert (about["passages done"], about["passages in all"], about["model"]) == (60, 60, "model-old")
    assert (about["dimensions"], about["workers"], about["device"]) == (16, 1, "cpu")
    assert runs.metadata("chat|old")["passages embedded"] == 0
    assert runs.instance.fetch_observations(KEY, limit=10).records, "how far it was"
    assert store.vectors.pending_sources(NEW.key) == {"direct": 30, "uploads": 30}


def test_data_version_of_partition_is_its_space_and_content(runs: Runs, store: Store) -> None:
    assert runs.run(OLD)
    first = {source: runs.data_version(f"{source}|old") for source in ("direct", "uploads", "chat")}
    assert len(set(first.values())) == 3
    assert runs.run(NEW, ["direct", "direct"])
    assert runs.data_version("direct|new") not in first.values()
    write(store, 1, source="uploads", first=99)
    for sources in (("direct", "direct"), ("direct", "chat")):
        assert runs.run(OLD, sources)
        assert runs.data_version("direct|old") == first["direct"], "also beside one that changed"
    assert runs.data_version("uploads|old") != first["uploads"]
    assert runs.metadata("uploads|old")["dagster/row_count"] == 31


STALENESS = """query { assetNodes(assetKeys: [{path: ["consolidation_report"]}]) {
  staleStatus staleCauses { category key { path } }
} }"""


def test_only_changed_embeddings_mark_the_report_stale(
    memory: MemoryResource, models: HashedModels, webserver: tuple[DagsterApi, Path]
) -> None:
    api, home = webserver
    store = memory.store
    store.spaces.put(OLD)
    store.spaces.activate(OLD.key)
    write(store, 2)

    def staleness() -> tuple[str, set[tuple[str, str]]]:
        (node,) = api.ask(STALENESS)["assetNodes"]
        return node["staleStatus"], {(each["category"], *each["key"]["path"]) for each in node["staleCauses"]}

    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["direct"])
        instance.add_dynamic_partitions(str(SPACES.name), [OLD.key])
        assert run(memory, instance, OLD, ["direct"]).success
        consolidate = defs.resolve_job_def("consolidate")
        assert consolidate.execute_in_process(instance=instance, resources={"memory": memory}).success
        assert staleness() == ("FRESH", set())
        assert run(memory, instance, OLD, ["direct"]).success
        assert staleness() == ("FRESH", set()), "nothing was embedded"
        write(store, 1, first=2)
        assert run(memory, instance, OLD, ["direct"]).success
        assert staleness() == ("STALE", {("DATA", "embeddings")})


def test_only_the_active_space_goes_before_the_rest(runs: Runs, store: Store) -> None:
    assert runs.run(OLD)
    assert runs.run(NEW)
    assert runs.models.priorities == [Priority.LIVE, Priority.BACKGROUND]
    assert {(space.precision, space.fidelity) for space in store.spaces.all()} == {("bf16", 0.9995)}
    assert runs.metadata("chat|new")["lowest cosine to fp32"] == 0.9995


def test_paused_run_leaves_the_rest(runs: Runs, store: Store, launcher: Launcher, backfills: Backfills) -> None:
    begin(store, NEW)
    runs.models.model_of = on_call(2, lambda: reembedding.pause(store))
    backfill = backfills.launch()
    runs.of_backfill(NEW, backfill)
    assert runs.newest.status is CANCELED
    assert store.vectors.progress(NEW.key).episodes_done == 50, "it ended within one checkpoint"
    assert runs.materialized == {"uploads|new"}, "the newer source is complete, the older is not"
    assert backfills.status(backfill) == "CANCELING"
    assert "10 passages of new lack their vectors until the re-embed is resumed" in runs.log
    reembedding.resume(store)
    runs.models.model_of = lambda space: MeasuredWords(space.dim)
    assert runs.run(NEW)
    assert runs.metadata("direct|new")["passages embedded"] == 10
    assert runs.metadata("uploads|new")["passages embedded"] == 0


def test_run_that_begins_while_paused_opens_no_model(runs: Runs, store: Store, launcher: Launcher) -> None:
    begin(store, NEW)
    reembedding.pause(store)
    runs.run(NEW)
    assert (runs.newest.status, runs.models.opened) == (CANCELED, [])
    assert runs.materialized == set()


def test_paused_run_fails_with_the_reason_without_a_webserver(runs: Runs, store: Store) -> None:
    begin(store, NEW)
    reembedding.pause(store)
    assert not runs.run(NEW)
    assert "Paused: 60 passages of new lack their vectors" in runs.log
    assert "This run could not be canceled: Dagster does not answer" in runs.log
    set_paused(store, True)
    assert runs.run(OLD), "the active space never waits"
    assert store.vectors.pending_sources(OLD.key) == {}


def test_backfill_by_hand_over_an_added_space_is_a_reembed(runs: Runs, store: Store, backfills: Backfills) -> None:
    assert runs.run(NEW, ["uploads", "uploads"])
    assert reembedding.status(store).state == "idle", "one partition by hand is none"
    backfill = backfills.launch()
    assert runs.of_backfill(NEW, backfill)
    status = reembedding.status(store)
    assert (status.space, status.backfill_id, wanted_model(store)) == (NEW.key, backfill, NEW.model_id)


def test_backfill_that_is_executed_again_is_the_one_followed(runs: Runs, store: Store) -> None:
    begin(store, NEW, "canceled")
    started = reembedding.status(store).started_at
    assert runs.of_backfill(NEW, "again", ["direct", "direct"])
    status = reembedding.status(store)
    assert (status.backfill_id, status.started_at) == ("again", started)
    assert runs.of_backfill(OLD, "of the active space")
    assert reembedding.status(store).backfill_id == "again"


def test_backfill_by_hand_beside_a_built_space_only_embeds(runs: Runs, store: Store, backfills: Backfills) -> None:
    third = replace(NEW, key="third")
    store.spaces.put(third)
    begin(store, third)
    assert runs.of_backfill(NEW, backfills.launch())
    assert store.vectors.pending_sources(NEW.key) == {}
    states = {space.key: space.status for space in store.spaces.all()}
    assert states == {"old": "active", "new": "added", "third": "building"}


def test_space_dropped_in_mid_run_cancels_the_run(runs: Runs, store: Store, launcher: Launcher) -> None:
    begin(store, NEW)
    runs.models.model_of = on_call(2, lambda: reembedding.drop(store, NEW.key))
    runs.run(NEW)
    assert runs.newest.status is CANCELED
    assert "new was dropped while it was being embedded" in runs.log
    assert store.settings.all("reembedding.failure") == {}
    runs.run(NEW, **{EMBED_TAG: NEW.key})
    assert runs.newest.status is CANCELED, "asked for before the space was dropped"
    assert not runs.run(NEW)
    assert "no space 'new'" in runs.log, "by hand"


def test_reembed_given_up_ends_its_runs(runs: Runs, store: Store, launcher: Launcher, backfills: Backfills) -> None:
    backfill = backfills.launch()
    begin(store, NEW, backfill)
    runs.models.model_of = on_call(2, lambda: reembedding.use(store, OLD.key, "fp32"))
    runs.of_backfill(NEW, backfill)
    assert runs.newest.status is CANCELED
    assert "new is no longer being built" in runs.log
    assert store.vectors.progress(NEW.key).episodes_done == 50, "within a checkpoint, and it is kept"
    runs.models.opened.clear()
    runs.of_backfill(NEW, backfill)
    assert (runs.newest.status, runs.models.opened) == (CANCELED, []), "another run of the backfill ends at once"
    assert backfills.status(backfill) == "CANCELING"
    assert reembedding.status(store).state == "idle"


class NoNumbers(MeasuredWords):
    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return super().forward(batch) * np.nan


def test_model_that_goes_wrong_leaves_the_active_space_alone(runs: Runs, store: Store) -> None:
    assert runs.run(OLD)
    begin(store, NEW)
    runs.models.model_of = lambda space: NoNumbers(space.dim)
    assert not runs.run(NEW)
    failure = failure_of(store, NEW.key)
    assert failure is not None
    assert (failure.count, store.vectors.progress(NEW.key).passages_done) == (1, 0)
    active = store.spaces.active()
    assert active is not None
    assert (active.key, store.vectors.count(active.key)) == (OLD.key, 60)


def test_cores_set_meanwhile_count_from_the_next_checkpoint_on(runs: Runs, store: Store) -> None:
    other = max(os.sched_getaffinity(0))
    seen: list[list[int]] = []

    def before(_: int) -> None:
        seen.append(list(runs.models.opened[0].cores))
        if len(seen) == 1:
            store.settings.set("config.embed_cores", [other])

    runs.models.model_of = lambda space: MeasuredWords(space.dim, before)
    store.settings.set("config.embed_cpu_pct", 1)
    assert runs.run(OLD)
    assert (seen[0], seen[-1]) == ([min(os.sched_getaffinity(0))], [other])


def test_core_that_the_machine_lacks_ends_no_run(runs: Runs, store: Store) -> None:
    runs.models.model_of = on_call(1, lambda: store.settings.set("config.embed_cores", [9_999]))
    assert runs.run(OLD)
    assert "9999" in runs.log
