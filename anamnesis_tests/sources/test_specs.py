"""What can be configured to be crawled, and the sources out of log roots."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.discovery import discover, source_key
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.sources.specs import (
    DOCUMENTS,
    LOGS,
    SourceSpec,
    agent_memory_specs,
    built_in_specs,
    check_specs,
    default_name,
    document_source,
    is_of,
    machine_of_host,
    place_and_root,
    with_machine,
)
from anamnesis_tests.sources.conftest import session_name

NOTES = SourceSpec("notes", DOCUMENTS, "/home/ann/notes", machine="mac")
BUILT_IN = built_in_specs([Path("/home/ann/.claude/projects"), Path("/logs")], "mac")


def test_the_log_roots_and_what_claude_code_keeps_beside_them_need_no_configuration() -> None:
    assert [(spec.name, spec.kind, spec.root) for spec in BUILT_IN] == [
        ("local-logs", LOGS, "/home/ann/.claude/projects"),
        ("local-memory", DOCUMENTS, "/home/ann/.claude"),
        ("local-logs-2", LOGS, "/logs"),
    ]
    assert "CLAUDE.md" in BUILT_IN[1].include


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ann/notes/", ("", "/home/ann/notes")),
        ("~/notes", ("", "~/notes")),
        ("~", ("", "~")),
        ("./notes", ("", str(Path.cwd() / "notes"))),
        ("nas", ("nas", "")),
        ("ann@nas", ("ann@nas", "")),
        ("ann@nas:2222", ("ann@nas:2222", "")),
        ("ann@nas:/srv/notes", ("ann@nas", "/srv/notes")),
        ("ann@nas:2222:~/code", ("ann@nas:2222", "~/code")),
        ("ann@[fe80::1%eth0]:22:/x", ("ann@[fe80::1%eth0]:22", "/x")),
        ("win:/C:/Users/ann", ("win", "/C:/Users/ann")),
    ],
)
def test_a_place_is_a_host_a_root_or_both(text: str, expected: tuple[str, str]) -> None:
    assert place_and_root(text) == expected


@pytest.mark.parametrize("text", ["C:\\Users\\ann", "c:/Users", "\\\\server\\share", "//server/share", "D:"])
def test_paths_of_windows_are_refused_with_what_to_write_instead(text: str) -> None:
    with pytest.raises(BadSetting, match="/C:/Users/ann"):
        place_and_root(text)


@pytest.mark.parametrize(
    "text", ["", "/", "nas:/", "nas:notes", "a b:/x", "-oProxyCommand=x:/y", "ann@:/x", "nas:C:\\x"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadSetting):
        place_and_root(text)


@pytest.mark.parametrize(
    ("host", "machine"), [("ann@nas", "nas"), ("nas:2222", "nas-2222"), ("ann@[fe80::1]:22", "fe80--1-22")]
)
def test_a_machine_is_called_as_its_host_if_it_was_given_no_name(host: str, machine: str) -> None:
    assert machine_of_host(host) == machine
    assert with_machine(replace(NOTES, host=host, machine=""), "mac").machine == machine


def test_a_source_without_a_name_is_called_after_its_machine_and_folder() -> None:
    assert default_name("nas", "/srv/my notes", DOCUMENTS, []) == "nas-my-notes"
    assert default_name("nas", "~/.claude/projects", LOGS, ["nas-logs"]) == "nas-logs-2"
    assert default_name("local", "/x/logs", LOGS, []) == "my-local-logs", "the names of built-in ones are theirs"


@pytest.mark.parametrize(
    "other",
    [
        {"root": "/elsewhere"},
        {"name": "again"},
        {"name": "local-x", "root": "/y"},
        {"name": "a b", "root": "/y"},
        {"name": "x", "root": "notes"},
        {"name": "x", "root": "/y", "machine": "other"},
    ],
    ids=["its name", "its place", "a name of ours", "no name", "no root", "another machine"],
)
def test_what_contradicts_another_source_is_refused(other: dict[str, str]) -> None:
    with pytest.raises(BadSetting):
        check_specs([NOTES, replace(NOTES, **other)], BUILT_IN)  # type: ignore[arg-type]


def test_logs_and_documents_of_one_root_and_one_root_of_two_machines_are_different_sources() -> None:
    far = replace(NOTES, name="far", host="nas", machine="nas")
    check_specs([NOTES, replace(NOTES, name="logs", kind=LOGS), far], BUILT_IN)
    assert document_source(NOTES, NOTES.root).key != document_source(far, far.root).key


def test_a_stored_source_belongs_to_its_spec_until_that_is_removed_or_moved() -> None:
    source = document_source(NOTES, "/home/ann/notes")
    assert is_of(source, NOTES)
    assert not is_of(source, replace(NOTES, root="/elsewhere"))
    assert not is_of(source, replace(NOTES, name="other"))
    assert is_of(document_source(replace(NOTES, root="~/notes"), "/home/ann/notes"), replace(NOTES, root="~/notes"))


def test_sources_of_the_log_roots_belong_to_the_root_that_they_are_in() -> None:
    logs, memory, other = BUILT_IN
    found = Source("k", "mac", "/home/ann/.claude/projects", "-a")
    assert [is_of(found, spec) for spec in (logs, memory, other)] == [True, False, False]
    history = Source("h", "mac", "/home/ann/.claude", ".", "claude_history")
    assert is_of(history, logs)


def test_agent_memories_are_sources_unless_configured_documents_hold_them() -> None:
    folders = ["/code/shop/.claude/agent-memory", "/home/ann/.claude/agent-memory", "/code/web/.claude/agent-memory"]
    mine = SourceSpec("web", DOCUMENTS, "/code/web/", machine="mac", private=True)
    elsewhere = SourceSpec("nas-shop", DOCUMENTS, "/code/shop", host="nas", machine="nas")
    (found,) = agent_memory_specs(folders, [*BUILT_IN, mine, elsewhere], "mac")
    assert (found.root, found.kind, found.include, found.private) == (folders[0], DOCUMENTS, ("*.md",), False)
    assert found.is_built_in
    secret = SourceSpec("secret", LOGS, "/secret/projects", machine="mac", private=True)
    (private,) = agent_memory_specs(folders, [*BUILT_IN, mine, secret], "mac")
    assert (private.name, private.private) == (found.name, True)


HOST = LocalHost("box")


def test_each_project_folder_under_each_root_is_a_source(tmp_path):
    for name in ("one/-home-a", "one/-home-b", "two/-home-a"):
        (tmp_path / name).mkdir(parents=True)
    found = discover(HOST, [os.fspath(tmp_path / "one"), os.fspath(tmp_path / "two") + "/"])
    assert sorted((source.root[-3:], source.folder) for source in found.sources) == [
        ("one", "-home-a"),
        ("one", "-home-b"),
        ("two", "-home-a"),
    ]
    assert len({source.key for source in found.sources}) == 3
    assert found.problems == ()


def test_a_root_that_holds_sessions_is_a_project_folder_itself(tmp_path):
    (tmp_path / session_name()).write_text("{}\n")
    (tmp_path / session_name().removesuffix(".jsonl")).mkdir()
    (source,) = discover(HOST, [os.fspath(tmp_path)]).sources
    assert (source.folder, source.root) == (".", os.fspath(tmp_path))


def test_the_folder_above_projects_stands_for_projects(tmp_path):
    for name in ("projects/-home-a", "projects/-home-b", "todos"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "history.jsonl").write_text("{}\n")
    above = discover(HOST, [os.fspath(tmp_path)]).sources
    assert {source.folder for source in above} == {"-home-a", "-home-b", "."}
    assert above == discover(HOST, [os.fspath(tmp_path / "projects")]).sources


def test_a_project_folder_may_be_called_projects(tmp_path):
    (tmp_path / "projects").mkdir()
    (tmp_path / "projects" / session_name()).write_text("{}\n")
    (source,) = discover(HOST, [os.fspath(tmp_path)]).sources
    assert (source.root, source.folder) == (os.fspath(tmp_path), "projects")


def test_of_a_missing_root_and_one_given_twice_each_source_is_found_once(tmp_path):
    (tmp_path / "root" / "project").mkdir(parents=True)
    found = discover(HOST, [os.fspath(tmp_path / name) for name in ("nowhere", "root", "root")])
    assert [source.folder for source in found.sources] == ["project"]
    assert "nowhere" in found.problems[0]


def test_keys_are_plain_short_stable_and_tell_alike_folders_apart():
    keys = [source_key("my box", "/r", folder) for folder in ("a b", "a_b", "a/b", "é" * 300, "x" * 80, "x" * 81)]
    assert len(set(keys)) == len(keys)
    assert all(re.fullmatch(r"my_box--[A-Za-z0-9._-]{1,80}--[0-9a-f]{8}", key) for key in keys)
    assert source_key("m", "/r", "f") == source_key("m", "/r", "f") != source_key("n", "/r", "f")
