"""`anamnesis sources`, as typed; on real folders, and on hosts that cannot be reached."""

import json
import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

import paramiko
import pytest
from typer.testing import CliRunner, Result

from anamnesis_pipeline import cli
from anamnesis_pipeline.crawler_wiring import configured_specs, open_crawler
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar import store_checks
from anamnesis_pipeline.sources.specs import CLAUDE_DOCUMENTS, FORMER_CLAUDE_DOCUMENTS
from anamnesis_pipeline.steps.projects import project_labels
from anamnesis_pipeline.steps.source_specs import stored_specs
from anamnesis_pipeline.steps.survey import look
from anamnesis_pipeline.wiring import open_store
from anamnesis_tests.ssh_servers import SSHD, openssh_server

SESSION = "11111111-2222-4333-8444-555555555555.jsonl"
AWAY = "me@127.0.0.1:1"
"""A port on which nobody listens."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    claude = tmp_path / "claude"
    (claude / "projects" / "-a").mkdir(parents=True)
    (claude / "projects" / "-a" / SESSION).write_text("{}\n")
    (claude / "CLAUDE.md").write_text("# Always\nUse tabs.\n")
    (claude / "todo.md").write_text("nobody asked for it\n")
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(claude / "projects"))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "mac")
    return tmp_path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    (notes / "node_modules").mkdir(parents=True)
    (notes / "node_modules" / "x.md").write_text("text\n")
    (notes / "a.md").write_text("# A\n")
    (notes / "logo.png").write_bytes(b"x")
    (notes / "draft.md").write_text("text\n")
    (notes / ".gitignore").write_text("draft.md\n")
    return notes


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["sources", *arguments])


def said(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, AnamnesisError), result.output
    return str(result.exception)


def names() -> list[str]:
    return [source["name"] for source in json.loads(said("list", "--json"))["sources"]]


def test_what_needs_no_configuration_is_listed_as_built_in(home: Path) -> None:
    output = said("list")
    assert f"local-logs  logs in {home}/claude/projects  (built in)" in output
    assert f"local-memory  documents in {home}/claude  (built in)" in output


def test_memory_of_agents_where_a_session_worked_is_listed(home: Path) -> None:
    memory = home / "shop" / ".claude" / "agent-memory"
    (memory / "reviewer").mkdir(parents=True)
    (memory / "reviewer" / "MEMORY.md").write_text("# Reviewer\nRounds half to even.\n")
    with closing(open_store(Settings())) as store:
        project_labels(store.settings)(str(home))
        assert len(configured_specs(Settings(), store)) == 2
        project_labels(store.settings)(str(home / "shop" / ".claude"))
        store.files.put_sources(look(open_crawler(Settings(), store), datetime.now(UTC), everything=True).sources)
    assert f"documents in {memory}  (built in)" in said("list")
    rmtree(memory)
    assert f"documents in {memory}  (built in)" in said("list"), "what was read of it stays its source's"


def test_patterns_of_a_host_added_before_include_the_memory_of_agents() -> None:
    with closing(open_store(Settings())) as store:
        former = {"kind": "documents", "root": "~/.claude", "include": list(FORMER_CLAUDE_DOCUMENTS), "host": "nas"}
        store.settings.set("sources.nas-memory", {"name": "nas-memory", **former})
        (spec,) = stored_specs(store.settings)
        assert spec.include == CLAUDE_DOCUMENTS


def test_of_claudes_own_folder_only_what_is_to_be_remembered_is_crawled() -> None:
    output = said("test", "local-memory")
    assert "CLAUDE.md" in output
    assert "todo.md" not in output.partition("left out")[0]


def test_a_folder_is_added_after_it_was_shown_what_of_it_is_crawled(notes: Path) -> None:
    output = said("add", str(notes), "--name", "notes", "--private", "--interval", "60")
    assert "a.md" in output
    assert "left out, ignored by .gitignore: 1, such as draft.md" in output
    assert "notes: read when `anamnesis up` runs" in output
    assert names() == ["local-logs", "local-memory", "notes"]
    (row,) = (row for row in json.loads(said("list", "--json"))["sources"] if row["name"] == "notes")
    assert (row["private"], row["interval_s"], row["kind"], row["machine"]) == (True, 60, "documents", "mac")


def test_a_folder_of_claude_projects_is_taken_for_logs_and_so_is_the_one_around_it(tmp_path: Path) -> None:
    for place in ("old/projects", "older"):
        folder = tmp_path / place / ("-a" if place.endswith("projects") else "projects/-a")
        folder.mkdir(parents=True)
        (folder / SESSION).write_text("{}\n")
    said("add", str(tmp_path / "old/projects"), "--name", "old")
    said("add", str(tmp_path / "older"), "--name", "older")
    rows = {row["name"]: row for row in json.loads(said("list", "--json"))["sources"]}
    assert [rows[name]["kind"] for name in ("old", "older")] == ["claude_logs"] * 2
    assert rows["older"]["root"] == f"{tmp_path}/older/projects"


def test_what_a_rule_excludes_is_left_out_with_the_rule_and_the_first_files(notes: Path) -> None:
    excluded = CliRunner().invoke(cli.app, ["exclude", "add", "--path", f"{notes}/a.md", "--reason", "not ours"])
    assert excluded.exit_code == 0, excluded.output
    output = said("test", str(notes))
    assert f"left out, the path '{notes}/a.md' is excluded: not ours" in output
    assert ": 1, such as a.md" in output
    assert "0 files" in output
    CliRunner().invoke(cli.app, ["exclude", "add", "--pattern", f"{SESSION}"])
    assert "left out, the pattern" in said("test", "local-logs")


def test_an_open_source_that_reads_what_a_private_one_does_is_warned_of(notes: Path, tmp_path: Path) -> None:
    (notes / "secret").mkdir()
    (notes / "secret" / "b.md").write_text("# B\n")
    assert "Warning" not in said("add", str(notes / "secret"), "--name", "secret", "--private")
    assert "Warning: notes is not private, and reads what the private secret reads" in said(
        "add", str(notes), "--name", "notes"
    )
    assert "Warning: notes is not private" in said("list")
    with closing(open_store(Settings())) as store:
        assert "notes is not private" in store_checks.crawler(store).detail
    said("remove", "notes")
    assert "Warning" not in said("add", str(notes), "--name", "notes", "--exclude", "secret/")
    assert "Warning" not in said("list")


def test_folders_that_are_not_looked_into_are_named_with_the_reason(notes: Path) -> None:
    for path in (".venv/lib/x.md", "sub/node_modules/y.md", ".claude/z.md"):
        (notes / path).parent.mkdir(parents=True)
        (notes / path).write_text("text\n")
    output = said("test", str(notes))
    assert "left out, hidden folders, not looked into: 1, such as .venv/" in output
    assert (
        "left out, folders that `crawl_skip` names, not looked into: 2, such as node_modules/, sub/node_modules/"
        in output
    )
    assert ".claude/z.md" in output.partition("left out")[0]


def test_names_with_control_characters_are_quoted(notes: Path) -> None:
    (notes / "a\x1b[2J\nb.md").write_text("text\n")
    (notes / "c\rd.png").write_bytes(b"x")
    output = said("test", str(notes))
    assert r"    'a\x1b[2J\nb.md'" in output.splitlines()
    assert r"'c\rd.png'" in output
    assert not {"\x1b", "\r"} & set(output)


def test_testing_stores_nothing(notes: Path) -> None:
    said("test", str(notes))
    assert names() == ["local-logs", "local-memory"]
    assert "not seen yet" in said("list")


def test_a_host_that_is_away_is_named_and_not_added_but_with_no_test() -> None:
    assert "127.0.0.1" in refused("add", f"{AWAY}:/srv/notes")
    assert names() == ["local-logs", "local-memory"]
    said("add", f"{AWAY}:/srv/notes", "--no-test", "--kind", "documents", "--name", "far")
    assert names()[-1] == "far"
    result = run("test", "far")
    assert (result.exit_code, "127.0.0.1" in result.output) == (1, True)


def test_a_host_without_a_root_gives_its_logs_and_what_claude_keeps_beside_them() -> None:
    said("add", "ann@nas", "--no-test")
    rows = json.loads(said("list", "--json"))["sources"][:1:-1]
    assert [(row["kind"], row["root"], row["machine"]) for row in rows] == [
        ("claude_logs", "~/.claude/projects", "nas"), ("documents", "~/.claude", "nas"),
    ]  # fmt: skip
    assert "CLAUDE.md" in rows[1]["include"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nas:notes"], "absolute"),
        (["C:\\notes"], "Windows"),
        (["/nowhere"], "no such file"),
        (["/tmp", "--kind", "pictures"], "--kind"),
        (["/tmp", "--interval", "5"], "interval_s cannot be 5: whole seconds, from 30 to 86,400"),
        (["/tmp", "--name", "a/b"], "name cannot be 'a/b': letters, digits"),
        (["/etc/hostname"], "a source is a folder; name the one around it, with --include for the file"),
        (["/tmp", "--kind", "documents", "--include", "!", "--no-test"], "pattern"),
    ],
)
def test_what_cannot_be_added_is_refused_with_what_to_do(arguments: list[str], text: str) -> None:
    assert text in refused("add", *arguments)
    assert names() == ["local-logs", "local-memory"]


def test_a_name_and_a_place_can_be_taken_once_only(notes: Path, tmp_path: Path) -> None:
    said("add", str(notes), "--name", "notes")
    assert "already" in refused("add", str(tmp_path), "--name", "notes", "--kind", "documents")
    problem = refused("add", str(notes), "--name", "again")
    assert "is taken by the source 'notes'; change that one with: anamnesis sources add ... --replace" in problem
    problem = refused("add", str(tmp_path / "claude" / "projects"), "--name", "logs")
    assert "'local-logs'; it needs no configuration" in problem


def row_of(name: str) -> dict[str, Any]:
    (row,) = (row for row in json.loads(said("list", "--json"))["sources"] if row["name"] == name)
    return row


def test_a_source_is_replaced_by_its_place_or_its_name_and_keeps_that(notes: Path, tmp_path: Path) -> None:
    said("add", str(notes), "--name", "notes", "--private", "--interval", "60")
    assert "notes is changed: documents in" in said("add", str(notes), "--replace", "--exclude", "x/")
    assert (row_of("notes")["private"], row_of("notes")["exclude"]) == (False, ["x/"])
    (tmp_path / "more").mkdir()
    CliRunner().invoke(cli.app, ["ingest"])
    assert row_of("notes")["files"] == 1
    said("add", str(tmp_path / "more"), "--replace", "--name", "notes")
    assert (row_of("notes")["root"], row_of("notes")["files"]) == (f"{tmp_path}/more", 0)
    assert "is added" in said("add", str(notes), "--replace", "--name", "other")
    assert names() == ["local-logs", "local-memory", "notes", "other"]


def test_a_replaced_source_keeps_the_name_of_its_machine() -> None:
    said("add", "ann@nas:/srv", "--no-test", "--kind", "documents", "--name", "far", "--machine", "attic")
    said("add", "ann@nas:/srv", "--no-test", "--kind", "documents", "--replace", "--private")
    assert (row_of("far")["machine"], row_of("far")["private"]) == ("attic", True)


@pytest.mark.skipif(SSHD is None, reason="sshd is not installed")
def test_an_open_source_inside_a_private_one_of_another_machine_is_warned_of_before_either_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = paramiko.ECDSAKey.generate()
    (tmp_path / "user" / ".ssh").mkdir(parents=True)
    (tmp_path / "far" / "code" / "tides").mkdir(parents=True)
    key.write_private_key_file(str(tmp_path / "user" / ".ssh" / "id_ecdsa"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    with openssh_server(tmp_path / "sshd", key, {"HOME": str(tmp_path / "far")}) as server:
        (tmp_path / "user" / ".ssh" / "known_hosts").write_text(server.known_host)
        said("add", f"{server.place}:~/code", "--name", "code", "--private", "--kind", "documents", "--no-test")
        output = said("add", f"{server.place}:~/code/tides", "--name", "tides")
        assert "Warning: tides is not private, and reads what the private code reads" in output
        assert "Warning" in said("add", f"{server.place}:{tmp_path}/far/code/tides", "--name", "again")


def test_a_removed_source_is_crawled_no_longer_and_how_to_forget_it_is_said(notes: Path) -> None:
    said("add", str(notes), "--name", "notes")
    assert re.search(r"anamnesis forget --machine \S+ --source notes ", said("remove", "notes"))
    assert names() == ["local-logs", "local-memory"]
    assert "local-logs" in refused("remove", "local-logs")


def test_local_only_refuses_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "true")
    assert "local_only" in refused("add", "ann@nas", "--no-test")
