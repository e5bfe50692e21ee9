"""`anamnesis exclude`, as it is typed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anamnesis_pipeline.cli import app
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_tests.steps.archived_logs import FOLDER, SESSION, Home, record, unmasked


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    home = Home(tmp_path)
    monkeypatch.setenv("ANAMNESIS_HOME", str(home.settings.home))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(home.logs))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "box")
    home.write([record("user", "Why is the ledger of the walrus module wrong?", 1)])
    yield home
    home.close()


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["exclude", *words])


def test_a_path_that_is_excluded_is_listed_and_comes_in_after_it_was_removed(home: Home) -> None:
    assert "Nothing is excluded" in run("list").output
    added = run("add", "--path", str(home.logs / FOLDER) + "/", "--reason", "not ours")
    assert "stays" in added.output
    assert home.ingest(unmasked) == []
    (entry,) = json.loads(run("list", "--json").output)
    assert (entry["kind"], entry["reason"]) == ("path", "not ours")
    assert "not ours" in run("list").output
    assert "next crawl" in run("remove", entry["id"]).output
    assert len(home.ingest(unmasked)) == 1


@pytest.mark.parametrize(
    "words",
    [["--project", "/code/shop"], ["--session", SESSION], ["--content-pattern", "wal.us"], ["--pattern", "*.jsonl"]],
)
def test_with_forget_what_is_stored_goes_too_and_nothing_of_it_is_left(home: Home, words: list[str]) -> None:
    home.ingest(unmasked)
    result = run("add", *words, "--forget")
    assert result.exit_code == 0, result.output
    assert "1 episode" in result.output
    assert home.ingest(unmasked) == []
    assert b"walrus" not in home.bytes()
    (entry,) = json.loads(run("list", "--json").output)
    assert "read again" in run("remove", entry["id"]).output
    assert len(home.ingest(unmasked)) == 1


def test_an_episode_and_a_file_can_be_excluded(home: Home, tmp_path: Path) -> None:
    (episode,) = home.ingest(unmasked)
    file = tmp_path / "notes.md"
    file.write_text("plan")
    assert run("add", "--episode", episode.episode_id, "--file", str(file)).exit_code == 0
    assert home.ingest(unmasked) == []
    assert {entry["kind"] for entry in json.loads(run("list", "--json").output)} == {"episode", "content"}
    shown = run("list").output
    assert "(notes.md)" in shown, "a hash says nothing"
    assert f"(text of the episode {episode.episode_id}, lifted with it)" in shown


@pytest.mark.parametrize("words", [["add"], ["add", "--pattern", "!x"], ["add", "--file", "/none"], ["remove", "none"]])
def test_a_wish_that_means_nothing_is_an_error_that_says_why(home: Home, words: list[str]) -> None:
    result = run(*words)
    assert isinstance(result.exception, AnamnesisError)
    assert str(result.exception)
