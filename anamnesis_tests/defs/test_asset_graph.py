"""The definitions as Dagster loads them."""

import os
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
import yaml

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs import reporting
from anamnesis_pipeline.defs.partitions import SOURCES, SPACE_BY_SOURCE, SPACES
from anamnesis_pipeline.defs.resources import settings_at_load
from anamnesis_pipeline.knowledge.dream import DETECTORS, name_of
from anamnesis_pipeline.services.dagster.api import ASSET_PAGES
from anamnesis_pipeline.services.dagster.backfills import EMBED_TAG
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

ROOT = Path(__file__).parents[2]
POSTED = ("posted_notes", "uploaded_documents", "chat_answers")
PROPOSALS = {f"proposals/{name_of(detector)}" for detector in DETECTORS}
GRAPH = {
    "crawled_files": (set(), SOURCES),
    "exchanges": ({"crawled_files"}, SOURCES),
    "documents": ({"crawled_files"}, SOURCES),
    "summaries": ({"exchanges", "documents"}, SOURCES),
    "episodes": ({"exchanges", "documents", "summaries"}, SOURCES),
    "session_summaries": ({"episodes"}, SOURCES),
    "entities": ({"episodes"}, SOURCES),
    **dict.fromkeys(POSTED, (set[str](), None)),
    "embeddings": ({"episodes", "session_summaries", *POSTED}, SPACE_BY_SOURCE),
    "vector_index": ({"embeddings"}, SPACES),
    "memory_map": ({"vector_index"}, None),
    "consolidation_report": ({"embeddings"}, None),
    "observations": ({"episodes"}, SOURCES),
    **dict.fromkeys(PROPOSALS, ({"observations"}, None)),
    "review_report": (PROPOSALS, None),
    "memory_index": ({"episodes"}, None),
    "drift_report": ({"episodes"}, None),
}
JOBS = {
    "ingest": {
        *("crawled_files", "exchanges", "documents", "summaries", "episodes", "session_summaries"),
        *("entities", "observations"),
    },
    "embed": {"embeddings"},
    "index": {"vector_index"},
    "draw_map": {"memory_map"},
    "consolidate": {"consolidation_report"},
    "dream": {"memory_index", "drift_report", *PROPOSALS},
    "review": {"review_report"},
    "finish_posted": set(),
}


def test_assets_hang_together_as_the_architecture_says() -> None:
    dg.Definitions.validate_loadable(defs)
    nodes = {node.key.to_user_string(): node for node in defs.resolve_asset_graph().asset_nodes}
    assert set(nodes) == set(GRAPH)
    for name, (deps, partitions) in GRAPH.items():
        node = nodes[name]
        assert {key.to_user_string() for key in node.parent_keys} == deps
        assert node.partitions_def == partitions
        assert node.group_name, name
        assert {"sqlite", "mongodb"} & node.kinds, name
        assert node.owners == ["team:anamnesis"], name
        assert node.tags["stage"] == node.group_name, name
        (code,) = node.metadata["dagster/code_references"].value.code_references
        assert Path(code.file_path).is_relative_to(ROOT / "anamnesis_pipeline/defs"), name
        assert str(node.metadata["page"].value).startswith("http://127.0.0.1:3010/"), name
        assert bool(node.freshness_policy) == (name in JOBS["ingest"]), "what the nightly ingest renews is to be fresh"
        assert node.description, name


def test_page_links_follow_the_address_in_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "AT_LOAD", Settings(service_link="https://memory.example"))
    spec = reporting.described(dg.AssetSpec("episodes", group_name="ingest"))
    assert spec.metadata["page"].value == f"https://memory.example{ASSET_PAGES['episodes']}"


def test_routes_that_descriptions_name_exist() -> None:
    paths = create_app(cast(Services, SimpleNamespace(settings=Settings()))).openapi()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    texts = " ".join(node.description or "" for node in defs.resolve_asset_graph().asset_nodes)
    named = set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`]+)`", texts))
    assert named
    assert named <= routes


def test_jobs_hold_their_assets_and_ingest_ends_after_two_hours() -> None:
    for name, assets in JOBS.items():
        job = defs.resolve_job_def(name)
        assert {key.to_user_string() for key in job.asset_layer.selected_asset_keys} == assets
        assert job.description
        assert job.run_tags.get("dagster/max_runtime") == ("7200" if name == "ingest" else None), "whoever starts it"
    monitoring = yaml.safe_load((ROOT / "dagster.yaml").read_text())["run_monitoring"]
    assert monitoring["max_runtime_seconds"] == 7 * 24 * 3600, "days of embedding are not ended"


