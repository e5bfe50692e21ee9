"""The jobs and sensors on a real Dagster instance, the example logs and the real model."""

from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.defs.exchanges import PARSE_AGAIN_TAG, exchanges
from anamnesis_pipeline.defs.partitions import SOURCES, SPACES
from anamnesis_pipeline.defs.resources import MemoryResource, SshResource
from anamnesis_pipeline.defs.sensors import crawl_sensor
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.parse_again import ask_again
from anamnesis_pipeline.services.forget import JOB
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.wiring import discover_sources
from anamnesis_pipeline.store.session_model import SESSION_KIND
from anamnesis_tests.defs.conftest import Daemon
from anamnesis_tests.support.live_system import EXAMPLES


@pytest.fixture
def log_roots() -> Path:
    return EXAMPLES


@pytest.fixture
def ingested(memory: MemoryResource) -> MemoryResource:
    """All logs are read."""
    ingest_all(memory.pipeline, discover_sources(memory.settings).sources)
    return memory


def run_all(daemon: Daemon, job: str) -> list[dg.RunRequest]:
    """Do the runs that a tick requests, which are all of this job."""
    requests = daemon.requests(crawl_sensor)
    assert {request.job_name for request in requests} == {job}
    assert all(map(daemon.run, requests))
    return requests


def test_logs_become_searchable_memory_and_then_nothing_is_to_do(memory: MemoryResource, daemon: Daemon) -> None:
    sources = {request.partition_key for request in run_all(daemon, "ingest")}
    assert len(sources) == 2
    assert set(daemon.partitions(SOURCES)) == sources
    assert memory.store.episodes.count(EpisodeFilter()) > 5
    assert daemon.requests(crawl_sensor) == []

    (embed,) = daemon.requests(embed_sensor)  # both sources in one run, so that the model loads once
    assert daemon.run(embed)
    space = memory.store.spaces.active()
    assert space is not None
    assert memory.store.vectors.pending_sources(space.key) == {}
    partitions = daemon.instance.get_materialized_partitions(dg.AssetKey("embeddings"))
    assert partitions == {f"{source}|{space.key}" for source in sources}

    (index,) = daemon.requests(embed_sensor)
    assert index.partition_key == space.key
    assert daemon.run(index)
    assert daemon.partitions(SPACES) == [space.key]


def test_missing_log_root_is_named_and_stops_nothing(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", f"/nonexistent/logs:{EXAMPLES}")
    assert len(daemon.requests(crawl_sensor)) == 2


def test_forgetting_of_a_run_that_died_is_finished_by_the_next(ingested: MemoryResource, daemon: Daemon) -> None:
    store = ingested.store
    said = store.episodes.page(EpisodeFilter(hidden_kinds=(SESSION_KIND,)), 100).items
    gone, *kept = [episode.episode_id for episode in said]
    assert daemon.requests(crawl_sensor) == []
    store.settings.set(JOB, {"ids": [gone], "whole": [], "kept": [], "chat": [], "rule": ""})
    run_all(daemon, "finish_posted")
    assert store.settings.get(JOB) is None
    assert store.episodes.get([gone, *kept]).keys() == set(kept)
    assert len(run_all(daemon, "ingest")) == 1, "the record of its session is made again of what is left"
    assert daemon.requests(crawl_sensor) == []


def test_finish_posted_summarizes_what_was_uploaded(ingested: MemoryResource, daemon: Daemon) -> None:
    ingested.pipeline.add_document("uploads", "1/guide.md", b"# Guide\n\nWe deploy on Tuesdays, by hand.")
    run_all(daemon, "finish_posted")
    assert ingested.store.overview.counts("uploads").summaries == 1
    assert daemon.requests(crawl_sensor) == []


def test_finish_posted_refuses_the_llm_that_config_cannot_change(home: Path, instance: dg.DagsterInstance) -> None:
    job = defs.resolve_job_def("finish_posted")
    config = {"resources": {"llm": {"config": {"address": "http://elsewhere"}}}}
    refused = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    (failure,) = refused.filter_events(lambda event: event.is_step_failure)
    assert "it gives address, which only settings do" in str(failure.step_failure_data.error)


def test_exchanges_parse_again_for_tag_or_config(ingested: MemoryResource, instance: dg.DagsterInstance) -> None:
    key = discover_sources(ingested.settings).sources[0].key
    upstream = dg.AssetSpec("crawled_files", partitions_def=SOURCES)
    again = {"ops": {"exchanges": {"config": {"parse_again": True}}}}
    instance.add_dynamic_partitions(str(SOURCES.name), [key])
    for tags, config, is_again in (({}, None, False), ({PARSE_AGAIN_TAG: "true"}, None, True), ({}, again, True)):
        result = dg.materialize(
            [exchanges, upstream],
            selection=["exchanges"],
            instance=instance,
            partition_key=key,
            tags=tags,
            resources={"memory": MemoryResource(), "ssh": SshResource()},
            run_config=config,
        )
        (event,) = result.get_asset_materialization_events()
        shown = event.materialization.metadata
        assert ("parsed again: unchanged" in shown) is is_again
        if is_again:
            assert (shown["parsed again: changed"].value, shown["parsed again: removed"].value) == (0, 0)


def test_interrupted_parse_again_is_requested_by_the_sensor(ingested: MemoryResource, daemon: Daemon) -> None:
    assert daemon.requests(crawl_sensor) == []
    key = discover_sources(ingested.settings).sources[0].key
    ask_again(ingested.store, key)
    assert [request.partition_key for request in run_all(daemon, "ingest")] == [key]
    assert daemon.requests(crawl_sensor) == []
