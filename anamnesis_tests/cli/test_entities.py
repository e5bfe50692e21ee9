"""`anamnesis entities` and `anamnesis entity` over a log that is really ingested."""

import json
from pathlib import Path

import pytest

from anamnesis_tests.cli.typed import refused, said
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.log_lines import SESSION, Log


@pytest.fixture(autouse=True)
def _ingested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session in which a test fails, a file is edited, and the test succeeds."""
    ports, logs = free_ports(2), tmp_path / "logs"
    given = {"HOME": tmp_path / "home", "PORT": ports[0], "DAGSTER_PORT": ports[1], "LOG_ROOTS": logs}
    for name, value in given.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    (folder := logs / "-home-dev-shop").mkdir(parents=True)
    log = Log(cwd="/home/dev/shop")
    log.user("Why is the build red?")
    log.tool(
        "Bash", "t1", "Error: listen EADDRINUSE: address already in use :::3000", is_error=True, command="npm test"
    )
    log.tool("Edit", "t2", "done", file_path="/home/dev/shop/src/billing.py", old_string="3000", new_string="0")
    log.tool("Bash", "t3", "12 passed", command="npm test")
    log.say("The port was taken.")
    (folder / f"{SESSION}.jsonl").write_text("".join(f"{line}\n" for line in log.lines))
    said("ingest")


def test_things_of_a_session_are_listed_and_drawn() -> None:
    listed = said("entities", "billing")
    assert listed.startswith("file     src/billing.py  (2 mentions, ~/shop)\nfile 1")
    told = said("entity", "billing.py", "--graph")
    assert told.startswith("file src/billing.py  (edited 1, fixed 1)\n")
    assert "file src/billing.py fixed error " in told
    assert "command npm test" in told
    assert said("entities", "billing", "--project", "all") == listed
    assert said("entity", "billing.py", "--project", "all") in told


def test_empty_list_says_why_and_exits_with_1() -> None:
    assert said("entities", "zzzzzz", status=1) == "Nothing known has these words.\n"
    assert said("entities", "--kind", "ticket", status=1).startswith("Nothing of this kind; there are:\nfile 1")
    assert json.loads(said("entities", "zzzzzz", "--json", status=1))["items"] == []
    assert said("codebase", "shop", status=1).startswith("No code of shop was crawled")


def test_things_as_json_have_timeline_and_graph() -> None:
    body = json.loads(said("entity", "npm test", "--kind", "command", "--graph", "--json"))
    assert body["entity"]["kind"] == "command"
    assert body["relations"]["failed"] == 1
    assert body["graph"]["nodes"][0] == {"kind": "command", "name": "npm test", "hops": 0}
    (group,) = json.loads(said("entities", "--groups", "--json"))["groups"]
    assert "src/billing.py" in [each["name"] for each in group]


def test_error_is_listed_and_found_as_its_line_says() -> None:
    line = "Error: listen EADDRINUSE: address already in use :::3000"
    assert said("entities", "--kind", "error").startswith(f"error    {line}  (1 mention")
    assert said("entity", line).startswith(f"error {line}  (failed 1)")
    assert f"fixed error {line}" in said("entity", "billing.py", "--graph")
    assert line in said("entities", "--groups")


def test_unknown_thing_is_refused_with_similar_names() -> None:
    assert refused("entity", "biling.py") == "nothing known has this name; similar: src/billing.py"
    assert "No project is called nope" in refused("entities", "--project", "nope")