def test_jobs_sensors_and_schedules_have_owner_and_tags() -> None:
    repository = defs.get_repository_def()
    made: list[tuple[Any, Any]] = [
        *((defs.resolve_job_def(name), dg.define_asset_job if assets else dg.job) for name, assets in JOBS.items()),
        *((sensor, dg.sensor) for sensor in repository.sensor_defs),
        *((schedule, dg.schedule) for schedule in repository.schedule_defs),
    ]
    for each, made_by in made:
        assert each.tags["stage"] in {"ingest", "memory", "posted", "knowledge"}, each.name
        assert each.tags["store"] == "sqlite"
        if "owners" in signature(made_by).parameters:
            assert list(each.owners or ()) == ["team:anamnesis"], each.name


def test_owner_is_left_out_where_dagster_takes_none() -> None:
    assert reporting.owned(dg.sensor) == (
        {"owners": ["team:anamnesis"]} if "owners" in signature(dg.sensor).parameters else {}
    )
    assert reporting.owned(lambda name: name) == {}


def test_one_run_of_a_source_goes_at_a_time_whoever_starts_it() -> None:
    tags = defs.resolve_job_def("ingest").get_tags_for_partition_key("mac--a--1", None)
    limits = yaml.safe_load((ROOT / "dagster.yaml").read_text())["concurrency"]["runs"]["tag_concurrency_limits"]
    assert {"key": "dagster/partition", "value": {"applyLimitPerUniqueValue": True}, "limit": 1} in limits
    assert tags["dagster/partition"] == "mac--a--1", "as a run has it that is started by hand"
    assert EMBED_TAG in {limit["key"] for limit in limits}, "and one that embeds into a space"


def test_every_sensor_and_schedule_runs_from_the_first_start() -> None:
    repository = defs.get_repository_def()
    sensors = {sensor.name: sensor.minimum_interval_seconds for sensor in repository.sensor_defs}
    assert sensors == {"crawl_sensor": 300, "quick_crawl_sensor": 30, "embed_sensor": 30}
    schedules = {schedule.name for schedule in repository.schedule_defs}
    assert schedules == {"daily_ingest", "daily_consolidation", "daily_map", "daily_dream", "weekly_review"}
    assert {sensor.default_status for sensor in repository.sensor_defs} == {dg.DefaultSensorStatus.RUNNING}
    assert {schedule.default_status for schedule in repository.schedule_defs} == {dg.DefaultScheduleStatus.RUNNING}
    assert all(definition.description for definition in [*repository.sensor_defs, *repository.schedule_defs])


def test_checks_watch_assets_and_say_what_they_want() -> None:
    specs = [spec for check in defs.asset_checks or [] for spec in check.check_specs]
    assert len(specs) == 16 + len(DETECTORS)
    every = {key.name for key in defs.resolve_asset_graph().asset_check_keys}
    by_assets = {"index_recall", "index_has_200_lines_at_most", "archive_is_there", "scores_are_fair"}
    by_assets |= {"every_passage_is_embedded", "vectors_are_sound"}
    assert every - {spec.name for spec in specs} == by_assets
    assert {spec.asset_key.to_user_string() for spec in specs} <= set(GRAPH)
    assert all(spec.description for spec in specs)


LOADS = """
import sys
from anamnesis_pipeline.definitions import defs
heavy = {"torch", "sentence_transformers", "pandas", "transformers", "huggingface_hub"} & set(sys.modules)
assert not heavy, heavy
print(defs.get_sensor_def("crawl_sensor").minimum_interval_seconds)
"""


def test_loading_imports_no_model_library_and_makes_no_home(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOADS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "ANAMNESIS_HOME": str(tmp_path / "home")},
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "300"), ran.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("environment", "stored", "seconds"), [("60", None, 60), ("60", 90, 90), ("never", None, 300)])
def test_the_crawl_keeps_the_interval_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str, stored: int | None, seconds: int
) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))
    monkeypatch.setenv("ANAMNESIS_CRAWL_INTERVAL_S", environment)
    if stored is not None:
        store = open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")
        store.settings.set("config.crawl_interval_s", stored)
        store.close()
    assert settings_at_load()[0].crawl_interval_s == seconds
