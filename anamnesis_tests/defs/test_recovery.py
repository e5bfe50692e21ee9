"""Recovery of runs that an earlier life left behind, on a real Dagster instance in SQLite."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.test_utils import create_run_for_test

from anamnesis_pipeline.dagster_api.runs import INTERRUPTED_TAG
from anamnesis_pipeline.defs.recovery import MESSAGE, fail_unfinished_runs
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES

# Dagster wants to know where a queued run comes from; nobody listens there.
ORIGIN = RemoteJobOrigin(
    RemoteRepositoryOrigin(GrpcServerCodeLocationOrigin(host="localhost", port=1), "__repository__"), "ingest"
)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


def test_runs_that_were_cut_off_are_failed_and_say_why(instance: dg.DagsterInstance) -> None:
    cut_off = [
        create_run_for_test(instance, job_name="ingest", status=status, remote_job_origin=ORIGIN).run_id
        for status in UNFINISHED_STATUSES
    ]
    assert fail_unfinished_runs(instance) == cut_off
    for run_id in cut_off:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.FAILURE
        assert run.tags[INTERRUPTED_TAG] == "true"
    messages = [entry.message for entry in instance.all_logs(cut_off[0])]
    assert MESSAGE in messages


class ContainerLauncher(DefaultRunLauncher):
    """One that can tell whether a run's worker is there, as those of containers can: `alive` has theirs."""

    alive: frozenset[str] = frozenset()
    supports_check_run_worker_health = True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        return CheckRunHealthResult(WorkerStatus.RUNNING if run.run_id in self.alive else WorkerStatus.NOT_FOUND)


def test_a_run_that_goes_on_in_its_container_is_left_alone(instance: dg.DagsterInstance) -> None:
    runs = {
        status: create_run_for_test(instance, job_name="embed", status=status, remote_job_origin=ORIGIN).run_id
        for status in UNFINISHED_STATUSES
    }
    alive = create_run_for_test(instance, job_name="embed", status=dg.DagsterRunStatus.STARTED).run_id
    launcher = ContainerLauncher()
    launcher.alive = frozenset({alive})
    instance._run_launcher = launcher  # which a real one takes from its file
    gone = [run_id for status, run_id in runs.items() if status is not dg.DagsterRunStatus.QUEUED]
    assert fail_unfinished_runs(instance) == gone
    for kept in (alive, runs[dg.DagsterRunStatus.QUEUED]):
        run = instance.get_run_by_id(kept)
        assert run is not None
        assert not run.is_finished


def test_finished_runs_are_left_alone(instance: dg.DagsterInstance) -> None:
    done = create_run_for_test(instance, job_name="ingest", status=dg.DagsterRunStatus.SUCCESS).run_id
    assert fail_unfinished_runs(instance) == []
    run = instance.get_run_by_id(done)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.SUCCESS


def test_a_failed_run_gives_its_concurrency_slot_back(instance: dg.DagsterInstance) -> None:
    instance.event_log_storage.set_concurrency_slots("embedding", 1)
    run = create_run_for_test(instance, job_name="embed", status=dg.DagsterRunStatus.STARTED)
    claim = instance.event_log_storage.claim_concurrency_slot("embedding", run.run_id, "embeddings")
    assert claim.is_claimed
    fail_unfinished_runs(instance)
    later = instance.event_log_storage.claim_concurrency_slot("embedding", "another-run", "embeddings")
    assert later.is_claimed


def test_a_second_recovery_finds_nothing(instance: dg.DagsterInstance) -> None:
    create_run_for_test(instance, job_name="ingest", status=dg.DagsterRunStatus.STARTED)
    assert len(fail_unfinished_runs(instance)) == 1
    assert fail_unfinished_runs(instance) == []
