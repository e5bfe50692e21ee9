"""Recovery of runs that an earlier process group left behind, on a real Dagster instance in SQLite."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.defs import recovery
from anamnesis_pipeline.defs.jobs import UNFINISHED_STATUSES
from anamnesis_pipeline.defs.recovery import CUT_OFF_STATUSES, cancel_cut_off_runs, note_cut_off
from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.services.dagster import graphql
from anamnesis_pipeline.services.dagster.api import DagsterApi
from anamnesis_pipeline.services.dagster.runs import CUT_OFF, mark_canceled
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_tests.support.dagster_parts import created_run


@pytest.fixture
def dagster_home(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an instance without runs, in the environment."""
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


def recovered(*options: str) -> str:
    """What the command says."""
    command = [sys.executable, "-m", "anamnesis_pipeline.defs.recovery", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


@pytest.fixture
def queued(webserver: tuple[DagsterApi, Path]) -> dg.DagsterRun:
    """A run as the webserver puts it into the queue, but for the snapshot of its job, which its instance alone has."""
    api, home = webserver
    run_id = api.launch_job("consolidate")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run = instance.get_run_by_id(run_id)
    assert run is not None
    return dg.DagsterRun(run.job_name, run.run_id, status=run.status, remote_job_origin=run.remote_job_origin)


def left_behind(queued: dg.DagsterRun) -> dict[str, dg.DagsterRunStatus]:
    """One run in each state that is not over, and one that is: id -> status."""
    first, *others = UNFINISHED_STATUSES
    assert first is queued.status
    with dg.DagsterInstance.get() as instance:
        instance.add_run(queued)
        made = [created_run(instance, status=status) for status in (*others, dg.DagsterRunStatus.SUCCESS)]
    return {run.run_id: run.status for run in (queued, *made)}


def statuses(run_ids: list[str]) -> list[dg.DagsterRunStatus]:
    with dg.DagsterInstance.get() as instance:
        found = [instance.get_run_by_id(run_id) for run_id in run_ids]
    return [run.status for run in found if run is not None]


def test_runs_that_were_cut_off_are_canceled_once(dagster_home: Path, queued: dg.DagsterRun) -> None:
    waiting, *cut_off, done = left_behind(queued)
    assert [run.run_id for run in cancel_cut_off_runs(CUT_OFF_STATUSES)] == cut_off
    assert set(statuses(cut_off)) == {dg.DagsterRunStatus.CANCELED}
    assert statuses([waiting, done]) == [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.SUCCESS]
    assert cancel_cut_off_runs(CUT_OFF_STATUSES) == []


def test_recovery_command_notes_the_ingest_that_was_cut_off(dagster_home: Path, queued: dg.DagsterRun) -> None:
    with dg.DagsterInstance.get() as instance:
        instance.add_run(queued)
        ingest = created_run(instance).run_id
        embed = created_run(instance, "embed").run_id
    store = open_store(settings_module.load())
    done = recovered()
    assert f"marked 2 unfinished runs as canceled ['{ingest}', '{embed}']" in done
    assert store.settings.get(CUT_OFF) == ingest
    assert statuses([queued.run_id]) == [dg.DagsterRunStatus.QUEUED], "it stays in the queue"
    store.close()


def test_in_containers_only_runs_never_queued_are_canceled(dagster_home: Path) -> None:
    """Dagster's run monitoring sees what became of the others."""
    with dg.DagsterInstance.get() as instance:
        runs = {status: created_run(instance, status=status).run_id for status in UNFINISHED_STATUSES[1:]}
    recovered("--launched-runs-go-on")
    now = dict(zip(runs, statuses(list(runs.values())), strict=True))
    assert now.pop(dg.DagsterRunStatus.NOT_STARTED) is dg.DagsterRunStatus.CANCELED
    assert all(before is after for before, after in now.items())


def test_recovery_goes_on_without_a_command_that_hangs(
    dagster_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = tmp_path / "dagster-graphql"
    hanging.write_text("#!/bin/sh\nexec sleep 600\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(graphql, "dagster_command", lambda name: str(hanging))
    monkeypatch.setattr(graphql, "COMMAND_TIMEOUT_S", 0.2)
    monkeypatch.setattr(sys, "argv", ["recovery"])
    with dg.DagsterInstance.get() as instance:
        run_id = created_run(instance).run_id
    recovery.main()
    assert "runs that were cut off stay as they are" in caplog.text
    assert "dagster-graphql does not answer within" in caplog.text
    assert statuses([run_id]) == [dg.DagsterRunStatus.STARTED]


def test_store_that_cannot_be_opened_keeps_no_note(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home.mkdir()
    (home / "anamnesis.db").write_text("no database " * 100)
    note_cut_off("run-1")
    assert "the run run-1 is not noted as cut off" in caplog.text


def test_mark_of_a_run_fails_where_the_instance_is_broken(dagster_home: Path) -> None:
    (dagster_home / "dagster.yaml").write_text("storage: {nowhere: {}}\n")
    with pytest.raises(ServiceUnreachable, match="dagster-graphql fails"):
        mark_canceled(["run-1"])
