"""What `embed_sensor` decides, on a real store and a real Dagster instance; no run is executed here."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from anamnesis_pipeline.dagster_api.backfills import EMBED_TAG
from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs import embed_sensor as module
from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.defs.partitions import EMBEDDED_SOURCES, SPACES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.errors import StoreFull
from anamnesis_pipeline.model import RESERVED_SOURCES, Source, Space
from anamnesis_pipeline.steps import reembed
from anamnesis_pipeline.steps.reembed_state import FAILURE, noting_failure
from anamnesis_pipeline.steps.spaces import begin
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.contracts import IndexState
from anamnesis_pipeline.store.records.overview import SourceState
from anamnesis_tests.dagster_parts import created_run
from anamnesis_tests.defs.conftest import Backfills
from anamnesis_tests.steps.spaces import embed_all, write
from anamnesis_tests.store.samples import put

OLD, NEW = Space("old", "model-old", 32), Space("new", "model-new", 16)
Tick = Callable[..., list[dg.RunRequest]]


@pytest.fixture
def store(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An active space that is complete, and another one that is being built, over three episodes of `direct`.

    Their models are not on this disk: what is stored goes on all the same.
    """
    monkeypatch.setenv("ANAMNESIS_MODEL", "/nonexistent/model")
    store = memory.store
    store.spaces.put(OLD)
    store.spaces.activate(OLD.key)
    store.spaces.put(NEW)
    begin(store, NEW)
    write(store, 3)
    embed_all(store, OLD, RESERVED_SOURCES)
    return store


@pytest.fixture
def tick(memory: MemoryResource, instance: dg.DagsterInstance, backfills: Backfills) -> Tick:
    """Evaluates the sensor as the daemon does: events and partitions first, and the cursor kept. Returns the run
    requests.
    """
    cursor: list[str | None] = [None]

    def once() -> list[dg.RunRequest]:
        with dg.build_sensor_context(
            instance=instance, definitions=defs, resources={"memory": memory}, cursor=cursor[0]
        ) as context:
            result = embed_sensor(context)
        if not isinstance(result, dg.SensorResult):
            return []
        cursor[0] = result.cursor
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or []:
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            else:
                for key in request.partition_keys:
                    instance.delete_dynamic_partition(request.partitions_def_name, key)
        return list(result.run_requests or [])

    return once


def asked(requests: list[dg.RunRequest]) -> list[tuple[str, str]]:
    """(job, first partition) of each."""
    start = "dagster/asset_partition_range_start"
    return [(str(request.job_name), request.partition_key or request.tags[start]) for request in requests]


def test_what_lacks_vectors_is_embedded_the_active_space_before_the_queue(store: Store, tick: Tick) -> None:
    write(store, 1, first=3)
    requests = tick()
    assert asked(requests) == [("embed", "direct|old"), ("embed", "direct|new")]
    assert [request.tags[EMBED_TAG] for request in requests] == ["old", "new"]
    assert ["dagster/priority" in request.tags for request in requests] == [True, False]


def test_every_space_gets_a_partition_and_a_dropped_one_loses_it(
    store: Store, tick: Tick, instance: dg.DagsterInstance
) -> None:
    store.spaces.put(Space("added", "m", 4))
    tick()
    assert set(instance.get_dynamic_partitions(str(SPACES.name))) == {"old", "new", "added"}
    assert instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name)) == ["direct"], "the only source with episodes"
    reembed.drop(store, "added")
    tick()
    assert set(instance.get_dynamic_partitions(str(SPACES.name))) == {"old", "new"}


def test_an_added_or_retired_space_is_left_alone(store: Store, tick: Tick) -> None:
    store.spaces.stop(NEW.key)
    assert [request for request in asked(tick()) if request[1].endswith("new")] == []


def test_a_space_has_one_run_at_a_time(store: Store, tick: Tick, instance: dg.DagsterInstance) -> None:
    write(store, 1, first=3)
    run = created_run(instance, "embed", tags={EMBED_TAG: "new"})
    assert asked(tick()) == [("embed", "direct|old")], "the other space is none of its business"
    instance.report_run_failed(run)
    assert asked(tick())[-1] == ("embed", "direct|new"), "a run that ended is resumed"


def test_a_pause_holds_back_the_space_that_is_built_only(store: Store, tick: Tick) -> None:
    write(store, 1, first=3)
    reembed.pause(store)
    assert asked(tick()) == [("embed", "direct|old")]
    reembed.resume(store)
    assert asked(tick())[-1] == ("embed", "direct|new")


