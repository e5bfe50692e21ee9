"""Sources on other machines: a real sshd, a machine that is away, and this one; one tick, then their runs."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import paramiko
import pytest

from anamnesis_pipeline.crawler_wiring import built_in
from anamnesis_pipeline.defs.checks import freshness
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.sensors import CRAWL_S, crawl_sensor, quick_crawl_sensor
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_pipeline.steps.host_clock import LOOK, read_look, write_look
from anamnesis_pipeline.steps.pipeline import ingest_source
from anamnesis_pipeline.steps.source_specs import put_spec, put_specs, remove_spec
from anamnesis_tests.defs.test_sensors import tick
from anamnesis_tests.ssh_servers import SshServer, openssh_server

SESSION = "11111111-2222-4333-8444-555555555555.jsonl"
NOTES = "# Retries\nA webhook that is retried must find the charge that its first call made.\n"


def line(cwd: str, text: str) -> str:
    message = {"role": "user", "content": text}
    at = "2026-01-01T00:00:00Z"
    return json.dumps({"type": "user", "uuid": text, "sessionId": "s", "cwd": cwd, "timestamp": at, "message": message})


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """A machine with a repository and a log of work in it."""
    key, user = paramiko.ECDSAKey.generate(), tmp_path / "user"
    home = tmp_path / "far"
    (home / ".claude/projects/-code-shop").mkdir(parents=True)
    repository = home / "code/shop"
    (repository / ".git").mkdir(parents=True)
    (repository / ".git/config").write_text('[remote "origin"]\n\turl = git@github.com:acme/shop.git\n')
    (repository / "CLAUDE.md").write_text(NOTES)
    log = line(str(repository), "why were customers of the far shop charged twice last night?")
    (home / ".claude/projects/-code-shop" / SESSION).write_text(log + "\n")
    (user / ".ssh").mkdir(parents=True)
    key.write_private_key_file(os.fspath(user / ".ssh/id_ecdsa"))
    monkeypatch.setenv("HOME", os.fspath(user))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with openssh_server(tmp_path / "sshd", key, {"HOME": os.fspath(home)}) as server:
        (user / ".ssh/known_hosts").write_text(server.known_host)
        yield server


@pytest.fixture
def memory(far: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryResource]:
    logs = tmp_path / "logs/-here"
    logs.mkdir(parents=True)
    (logs / SESSION).write_text(line("/here", "what is said on this machine?") + "\n")
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(logs.parent))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "mac")
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "false")
    resource = MemoryResource()
    specs = [
        SourceSpec("far-logs", LOGS, "~/.claude/projects", far.place, "far"),
        SourceSpec("far-code", DOCUMENTS, "~/code", far.place, "far", interval_s=60),
        SourceSpec("away", LOGS, "~/.claude/projects", "me@127.0.0.1:1", "away"),
    ]
    put_specs(resource.store.settings, specs, built_in(resource.settings), "mac")
    yield resource
    resource.store.close()


def machines(result: dg.SensorResult) -> list[str]:
    return sorted(request.tags["anamnesis/machine"] for request in result.run_requests or [])


def ingest(memory: MemoryResource, result: dg.SensorResult) -> None:
    keys = {request.partition_key for request in result.run_requests or []}
    for source in memory.store.files.sources():
        if source.key in keys:
            report = ingest_source(memory.pipeline, source)
            assert report.crawl.problems == []


def test_one_machine_is_away_and_what_the_others_hold_is_ingested_and_then_nothing_is_asked_for(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    first = tick(crawl_sensor, instance, memory)
    assert machines(first) == ["far", "far", "mac"]
    ingest(memory, first)
    found = memory.store.episodes.page(Where(), 100).items
    assert {(episode.machine, episode.project) for episode in found if episode.machine == "far"} == {
        ("far", "acme/shop")
    }
    assert {"far", "mac"} <= {episode.machine for episode in found}
    tick(crawl_sensor, instance, memory)  # idle parts aside, finds nothing and remembers it
    assert read_look(memory.store.settings, "far-code").state
    last = tick(crawl_sensor, instance, memory)
    assert machines(last) == []
    assert last.skip_reason is not None
    assert "away: no SSH connection" in str(last.skip_reason.skip_message)


def test_the_check_shows_every_source_with_its_last_success_and_files_and_why_one_is_not_read(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    ingest(memory, tick(crawl_sensor, instance, memory))
    table = str(freshness(memory).metadata["sources"].value)
    rows = {line.split("|")[1].strip(): line for line in table.splitlines()[2:]}
    assert {"local-logs", "far-logs", "far-code", "away"} == set(rows)
    machine, seen, _lag, files = (cell.strip() for cell in rows["far-code"].split("|")[2:6])
    assert (machine, seen.endswith("UTC"), files) == ("far", True, "1")
    assert "never" in rows["away"]
    assert "no SSH connection" in rows["away"]


def test_a_source_that_was_not_seen_for_three_intervals_is_told_of_once(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    result = freshness(memory)
    assert result.passed, "nothing was tried yet"
    ingest(memory, tick(crawl_sensor, instance, memory))
    result = freshness(memory)
    assert not result.passed
    assert result.metadata["stale"].value == "away"
    seen = read_look(memory.store.settings, "far-logs")
    long_ago = datetime.now(UTC) - timedelta(seconds=901)
    write_look(memory.store.settings, "far-logs", seen.__class__(long_ago, long_ago, seen.root))
    assert freshness(memory).metadata["stale"].value == "away, far-logs"


def test_the_sensor_reports_the_check_when_other_sources_are_stale_than_before(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    first = tick(crawl_sensor, instance, memory)
    assert [(event.check_name, event.passed) for event in first.asset_events] == [("sources_are_fresh", False)]  # type: ignore[union-attr]
    with dg.build_sensor_context(instance=instance, cursor=first.cursor, resources={"memory": memory}) as context:
        again = crawl_sensor(context)
    assert isinstance(again, dg.SensorResult)
    assert list(again.asset_events) == []


def test_a_source_with_a_short_interval_is_looked_at_by_the_quick_sensor_and_no_other_is(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    assert CRAWL_S == 300
    first = tick(quick_crawl_sensor, instance, memory)
    (request,) = first.run_requests or []
    assert str(request.partition_key).split("--")[1] == "code.documents"
    assert request.partition_key in instance.get_dynamic_partitions(str(SOURCES.name))
    assert memory.store.settings.all(LOOK).keys() == {f"{LOOK}far-code"}
    ingest(memory, first)
    tick(quick_crawl_sensor, instance, memory)
    assert tick(quick_crawl_sensor, instance, memory).skip_reason is not None


def test_an_interval_that_is_set_while_dagster_runs_counts_from_the_next_tick_on(
    memory: MemoryResource, instance: dg.DagsterInstance
) -> None:
    remove_spec(memory.store.settings, "far-code")
    skipped = tick(quick_crawl_sensor, instance, memory).skip_reason
    assert "No source" in str(skipped and skipped.skip_message)
    spec = SourceSpec("far-logs", LOGS, "~/.claude/projects", memory.crawler.specs[-1].host, "far", interval_s=30)
    put_spec(memory.store.settings, spec, built_in(memory.settings), "mac")
    assert machines(tick(quick_crawl_sensor, instance, memory)) == ["far"]
