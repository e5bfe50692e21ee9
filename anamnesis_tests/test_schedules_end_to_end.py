"""Times of schedules and sensors in a running system: changed, stopped in the UI, and after a restart."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from anamnesis_tests.support.live_system import System

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "anamnesis"}
STATE = """query($repository: RepositorySelector!) { repositoryOrError(repositorySelector: $repository) {
  ... on Repository {
    schedules { name cronSchedule executionTimezone state: scheduleState { id status nextTick { timestamp } } }
    sensors { name minIntervalSeconds state: sensorState { status ticks(limit: 50) { timestamp } } }
  }
} }"""
STOP = "mutation($id: String) { stopRunningSchedule(id: $id) { __typename } }"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    system = System(tmp_path, ANAMNESIS_LOG_ROOTS=str(tmp_path / "no logs"))
    yield system
    system.end()


def loaded(system: System, name: str) -> dict[str, Any]:
    """The schedule or sensor, as Dagster has loaded it."""
    found = system.graphql(STATE, {"repository": REPOSITORY}).get("repositoryOrError") or {}
    each = next((each for kind in found.values() for each in kind if each["name"] == name), {})
    return dict(each)


def next_tick(system: System, name: str) -> str:
    """Local hour and minute of the next tick, with the zone."""
    schedule = loaded(system, name)
    moment = datetime.fromtimestamp(schedule["state"]["nextTick"]["timestamp"], ZoneInfo(schedule["executionTimezone"]))
    return f"{moment:%H:%M} {schedule['executionTimezone']}"


def test_changed_times_reach_a_running_dagster(system: System) -> None:
    system.start()
    system.wait_until("Dagster has its schedules", lambda: loaded(system, "daily_ingest"))
    assert next_tick(system, "daily_ingest") == "05:00 UTC"

    changed = system.run("config", "set", "timezone", "Asia/Kolkata")
    assert "Dagster reloaded its schedules and sensors" in changed.stdout, changed.stdout + changed.stderr
    assert next_tick(system, "daily_ingest") == "05:00 Asia/Kolkata"
    assert next_tick(system, "daily_map") == "06:00 Asia/Kolkata"
    put = system.http.put("/api/jsonl/settings", json={"ingest_hour": 3}, timeout=90).json()
    assert put["reload"].endswith("at 03:00 IST."), put
    assert next_tick(system, "daily_ingest") == "03:00 Asia/Kolkata"

    interval = system.http.put("/api/crawler/config/interval", json={"interval_s": 30}, timeout=90).json()
    assert interval["reload"], interval
    assert loaded(system, "crawl_sensor")["minIntervalSeconds"] == 30
    ticks = len(loaded(system, "crawl_sensor")["state"]["ticks"])
    system.wait_until(  # the default is 300 s
        "the daemon ticks by the new interval",
        lambda: len(loaded(system, "crawl_sensor")["state"]["ticks"]) > ticks + 1,
    )

    schedule = system.http.put("/api/consolidation/schedule", json={"consolidate_schedule": "disabled"}, timeout=90)
    assert schedule.json()["reload"], schedule.text
    assert loaded(system, "daily_consolidation")["state"]["status"] == "STOPPED"
    system.graphql(STOP, {"id": loaded(system, "daily_ingest")["state"]["id"]})
    assert loaded(system, "daily_ingest")["state"]["status"] == "STOPPED"
    stopped = system.run("config", "set", "ingest_hour", "4")
    assert "daily_ingest is stopped" in stopped.stdout, stopped.stdout + stopped.stderr

    system.kill_9(everything=True)
    offline = system.run("config", "set", "timezone", "Europe/Berlin")
    assert "at its next start" in offline.stdout, offline.stdout + offline.stderr
    system.start()
    system.wait_until("Dagster has its schedules again", lambda: loaded(system, "daily_ingest"))
    ingest = loaded(system, "daily_ingest")
    assert (ingest["cronSchedule"], ingest["executionTimezone"]) == ("0 4 * * *", "Europe/Berlin")
    assert ingest["state"]["status"] == "STOPPED"
    assert next_tick(system, "daily_map") == "06:00 Europe/Berlin"