@pytest.mark.parametrize("status", ["REQUESTED", "CANCELING"])
def test_a_backfill_that_goes_on_is_not_doubled(store: Store, tick: Tick, backfills: Backfills, status: str) -> None:
    write(store, 1, first=3)
    backfills.launch(status)
    assert asked(tick()) == [("embed", "direct|old")]


def test_space_is_embedded_once_the_runs_of_its_backfill_ended(store: Store, tick: Tick, backfills: Backfills) -> None:
    launched = backfills.launch()
    backfills.run(launched, dg.DagsterRunStatus.STARTED)
    assert ("embed", "direct|new") not in asked(tick())
    backfills.run(launched, dg.DagsterRunStatus.FAILURE)
    assert ("embed", "direct|new") in asked(tick()), "after a kill nothing waits until Dagster has noticed"


def test_without_the_webserver_only_the_active_space_is_embedded(
    store: Store, tick: Tick, backfills: Backfills, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, 1, first=3)
    instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["gone"])
    instance.add_dynamic_partitions(str(SPACES.name), ["old", "new"])
    monkeypatch.setenv("ANAMNESIS_DAGSTER_URL", "http://127.0.0.1:9")
    assert asked(tick()) == [("embed", "direct|old")], "a backfill may embed into the other space"
    assert "gone" in instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name))


@pytest.mark.parametrize(("asset", "key"), [("vector_index", "new"), ("embeddings", "direct|old")])
def test_a_backfill_of_something_else_holds_nothing_back(
    store: Store, tick: Tick, backfills: Backfills, asset: str, key: str
) -> None:
    backfills.launch(asset=asset, keys=[key])
    assert ("embed", "direct|new") in asked(tick())


def test_a_backfill_launched_by_hand_is_adopted_before_its_first_run(
    store: Store, tick: Tick, backfills: Backfills
) -> None:
    store.spaces.stop(NEW.key)
    tick()
    assert reembed.status(store).state == "idle"
    launched = backfills.launch(keys=["direct|new", "direct|old"])
    assert ("embed", "direct|new") not in asked(tick())
    status = reembed.status(store)
    assert (status.state, status.space, status.backfill_id) == ("running", NEW.key, launched)


def test_canceled_backfill_is_not_adopted(store: Store, tick: Tick, backfills: Backfills) -> None:
    store.spaces.stop(NEW.key)
    backfills.launch("CANCELING")
    tick()
    assert reembed.status(store).state == "idle"


def test_a_backfill_whose_re_embed_was_given_up_is_not_adopted_again(
    store: Store, tick: Tick, backfills: Backfills
) -> None:
    store.spaces.stop(NEW.key)
    backfills.launch()
    tick()
    assert reembed.use(store, OLD.key, "fp32").stopped == NEW.key
    tick()
    assert reembed.status(store).state == "idle"


def set_failure(store: Store, space: Space, count: int, ago_s: float) -> None:
    with pytest.raises(StoreFull), noting_failure(store, space.key):
        raise StoreFull("no room")
    row = store.settings.get(FAILURE + space.key)
    at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - ago_s))
    store.settings.set(FAILURE + space.key, {**row, "count": count, "at": at})


@pytest.mark.parametrize(
    ("space", "count", "ago_s", "tried"),
    [
        (NEW, 1, 50, False), (NEW, 1, 70, True), (NEW, 4, 470, False), (NEW, 4, 490, True),
        (NEW, 30, 3_500, False), (NEW, 30, 3_700, True), (OLD, 30, 290, False), (OLD, 30, 310, True),
    ],
)  # fmt: skip
def test_a_failure_is_tried_again_ever_more_rarely(
    store: Store, tick: Tick, space: Space, count: int, ago_s: float, tried: bool
) -> None:
    write(store, 1, first=3)
    set_failure(store, space, count, ago_s)
    assert (("embed", f"direct|{space.key}") in asked(tick())) is tried


def sources(store: Store, *keys: str) -> None:
    store.files.put_sources([Source(key, "mac", "/l", key) for key in keys])


