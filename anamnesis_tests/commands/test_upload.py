"""`anamnesis upload`, as it is typed."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anamnesis_pipeline.cli import app
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Where
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.wiring import open_store


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["upload", *words])


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    (tmp_path / "notes.md").write_text("# Ledger\n\nThe zanzibar exporter rounds twice, as the review found.\n")
    return tmp_path / "notes.md"


def uploads(*words: str) -> Result:
    return CliRunner().invoke(app, ["uploads", *words])


def test_uploads_are_listed_and_one_is_forgotten_only_after_a_yes(notes: Path) -> None:
    assert "Nothing was uploaded" in uploads("list").output
    assert run(str(notes), "--project", "acme/api").exit_code == 0
    (listed,) = json.loads(uploads("list", "--json").output)["uploads"]
    assert "notes.md, 1 section, acme/api" in uploads("list").output
    assert isinstance(uploads("remove", "zzz").exception, GiveUp)
    assert "would go" in uploads("remove", listed["upload_id"][:8]).output
    assert "acme/api" in uploads("list").output
    assert "is forgotten" in uploads("remove", listed["upload_id"], "--yes").output
    assert "Nothing was uploaded" in uploads("list").output


def test_what_is_said_of_a_document_that_is_there_already_counts(notes: Path, tmp_path: Path) -> None:
    run(str(notes), "--project", "acme/api", "--tag", "old")
    again = run(str(notes), "--project", "acme/web", "--tag", "review", "--title", "Rounding")
    assert "notes.md was there already, in acme/web" in again.output
    with closing(open_store(Settings(home=tmp_path / "home"))) as store:
        (episode,) = store.episodes.page(Where(), 10).items
    assert (episode.project, {"old", "review"} <= set(episode.tags)) == ("acme/web", True)
    assert episode.metadata["title"] == ["Rounding", "Ledger"]
    assert json.loads(uploads("list", "--json").output)["uploads"][0]["title"] == "Rounding"
    assert "1 section, acme/web" in uploads("list").output


def test_a_search_in_a_project_that_there_is_none_of_says_which_there_are(notes: Path) -> None:
    run(str(notes), "--project", "acme/api")
    search = ["search", "zanzibar", "--project"]
    assert "zanzibar" in CliRunner().invoke(app, [*search, "api"]).output
    said = CliRunner().invoke(app, [*search, "apy"]).output
    assert "No project is called apy; there are: acme/api" in said


def test_a_file_that_is_excluded_by_its_path_is_refused(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added = CliRunner().invoke(app, ["exclude", "add", "--path", str(notes.parent), "--reason", "not ours"])
    assert added.exit_code == 0
    monkeypatch.chdir(notes.parent)
    refused = run("notes.md")
    assert (refused.exit_code, "not ours" in refused.output) == (1, True)
    assert "Nothing was uploaded" in uploads("list").output


def test_files_are_taken_in_and_one_that_cannot_be_read_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    notes, photo = tmp_path / "notes.md", tmp_path / "photo.png"
    notes.write_text("# Ledger\n\nThe zanzibar exporter rounds twice, as the review of March found.\n")
    photo.write_bytes(b"\x89PNG\0")
    result = run(
        str(photo),
        str(tmp_path / "none.md"),
        str(notes),
        "--project",
        "acme/api",
        "--tag",
        "review",
        "--instance",
        "ann",
    )
    assert result.exit_code == 1
    assert "1 section" in result.output
    assert "photo.png" in result.output
    assert "none.md" in result.output
    assert "already" in run(str(notes)).output
    store = open_store(Settings(home=tmp_path / "home"))
    (episode,) = store.episodes.get([p.episode_id for p in store.episodes.passages(range(1, 10)).values()]).values()
    assert (episode.project, episode.instance, "review" in episode.tags) == ("acme/api", "ann", True)
    store.close()
    assert isinstance(run(str(notes), str(photo), "--title", "x").exception, GiveUp)


def test_a_document_is_this_machines_when_nobody_is_named_and_stays_somebodys(notes: Path, tmp_path: Path) -> None:
    run(str(notes))
    with closing(open_store(Settings(home=tmp_path / "home"))) as store:
        assert store.episodes.page(Where(), 10).items[0].instance == Settings().machine
    run(str(notes), "--instance", "ann")
    run(str(notes))
    with closing(open_store(Settings(home=tmp_path / "home"))) as store:
        assert store.episodes.page(Where(), 10).items[0].instance == "ann"


def test_a_torn_and_a_short_file_are_named_once_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.7 torn")
    (tmp_path / "short.md").write_text("Buy milk.")
    said = run(str(tmp_path / "torn.pdf"), str(tmp_path / "short.md")).output
    assert f"{tmp_path}/torn.pdf: it is " in said
    assert "short.md: 0 sections" in said
    assert "its text has 9 characters, and at least 30 are needed" in said
    assert "its text has 9 characters" in uploads("list").output
