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


def fixes(*turns: tuple[str, str | None]) -> list[tuple[str, str]]:
    mentions = mentions_of_session(session(*turns))
    return [(m.name, m.other) for m in mentions if m.relation is Relation.FIXED]


def test_chain_that_ends_in_what_had_failed_is_the_end_by_what_comes_before() -> None:
    chain = bash("docker compose up -d db && alembic upgrade head")
    assert [name for name, _ in fixes((bash("alembic upgrade head"), f"!{REFUSED}"), (chain, "done"))] == [
        "docker compose up"
    ]


@pytest.mark.parametrize(
    ("failed", "succeeded", "is_fix"),
    [
        ("wasm-pack test --firefox crates/a", "wasm-pack test --firefox crates/a -- --test cut", False),
        ("npm run build 2>&1 | head -50", "npm run build", False),
        ("shellcheck a.sh", "shellcheck a.sh b.sh", False),
        ("soak.py --hours 1 --port /dev/x", "soak.py --hours 2 --port /dev/x", False),
        ("Rscript -e 'render()'", "Rscript -e 'status()'", False),
        ("python -c 'import shop_pay'", "python -c 'print(1)'", False),
        ("gradlew build", "JAVA_HOME=/opt/jdk21 gradlew build", True),
        ("npm install react@19", "npm install react@18", True),
    ],
)
def test_same_command_is_a_fix_only_if_given_otherwise(failed: str, succeeded: str, is_fix: bool) -> None:
    assert bool(fixes((bash(failed), f"!{REFUSED}"), (bash(succeeded), "done"))) is is_fix


def test_same_command_failing_otherwise_ends_an_error_by_what_came_before() -> None:
    run = bash("gradlew build")
    turns = (
        (run, "!a.kt: error: unresolved reference to shop_pay"),
        (edit(f"{FOLDER}/a.kt"), "done"),
        (run, f"!{REFUSED}"),
        (edit(f"{FOLDER}/db.env"), "done"),
        (run, "done"),
    )
    (first, its), (second, other) = fixes(*turns)
    assert (first, second) == ("a.kt", "db.env")
    assert "unresolved" in its
    assert "connection" in other


def test_same_error_in_other_words_does_not_end_the_first() -> None:
    run, told = bash("train.py"), "!torch.OutOfMemoryError: CUDA out of memory, tried to allocate {} on the device"
    turns = ((run, told.format("1 GiB")), (edit(f"{FOLDER}/a.py"), "done"), (run, told.format("2 GiB, 3 MiB is free")))
    assert fixes(*turns) == []


@pytest.mark.parametrize(
    ("script", "output", "failed"),
    [
        ("git add . && git rebase --continue", "CONFLICT (content): in a.py", "git rebase"),
        ("terraform init && npm test", "bash: terraform: command not found", "terraform init"),
        ("pytest -q && git commit -m x", "1 failed, 3 passed in 0.2s", "pytest"),
        ("git commit -m x && git push", "nothing to commit, working tree clean", "git commit"),
        ("git commit -m x && git push", "[main 1a2b3c4] x\nerror: failed to push some refs", "git push"),
    ],
)
def test_part_of_a_chain_that_failed_is_marked(script: str, output: str, failed: str) -> None:
    commands = [each for each in found((bash(script), f"!{output}")) if each[0] == "command"]
    assert commands == [("command", "failed", failed)]


def test_success_has_no_error_unless_it_hides_one() -> None:
    warned = "Error: cannot resolve the original location of shop_pay"
    assert not [each for each in found((bash("git push"), warned)) if each[0] == "error"]
    for script in ("make | tail -5", "make; echo done"):
        assert [each for each in found((bash(script), warned)) if each[0] == "error"]


def test_definition_that_stays_is_not_edited() -> None:
    call = (
        "Edit\nfile_path: a.ex\nold_string:   defp load(x) do\nnew_string:   def show(x) do\n  end\n\n  defp load(x) do"
    )
    assert [name for kind, _, name in found((call, "done")) if kind == "symbol"] == ["show"]
    read = "     1\u2192def one():\n     2\u2192    return 1\n     3\u2192def two():\n     4\u2192    return 2"
    write = "Write\nfile_path: a.py\ncontent: def one():\n    return 1\ndef two():\n    return 3"
    assert [name for kind, _, name in found(("Read\nfile_path: a.py", read), (write, "done")) if kind == "symbol"] == [
        "two"
    ]


def test_snake_case_is_a_symbol_where_a_call_defines_it() -> None:
    said = ("claude", "I call `load_rows` with the field `start_col`.")
    assert [each for each in found(said, (edit("a.py", "def load_rows(x):"), "done")) if each[1] == "mentioned"] == [
        ("symbol", "mentioned", "load_rows")
    ]
    assert found(said) == []


def test_bare_name_stands_for_the_one_path_that_ends_so() -> None:
    said = ("claude", "Now pay.py is next.")
    one, other = (edit(f"{FOLDER}/src/pay.py"), "done"), (edit(f"{FOLDER}/lib/pay.py"), "done")
    assert ("file", "mentioned", "src/pay.py") in found(said, one)
    assert ("file", "mentioned", "pay.py") in found(said, one, other)


def test_numbers_that_count_points_are_no_tickets() -> None:
    points = [("claude", f"Critical issue #{number}: fix it") for number in (1, 2, 3)]
    assert found(*points) == []
    assert found(("claude", "See PR #2.")) == [("ticket", "mentioned", "#2")]


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
        ("pnpm --filter web add zustand", "zustand"),
        ("npm --prefix web install -D webdriverio > log", "webdriverio"),
    ],
)
def test_installed_package_is_a_dependency(script: str, package: str) -> None:
    assert [each for each in found((bash(script), None)) if each[0] == "package"] == [
        ("package", "depends_on", package)
    ]


@pytest.mark.parametrize("script", ["pnpm --filter web exec playwright install chromium", "pip install -r all.txt"])
def test_words_of_other_commands_are_no_packages(script: str) -> None:
    assert not [each for each in found((bash(script), None)) if each[0] == "package"]


def test_host_of_ssh_is_found() -> None:
    assert ("host", "ran", "stg-2.acme.dev") in found((bash("ssh ann@stg-2.acme.dev uptime"), None))


def test_each_thing_of_an_episode_is_found_once_and_each_edit() -> None:
    calls = [(edit(f"{FOLDER}/src/pay.py"), "done"), (bash("make lint"), "ok")] * 70
    names = [name for _, _, name in found(*calls)]
    assert (names.count("src/pay.py"), names.count("make lint")) == (70, 1)
