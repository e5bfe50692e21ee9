"""Reading Dagster's answer, and calling a run stuck."""

from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.sidecar.dagster_state import UnfinishedRun, read_state, stuck

NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)


def test_only_required_daemons_count_and_an_absent_ingest_is_none() -> None:
    state = read_state(
        {
            "instance": {
                "daemonHealth": {
                    "allDaemonStatuses": [
                        {"daemonType": "SENSOR", "required": True, "healthy": True},
                        {"daemonType": "SCHEDULER", "required": True, "healthy": None},
                        {"daemonType": "ASSET", "required": False, "healthy": False},
                    ]
                }
            },
            "last": {"results": []},
            "unfinished": {
                "results": [
                    {"runId": "r", "jobName": "embed", "status": "STARTED", "updateTime": None, "creationTime": 0.0}
                ]
            },
        }
    )
    assert state.daemons == {"SENSOR": True, "SCHEDULER": False}
    assert state.last_ingest is None
    assert state.unfinished == (UnfinishedRun("r", "embed", "STARTED", datetime(1970, 1, 1, tzinfo=UTC)),)


def test_a_run_is_stuck_when_its_state_does_not_explain_the_silence() -> None:
    starting = UnfinishedRun("a", "ingest", "STARTING", NOW - timedelta(minutes=20))
    working = UnfinishedRun("b", "embed", "STARTED", NOW - timedelta(hours=2))
    assert stuck((starting, working), NOW) == [starting]
