"""`anamnesis dream` over a store on disk, without a service and without a model."""

import getpass
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.cli.typed import refused, said, typed
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.proposed import NOTES, STEPS, propose_lesson, propose_procedure


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ports = free_ports(2)
    for name, value in {"HOME": tmp_path, "PORT": ports[0], "DAGSTER_PORT": ports[1]}.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")):
        return tmp_path


def remember(*names: str) -> list[str]:
    """Keep notes of the project `shop`; their ids."""
    told = [said("remember", NOTES[name], "--type", "decision", "--project", "shop", "--json") for name in names]
    return [str(json.loads(each)["episode_id"]) for each in told]


def only(**filters: str) -> dict[str, Any]:
    words = [word for name, value in filters.items() for word in (f"--{name}", value)]
    (found,) = json.loads(said("dream", "list", *words, "--json"))
    return dict(found)


def test_run_proposes_once_and_lists_what_waits() -> None:
    assert "Make some with: anamnesis dream" in said("dream", "list")
    friday, monday = remember("friday", "monday")
    told = said("dream", "run", "--words-only")
    assert "read 2 sessions, notes and texts" in told
    assert "1 proposal to decide on" in told
    assert "SupersededNotes: 1 new" in told
    assert "read" not in said("dream", "run", "--words-only")
    found = only()
    assert found["change"]["statuses"] == [{"episode_id": friday, "status": "superseded", "superseded_by": monday}]
    (line,) = said("dream", "list", "--kind", "supersede", "--project", "shop").splitlines()
    assert line.startswith(f"{found['proposal_id'][:8]}  supersede")
    assert "No proposal is open" in said("dream", "list", "--kind", "merge")
    assert "No proposal is accepted" in said("dream", "list", "--state", "accepted")


def test_shown_proposal_has_quotes_and_what_accepting_does() -> None:
    friday, _ = remember("friday", "monday")
    said("dream", "run", "--words-only")
    shown = said("dream", "show", only()["proposal_id"][:8])
    assert NOTES["friday"] in shown
    assert NOTES["monday"] in shown
    assert f"{friday[:12]} becomes superseded by" in shown


def test_accepted_proposal_is_undone_by_its_short_id() -> None:
    friday, monday = remember("friday", "monday")
    said("dream", "run", "--words-only")
    name = only()["proposal_id"][:8]
    assert (
        said("dream", "accept", name, "--reason", "agreed")
        == f"{name} is accepted: agreed\n  {friday[:12]} is superseded\n"
    )
    assert f"superseded by {monday}" in said("show", friday)
    found = only(state="accepted")
    assert (found["decided_by"], found["reason"]) == (getpass.getuser(), "agreed")
    assert f"{name}  accepted supersede" in said("dream", "list", "--state", "all")
    assert "it must be open" in refused("dream", "reject", name)
    assert said("dream", "undo", name) == f"{name} is undone\n"
    assert "active, says" in said("show", friday).splitlines()[-3]


def test_rejected_proposal_does_not_come_back_but_opens_by_undo() -> None:
    remember("friday", "monday")
    said("dream", "run", "--words-only")
    name = only()["proposal_id"][:8]
    assert said("dream", "reject", name, "--reason", "both hold") == f"{name} is rejected\n"
    said("dream", "run", "--words-only")
    assert said("dream", "list", "--json") == "[]\n"
    assert said("dream", "undo", name) == f"{name} is open\n"


def test_entry_is_kept_in_place_of_the_proposed_text(home: Path) -> None:
    (port,) = remember("port")
    with closing(open_sqlite(home / "anamnesis.db", home / "index")) as store:
        name = propose_procedure(store, port).proposal_id
    assert STEPS.splitlines()[1] in said("dream", "show", name)
    assert "  kept as ep_note_" in said("dream", "accept", name, "--entry", "Build, then ship")
    assert "Build, then ship" in said("search", "build ship", "--type", "procedure", "--project", "shop")


def test_file_that_was_written_is_named(home: Path) -> None:
    (port,) = remember("port")
    with closing(open_sqlite(home / "anamnesis.db", home / "index")) as store:
        name = propose_lesson(store, port).proposal_id[:8]
    file = home / "topics/shop/lessons.md"
    assert said("dream", "accept", name) == f"{name} is accepted\n  wrote {file}, read with the next crawl\n"
    assert "Start the database before migrating." in file.read_text()
    assert said("dream", "undo", name) == f"{name} is undone\n  its entry is out of {file}\n"


def test_unknown_ids_and_states_are_refused() -> None:
    assert "there is no proposal" in refused("dream", "show", "0123456789")
    assert "there is no proposal" in refused("dream", "accept", "0123456789")
    assert "give its first 4 characters or more" in refused("dream", "show", "90a")
    assert typed("dream", "list", "--state", "gossip").exit_code == 2
