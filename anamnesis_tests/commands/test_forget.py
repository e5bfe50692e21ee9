"""`anamnesis forget`, as it is typed: which files a path means."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anamnesis_pipeline.cli import app
from anamnesis_pipeline.errors import GiveUp
from anamnesis_tests.steps.archived_logs import FOLDER, SESSION, Home, record, unmasked


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = Home(tmp_path)
    monkeypatch.setenv("ANAMNESIS_HOME", str(home.settings.home))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "box")
    file = home.write([record("user", "Why is the ledger of the walrus module wrong?", 1)])
    home.ingest(unmasked)
    yield file
    home.close()


def forget(path: str) -> Result:
    return CliRunner().invoke(app, ["forget", "--path", path])


def test_a_path_may_be_given_as_a_hit_names_it(log: Path) -> None:
    for path in (str(log), f"box:{log}", f"box:{log}:3", f"box:{log.parent}"):
        assert "1 episode with 1 message" in forget(path).output
    assert isinstance(forget(f"desk:{log}").exception, GiveUp), "nothing was read there"


def test_unique_beginning_of_a_session_is_enough(log: Path) -> None:
    asked = ["forget", "--session"]
    assert "1 episode with 1 message" in CliRunner().invoke(app, [*asked, SESSION[:8]]).output
    assert "nothing that is stored matches" in str(CliRunner().invoke(app, [*asked, SESSION[:3]]).exception)


def test_a_relative_path_is_meant_from_here(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log.parent)
    assert "1 episode" in forget(log.name).output


def test_a_name_of_no_file_here_says_what_to_give(log: Path) -> None:
    said = str(forget(log.name).exception)
    assert "machine:/folder/file" in said
    assert f"so called are box:{log}" in said
    assert f"so called are box:{log}" in str(forget(f"{FOLDER}/{SESSION}.jsonl").exception)
    assert "so called" not in str(forget("none.md").exception)
