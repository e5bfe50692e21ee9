"""The asset `embeddings` on a real store and a real Dagster instance; models hash words."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis_pipeline.dagster_api.api import DagsterApi
from anamnesis_pipeline.dagster_api.backfills import BACKFILL_TAG, EMBED_TAG
from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.embeddings import embeddings
from anamnesis_pipeline.defs.partitions import EMBEDDED_SOURCES, SPACES, embed_key
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.steps import reembed
from anamnesis_pipeline.steps.reembed_state import failure_of, set_paused, wanted_model
from anamnesis_pipeline.steps.spaces import begin
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.defs.conftest import Backfills, HashedModels, Launcher, MeasuredWords
from anamnesis_tests.steps.spaces import write

OLD, NEW = Space("old", "model-old", 16), Space("new", "model-new", 24)
KEY = dg.AssetKey("embeddings")


@pytest.fixture
def store(memory: MemoryResource, instance: dg.DagsterInstance) -> Store:
    """An active space that lacks thirty episodes of each of two sources, and an added one that lacks the same."""
    store = memory.store
    store.spaces.put(OLD)
    store.spaces.activate(OLD.key)
    store.spaces.put(NEW)
    write(store, 30, source="direct")
    write(store, 30, source="uploads", first=30)
    instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["direct", "uploads", "chat"])
    instance.add_dynamic_partitions(str(SPACES.name), [OLD.key, NEW.key])
    return store


def run(
    memory: MemoryResource,
    instance: dg.DagsterInstance,
    space: Space,
    sources: Sequence[str] = ("direct", "chat"),
    tags: dict[str, str] | None = None,
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


def status_of(instance: dg.DagsterInstance) -> dg.DagsterRunStatus:
    (record,) = instance.get_run_records(limit=1)
    return record.dagster_run.status


def materialized(instance: dg.DagsterInstance) -> set[str]:
    return instance.get_materialized_partitions(KEY)


def newest_metadata(instance: dg.DagsterInstance, partition: str) -> dict[str, object]:
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=KEY, asset_partitions=[partition]), limit=1
    ).records
    materialization = records[0].asset_materialization
    assert materialization is not None
    return {name: value.value for name, value in materialization.metadata.items()}


def on_call(number: int, act: Callable[[], object]) -> Callable[[Space], LoadedModel]:
    """A model that does something ahead of one of its batches."""
    calls: list[int] = []

    def before(_: int) -> None:
        calls.append(1)
        if len(calls) == number:
            act()

    return lambda space: MeasuredWords(space.dim, before)


def test_a_run_fills_its_sources_and_describes_every_partition(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    store.settings.set("config.embed_cpu_pct", 1)
    assert run(memory, instance, OLD).success
    assert store.vectors.pending_sources(OLD.key) == {}
    assert materialized(instance) == {f"{source}|old" for source in ("direct", "uploads", "chat")}
    about = newest_metadata(instance, "uploads|old")
    assert about["passages embedded"] == 30
    assert (about["passages done"], about["passages in all"], about["model"]) == (60, 60, "model-old")
    assert (about["dimensions"], about["workers"], about["device"]) == (16, 1, "cpu")
    assert newest_metadata(instance, "chat|old")["passages embedded"] == 0
    observations = instance.fetch_observations(KEY, limit=10).records
    assert observations, "how far it was"
    assert store.vectors.pending_sources(NEW.key) == {"direct": 30, "uploads": 30}


def data_version(instance: dg.DagsterInstance, partition: str) -> str:
    of_it = dg.AssetRecordsFilter(asset_key=KEY, asset_partitions=[partition])
    made = instance.fetch_materializations(of_it, limit=1).records[0].asset_materialization
    assert made is not None
    return (made.tags or {})["dagster/data_version"]


def test_data_version_of_partition_is_its_space_and_content(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    assert run(memory, instance, OLD).success
    first = {source: data_version(instance, f"{source}|old") for source in ("direct", "uploads", "chat")}
    assert len(set(first.values())) == 3
    assert run(memory, instance, NEW, ["direct", "direct"]).success
    assert data_version(instance, "direct|new") not in first.values()
    write(store, 1, source="uploads", first=99)
    for sources in (("direct", "direct"), ("direct", "chat")):
        assert run(memory, instance, OLD, sources).success
        assert data_version(instance, "direct|old") == first["direct"], "also beside one that changed"
    assert data_version(instance, "uploads|old") != first["uploads"]
    assert newest_metadata(instance, "uploads|old")["dagster/row_count"] == 31


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
        assert run(memory, instance, OLD, ["direct", "direct"]).success
        consolidate = defs.resolve_job_def("consolidate")
        assert consolidate.execute_in_process(instance=instance, resources={"memory": memory}).success
        assert staleness() == ("FRESH", set())
        assert run(memory, instance, OLD, ["direct", "direct"]).success
        assert staleness() == ("FRESH", set()), "nothing was embedded"
        write(store, 1, first=2)
        assert run(memory, instance, OLD, ["direct", "direct"]).success
        assert staleness() == ("STALE", {("DATA", "embeddings")})


def test_nothing_to_do_opens_no_model(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    assert run(memory, instance, OLD, ["chat", "chat"]).success
    assert models.opened == []


def test_only_the_active_space_goes_before_the_rest_and_each_notes_its_precision(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    assert run(memory, instance, OLD).success
    assert run(memory, instance, NEW).success
    assert models.priorities == [Priority.LIVE, Priority.BACKGROUND]
    assert {(space.precision, space.fidelity) for space in store.spaces.all()} == {("bf16", 0.9995)}
    assert newest_metadata(instance, "chat|new")["lowest cosine to fp32"] == 0.9995


def test_a_pause_ends_the_run_as_canceled_and_keeps_what_is_complete(
    memory: MemoryResource,
    instance: dg.DagsterInstance,
    store: Store,
    models: HashedModels,
    launcher: Launcher,
    backfills: Backfills,
) -> None:
    begin(store, NEW)
    models.model_of = on_call(2, lambda: reembed.pause(store))
    backfill = backfills.launch()
    tags = {BACKFILL_TAG: backfill}
    run(memory, instance, NEW, tags=tags)
    assert status_of(instance) is dg.DagsterRunStatus.CANCELED
    assert store.vectors.progress(NEW.key).episodes_done == 50, "it ended within one checkpoint"
    assert materialized(instance) == {"uploads|new"}, "the newer source is complete, the older is not"
    assert backfills.status(backfill) == "CANCELING"
    (record,) = instance.get_run_records(limit=1)
    messages = [entry.message for entry in instance.all_logs(record.dagster_run.run_id)]
    assert any("10 passages of new lack their vectors until the re-embed is resumed" in text for text in messages)


def test_paused_run_fails_with_the_reason_without_a_webserver(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    begin(store, NEW)
    reembed.pause(store)
    assert not run(memory, instance, NEW).success
    assert "Paused: 60 passages of new lack their vectors" in failure_text(instance)
    assert "This run could not be canceled: Dagster does not answer" in failure_text(instance)


def test_a_run_that_begins_while_paused_opens_no_model(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels, launcher: Launcher
) -> None:
    begin(store, NEW)
    reembed.pause(store)
    run(memory, instance, NEW)
    assert (status_of(instance), models.opened) == (dg.DagsterRunStatus.CANCELED, [])
    assert materialized(instance) == set()


def test_after_a_resume_only_what_is_left_is_embedded(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels, launcher: Launcher
) -> None:
    begin(store, NEW)
    models.model_of = on_call(1, lambda: reembed.pause(store))
    run(memory, instance, NEW)
    assert store.vectors.progress(NEW.key).episodes_done == 25
    reembed.resume(store)
    models.model_of = lambda space: MeasuredWords(space.dim)
    assert run(memory, instance, NEW).success
    assert newest_metadata(instance, "direct|new")["passages embedded"] == 30
    assert newest_metadata(instance, "uploads|new")["passages embedded"] == 5


def test_the_active_space_never_waits(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    set_paused(store, True)
    assert run(memory, instance, OLD).success
    assert store.vectors.pending_sources(OLD.key) == {}


def test_a_backfill_by_hand_over_an_added_space_is_a_re_embed(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels, backfills: Backfills
) -> None:
    assert run(memory, instance, NEW, ["uploads", "uploads"]).success
    assert reembed.status(store).state == "idle", "one partition by hand is none"
    backfill = backfills.launch()
    assert run(memory, instance, NEW, tags={BACKFILL_TAG: backfill}).success
    status = reembed.status(store)
    assert (status.space, status.backfill_id, wanted_model(store)) == (NEW.key, backfill, NEW.model_id)


def test_backfill_that_is_executed_again_is_the_one_that_is_followed(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    begin(store, NEW, "canceled")
    started = reembed.status(store).started_at
    assert run(memory, instance, NEW, ["direct", "direct"], tags={BACKFILL_TAG: "again"}).success
    status = reembed.status(store)
    assert (status.backfill_id, status.started_at) == ("again", started)
    assert run(memory, instance, OLD, tags={BACKFILL_TAG: "of the active space"}).success
    assert reembed.status(store).backfill_id == "again"


def test_a_backfill_by_hand_while_another_space_is_built_only_embeds(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels, backfills: Backfills
) -> None:
    third = replace(NEW, key="third")
    store.spaces.put(third)
    begin(store, third)
    backfill = backfills.launch()
    assert run(memory, instance, NEW, tags={BACKFILL_TAG: backfill}).success
    assert store.vectors.pending_sources(NEW.key) == {}
    assert {space.key: space.status for space in store.spaces.all()} == {
        "old": "active", "new": "added", "third": "building"
    }  # fmt: skip


def log_of_newest_run(instance: dg.DagsterInstance) -> str:
    (record,) = instance.get_run_records(limit=1)
    return "\n".join(entry.message for entry in instance.all_logs(record.dagster_run.run_id))


def test_a_space_that_is_dropped_in_mid_run_cancels_the_run_and_says_so(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels, launcher: Launcher
) -> None:
    begin(store, NEW)
    models.model_of = on_call(2, lambda: reembed.drop(store, NEW.key))
    run(memory, instance, NEW)
    assert status_of(instance) is dg.DagsterRunStatus.CANCELED
    assert "new was dropped while it was being embedded" in log_of_newest_run(instance)
    assert store.settings.all("reembed.failure") == {}


def test_a_run_asked_for_before_its_space_was_dropped_is_canceled_and_one_by_hand_fails(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels, launcher: Launcher
) -> None:
    reembed.drop(store, NEW.key)
    run(memory, instance, NEW, tags={EMBED_TAG: NEW.key})
    assert status_of(instance) is dg.DagsterRunStatus.CANCELED
    assert not run(memory, instance, NEW).success
    assert "no space 'new'" in failure_text(instance)


def test_a_re_embed_that_is_given_up_ends_its_run_within_a_checkpoint(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels, launcher: Launcher
) -> None:
    begin(store, NEW)
    models.model_of = on_call(2, lambda: reembed.use(store, OLD.key, "fp32"))
    run(memory, instance, NEW)
    assert status_of(instance) is dg.DagsterRunStatus.CANCELED
    assert "new is no longer being built" in log_of_newest_run(instance)
    assert store.vectors.progress(NEW.key).episodes_done == 50, "kept"


def test_the_other_runs_of_a_backfill_that_was_given_up_end_at_once(
    memory: MemoryResource,
    instance: dg.DagsterInstance,
    store: Store,
    models: HashedModels,
    launcher: Launcher,
    backfills: Backfills,
) -> None:
    backfill = backfills.launch()
    tags = {BACKFILL_TAG: backfill}
    begin(store, NEW, backfill)
    reembed.use(store, OLD.key, "fp32")
    run(memory, instance, NEW, tags=tags)
    assert (status_of(instance), models.opened) == (dg.DagsterRunStatus.CANCELED, [])
    assert backfills.status(backfill) == "CANCELING"
    assert reembed.status(store).state == "idle"


def failure_text(instance: dg.DagsterInstance) -> str:
    (record,) = instance.get_run_records(limit=1)
    events = [entry.dagster_event for entry in instance.all_logs(record.dagster_run.run_id)]
    errors = [event.step_failure_data.error for event in events if event is not None and event.is_step_failure]
    return "\n".join(str(error) for error in errors)


class NoNumbers(MeasuredWords):
    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return super().forward(batch) * np.nan


def test_a_model_that_goes_wrong_fails_its_run_and_leaves_the_active_space_alone(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    assert run(memory, instance, OLD).success
    begin(store, NEW)
    models.model_of = lambda space: NoNumbers(space.dim)
    assert not run(memory, instance, NEW).success
    failure = failure_of(store, NEW.key)
    assert failure is not None
    assert (failure.count, store.vectors.progress(NEW.key).passages_done) == (1, 0)
    active = store.spaces.active()
    assert active is not None
    assert (active.key, store.vectors.count(active.key)) == (OLD.key, 60)


def test_cores_that_are_set_meanwhile_count_from_the_next_checkpoint_on(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    other = max(os.sched_getaffinity(0))
    seen: list[list[int]] = []

    def change() -> None:
        store.settings.set("config.embed_cores", [other])

    def before(_: int) -> None:
        seen.append(list(models.opened[0].cores))
        if len(seen) == 1:
            change()

    models.model_of = lambda space: MeasuredWords(space.dim, before)
    store.settings.set("config.embed_cpu_pct", 1)
    assert run(memory, instance, OLD).success
    assert (seen[0], seen[-1]) == ([min(os.sched_getaffinity(0))], [other])


def test_a_core_that_the_machine_lacks_is_named_and_the_run_goes_on(
    memory: MemoryResource, instance: dg.DagsterInstance, store: Store, models: HashedModels
) -> None:
    models.model_of = on_call(1, lambda: store.settings.set("config.embed_cores", [9_999]))
    assert run(memory, instance, OLD).success
    (record,) = instance.get_run_records(limit=1)
    assert any("9999" in entry.message for entry in instance.all_logs(record.dagster_run.run_id))
