"""`anamnesis sessions` and `anamnesis show` over a store on disk."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.sessions import remember_shown
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.cli.typed import refused, said
from anamnesis_tests.services.test_session_reading import FIRST
from anamnesis_tests.sidecar.routes.test_session import session
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.samples import put


@pytest.fixture(autouse=True)
def chunk_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of the one chunk of the one session in the store; no sidecar runs."""
    ports = free_ports(2)
    for name, value in {"HOME": tmp_path, "PORT": ports[0], "DAGSTER_PORT": ports[1]}.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")) as store:
        put(store, "before", "words", minute=-5, session_id=FIRST)
        put(store, "after", "words", minute=5, session_id=FIRST, summary="What came \x1b[31mafter")
        return session(store)


def test_sessions_are_listed_with_their_outcome() -> None:
    told = said("sessions")
    assert "A test waited too short." in told
    assert FIRST in told
    assert said("sessions", "--since", "2026-03-02") == "No session.\n"
    (row,) = json.loads(said("sessions", "--json"))
    assert row["session_id"] == FIRST
    told = refused("sessions", "--project", "nosuch")
    assert told.startswith("No project is called nosuch; there are: ")
    assert said("sessions", "--project", told.split(": ")[1].split(", ")[0], "--until", "2020") == "No session.\n"


@pytest.mark.parametrize("named", [FIRST, FIRST[:6]])
def test_show_reads_a_session_by_its_id(named: str) -> None:
    told = said("show", named)
    for words in ("Outcome:", "- abc1234 Wait for the answer", "User: Why is the build red?", "1 thought or tool call"):
        assert words in told
    assert "Look at the log first" not in told


def test_show_reads_an_episode_and_what_is_around(chunk_id: str) -> None:
    told = said("show", chunk_id[:8], "--around", "3")
    assert "Look at the log first" in told
    assert told.index("before  a summary") < told.index("Why is the build red?") < told.index("after  What came")
    assert "\x1b" not in told


def test_show_takes_the_number_of_the_last_search(chunk_id: str, tmp_path: Path) -> None:
    said("search", "words", "--top-k", "2")
    assert "a summary" in said("show", "1")
    remember_shown(Settings(home=tmp_path), {"results": [{"episode_id": "before"}, {"episode_id": chunk_id}]})
    assert chunk_id in said("show", "2")
    assert "nothing has the id 3" in refused("show", "3")


def test_home_that_cannot_be_written_keeps_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remember_shown(Settings(home=tmp_path / "file"), {"results": []})
