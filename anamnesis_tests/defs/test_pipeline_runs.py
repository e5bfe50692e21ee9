"""The jobs and sensors on a real Dagster instance, the example logs and the real model."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.defs.exchanges import PARSE_AGAIN_TAG, exchanges
from anamnesis_pipeline.defs.partitions import SOURCES, SPACES
from anamnesis_pipeline.defs.resources import MemoryResource, SshResource
from anamnesis_pipeline.defs.sensors import crawl_sensor
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.session_model import SESSION_KIND
from anamnesis_pipeline.steps.forget import JOB
from anamnesis_pipeline.steps.parse_again import ask_again
from anamnesis_pipeline.steps.pipeline import ingest_all
from anamnesis_pipeline.wiring import discover_sources

EXAMPLES = Path(__file__).parents[2] / "examples" / "claude_logs"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryResource]:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(EXAMPLES))
    resource = MemoryResource()
    yield resource
    resource.store.close()


def tick(sensor: dg.SensorDefinition, instance: dg.DagsterInstance, memory: MemoryResource) -> list[dg.RunRequest]:
    """Evaluate a sensor once and do with its partitions what the daemon would."""
    with dg.build_sensor_context(instance=instance, definitions=defs, resources={"memory": memory}) as context:
        result = sensor(context)
    if not isinstance(result, dg.SensorResult):
        return []
    for request in result.dynamic_partitions_requests or []:
        if request.partition_keys:
            instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    return list(result.run_requests or [])


def run(request: dg.RunRequest, job: str, instance: dg.DagsterInstance) -> None:
    result = defs.resolve_job_def(job).execute_in_process(
        instance=instance, partition_key=request.partition_key, tags=request.tags
    )
    assert result.success


def test_logs_become_searchable_memory_and_a_second_tick_has_nothing_to_do(memory: MemoryResource) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        requests = tick(crawl_sensor, instance, memory)
        sources = {request.partition_key for request in requests}
        assert len(sources) == 2
        assert set(instance.get_dynamic_partitions(str(SOURCES.name))) == sources
        for request in requests:
            run(request, "ingest", instance)
        assert memory.store.episodes.count(Where()) > 5
        assert tick(crawl_sensor, instance, memory) == []

        embed_requests = tick(embed_sensor, instance, memory)
        assert len(embed_requests) == 1, "both sources in one run, so that the model loads once"
        run(embed_requests[0], "embed", instance)
        space = memory.store.spaces.active()
        assert space is not None
        assert memory.store.vectors.pending_sources(space.key) == {}
        partitions = instance.get_materialized_partitions(dg.AssetKey("embeddings"))
        assert partitions == {f"{source}|{space.key}" for source in sources}

        index_requests = tick(embed_sensor, instance, memory)
        assert [request.partition_key for request in index_requests] == [space.key]
        run(index_requests[0], "index", instance)
        assert instance.get_dynamic_partitions(str(SPACES.name)) == [space.key]


def test_a_missing_log_root_is_named_and_stops_nothing(memory: MemoryResource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", f"/nonexistent/logs:{EXAMPLES}")
    with dg.DagsterInstance.ephemeral() as instance:
        assert len(tick(crawl_sensor, instance, memory)) == 2


def test_a_source_left_half_done_is_requested_again(memory: MemoryResource) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        (first, _) = tick(crawl_sensor, instance, memory)
        memory.pipeline.crawl(memory.source(str(first.partition_key)))
        requested = {request.partition_key for request in tick(crawl_sensor, instance, memory)}
        assert first.partition_key in requested, "its files are unchanged, but its lines are not parsed yet"


def test_what_a_run_that_died_was_forgetting_is_finished_by_the_run_that_the_next_tick_requests(
    memory: MemoryResource,
) -> None:
    ingest_all(memory.pipeline, discover_sources(memory.settings).sources)
    said = memory.store.episodes.page(Where(hidden_kinds=(SESSION_KIND,)), 100).items
    gone, *kept = [episode.episode_id for episode in said]
    with dg.DagsterInstance.ephemeral() as instance:
        assert tick(crawl_sensor, instance, memory) == []
        memory.store.settings.set(JOB, {"ids": [gone], "whole": [], "kept": [], "chat": [], "rule": ""})
        (request,) = tick(crawl_sensor, instance, memory)
        assert request.job_name == "finish_posted"
        run(request, "finish_posted", instance)
        assert memory.store.settings.get(JOB) is None
        assert memory.store.episodes.get([gone, *kept]).keys() == set(kept)
        (again,) = tick(crawl_sensor, instance, memory)  # the record of its session is made again of what is left
        run(again, "ingest", instance)
        assert tick(crawl_sensor, instance, memory) == []


def test_finish_posted_summarizes_what_was_uploaded(memory: MemoryResource) -> None:
    ingest_all(memory.pipeline, discover_sources(memory.settings).sources)
    memory.pipeline.add_document("uploads", "1/guide.md", b"# Guide\n\nWe deploy on Tuesdays, by hand.")
    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = tick(crawl_sensor, instance, memory)
        assert request.job_name == "finish_posted"
        run(request, "finish_posted", instance)
        assert memory.store.overview.counts("uploads").summaries == 1
        assert tick(crawl_sensor, instance, memory) == []


def test_finish_posted_refuses_the_llm_that_its_config_cannot_change(memory: MemoryResource) -> None:
    job = defs.resolve_job_def("finish_posted")
    config = {"resources": {"llm": {"config": {"address": "http://elsewhere"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        refused = job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)
    (failure,) = refused.filter_events(lambda event: event.is_step_failure)
    assert "it gives address, which only settings do" in str(failure.step_failure_data.error)


def test_exchanges_parse_again_for_the_tag_or_the_configuration(memory: MemoryResource) -> None:
    ingest_all(memory.pipeline, discover_sources(memory.settings).sources)
    key = discover_sources(memory.settings).sources[0].key
    upstream = dg.AssetSpec("crawled_files", partitions_def=SOURCES)
    again = {"ops": {"exchanges": {"config": {"parse_again": True}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(str(SOURCES.name), [key])
        for tags, config, is_again in (({}, None, False), ({PARSE_AGAIN_TAG: "true"}, None, True), ({}, again, True)):
            result = dg.materialize(
                [exchanges, upstream], selection=["exchanges"], instance=instance, partition_key=key, tags=tags,
                resources={"memory": MemoryResource(), "ssh": SshResource()}, run_config=config,
            )  # fmt: skip
            (event,) = result.get_asset_materialization_events()
            shown = event.materialization.metadata
            assert ("parsed again: unchanged" in shown) is is_again
            if is_again:
                assert (shown["parsed again: changed"].value, shown["parsed again: removed"].value) == (0, 0)


def test_interrupted_parse_again_is_requested_by_the_sensor(memory: MemoryResource) -> None:
    ingest_all(memory.pipeline, discover_sources(memory.settings).sources)
    with dg.DagsterInstance.ephemeral() as instance:
        assert tick(crawl_sensor, instance, memory) == []
        key = discover_sources(memory.settings).sources[0].key
        ask_again(memory.store, key)
        (request,) = tick(crawl_sensor, instance, memory)
        assert request.partition_key == key
        run(request, "ingest", instance)
        assert tick(crawl_sensor, instance, memory) == []
