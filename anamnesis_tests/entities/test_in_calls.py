"""What a session touches: files edited, commands with their outcome, errors and what ended them."""

from datetime import UTC, datetime

import pytest

from anamnesis_pipeline.entities.in_calls import changes_name, mentions_of_session
from anamnesis_pipeline.knowledge.utterances import Utterance
from anamnesis_pipeline.model import SegmentKind, content_id
from anamnesis_pipeline.parsing.claude_logs.message_keys import result_key
from anamnesis_pipeline.store.entity_model import EntityKind, Relation

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FOLDER = "/home/ann/shop"
REFUSED = "psycopg2.OperationalError: connection to localhost, port 5433 failed: Connection refused"


def session(*turns: tuple[str, str | None]) -> list[Utterance]:
    """Utterances of a session: calls with their output (an error begins with `!`, None: no output), or texts of Claude
    (`claude`, text).
    """
    said: list[Utterance] = []

    def add(key: str, kind: SegmentKind, text: str) -> None:
        number = f"m{len(said)}"
        said.append(Utterance("episode", "acme/shop", "session", number, key, kind, text, NOW, folder=FOLDER))

    for number, (call, output) in enumerate(turns):
        if call == "claude":
            add(f"u:{number}", SegmentKind.STATEMENT, output or "")
            continue
        name = f"toolu_{number}"
        add(f"u:{content_id('tool_use', name)}", SegmentKind.TOOL_INPUT, call)
        if output is not None:
            kind = SegmentKind.TOOL_ERROR if output.startswith("!") else SegmentKind.TOOL_RESULT
            add(result_key(name, output), kind, output.removeprefix("!"))
    return said


def bash(script: str) -> str:
    return f"Bash\ncommand: {script}"


def edit(path: str, text: str = "x = 1") -> str:
    return f"Edit\nfile_path: {path}\nold_string: x\nnew_string: {text}"


def found(*turns: tuple[str, str | None]) -> list[tuple[str, str, str]]:
    kinds = {EntityKind.TOOL}
    return [(m.kind, m.relation, m.name) for m in mentions_of_session(session(*turns)) if m.kind not in kinds]


def test_edited_file_is_named_by_its_path_in_the_repository() -> None:
    assert found((edit(f"{FOLDER}/src/pay.py", "def charge(card):\n    pass"), "done")) == [
        ("file", "edited", "src/pay.py"),
        ("symbol", "edited", "charge"),
    ]


def test_renamed_and_nested_names_are_symbols() -> None:
    rename = bash("grep -rl Ring lib | xargs sed -i 's/\\bRing\\b/Band/g'")
    assert {name for kind, _, name in found((rename, "")) if kind == "symbol"} == {"Ring", "Band"}
    module = edit(f"{FOLDER}/lib/stats.ex", "defmodule Heron.Rings.Stats do\n  defp of(x), do: x")
    assert ("symbol", "edited", "Stats") in found((module, "done"))


def test_edit_changes_a_name_that_it_adds_or_takes_out() -> None:
    call = "Edit\nfile_path: a.ts\nold_string: total(addCents(a, b))\nnew_string: total(quote.cents)"
    assert changes_name(call, "addCents")
    assert not changes_name(call, "total")
    assert not changes_name(call.replace("Edit", "Read", 1), "addCents")


def test_edit_that_failed_touched_nothing() -> None:
    assert found((edit(f"{FOLDER}/src/pay.py"), "!String to replace not found in file.")) == []


def test_shell_edits_are_edits() -> None:
    turns = (bash("sed -i 's/a/b/' src/pay.py && git mv src/old.py src/new.py && echo hi > docs/note.md"), None)
    assert {name for kind, _, name in found(turns) if kind == "file"} == {
        "src/pay.py",
        "src/old.py",
        "src/new.py",
        "docs/note.md",
    }


def test_command_has_its_outcome_and_where_it_ran() -> None:
    (failed, ran) = (
        each
        for each in mentions_of_session(session((bash("npm test"), "!1 failing"), (bash("npm test"), "ok")))
        if each.kind is EntityKind.COMMAND
    )
    assert (failed.relation, ran.relation) == (Relation.FAILED, Relation.RAN)
    assert (ran.name, ran.detail, ran.folder) == ("npm test", "npm test", FOLDER)


def test_what_was_done_before_the_success_ended_the_error() -> None:
    fixes = [
        each
        for each in mentions_of_session(
            session(
                (bash("alembic upgrade head"), f"!{REFUSED}"),
                (bash("cat db.env"), "PORT=5433"),
                (edit(f"{FOLDER}/db.env"), "done"),
                (bash("docker compose up -d db"), "started"),
                (bash("alembic upgrade head"), "done"),
                (edit(f"{FOLDER}/later.py"), "done"),
            )
        )
        if each.relation is Relation.FIXED
    ]
    assert [each.name for each in fixes] == ["db.env", "docker compose up"]
    assert len({each.other for each in fixes}) == 1


def test_command_given_otherwise_is_itself_the_end() -> None:
    refused = "!fatal: The current branch pay has no upstream branch."
    turns = ((bash("git push"), refused), (bash("git push --set-upstream origin pay"), "done"))
    assert ("command", "fixed", "git push") in found(*turns)
    failing = "!ERROR tests/a.py - ModuleNotFoundError: No module named 'shop_pay'"
    tests = ((bash("pytest tests/a.py"), failing), (bash("pytest tests/b.py"), "1 passed"))
    assert not [each for each in found(*tests) if each[1] == "fixed"]


def test_error_that_never_ended_has_no_fix() -> None:
    turns = ((bash("alembic upgrade head"), f"!{REFUSED}"), (edit(f"{FOLDER}/db.env"), "done"))
    assert not [each for each in found(*turns) if each[1] == "fixed"]


@pytest.mark.parametrize(
    ("script", "package"),
    [
        ("pip install 'httpx==0.27.0'", "httpx"),
        ("npm install --save-dev @types/node", "@types/node"),
        ("cargo add serde", "serde"),
        ("uv add ruff", "ruff"),
    ],
)
def test_installed_package_is_a_dependency(script: str, package: str) -> None:
    assert ("package", "depends_on", package) in found((bash(script), None))


def test_host_of_ssh_is_found() -> None:
    assert ("host", "ran", "stg-2.acme.dev") in found((bash("ssh ann@stg-2.acme.dev uptime"), None))


def test_each_thing_of_an_episode_is_found_once() -> None:
    calls = [(edit(f"{FOLDER}/src/pay.py"), "done")] * 50
    assert found(*calls) == [("file", "edited", "src/pay.py")]
