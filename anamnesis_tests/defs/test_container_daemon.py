"""The daemon of the containers as a process of its own, on an instance in SQLite and an empty workspace."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
from dagster._core.test_utils import create_run_for_test


def test_the_daemon_marks_what_was_cut_off_then_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text("load_from: []\n")
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        cut_off = create_run_for_test(instance, job_name="ingest", status=dg.DagsterRunStatus.STARTED).run_id
    daemon = subprocess.Popen(
        [sys.executable, "-m", "anamnesis_pipeline.defs.container_daemon", str(tmp_path / "workspace.yaml")],
        env=os.environ | {"DAGSTER_HOME": str(tmp_path)}, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert daemon.stdout is not None
    said = []
    for line in daemon.stdout:
        said.append(line)
        if "Instance is configured with the following daemons" in line:
            break
    daemon.send_signal(signal.SIGTERM)
    rest, _ = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, "".join(said) + rest
    assert any(f"marked 1 unfinished runs as failed ['{cut_off}']" in line for line in said)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        run = instance.get_run_by_id(cut_off)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.FAILURE
