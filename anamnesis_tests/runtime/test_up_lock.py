"""One `up` per home, and what the lock file tells the next one."""

from pathlib import Path

import pytest

from anamnesis_pipeline.errors import AlreadyRunning, GiveUp
from anamnesis_pipeline.runtime.dagster_home import dagster_url
from anamnesis_pipeline.runtime.up_lock import Running, hold_lock, read_lock, settings_in_use, sidecar_in_use
from anamnesis_pipeline.settings import Settings, sidecar_url

FIRST = Running(11, "life-1", "http://127.0.0.1:3010", "http://127.0.0.1:3000", ["/logs"])
SECOND = Running(12, "life-2", "http://127.0.0.1:4010", "http://127.0.0.1:4000", [])


def test_a_second_holder_is_told_where_the_first_answers(tmp_path: Path) -> None:
    lock = tmp_path / "up.lock"
    with hold_lock(lock, FIRST):
        with pytest.raises(AlreadyRunning, match=r"process 11\)[\s\S]*3010[\s\S]*3000"), hold_lock(lock, SECOND):
            pass
        assert read_lock(lock) == FIRST


def test_only_a_life_that_was_cut_off_is_reported_to_the_next(tmp_path: Path) -> None:
    lock = tmp_path / "up.lock"
    with hold_lock(lock, FIRST):
        left_behind = lock.read_text()
    with hold_lock(lock, SECOND) as earlier:
        assert earlier is None, "after an orderly end"
    lock.write_text(left_behind)
    with hold_lock(lock, SECOND) as earlier:
        assert earlier == FIRST
        assert read_lock(lock) == SECOND
    lock.write_text('{"pid": 1, "unknown"')
    with hold_lock(lock, FIRST) as earlier:
        assert earlier is None, "a damaged file is no obstacle"


def test_a_lock_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "up.lock").mkdir()
    with pytest.raises(GiveUp, match="ANAMNESIS_HOME"), hold_lock(tmp_path / "up.lock", FIRST):
        pass


def test_ports_of_a_running_memory_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANAMNESIS_PORT", "ANAMNESIS_DAGSTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings(home=tmp_path, port=3999, dagster_port=3998)
    assert sidecar_in_use(settings) == "http://127.0.0.1:3999"
    with hold_lock(tmp_path / "up.lock", SECOND):
        assert sidecar_in_use(settings) == SECOND.sidecar
        current = settings_in_use(settings)
        assert (sidecar_url(current), dagster_url(current)) == (SECOND.sidecar, SECOND.dagster)
        monkeypatch.setenv("ANAMNESIS_PORT", "3999")
        current = settings_in_use(settings)
        assert (sidecar_url(current), dagster_url(current)) == ("http://127.0.0.1:3999", SECOND.dagster)
        monkeypatch.setenv("ANAMNESIS_DAGSTER_PORT", "3998")
        assert settings_in_use(settings) == settings
        monkeypatch.delenv("ANAMNESIS_PORT")
        monkeypatch.delenv("ANAMNESIS_DAGSTER_PORT")
        elsewhere = Settings(home=tmp_path / "other", port=3999)
        assert settings_in_use(elsewhere) == elsewhere, "another home has a lock of its own"
        left_behind = (tmp_path / "up.lock").read_text()
    (tmp_path / "up.lock").write_text(left_behind)
    assert settings_in_use(settings) == settings, "it was killed, and another memory may have its ports"
