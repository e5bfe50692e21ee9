"""`anamnesis sources`, as typed; on real folders, and on hosts that cannot be reached."""

import json
import re
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import paramiko
import pytest

from anamnesis_pipeline.pipeline.projects import project_labels
from anamnesis_pipeline.pipeline.source_specs import stored_specs
from anamnesis_pipeline.pipeline.survey import look
from anamnesis_pipeline.runtime.crawler_wiring import configured_specs, open_crawler
from anamnesis_pipeline.services import store_checks
from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.specs import CLAUDE_DOCUMENTS, FORMER_CLAUDE_DOCUMENTS
from anamnesis_tests.cli import typed
from anamnesis_tests.support.ssh_servers import SSHD, home_with_key, openssh_server

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


run, said, refused = (partial(how, "sources") for how in (typed.typed, typed.said, typed.refused))


def rows() -> dict[str, dict[str, Any]]:
    return {source["name"]: source for source in json.loads(said("list", "--json"))["sources"]}


BUILT_IN = ["local-logs", "local-memory"]


def test_what_needs_no_configuration_is_listed_and_tested(home: Path) -> None:
    output = said("list")
    assert f"local-logs  logs in {home}/claude/projects  (built in)" in output
    assert f"local-memory  documents in {home}/claude  (built in)" in output
    tested = said("test", "local-memory")
    assert "CLAUDE.md" in tested
    assert "todo.md" not in tested.partition("left out")[0], "only what is to be remembered"


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


def test_host_added_before_includes_the_memory_of_agents() -> None:
    with closing(open_store(Settings())) as store:
        former = {"kind": "documents", "root": "~/.claude", "include": list(FORMER_CLAUDE_DOCUMENTS), "host": "nas"}
        store.settings.set("sources.nas-memory", {"name": "nas-memory", **former})
        (spec,) = stored_specs(store.settings)
        assert spec.include == CLAUDE_DOCUMENTS


def test_folder_is_added_after_it_was_shown_what_is_crawled(notes: Path) -> None:
    tested = said("test", str(notes))
    assert list(rows()) == BUILT_IN, "testing stores nothing"
    output = said("add", str(notes), "--name", "notes", "--private", "--interval", "60")
    for told in (tested, output):
        assert "a.md" in told
        assert "left out, ignored by .gitignore: 1, such as draft.md" in told
    assert "notes: read when `anamnesis up` runs" in output
    assert list(rows()) == [*BUILT_IN, "notes"]
    row = rows()["notes"]
    assert (row["private"], row["interval_s"], row["kind"], row["machine"]) == (True, 60, "documents", "mac")
    assert "not seen yet" in said("list")
    assert re.search(r"anamnesis forget --machine \S+ --source notes ", said("remove", "notes"))
    assert list(rows()) == BUILT_IN
    assert "local-logs" in refused("remove", "local-logs")


def test_folder_of_claude_projects_or_around_it_is_of_logs(tmp_path: Path) -> None:
    for name in ("old", "older"):
        folder = tmp_path / name / "projects/-a"
        folder.mkdir(parents=True)
        (folder / SESSION).write_text("{}\n")
    said("add", str(tmp_path / "old/projects"), "--name", "old")
    said("add", str(tmp_path / "older"), "--name", "older")
    assert [rows()[name]["kind"] for name in ("old", "older")] == ["claude_logs"] * 2
    assert rows()["older"]["root"] == f"{tmp_path}/older/projects"


def test_what_a_rule_excludes_is_left_out_with_the_rule(notes: Path) -> None:
    typed.said("exclude", "add", "--path", f"{notes}/a.md", "--reason", "not ours")
    output = said("test", str(notes))
    assert f"left out, the path '{notes}/a.md' is excluded: not ours" in output
    assert ": 1, such as a.md" in output
    assert "0 files" in output
    typed.said("exclude", "add", "--pattern", f"{SESSION}")
    assert "left out, the pattern" in said("test", "local-logs")


def test_open_source_that_reads_a_private_one_is_warned_of(notes: Path, tmp_path: Path) -> None:
    (notes / "secret").mkdir()
    (notes / "secret" / "b.md").write_text("# B\n")
    assert "Warning" not in said("add", str(notes / "secret"), "--name", "secret", "--private")
    told = said("add", str(notes), "--name", "notes")
    assert "Warning: notes is not private, and reads what the private secret reads" in told
    assert "Warning: notes is not private" in said("list")
    with closing(open_store(Settings())) as store:
        assert "notes is not private" in store_checks.crawler(store).detail
    said("remove", "notes")
    assert "Warning" not in said("add", str(notes), "--name", "notes", "--exclude", "secret/")
    assert "Warning" not in said("list")


