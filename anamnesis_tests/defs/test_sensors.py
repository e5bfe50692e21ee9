"""What `crawl_sensor` decides, on a real store and a real Dagster instance; no run is executed here."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs import resources, sensors
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import MemoryResource, close_kept
from anamnesis_pipeline.defs.sensors import CRAWLED_AT, crawl_sensor, quick_crawl_sensor
from anamnesis_pipeline.errors import AnamnesisError, StoreCorrupt
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.services.ingest import ingest_source
from anamnesis_pipeline.services.wiring import discover_sources
from anamnesis_tests.defs.conftest import Daemon
from anamnesis_tests.support.dagster_parts import created_run

SESSION = "11111111-2222-4333-8444-555555555555.jsonl"


@pytest.fixture
def log_roots(tmp_path: Path) -> Path:
    """Three folders, each of which says something of its own."""
    for folder in ("a", "b", "c"):
        (tmp_path / "logs" / folder).mkdir(parents=True)
        message = {"role": "user", "content": f"why {folder}?"}
        line = {"type": "user", "uuid": folder, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z"}
        (tmp_path / "logs" / folder / SESSION).write_text(json.dumps({**line, "message": message}) + "\n")
    return tmp_path / "logs"


class Crawling(Daemon):
    def folders(self, sensor: dg.SensorDefinition = crawl_sensor) -> list[str]:
        """Those whose runs a tick requests; each has its partition then."""
        keys = [str(request.partition_key) for request in self.requests(sensor)]
        assert set(keys) <= set(self.partitions(SOURCES))
        return [key.split("--")[1] for key in keys]


@pytest.fixture
def daemon(memory: MemoryResource, instance: dg.DagsterInstance) -> Crawling:
    return Crawling(memory, instance)


def test_tick_requests_one_run_per_changed_source(daemon: Crawling) -> None:
    first, *others = daemon.requests(crawl_sensor)
    assert {request.tags["anamnesis/machine"] for request in (first, *others)} == {"mac"}
    assert daemon.folders() == ["a", "b", "c"]
    created_run(daemon.instance, tags={"dagster/partition": str(first.partition_key)})
    assert daemon.folders() == ["b", "c"], "one that is being ingested is not requested again"


def test_tick_requests_no_more_than_its_share(daemon: Crawling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "CHANGED_PER_TICK", 2)
    begun = [str(request.partition_key) for request in daemon.requests(crawl_sensor)]
    assert len(begun) == 2
    for key in begun:
        created_run(daemon.instance, tags={"dagster/partition": key})
    assert sorted([key.split("--")[1] for key in begun] + daemon.folders()) == ["a", "b", "c"]


def test_source_is_requested_when_its_summaries_are_due(
    memory: MemoryResource, daemon: Crawling, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.tick(crawl_sensor)
    for source in memory.store.files.sources():
        if source.folder:
            ingest_source(memory.pipeline, source)
    assert daemon.folders() == []
    assert len(memory.store.summaries.want_summaries("another")) == 3
    assert daemon.folders() == ["a", "b", "c"]
    monkeypatch.setattr(sensors, "SUMMARIES_PER_TICK", 2)
    assert daemon.folders() == ["a", "b"], "so many in one tick"


def test_only_dead_roots_are_named_in_the_reason_to_skip(daemon: Crawling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "/nonexistent/logs")
    daemon.tick(crawl_sensor)
    skipped = daemon.tick(crawl_sensor).skip_reason
    assert "/nonexistent/logs" in str(skipped and skipped.skip_message)


@pytest.fixture
def started_again(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """When the process started that ticks now; the one before it crawled a minute earlier."""
    now = datetime.now(UTC)
    monkeypatch.setattr(sensors, "STARTED", now)
    memory.store.settings.set(CRAWLED_AT, (now - timedelta(minutes=1)).isoformat())
    return now


@pytest.mark.parametrize("sensor", [crawl_sensor, quick_crawl_sensor], ids=lambda each: each.name)
@pytest.mark.usefixtures("started_again")
def test_half_done_source_is_requested_though_its_root_is_gone(
    memory: MemoryResource, daemon: Crawling, monkeypatch: pytest.MonkeyPatch, sensor: dg.SensorDefinition
) -> None:
    source = discover_sources(memory.settings).sources[0]
    memory.store.files.put_sources([source])
    memory.pipeline.crawl(source)
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "/nonexistent/logs")
    assert daemon.folders(sensor) == ["a"]


@pytest.mark.usefixtures("started_again")
def test_first_quick_tick_after_a_start_crawls_all_sources(daemon: Crawling) -> None:
    assert daemon.folders(quick_crawl_sensor) == ["a", "b", "c"]
    assert daemon.folders(quick_crawl_sensor) == [], "the next ones are crawl_sensor's"


@pytest.mark.parametrize("ago_s", [None, 271, 86_400])
def test_quick_tick_leaves_the_crawl_to_a_crawl_sensor_that_is_due(
    memory: MemoryResource, daemon: Crawling, started_again: datetime, ago_s: int | None
) -> None:
    at = None if ago_s is None else (started_again - timedelta(seconds=ago_s)).isoformat()
    memory.store.settings.set(CRAWLED_AT, at)
    assert daemon.folders(quick_crawl_sensor) == []
    assert daemon.folders() == ["a", "b", "c"]


def test_source_that_went_unread_loses_its_partition(
    memory: MemoryResource, daemon: Crawling, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(SOURCES.name)
    daemon.tick(crawl_sensor)
    read, *unread = [source.key for source in discover_sources(memory.settings).sources]
    memory.pipeline.crawl(memory.source(read))
    daemon.instance.add_dynamic_partitions(name, ["of another store", *RESERVED_SOURCES])
    daemon.tick(crawl_sensor)
    assert set(daemon.partitions(SOURCES)) == {read, *unread}
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "/nonexistent/elsewhere")
    daemon.tick(crawl_sensor)
    assert daemon.partitions(SOURCES) == [read], "what was read of it stays"


# --- for how long the store behind assets and sensors is open


def ticked(instance: dg.DagsterInstance, name: str) -> None:
    """As the code server does it: with the resources of the definitions, made anew."""
    sensor = defs.resolve_sensor_def(name)
    with dg.build_resources({"memory": defs.resources["memory"]}) as made:  # type: ignore[index]
        context = dg.build_sensor_context(instance=instance, definitions=defs, resources={"memory": made.memory})
        with context:
            sensor.evaluate_tick(context)


def test_code_server_opens_the_store_once_and_not_at_each_tick(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", "/nonexistent/logs")
    opened: list[Path] = []
    real = resources.open_store
    monkeypatch.setattr(resources, "open_store", lambda settings: opened.append(settings.home) or real(settings))
    for name in ("embed_sensor", "quick_crawl_sensor", "crawl_sensor", "embed_sensor"):
        ticked(instance, name)
    assert opened == [home]


def test_store_that_did_not_open_is_tried_by_the_next_tick(home: Path, instance: dg.DagsterInstance) -> None:
    home.mkdir()
    (home / "anamnesis.db").write_bytes(b"this is no database at all, it is a text" * 100)
    with pytest.raises(StoreCorrupt):
        ticked(instance, "embed_sensor")
    (home / "anamnesis.db").unlink()
    ticked(instance, "embed_sensor")


def test_resource_of_its_own_closes_its_store(home: Path) -> None:
    own, kept = MemoryResource(), MemoryResource(keeps_open=True)
    context = dg.build_init_resource_context()
    for resource in (own, kept):
        assert resource.store.files.sources()
        resource.teardown_after_execution(context)
    with pytest.raises(AnamnesisError):
        own.store.files.sources()
    assert kept.store.files.sources()
    close_kept()
