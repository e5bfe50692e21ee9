"""`anamnesis remember` into a store on disk, without a service."""

import json
import re
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.cli.typed import refused, said, typed
from anamnesis_tests.support.live_system import free_ports

SESSION = "5e550000-1111-4222-8333-444455556666"
STATED = ("--type", "decision", "--subject", "deploy day", "--project", "shop")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ports = free_ports(2)
    for name, value in {"HOME": tmp_path, "PORT": ports[0], "DAGSTER_PORT": ports[1]}.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    with closing(open_sqlite(tmp_path / "anamnesis.db", tmp_path / "index")):
        return tmp_path


def remember(*words: str) -> dict[str, str]:
    told: dict[str, str] = json.loads(said("remember", *words, "--json"))
    return told


def test_latest_on_a_subject_is_found_and_the_former_says_so() -> None:
    friday = remember("We deploy on Friday", *STATED)
    assert (friday["operation"], friday["kind"], friday["subject"]) == ("added", "decision", "deploy day")
    assert said("remember", "We deploy on Friday", *STATED).startswith("Kept already in shop as decision")
    told = said("remember", "We deploy on Monday", *STATED, "--why", "Friday broke twice")
    assert f"replaces {friday['episode_id']}" in told
    found = said("search", "when do we deploy", "--project", "shop", "--type", "decision")
    assert "Monday" in found
    assert "Friday" not in found.split("Incomplete")[0].replace("Friday broke twice", "")
    assert "superseded by" in said("show", friday["episode_id"])


def test_named_record_is_replaced_and_an_unknown_one_is_refused() -> None:
    old = remember("The token lives an hour", "--project", "shop")
    new = remember("The token lives a day", "--project", "shop", "--replaces", old["episode_id"])
    assert (new["operation"], new["replaced"]) == ("updated", [old["episode_id"]])
    assert "no other episode" in refused("remember", "x", "--replaces", "nobody")


def test_bare_project_means_the_only_one_that_is_alike() -> None:
    remember("The token lives an hour", "--project", "acme/shop")
    assert remember("It is renewed at night", "--project", "shop")["project"] == "acme/shop"
    remember("Carts are kept for a week", "--project", "other/shop")
    told = said("remember", "Prices are in cents", "--project", "shop")
    assert told.startswith("Kept in shop as note")
    assert "other projects are called alike: acme/shop, other/shop" in told


def test_secret_is_masked_and_a_wrong_type_is_refused() -> None:
    secret = "ghp" + "_" + "q7Zk" * 9
    assert secret not in json.dumps(remember(f"the token is {secret}"))
    assert typed("remember", "x", "--type", "gossip").exit_code == 2
    assert "start it with" in refused("remember", "x", "--dry-run")


def test_notes_of_a_day_are_one_episode_with_times() -> None:
    first = said("note", "the valve leaks", "--project", "shop").split()[-1]
    assert said("note", "the valve is shut", "--project", "shop").split()[-1] == first
    assert said("note", "a lamp", "--project", "home").split()[-1] != first
    told = said("show", first, "--raw") if "--raw" in said("show", "--help") else said("show", first)
    assert re.search(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] the valve leaks", told)
    assert "the valve is shut" in told
    of_session = said("note", "it went well", "--session", SESSION)
    assert SESSION[:8] in of_session
    assert said("note", "and on", "--session", SESSION[:8]) == of_session
    assert "no session begins with 'nosuch'" in refused("note", "it went well", "--session", "nosuch")
    assert "the valve leaks" in said("search", "valve leaks", "--project", "shop")
