"""`anamnesis sessions` and `anamnesis show` over a store on disk."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anamnesis_pipeline import cli
from anamnesis_pipeline.commands.sessions import remember_shown
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.live_system import free_ports
from anamnesis_tests.sidecar.test_session_routes import session
from anamnesis_tests.steps.test_session_reading import FIRST
from anamnesis_tests.store.samples import put

Anamnesis = Callable[..., str]


@pytest.fixture
def chunk_id(tmp_path: Path) -> str:
    """The id of the one chunk of the one session in the store."""
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")) as store:
        put(store, "before", "words", minute=-5, session_id=FIRST)
        put(store, "after", "words", minute=5, session_id=FIRST, summary="What came \x1b[31mafter")
        return session(store)


@pytest.fixture
def anamnesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Anamnesis]:
    """What `anamnesis ...` prints; it fails where the status is not the one expected."""
    port, dagster_port = free_ports(2)
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))
    monkeypatch.setenv("ANAMNESIS_PORT", str(port))
    monkeypatch.setenv("ANAMNESIS_DAGSTER_PORT", str(dagster_port))

    def run(*arguments: str, status: int = 0) -> str:
        result = CliRunner().invoke(cli.app, arguments)
        assert result.exit_code == status, result.output + repr(result.exception)
        return result.output if status == 0 else str(result.exception)

    return run


def test_sessions_are_listed_with_their_outcome(anamnesis: Anamnesis, chunk_id: str) -> None:
    told = anamnesis("sessions")
    assert "A test waited too short." in told
    assert FIRST in told
    assert anamnesis("sessions", "--since", "2026-03-02") == "No session.\n"
    (row,) = json.loads(anamnesis("sessions", "--json"))
    assert row["session_id"] == FIRST


def test_sessions_of_unknown_project_name_known_ones(anamnesis: Anamnesis, chunk_id: str) -> None:
    told = anamnesis("sessions", "--project", "nosuch", status=1)
    assert told.startswith("No project is called nosuch; there are: ")
    assert anamnesis("sessions", "--project", told.split(": ")[1].split(", ")[0], "--until", "2020") == "No session.\n"


@pytest.mark.parametrize("named", [FIRST, FIRST[:6]])
def test_show_reads_a_session_by_its_id(anamnesis: Anamnesis, chunk_id: str, named: str) -> None:
    told = anamnesis("show", named)
    for words in ("Outcome:", "- abc1234 Wait for the answer", "User: Why is the build red?", "1 thought or tool call"):
        assert words in told
    assert "Look at the log first" not in told


def test_show_reads_an_episode_and_what_is_around(anamnesis: Anamnesis, chunk_id: str) -> None:
    told = anamnesis("show", chunk_id[:8], "--around", "3")
    assert "Look at the log first" in told
    assert told.index("before  a summary") < told.index("Why is the build red?") < told.index("after  What came")
    assert "\x1b" not in told


def test_show_takes_the_number_of_the_last_search(anamnesis: Anamnesis, chunk_id: str, tmp_path: Path) -> None:
    remember_shown(Settings(home=tmp_path), {"results": [{"episode_id": "before"}, {"episode_id": chunk_id}]})
    assert chunk_id in anamnesis("show", "2")
    assert "nothing has the id 3" in anamnesis("show", "3", status=1)


def test_search_numbers_what_it_shows(anamnesis: Anamnesis, chunk_id: str) -> None:
    anamnesis("search", "words", "--top-k", "2")
    assert "a summary" in anamnesis("show", "1")


def test_home_that_cannot_be_written_keeps_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remember_shown(Settings(home=tmp_path / "file"), {"results": []})
