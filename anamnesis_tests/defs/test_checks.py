"""Asset checks say what is so."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import numpy as np
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.checks import (
    ARCHIVE_STATE,
    CHECKS,
    archive_is_there,
    evaluation,
    every_line_is_parsed,
    every_llm_summary_is_made,
    every_part_is_an_episode,
    every_passage_is_embedded,
    every_session_is_consolidated,
    every_session_is_recorded,
    every_version_is_parsed,
    map_is_current,
    no_line_is_a_dead_letter,
    posted_searchability,
    vectors_are_sound,
)
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.posted import POSTED
from anamnesis_pipeline.defs.resources import LlmResource, MemoryResource, SshResource
from anamnesis_pipeline.model import RESERVED_SOURCES, EpisodeFilter, Source, Space, Variant
from anamnesis_pipeline.parsing.claude_logs.message_keys import place_of
from anamnesis_pipeline.pipeline.document_archive import add_version
from anamnesis_pipeline.pipeline.document_versions import Version
from anamnesis_pipeline.pipeline.memory_map import make_map, map_path, save_map
from anamnesis_pipeline.pipeline.publish import delete_episode
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.uploads import Handed
from anamnesis_pipeline.services.wiring import discover_sources, open_pipeline, open_uploads
from anamnesis_pipeline.store.session_model import SESSION_KIND
from anamnesis_tests.pipeline.test_memory_map import fill
from anamnesis_tests.support.archived_logs import FOLDER, OTHER, SESSION, record
from anamnesis_tests.support.spaces import embed_all, write

WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR


@pytest.fixture
def log_roots(tmp_path: Path) -> Path:
    return tmp_path


def write_log(tmp_path: Path, session: str, text: str, number: int = 60) -> None:
    """A project with one more log of one prompt of last year."""
    log = tmp_path / FOLDER / f"{session}.jsonl"
    log.parent.mkdir(exist_ok=True)
    log.write_text(json.dumps(record("user", text, number, session)) + "\n")


def test_what_was_deleted_or_a_rule_holds_back_is_not_missing(memory: MemoryResource, tmp_path: Path) -> None:
    store = memory.store
    for number, session in enumerate((SESSION, OTHER)):
        write_log(tmp_path, session, f"Where does walrus {number} sleep?", 60 * number)
    ingest_all(open_pipeline(memory.settings, store), discover_sources(memory.settings).sources)
    said = store.episodes.page(EpisodeFilter(hidden_kinds=(SESSION_KIND,)), 10).items
    one, other = sorted(episode.episode_id for episode in said)
    assert delete_episode(store, one)
    assert every_part_is_an_episode(memory).passed
    assert store.episodes.delete(other, tombstone=False)
    assert not every_part_is_an_episode(memory).passed
    store.exclusion.hold({other: "rule-of-some"})
    assert store.overview.counts().kept_away == 2
    assert every_part_is_an_episode(memory).passed


@pytest.fixture
def source(memory: MemoryResource, tmp_path: Path) -> Source:
    """A project with one log, not read yet."""
    write_log(tmp_path, SESSION, "Where does the walrus sleep tonight?")
    (found,) = [each for each in discover_sources(memory.settings).sources if each.folder == FOLDER]
    memory.store.files.put_sources([found])
    return found


def test_every_asset_has_a_check_that_says_what_it_wants() -> None:
    graph = defs.resolve_asset_graph()
    checked = {key.asset_key for key in graph.asset_check_keys}
    assert checked == {node.key for node in graph.asset_nodes}
    blocking = {key.name for key in graph.asset_check_keys if graph.get(key).blocking}
    assert blocking == {"archive_is_there", "vectors_are_sound", "index_has_200_lines_at_most"}, "one for each stage"


def test_lines_parts_and_sessions_that_wait_are_told(memory: MemoryResource, source: Source) -> None:
    pipeline = memory.pipeline
    pipeline.crawl(source)
    assert not every_line_is_parsed(memory).passed
    pipeline.parse(source)
    assert every_line_is_parsed(memory).passed
    assert not every_part_is_an_episode(memory).passed
    pipeline.summarize_parts(source)
    pipeline.publish(source)
    assert every_part_is_an_episode(memory).passed
    assert every_llm_summary_is_made(memory).passed
    assert not every_session_is_recorded(memory).passed
    assert not every_session_is_consolidated(memory).passed
    assert not every_passage_is_embedded(memory).passed
    pipeline.summarize_sessions(source)
    assert every_session_is_recorded(memory).passed


def test_line_that_is_no_record_is_told(memory: MemoryResource, source: Source, tmp_path: Path) -> None:
    with (tmp_path / FOLDER / f"{SESSION}.jsonl").open("a") as log:
        log.write('{"type": "user", "mess\n')
    memory.pipeline.crawl(source)
    memory.pipeline.parse(source)
    assert not no_line_is_a_dead_letter(memory).passed
    assert archive_is_there(memory, source.key).passed, "one bad record stops no source"


def test_version_that_waits_is_told(memory: MemoryResource) -> None:
    pipeline, key = memory.pipeline, RESERVED_SOURCES[1]
    (uploads,) = [each for each in memory.store.files.sources() if each.key == key]
    assert every_version_is_parsed(memory).passed
    version = Version(0, round(datetime.now(UTC).timestamp() * 1e9), 0, "zoo", place_of(key, "a.md"), "", "", (), "")
    add_version(memory.store, pipeline.archive, uploads, "a.md", b"# Zoo\n\nWalrus.", pipeline.mask, version)
    result = every_version_is_parsed(memory)
    assert (result.passed, result.severity) == (False, WARN)
    pipeline.parse_documents(uploads)
    assert every_version_is_parsed(memory).passed


def test_lost_archive_stops_a_run(memory: MemoryResource, source: Source, instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions(str(SOURCES.name), [source.key])
    resources = {"memory": memory, "llm": LlmResource(), "ssh": SshResource()}

    def ingested() -> dg.ExecuteInProcessResult:
        return defs.resolve_job_def("ingest").execute_in_process(
            instance=instance, resources=resources, partition_key=source.key, raise_on_error=False
        )

    assert ingested().success
    shutil.rmtree(memory.settings.archive_dir / source.key)
    stopped = ingested()
    assert not stopped.success
    (check,) = [each for each in stopped.get_asset_check_evaluations() if each.check_name == "archive_is_there"]
    assert (check.passed, check.blocking, check.severity) == (False, True, ERROR)
    assert not [event for event in stopped.all_events if event.is_step_start and event.step_key == "exchanges"]


def test_one_lost_file_of_three_stops_no_source(memory: MemoryResource, source: Source, tmp_path: Path) -> None:
    for name in (OTHER, "33333333-3333-4333-8333-333333333333"):
        write_log(tmp_path, name, name)
    memory.pipeline.crawl(source)
    archived = sorted(path for path in (memory.settings.archive_dir / source.key).rglob("*.zst") if path.is_file())
    assert len(archived) == 3
    archived[0].unlink()
    result = archive_is_there(memory, source.key)
    assert result.passed
    assert result.metadata["files that lack lines"].value == 1
    archived[1].unlink()
    assert not archive_is_there(memory, source.key).passed


def test_result_of_one_source_shows_the_archive_of_each(memory: MemoryResource, source: Source) -> None:
    memory.pipeline.crawl(source)
    (uploads,) = [each for each in memory.store.files.sources() if each.key == RESERVED_SOURCES[1]]
    shutil.rmtree(memory.settings.archive_dir / source.key)
    lost = archive_is_there(memory, source.key)
    other = archive_is_there(memory, uploads.key)
    assert (lost.passed, other.passed) == (False, True)
    for result in (lost, other):
        assert result.description == f"Lost at the last look: {source.key}"
        rows = [line for line in str(result.metadata["sources"].value).splitlines() if source.key in line]
        assert ["False" in row for row in rows] == [True]
    assert uploads.key in str(other.metadata["sources"].value)
    memory.store.settings.set(ARCHIVE_STATE + "gone", {"source": "gone", "passed": False})
    assert "gone" not in str(archive_is_there(memory, uploads.key).metadata["sources"].value)
    assert memory.store.settings.get(ARCHIVE_STATE + "gone") is None


def test_vectors_that_are_no_numbers_are_an_error(memory: MemoryResource) -> None:
    store, space = memory.store, Space("s", "m", 8)
    store.spaces.put(space)
    write(store, 3)
    assert vectors_are_sound(memory).passed
    written = store.episodes.page(EpisodeFilter(), 3).items
    ids = [stored.passage_id for each in written for stored in store.episodes.passages_of(each.episode_id)]
    store.vectors.put(space.key, Variant.TEXT, ids, np.ones((len(ids), 8), np.float32) / np.sqrt(8))
    assert vectors_are_sound(memory).passed
    store.vectors.put(space.key, Variant.TEXT, ids[:1], np.zeros((1, 8), np.float32))
    result = vectors_are_sound(memory)
    assert (result.passed, result.severity, result.metadata["wrong"].value) == (False, ERROR, 1)


def test_old_map_is_a_warning_and_a_damaged_one_an_error(memory: MemoryResource) -> None:
    assert map_is_current(memory).passed, "of nothing there is no map"
    fill(memory.store, 60)
    assert (map_is_current(memory).passed, map_is_current(memory).severity) == (False, WARN)
    space, path = memory.store.spaces.active(), map_path(memory.settings.home)
    assert space is not None
    save_map(path, make_map(memory.store, space))
    assert map_is_current(memory).passed
    path.write_bytes(b"no map at all")
    assert (map_is_current(memory).passed, map_is_current(memory).severity) == (False, ERROR)


def test_posted_text_without_vectors_is_told_of_its_source_alone(memory: MemoryResource) -> None:
    store, space = memory.store, Space("s", "m", 8)
    assert posted_searchability(memory, "direct").passed, "nothing is posted"
    write(store, 2)
    found = posted_searchability(memory, "direct")
    assert not found.passed, "no space is active"
    store.spaces.put(space)
    store.spaces.activate(space.key)
    found = posted_searchability(memory, "direct")
    assert (found.passed, found.severity, found.metadata["passages without vectors"].value) == (False, WARN, 2)
    embed_all(store, space, dim=8)
    assert posted_searchability(memory, "direct").passed
    write(store, 1, source="chat")
    assert posted_searchability(memory, "direct").passed
    assert not posted_searchability(memory, "chat").passed


def test_upload_without_an_episode_is_told(memory: MemoryResource) -> None:
    uploads = open_uploads(memory.settings, memory.store)
    for name in ("walrus", "seal"):
        uploads.take(Handed(f"{name}.md", f"# Zoo\n\nThe {name} sleeps behind the second gate.".encode()))
    assert every_part_is_an_episode(memory).passed, "an upload is one as any part"
    assert posted_searchability(memory, "uploads").metadata["without an episode"].value == 0
    assert memory.store.episodes.delete(
        memory.store.episodes.page(EpisodeFilter(), 1).items[0].episode_id, tombstone=False
    )
    found = posted_searchability(memory, "uploads")
    assert (found.passed, found.metadata["without an episode"].value) == (False, 1)


def test_check_of_posted_text_runs_from_the_ui(memory: MemoryResource) -> None:
    write(memory.store, 1)
    checks = [check for check in CHECKS if check.check_key.name == "all_is_searchable"]
    selected = dg.AssetSelection.checks(*checks)
    result = dg.materialize([*POSTED.values(), *checks], selection=selected, resources={"memory": memory})
    said = {each.asset_key.to_user_string(): each.passed for each in result.get_asset_check_evaluations()}
    assert said == {"posted_notes": False, "uploaded_documents": True, "chat_answers": True}


def test_evaluation_of_a_sensor_keeps_what_the_result_says() -> None:
    told = {"passed": False, "severity": WARN, "description": "a machine is away"}
    result = dg.AssetCheckResult(**told, metadata={"stale": "nas"})
    found = evaluation(dg.AssetCheckKey(dg.AssetKey("crawled_files"), "sources_are_fresh"), result)
    assert {name: getattr(found, name) for name in told} == told
    assert found.metadata["stale"].value == "nas"
