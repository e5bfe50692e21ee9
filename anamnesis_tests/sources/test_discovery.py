"""Sources out of log roots."""

import os
import re

from anamnesis_pipeline.sources.discovery import discover, source_key
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_tests.sources.conftest import session_name

HOST = LocalHost("box")


def test_each_project_folder_under_each_root_is_a_source(tmp_path):
    for name in ("one/-home-a", "one/-home-b", "two/-home-a"):
        (tmp_path / name).mkdir(parents=True)
    found = discover(HOST, [os.fspath(tmp_path / "one"), os.fspath(tmp_path / "two") + "/"])
    assert sorted((source.root[-3:], source.folder) for source in found.sources) == [
        ("one", "-home-a"), ("one", "-home-b"), ("two", "-home-a"),
    ]  # fmt: skip
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
