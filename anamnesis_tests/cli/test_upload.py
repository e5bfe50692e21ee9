"""`anamnesis upload`, as it is typed."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.model import Episode, EpisodeFilter
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.cli.typed import refused, said


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    (tmp_path / "notes.md").write_text("# Ledger\n\nThe zanzibar exporter rounds twice, as the review found.\n")
    return str(tmp_path / "notes.md")


def stored() -> Episode:
    """The only one."""
    with closing(open_store(Settings())) as store:
        (episode,) = store.episodes.page(EpisodeFilter(), 10).items
    return episode


def test_upload_is_listed_and_forgotten_only_after_a_yes(notes: str) -> None:
    assert "Nothing was uploaded" in said("uploads", "list")
    said("upload", notes, "--project", "acme/api")
    (listed,) = json.loads(said("uploads", "list", "--json"))["uploads"]
    assert "notes.md, 1 section, acme/api" in said("uploads", "list")
    assert refused("uploads", "remove", "zzz")
    assert "would go" in said("uploads", "remove", listed["upload_id"][:8])
    assert "acme/api" in said("uploads", "list")
    assert "is forgotten" in said("uploads", "remove", listed["upload_id"], "--yes")
    assert "Nothing was uploaded" in said("uploads", "list")


def test_what_is_said_of_a_document_that_is_there_already_counts(notes: str) -> None:
    said("upload", notes, "--project", "acme/api", "--tag", "old")
    again = said("upload", notes, "--project", "acme/web", "--tag", "review", "--title", "Rounding")
    assert "notes.md was there already, in acme/web" in again
    episode = stored()
    assert (episode.project, {"old", "review"} <= set(episode.tags)) == ("acme/web", True)
    assert episode.metadata["title"] == ["Rounding", "Ledger"]
    assert episode.instance == Settings().machine, "where nobody is named"
    assert json.loads(said("uploads", "list", "--json"))["uploads"][0]["title"] == "Rounding"
    assert "1 section, acme/web" in said("uploads", "list")
    said("upload", notes, "--instance", "ann")
    said("upload", notes)
    assert stored().instance == "ann", "it stays somebody's"


def test_search_in_an_unknown_project_says_which_there_are(notes: str) -> None:
    said("upload", notes, "--project", "acme/api")
    assert "zanzibar" in said("search", "zanzibar", "--project", "api")
    assert "No project is called apy; there are: acme/api" in said("search", "zanzibar", "--project", "apy", status=1)


def test_file_that_is_excluded_by_its_path_is_refused(notes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said("exclude", "add", "--path", str(Path(notes).parent), "--reason", "not ours")
    monkeypatch.chdir(Path(notes).parent)
    assert "not ours" in said("upload", "notes.md", status=1)
    assert "Nothing was uploaded" in said("uploads", "list")


def test_file_that_cannot_be_read_stops_no_other(notes: str, tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\0")
    (tmp_path / "torn.pdf").write_bytes(b"%PDF-1.7 torn")
    (tmp_path / "short.md").write_text("Buy milk.")
    files = [str(tmp_path / name) for name in ("photo.png", "none.md", "torn.pdf", "short.md", "notes.md")]
    told = said("upload", *files, "--project", "acme/api", "--tag", "review", "--instance", "ann", status=1)
    assert "1 section" in told
    assert "photo.png" in told
    assert "none.md" in told
    assert f"{tmp_path}/torn.pdf: it is " in told
    assert "short.md: 0 sections" in told
    assert "its text has 9 characters, and at least 30 are needed" in told
    assert "its text has 9 characters" in said("uploads", "list")
    episode = stored()
    assert (episode.project, episode.instance, "review" in episode.tags) == ("acme/api", "ann", True)
    assert refused("upload", notes, files[0], "--title", "x"), "one title for several"
