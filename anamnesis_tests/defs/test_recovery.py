"""Recovery of runs that an earlier life left behind, on a real Dagster instance in SQLite."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.dagster_api.api import DagsterApi
from anamnesis_pipeline.dagster_api.runs import INTERRUPTED_TAG
from anamnesis_pipeline.defs.recovery import MESSAGE, fail_unfinished_runs
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES
from anamnesis_tests.dagster_parts import created_run


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


@pytest.fixture
def queued(webserver: tuple[DagsterApi, Path]) -> dg.DagsterRun:
    """A run as the webserver puts it into the queue, but for the snapshot of its job, which its instance alone has."""
    api, home = webserver
    run_id = api.launch_job("consolidate")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = instance.get_run_by_id(run_id)
    assert run is not None
    return dg.DagsterRun(run.job_name, run.run_id, status=run.status, remote_job_origin=run.remote_job_origin)


def left_behind(instance: dg.DagsterInstance, queued: dg.DagsterRun, tags: dict[str, str]) -> list[str]:
    """One run in each state that is not over; the first is queued."""
    first, *others = UNFINISHED_STATUSES
    assert first is queued.status
    instance.add_run(queued)
    return [queued.run_id, *(created_run(instance, status=status, tags=tags).run_id for status in others)]


def test_runs_that_were_cut_off_are_failed_and_say_why(instance: dg.DagsterInstance, queued: dg.DagsterRun) -> None:
    cut_off = left_behind(instance, queued, {})
    assert fail_unfinished_runs(instance) == cut_off
    for run_id in cut_off:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.FAILURE
        assert run.tags[INTERRUPTED_TAG] == "true"
    messages = [entry.message for entry in instance.all_logs(cut_off[0])]
    assert MESSAGE in messages


class Docker(BaseHTTPRequestHandler):
    """Docker's API, as far as it says that one container is there and no other."""

    def do_GET(self) -> None:
        known = {"/version": {"ApiVersion": "1.44"}, "/containers/there/json": {"State": {"Status": "running"}}}
        found = next((answer for path, answer in known.items() if self.path.endswith(path)), None)
        body = json.dumps(found or {"message": "No such container"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def in_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An instance that gives each run a container, which its launcher looks for."""
    (tmp_path / "dagster.yaml").write_text("run_launcher: {module: dagster_docker, class: DockerRunLauncher}\n")
    with HTTPServer(("127.0.0.1", 0), Docker) as server, dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        yield instance
        server.shutdown()


def test_a_run_that_goes_on_in_its_container_is_left_alone(
    in_containers: dg.DagsterInstance, queued: dg.DagsterRun
) -> None:
    waits, *gone = left_behind(in_containers, queued, {"docker/container_id": "gone"})
    alive = created_run(in_containers, "embed", tags={"docker/container_id": "there"}).run_id
    assert fail_unfinished_runs(in_containers) == gone
    for kept in (alive, waits):
        run = in_containers.get_run_by_id(kept)
        assert run is not None
        assert not run.is_finished


def test_finished_runs_are_left_alone(instance: dg.DagsterInstance) -> None:
    done = created_run(instance, status=dg.DagsterRunStatus.SUCCESS).run_id
    assert fail_unfinished_runs(instance) == []
    run = instance.get_run_by_id(done)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.SUCCESS


def test_a_failed_run_gives_its_concurrency_slot_back(instance: dg.DagsterInstance) -> None:
    instance.event_log_storage.set_concurrency_slots("embedding", 1)
    run = created_run(instance, "embed")
    claim = instance.event_log_storage.claim_concurrency_slot("embedding", run.run_id, "embeddings")
    assert claim.is_claimed
    fail_unfinished_runs(instance)
    later = instance.event_log_storage.claim_concurrency_slot("embedding", "another-run", "embeddings")
    assert later.is_claimed


def test_a_second_recovery_finds_nothing(instance: dg.DagsterInstance) -> None:
    created_run(instance)
    assert len(fail_unfinished_runs(instance)) == 1
    assert fail_unfinished_runs(instance) == []


def test_recovery_command_fails_runs_and_logs_them(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        cut_off = created_run(instance).run_id
    command, environment = [sys.executable, "-m", "anamnesis_pipeline.defs.recovery"], {"DAGSTER_HOME": str(tmp_path)}
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    assert f"marked 1 unfinished runs as failed ['{cut_off}']" in done.stderr
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        run = instance.get_run_by_id(cut_off)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.FAILURE
