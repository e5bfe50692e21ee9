"""What `crawl_sensor` decides, on a real store and a real Dagster instance; no run is executed here."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs import sensors
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.sensors import CRAWLED_AT, crawl_sensor, quick_crawl_sensor
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.steps.pipeline import ingest_source
from anamnesis_pipeline.wiring import discover_sources
from anamnesis_tests.dagster_parts import created_run

LINE = json.dumps({"type": "user", "uuid": "u1", "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z",
                   "message": {"role": "user", "content": "why?"}})  # fmt: skip


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    logs = tmp_path / "logs"
    for folder in ("a", "b", "c"):
        (logs / folder).mkdir(parents=True)
        (logs / folder / "11111111-2222-4333-8444-555555555555.jsonl").write_text(LINE + "\n", encoding="utf-8")
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(logs))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "mac")
    return logs


@pytest.fixture
def memory(logs: Path) -> Iterator[MemoryResource]:
    resource = MemoryResource()
    yield resource
    resource.store.close()


def tick(sensor: dg.SensorDefinition, instance: dg.DagsterInstance, memory: MemoryResource) -> dg.SensorResult:
    """One tick, when every host and source is due."""
    for name in memory.store.settings.all("crawl."):
        if name.startswith("crawl.source."):
            seen = memory.store.settings.get(name)
            memory.store.settings.set(name, {key: value for key, value in seen.items() if key != "tried_at"})
    with dg.build_sensor_context(instance=instance, definitions=defs, resources={"memory": memory}) as context:
        result = sensor(context)
    if isinstance(result, dg.SkipReason):
        return dg.SensorResult(skip_reason=result)
    assert isinstance(result, dg.SensorResult)
    for request in result.dynamic_partitions_requests or []:
        if isinstance(request, dg.AddDynamicPartitionsRequest):
            instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            continue
        for key in request.partition_keys:
            instance.delete_dynamic_partition(request.partitions_def_name, key)
    return result


def folders(result: dg.SensorResult) -> list[str]:
    return [str(request.partition_key).split("--")[1] for request in result.run_requests or []]


def test_a_tick_requests_one_run_per_changed_source_and_adds_its_partition(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    result = tick(crawl_sensor, instance, memory)
    assert folders(result) == ["a", "b", "c"]
    assert {request.tags["anamnesis/machine"] for request in result.run_requests or []} == {"mac"}
    assert {str(request.partition_key) for request in result.run_requests or []} <= set(
        instance.get_dynamic_partitions(str(SOURCES.name))
    )


def test_a_tick_requests_no_more_than_its_share_and_the_next_one_the_others(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "CHANGED_PER_TICK", 2)
    first = tick(crawl_sensor, instance, memory)
    begun = folders(first)
    assert len(begun) == 2
    for request in first.run_requests or []:
        created_run(instance, tags={"dagster/partition": str(request.partition_key)})
    assert sorted(begun + folders(tick(crawl_sensor, instance, memory))) == ["a", "b", "c"]


def test_a_source_that_is_being_ingested_is_not_requested_again(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    first, *_ = tick(crawl_sensor, instance, memory).run_requests or []
    created_run(instance, tags={"dagster/partition": str(first.partition_key)})
    assert folders(tick(crawl_sensor, instance, memory)) == ["b", "c"]


def ingest_distinct_logs(memory: MemoryResource, instance: dg.DagsterInstance) -> None:
    """Every folder says something of its own, and is ingested."""
    for root in memory.settings.log_roots:
        for log in root.glob("*/*.jsonl"):
            log.write_text(
                LINE.replace("u1", log.parent.name).replace("why?", f"why {log.parent.name}?") + "\n", encoding="utf-8"
            )
    tick(crawl_sensor, instance, memory)
    for source in memory.store.files.sources():
        if source.folder:
            ingest_source(memory.pipeline, source)


def test_a_source_whose_summaries_are_due_is_requested_and_not_before(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    ingest_distinct_logs(memory, instance)
    assert folders(tick(crawl_sensor, instance, memory)) == []
    assert len(memory.store.summaries.want_summaries("another")) == 3
    assert folders(tick(crawl_sensor, instance, memory)) == ["a", "b", "c"]


def test_one_tick_requests_summaries_of_so_many_sources_only(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_distinct_logs(memory, instance)
    memory.store.summaries.want_summaries("another")
    monkeypatch.setattr(sensors, "SUMMARIES_PER_TICK", 2)
    assert folders(tick(crawl_sensor, instance, memory)) == ["a", "b"]


def test_only_dead_roots_are_named_in_the_reason_to_skip(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "/nonexistent/logs")
    tick(crawl_sensor, instance, memory)
    skipped = tick(crawl_sensor, instance, memory).skip_reason
    assert skipped is not None
    assert "/nonexistent/logs" in str(skipped.skip_message)


def test_a_half_done_source_whose_root_is_gone_gets_its_partition_and_its_run(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = discover_sources(memory.settings).sources[0]
    memory.store.files.put_sources([source])
    memory.pipeline.crawl(source)
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "/nonexistent/logs")
    assert folders(tick(crawl_sensor, instance, memory)) == ["a"]
    assert source.key in instance.get_dynamic_partitions(str(SOURCES.name))


@pytest.fixture
def started_again(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """When the process started that ticks now; the one before it crawled a minute earlier."""
    now = datetime.now(UTC)
    monkeypatch.setattr(sensors, "STARTED", now)
    memory.store.settings.set(CRAWLED_AT, (now - timedelta(minutes=1)).isoformat())
    return now


@pytest.mark.usefixtures("started_again")
def test_first_quick_tick_after_a_start_crawls_all_sources(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    first = tick(quick_crawl_sensor, instance, memory)
    assert folders(first) == ["a", "b", "c"]
    assert {str(request.partition_key) for request in first.run_requests or []} <= set(
        instance.get_dynamic_partitions(str(SOURCES.name))
    )
    assert folders(tick(quick_crawl_sensor, instance, memory)) == [], "the next ones are crawl_sensor's"


@pytest.mark.usefixtures("started_again")
def test_quick_tick_after_a_start_requests_what_was_cut_off(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = discover_sources(memory.settings).sources[0]
    memory.store.files.put_sources([source])
    memory.pipeline.crawl(source)
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "/nonexistent/logs")
    assert folders(tick(quick_crawl_sensor, instance, memory)) == ["a"]


@pytest.mark.parametrize("ago_s", [None, 271, 86_400])
def test_quick_tick_leaves_the_crawl_to_crawl_sensor_where_it_is_due(
    memory: MemoryResource, instance: dg.DagsterInstance, started_again: datetime, ago_s: int | None
) -> None:
    at = None if ago_s is None else (started_again - timedelta(seconds=ago_s)).isoformat()
    memory.store.settings.set(CRAWLED_AT, at)
    assert folders(tick(quick_crawl_sensor, instance, memory)) == []
    assert folders(tick(crawl_sensor, instance, memory)) == ["a", "b", "c"]


def test_source_that_went_unread_loses_its_partition(
    memory: MemoryResource, logs: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(SOURCES.name)
    tick(crawl_sensor, instance, memory)
    read, *unread = [source.key for source in discover_sources(memory.settings).sources]
    memory.pipeline.crawl(memory.source(read))
    instance.add_dynamic_partitions(name, ["of another store"])
    tick(crawl_sensor, instance, memory)
    assert set(instance.get_dynamic_partitions(name)) == {read, *unread}
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(logs.parent / "elsewhere"))
    tick(crawl_sensor, instance, memory)
    assert set(instance.get_dynamic_partitions(name)) == {read}, "what was read of it stays"


def test_reserved_sources_are_never_crawled(memory: MemoryResource, instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions(str(SOURCES.name), list(RESERVED_SOURCES))
    tick(crawl_sensor, instance, memory)
    assert not set(instance.get_dynamic_partitions(str(SOURCES.name))) & set(RESERVED_SOURCES)