def test_folders_not_looked_into_are_named_with_the_reason(notes: Path) -> None:
    for path in (".venv/lib/x.md", "sub/node_modules/y.md", ".claude/z.md"):
        (notes / path).parent.mkdir(parents=True)
        (notes / path).write_text("text\n")
    output = said("test", str(notes))
    assert "left out, hidden folders, not looked into: 1, such as .venv/" in output
    named = "folders that `crawl_skip` names, not looked into: 2, such as node_modules/, sub/node_modules/"
    assert f"left out, {named}" in output
    assert ".claude/z.md" in output.partition("left out")[0]


def test_names_with_control_characters_are_quoted(notes: Path) -> None:
    (notes / "a\x1b[2J\nb.md").write_text("text\n")
    (notes / "c\rd.png").write_bytes(b"x")
    output = said("test", str(notes))
    assert r"    'a\x1b[2J\nb.md'" in output.splitlines()
    assert r"'c\rd.png'" in output
    assert not {"\x1b", "\r"} & set(output)


def test_host_that_is_away_is_added_with_no_test_only() -> None:
    assert "127.0.0.1" in refused("add", f"{AWAY}:/srv/notes")
    assert list(rows()) == BUILT_IN
    said("add", f"{AWAY}:/srv/notes", "--no-test", "--kind", "documents", "--name", "far")
    assert list(rows())[-1] == "far"
    result = run("test", "far")
    assert (result.exit_code, "127.0.0.1" in result.output) == (1, True)


def test_host_without_a_root_gives_its_logs_and_memory() -> None:
    said("add", "ann@nas", "--no-test")
    added = list(rows().values())[:1:-1]
    assert [(row["kind"], row["root"], row["machine"]) for row in added] == [
        ("claude_logs", "~/.claude/projects", "nas"),
        ("documents", "~/.claude", "nas"),
    ]
    assert "CLAUDE.md" in added[1]["include"]


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
    assert list(rows()) == BUILT_IN


def test_a_name_and_a_place_can_be_taken_once_only(notes: Path, tmp_path: Path) -> None:
    said("add", str(notes), "--name", "notes")
    assert "already" in refused("add", str(tmp_path), "--name", "notes", "--kind", "documents")
    problem = refused("add", str(notes), "--name", "again")
    assert "is taken by the source 'notes'; change that one with: anamnesis sources add ... --replace" in problem
    problem = refused("add", str(tmp_path / "claude" / "projects"), "--name", "logs")
    assert "'local-logs'; it needs no configuration" in problem


def test_source_is_replaced_by_its_place_or_its_name(notes: Path, tmp_path: Path) -> None:
    said("add", str(notes), "--name", "notes", "--private", "--interval", "60")
    assert "notes is changed: documents in" in said("add", str(notes), "--replace", "--exclude", "x/")
    assert (rows()["notes"]["private"], rows()["notes"]["exclude"]) == (False, ["x/"])
    (tmp_path / "more").mkdir()
    typed.said("ingest")
    assert rows()["notes"]["files"] == 1
    said("add", str(tmp_path / "more"), "--replace", "--name", "notes")
    assert (rows()["notes"]["root"], rows()["notes"]["files"]) == (f"{tmp_path}/more", 0)
    assert "is added" in said("add", str(notes), "--replace", "--name", "other")
    assert list(rows()) == [*BUILT_IN, "notes", "other"]
    said("add", "ann@nas:/srv", "--no-test", "--kind", "documents", "--name", "far", "--machine", "attic")
    said("add", "ann@nas:/srv", "--no-test", "--kind", "documents", "--replace", "--private")
    assert (rows()["far"]["machine"], rows()["far"]["private"]) == ("attic", True), "its machine keeps its name"


@pytest.mark.skipif(SSHD is None, reason="sshd is not installed")
def test_open_source_inside_a_private_far_one_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = home_with_key(tmp_path / "user", monkeypatch) / ".ssh"
    (tmp_path / "far" / "code" / "tides").mkdir(parents=True)
    key = paramiko.ECDSAKey.from_private_key_file(str(ssh / "id_ecdsa"))
    with openssh_server(tmp_path / "sshd", key, {"HOME": str(tmp_path / "far")}) as server:
        (ssh / "known_hosts").write_text(server.known_host)
        said("add", f"{server.place}:~/code", "--name", "code", "--private", "--kind", "documents", "--no-test")
        output = said("add", f"{server.place}:~/code/tides", "--name", "tides")
        assert "Warning: tides is not private, and reads what the private code reads" in output
        assert "Warning" in said("add", f"{server.place}:{tmp_path}/far/code/tides", "--name", "again")


def test_local_only_refuses_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "true")
    assert "local_only" in refused("add", "ann@nas", "--no-test")
