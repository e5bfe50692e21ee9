"""`anamnesis upload`, as it is typed."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anamnesis_pipeline.cli import app
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.wiring import open_store


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["upload", *words])


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
