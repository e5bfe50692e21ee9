"""Session summaries go only when their text is gone, and only when that is confirmed."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anamnesis_pipeline.cli.app import app
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.samples import put


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    return Settings()


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(open_store(settings)) as store:
        yield store


def told(*words: str) -> str:
    reply = CliRunner().invoke(app, ["gc", *words])
    assert reply.exit_code == 0, reply.output
    return reply.output


def test_summaries_without_text_go_on_confirmation(store: Store) -> None:
    put(store, "kept", "x", kind="session", session_id="s1")
    put(store, "said", "x", kind="exchange", session_id="s1")
    put(store, "gone", "x", kind="session", session_id="s2", summary="The zeppelin flew")
    put(store, "fact", "x", kind="record", session_id="s2")
    put(store, "nameless", "x", kind="session")
    listed = told()
    assert "1 session summary whose text is stored no longer" in listed
    assert "The zeppelin flew" in listed
    assert "Say --yes" in listed
    assert store.episodes.get(["gone"])
    assert "Removed 1 session summary" in told("--yes")
    assert store.episodes.get(["kept", "said", "gone", "fact", "nameless"]).keys() == {
        "kept",
        "said",
        "fact",
        "nameless",
    }
    put(store, "gone", "x", kind="session", session_id="s2")
    assert store.episodes.get(["gone"]), "it may come again with its text"
    assert "1 session summary" in told()


def test_private_summaries_are_listed_when_asked_for(store: Store) -> None:
    put(store, "gone", "x", kind="session", session_id="s2", project="acme/api")
    store.settings.set("config.private_projects", ["acme/api"])
    assert "Every session summary has its text." in told("--yes")
    assert "1 session summary" in told("--private")
    assert store.episodes.get(["gone"])
