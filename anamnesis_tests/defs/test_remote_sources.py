"""Sources on other machines: a real sshd, a machine that is away, and this one; one tick, then their runs."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import paramiko
import pytest

from anamnesis_pipeline.defs.checks import freshness
from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.sensors import CRAWL_S, crawl_sensor, quick_crawl_sensor
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.host_clock import LOOK, read_look, write_look
from anamnesis_pipeline.pipeline.source_specs import put_spec, put_specs, remove_spec
from anamnesis_pipeline.runtime.crawler_wiring import built_in
from anamnesis_pipeline.services.ingest import ingest_source
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_tests.defs.conftest import Daemon
from anamnesis_tests.support.ssh_servers import SshServer, openssh_server

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
def memory(far: SshServer, home: Path, log_roots: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryResource]:
    (log_roots / "-here").mkdir(parents=True)
    (log_roots / "-here" / SESSION).write_text(line("/here", "what is said on this machine?") + "\n")
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


def test_what_others_hold_is_ingested_while_one_machine_is_away(memory: MemoryResource, daemon: Daemon) -> None:
    first = daemon.tick(crawl_sensor)
    assert machines(first) == ["far", "far", "mac"]
    assert [(event.check_name, event.passed) for event in first.asset_events] == [("sources_are_fresh", False)]  # type: ignore[union-attr]
    ingest(memory, first)
    found = memory.store.episodes.page(EpisodeFilter(), 100).items
    assert {episode.project for episode in found if episode.machine == "far"} == {"acme/shop"}
    assert {"far", "mac"} <= {episode.machine for episode in found}
    again = daemon.tick(crawl_sensor)  # idle parts aside, finds nothing and remembers it
    assert list(again.asset_events) == [], "no other source is stale"
    assert read_look(memory.store.settings, "far-code").state
    last = daemon.tick(crawl_sensor)
    assert machines(last) == []
    assert "away: no SSH connection" in str(last.skip_reason and last.skip_reason.skip_message)


def test_check_shows_each_source_and_tells_of_those_not_seen(memory: MemoryResource, daemon: Daemon) -> None:
    assert freshness(memory).passed, "nothing was tried yet"
    ingest(memory, daemon.tick(crawl_sensor))
    result = freshness(memory)
    assert (result.passed, result.metadata["stale"].value) == (False, "away")
    table = str(result.metadata["sources"].value)
    rows = {line.split("|")[1].strip(): line for line in table.splitlines()[2:]}
    assert {"local-logs", "far-logs", "far-code", "away"} == set(rows)
    machine, seen, _lag, files = (cell.strip() for cell in rows["far-code"].split("|")[2:6])
    assert (machine, seen.endswith("UTC"), files) == ("far", True, "1")
    assert "never" in rows["away"]
    assert "no SSH connection" in rows["away"]
    look = read_look(memory.store.settings, "far-logs")
    long_ago = datetime.now(UTC) - timedelta(seconds=901)
    write_look(memory.store.settings, "far-logs", look.__class__(long_ago, long_ago, look.root))
    assert freshness(memory).metadata["stale"].value == "away, far-logs", "not seen for three intervals"


def test_quick_sensor_looks_at_sources_of_short_intervals_alone(memory: MemoryResource, daemon: Daemon) -> None:
    assert CRAWL_S == 300
    first = daemon.tick(quick_crawl_sensor)
    (request,) = first.run_requests or []
    assert str(request.partition_key).split("--")[1] == "code.documents"
    assert request.partition_key in daemon.partitions(SOURCES)
    assert memory.store.settings.all(LOOK).keys() == {f"{LOOK}far-code"}
    ingest(memory, first)
    daemon.tick(quick_crawl_sensor)
    assert daemon.tick(quick_crawl_sensor).skip_reason is not None
    remove_spec(memory.store.settings, "far-code")
    skipped = daemon.tick(quick_crawl_sensor).skip_reason
    assert "No source" in str(skipped and skipped.skip_message)
    spec = SourceSpec("far-logs", LOGS, "~/.claude/projects", memory.crawler.specs[-1].host, "far", interval_s=30)
    put_spec(memory.store.settings, spec, built_in(memory.settings), "mac")
    assert machines(daemon.tick(quick_crawl_sensor)) == ["far"], "an interval counts from the next tick on"