def test_the_newest_backlog_goes_first(store: Store, tick: Tick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCES_PER_RUN", 2)
    sources(store, "s1", "s2", "s3", "s4", "s5")
    for number in range(1, 6):
        write(store, 1, source=f"s{number}", first=number)
    embed_all(store, OLD, ["s1", "s2", "s3", "s4", "s5"])
    tick()
    for source, number in [("s1", 10), ("s2", 11), ("s3", 500), ("s5", 90)]:
        write(store, 1, source=source, first=number)
    active = [request for request in asked(tick()) if request[1].endswith("old")]
    assert active == [("embed", "s3|old"), ("embed", "s5|old"), ("embed", "s1|old")]


def test_runs_that_embed_have_the_tags_that_the_deployment_wants(
    store: Store, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_EMBED_RUN_TAGS", '{"pool": "gpu"}')
    write(store, 1, first=3)
    assert [request.tags["pool"] for request in tick()] == ["gpu", "gpu"]


def test_a_large_backlog_covers_the_sources_in_between(
    store: Store, tick: Tick, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKLOG", 5)
    sources(store, "s1", "s2", "s3")
    tick()
    write(store, 3, source="s1", first=10)
    write(store, 3, source="s3", first=20)
    (request,) = [request for request in tick() if request.tags[EMBED_TAG] == "old"]
    order = instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name))
    assert request.tags["dagster/asset_partition_range_start"] == f"{order[0]}|old"
    assert request.tags["dagster/asset_partition_range_end"] == f"{order[-1]}|old"


def test_many_sources_are_cut_into_runs(store: Store, tick: Tick) -> None:
    sources(store, *(f"s{number:03}" for number in range(250)))
    tick()
    for number in range(250):
        write(store, 1, source=f"s{number:03}", first=number)
    assert asked(tick())[:3] == [("embed", "s200|old"), ("embed", "s100|old"), ("embed", "s000|old")]


def test_a_complete_active_space_is_indexed_once_until_much_is_new(
    store: Store, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REINDEX_AFTER", 2)
    store.spaces.stop(NEW.key)
    assert asked(tick()) == [("index", "old")]
    assert tick() == []
    write(store, 1, first=3)
    embed_all(store, OLD, RESERVED_SOURCES)
    assert tick() == []
    write(store, 1, first=4)
    embed_all(store, OLD, RESERVED_SOURCES)
    assert asked(tick()) == [("index", "old")]


def test_index_that_is_lost_is_built_again(store: Store, tick: Tick, monkeypatch: pytest.MonkeyPatch) -> None:
    store.spaces.stop(NEW.key)
    assert asked(tick()) == [("index", "old")]
    assert tick() == []
    monkeypatch.setattr(type(store.vectors), "index_state", lambda *_: IndexState(is_lost=True))
    assert asked(tick()) == [("index", "old")]


def test_an_active_space_is_indexed_while_its_backlog_is_long(
    store: Store, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.spaces.stop(NEW.key)
    tick()
    monkeypatch.setattr(module, "REINDEX_AFTER", 4)
    write(store, 5, first=3)
    embed_all(store, OLD, RESERVED_SOURCES)
    write(store, 1, first=9)
    assert asked(tick()) == [("embed", "direct|old"), ("index", "old")]


def complete(store: Store) -> None:
    embed_all(store, NEW, RESERVED_SOURCES, dim=NEW.dim)


def test_a_space_that_is_complete_is_indexed_until_it_is_switched_to(
    store: Store, tick: Tick, instance: dg.DagsterInstance
) -> None:
    complete(store)
    assert ("index", "new") in asked(tick())
    assert ("index", "new") in asked(tick()), "the first run may have found that something was missing"
    created_run(instance, "index", tags={"dagster/partition": "new"})
    assert ("index", "new") not in asked(tick())
    write(store, 1, first=3)
    assert asked(tick()) == [("embed", "direct|old")], "its index run embeds the rest"


def test_an_index_run_that_failed_is_not_repeated_at_once(
    store: Store, tick: Tick, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(store)
    run = created_run(instance, "index", tags={"dagster/partition": "new"})
    instance.report_run_failed(run)
    assert ("index", "new") not in asked(tick())
    monkeypatch.setattr(module, "INDEX_RETRY_S", 0.0)
    assert ("index", "new") in asked(tick())


def test_a_space_that_waits_for_a_yes_is_indexed_once(store: Store, tick: Tick) -> None:
    store.settings.set("config.switch", "ask")
    complete(store)
    assert ("index", "new") in asked(tick())
    assert tick() == []


def test_a_space_is_switched_to_even_when_nothing_is_stored_yet(memory: MemoryResource, tick: Tick) -> None:
    tick()
    active = memory.store.spaces.active()
    assert active is not None, "the first space of a store"
    memory.store.spaces.put(NEW)
    begin(memory.store, NEW)
    assert ("index", "new") in asked(tick())


def test_a_model_that_is_set_is_begun_and_one_that_is_unknown_is_named(
    memory: MemoryResource, tick: Tick, tmp_path: Path
) -> None:
    tick()
    assert [space.status for space in memory.store.spaces.all()] == ["active"]
    memory.store.settings.set("config.model", str(tmp_path / "nothing here"))
    write(memory.store, 1)
    assert len(tick()) == 1, "the active space goes on growing"
    assert len(memory.store.spaces.all()) == 1


def test_tick_downloads_no_model_and_says_who_does(
    memory: MemoryResource, instance: dg.DagsterInstance, backfills: Backfills, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for_files: list[bool] = []

    def absent(model_id: str, *, local_files_only: bool, **_: object) -> str:
        asked_for_files.append(local_files_only)
        raise LocalEntryNotFoundError(model_id)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", absent)
    monkeypatch.setenv("ANAMNESIS_MODEL", "acme/large-en")
    with dg.build_sensor_context(instance=instance, definitions=defs, resources={"memory": memory}) as context:
        result = embed_sensor(context)
    assert isinstance(result, dg.SensorResult)
    assert asked_for_files == [True]
    assert isinstance(result.skip_reason, dg.SkipReason)
    said = str(result.skip_reason.skip_message)
    assert said.startswith(module.NOTHING_TO_EMBED)
    assert "A tick downloads no model; the service does" in said
    assert "'acme/large-en'" in said


POSTED_KEYS = [dg.AssetKey(name) for name in ("posted_notes", "uploaded_documents", "chat_answers")]


def materializations(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[dict[str, object]]:
    """Metadata of each, the newest first."""
    found = instance.fetch_materializations(key, limit=10).records
    events = [record.asset_materialization for record in found]
    return [{name: value.value for name, value in event.metadata.items()} for event in events if event]


def test_posted_assets_of_an_empty_memory_say_so(
    memory: MemoryResource, tick: Tick, instance: dg.DagsterInstance
) -> None:
    assert memory.store.spaces.active() is None
    for _ in range(2):
        tick()
    empty = {"dagster/row_count": 0, "state": "nothing is stored yet"}
    assert [materializations(instance, key) for key in POSTED_KEYS] == [[empty], [empty], [empty]]


def test_memory_without_a_space_is_looked_at_once(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_MODEL", "/nonexistent/model")
    write(memory.store, 3)
    cursors: list[str | None] = [None]
    for _ in range(3):
        with dg.build_sensor_context(
            instance=instance, definitions=defs, resources={"memory": memory}, cursor=cursors[-1]
        ) as context:
            result = embed_sensor(context)
        assert isinstance(result, dg.SensorResult)
        cursors.append(result.cursor)
    seen = {json.loads(str(cursor))["seen"] for cursor in cursors[2:]}
    assert len(seen) == 1
    assert "" not in seen, "nothing is left to look for"


def test_posts_since_the_last_tick_are_one_materialization(
    store: Store, tick: Tick, instance: dg.DagsterInstance
) -> None:
    tick()
    write(store, 4, first=10)
    for _ in range(2):
        tick()
    notes, uploads, _ = (materializations(instance, key) for key in POSTED_KEYS)
    assert [each["dagster/row_count"] for each in notes] == [7, 3]
    assert len(uploads) == 1, "nothing was uploaded since"


def test_posts_while_dagster_was_away_are_reported_afterwards(
    store: Store, tick: Tick, instance: dg.DagsterInstance
) -> None:
    write(store, 4, first=10)
    tick()
    (notes,) = materializations(instance, POSTED_KEYS[0])
    assert notes["dagster/row_count"] == 7


def searchability(instance: dg.DagsterInstance, asset: dg.AssetKey) -> tuple[int, bool]:
    """The number of the last result of an external asset's check, and whether it passed."""
    record = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(asset, "all_is_searchable"))
    assert record is not None
    assert record.evaluation is not None
    return record.id, record.evaluation.passed


def test_checks_of_posted_assets_are_reported_when_they_change(
    store: Store, tick: Tick, instance: dg.DagsterInstance
) -> None:
    tick()
    notes, uploads, _ = POSTED_KEYS
    first, other = searchability(instance, notes), searchability(instance, uploads)
    write(store, 2, first=10)
    tick()
    second = searchability(instance, notes)
    embed_all(store, OLD)
    tick()
    third = searchability(instance, notes)
    assert [passed for _, passed in (first, second, third)] == [True, False, True]
    write(store, 1, source="a source")
    tick()
    assert searchability(instance, notes) == third
    assert searchability(instance, uploads) == other


def test_partition_that_the_service_embedded_is_materialized(
    store: Store, tick: Tick, instance: dg.DagsterInstance
) -> None:
    tick()
    embedded = dg.AssetKey("embeddings")
    assert instance.get_materialized_partitions(embedded) == {"direct|old"}, "the new space lacks these episodes"
    embed_all(store, NEW, dim=NEW.dim)
    for _ in range(2):
        tick()
    assert instance.get_materialized_partitions(embedded) == {"direct|old", "direct|new"}
    of_it = dg.AssetRecordsFilter(asset_key=embedded, asset_partitions=["direct|new"])
    made = instance.fetch_materializations(of_it, limit=1).records[0].asset_materialization
    assert made is not None
    assert made.metadata["dagster/row_count"].value == 3
    assert "dagster/data_version" in (made.tags or {}), "as of one that a run made"
    for name in ("every_passage_is_embedded", "vectors_are_sound"):
        record = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(embedded, name))
        assert record is not None, "else the UI shows the check as not evaluated"
        assert record.evaluation is not None
        assert record.evaluation.passed
    assert len(materializations(instance, embedded)) == 2


def test_many_embedded_partitions_are_reported_over_several_ticks(
    store: Store, tick: Tick, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REPORTED_PER_TICK", 2)
    sources = [f"source-{number}" for number in range(4)]
    for source in sources:
        write(store, 1, source=source)
    embed_all(store, OLD, sources)
    counts = []
    for _ in range(4):
        tick()
        counts.append(len(instance.get_materialized_partitions(dg.AssetKey("embeddings"))))
    assert counts == [2, 4, 5, 5]


def test_source_stored_amid_a_tick_is_not_reported_as_embedded(
    store: Store, tick: Tick, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = store.overview.sources

    def ingest_first() -> dict[str, SourceState]:
        put(store, "late", "stored just now", source="logs")
        return sources()

    monkeypatch.setattr(store.overview, "sources", ingest_first)
    tick()
    assert instance.get_materialized_partitions(dg.AssetKey("embeddings")) == {"direct|old"}


def test_partition_is_not_reported_while_a_run_embeds(store: Store, tick: Tick, instance: dg.DagsterInstance) -> None:
    run = created_run(instance, "embed", tags={EMBED_TAG: OLD.key})
    tick()
    assert instance.get_materialized_partitions(dg.AssetKey("embeddings")) == set(), "the run says so itself"
    instance.report_run_failed(run)
    tick()
    assert instance.get_materialized_partitions(dg.AssetKey("embeddings")) == {"direct|old"}


def test_partitions_of_sources_without_episodes_go(store: Store, tick: Tick, instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["chat", "direct", "gone"])
    complete(store)
    tick()
    assert instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name)) == ["direct"]


def test_no_partition_goes_while_a_backfill_may_target_it(
    store: Store, tick: Tick, instance: dg.DagsterInstance, backfills: Backfills
) -> None:
    instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["gone", "direct"])
    complete(store)
    backfills.launch()
    tick()
    assert "gone" in instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name))


def test_no_partition_goes_while_a_run_may_end_with_it(
    store: Store, tick: Tick, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKLOG", 2)
    instance.add_dynamic_partitions(str(EMBEDDED_SOURCES.name), ["chat", "direct", "gone"])
    (request,) = [request for request in tick() if request.job_name == "embed"]
    assert request.tags["dagster/asset_partition_range_end"] == "gone|new"
    run = created_run(instance, "embed", tags=request.tags)
    complete(store)
    tick()
    assert instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name)) == ["chat", "direct", "gone"]
    instance.report_run_failed(run)
    tick()
    assert "gone" in instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name)), "the run may be retried"
    monkeypatch.setattr(module, "RETRIED_S", 0)
    tick()
    assert instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name)) == ["direct"]


def test_retired_space_loses_its_partition(store: Store, tick: Tick, instance: dg.DagsterInstance) -> None:
    tick()
    embed_all(store, NEW, dim=NEW.dim)
    store.spaces.activate(NEW.key)
    tick()
    assert instance.get_dynamic_partitions(str(SPACES.name)) == [NEW.key]


def test_first_index_brings_the_first_map_and_consolidation(
    store: Store, tick: Tick, instance: dg.DagsterInstance
) -> None:
    store.spaces.stop(NEW.key)
    jobs = {"memory_map": "draw_map", "consolidation_report": "consolidate"}

    def requested() -> list[str | None]:
        return [request.job_name for request in tick() if request.job_name in jobs.values()]

    assert requested() == []
    instance.report_runless_asset_event(dg.AssetMaterialization("vector_index", partition=OLD.key))
    assert requested() == ["draw_map", "consolidate"]
    for asset in jobs:
        instance.report_runless_asset_event(dg.AssetMaterialization(asset))
    write(store, 1, first=50)
    assert requested() == []
