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


PEARS = "# Pears\n\nThe quagga pears ripen in the cellar behind the tall clock, not before November.\n"
MEDLARS = "# Medlars\n\nThe walrus medlars have to rot a little on straw before anybody can eat them.\n"


@pytest.fixture
def notes(home: Home, tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "pears.md").write_text(PEARS)
    (folder / "medlars.md").write_text(MEDLARS)
    assert CliRunner().invoke(app, ["sources", "add", str(folder), "--no-test"]).exit_code == 0
    assert CliRunner().invoke(app, ["ingest"]).exit_code == 0
    return folder


def documents(home: Home) -> set[str]:
    return {episode.path.rpartition("/")[2] for episode in home.episodes() if episode.kind == "document"}


def test_a_file_that_is_excluded_with_forget_goes_with_its_copies_and_uploads(home: Home, notes: Path) -> None:
    (notes / "in").mkdir()
    (notes / "in/copy.md").write_text(MEDLARS)
    elsewhere = home.base / "medlars.md"
    elsewhere.write_text(MEDLARS)
    CliRunner().invoke(app, ["ingest"])
    CliRunner().invoke(app, ["upload", str(elsewhere)])
    (notes / "in/copy.md").write_text(MEDLARS + "\n## Since then\n\nThere is no straw any more in the whole village.\n")
    CliRunner().invoke(app, ["ingest"])
    assert documents(home) == {"pears.md", "medlars.md", "copy.md"}
    result = run("add", "--file", str(elsewhere), "--forget")
    assert "(medlars.md) is excluded" in result.output
    assert "medlars" not in home.bytes().decode("utf-8", "replace").replace("medlars.md", "")
    assert documents(home) == {"pears.md"}
    again = run("add", "--file", str(elsewhere), "--forget").output
    assert "nothing that is stored is of the content medlars.md, so nothing is forgotten" in again


def test_a_file_that_changed_since_it_was_read_is_forgotten_by_its_path(home: Home, notes: Path) -> None:
    file = notes / "pears.md"
    file.write_text("# Pears\n\nAll of them were eaten by the ibex of the neighbours, in one single night.\n")
    assert "1 episode" in run("add", "--file", str(file), "--forget").output
    CliRunner().invoke(app, ["ingest"])
    assert documents(home) == {"medlars.md"}
    assert b"quagga" not in home.bytes()


def test_the_list_names_the_files_in_which_deleted_and_forgotten_episodes_stood(home: Home, notes: Path) -> None:
    found = {episode.path.rpartition("/")[2]: episode.episode_id for episode in home.episodes()}
    assert run("add", "--episode", found["pears.md"]).exit_code == 0
    for name in ("medlars.md", f"{SESSION}.jsonl"):
        assert CliRunner().invoke(app, ["forget", "--id", found[name], "--yes"]).exit_code == 0
    labels = {entry["id"]: entry["label"] for entry in json.loads(run("list", "--json").output)}
    log = f"box:{home.logs}/{FOLDER}/{SESSION}.jsonl"
    assert labels[found["pears.md"]] == f"box:{notes}/pears.md › Pears"
    assert labels[found["medlars.md"]] == f"box:{notes}/medlars.md", "its heading was forgotten"
    assert labels[found[f"{SESSION}.jsonl"]] == log
    assert [label for key, label in labels.items() if key.startswith("file:")] == [log]


@pytest.mark.parametrize("words", [["add"], ["add", "--pattern", "!x"], ["add", "--file", "/none"], ["remove", "none"]])
def test_a_wish_that_means_nothing_is_an_error_that_says_why(home: Home, words: list[str]) -> None:
    result = run(*words)
    assert isinstance(result.exception, AnamnesisError)
    assert str(result.exception)
