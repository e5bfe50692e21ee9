"""Topic files are written in one place, with an approval, whole or not at all, and never over what changed since."""

import ast
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anamnesis_pipeline
from anamnesis_pipeline.errors import TopicChanged, TopicRefused
from anamnesis_pipeline.knowledge.topic_store import (
    MAX_BYTES,
    Approval,
    TopicStore,
    Written,
    hash_of,
    project_folder,
    topic_name,
)

APPROVAL = Approval("p1", "ann", datetime(2026, 1, 1, tzinfo=UTC))
LOGS = "-home-ann-shop"


@pytest.fixture
def topics(tmp_path: Path) -> TopicStore:
    (tmp_path / "claude/projects" / LOGS / "memory").mkdir(parents=True)
    return TopicStore(tmp_path / "home/topics", [tmp_path / "claude/projects", tmp_path / "other"])


def logs_of(tmp_path: Path) -> list[tuple[str, str]]:
    return [(str(tmp_path / "claude/projects"), LOGS)]


def test_topic_is_beside_claude_codes_memory_or_in_the_home(tmp_path: Path, topics: TopicStore) -> None:
    there = topics.path_of("acme/shop", "Deploy day", logs_of(tmp_path))
    assert there == tmp_path / "claude/projects" / LOGS / "memory/topics/deploy-day.md"
    here = topics.path_of("acme/shop", "Deploy day")
    assert here == tmp_path / "home/topics/acme%2Fshop/deploy-day.md"
    topics.write_topic(APPROVAL, here, None, "# Deploy day\n")
    assert topics.path_of("acme/shop", "deploy day", logs_of(tmp_path)) == here


def test_topic_is_found_however_its_file_is_written(tmp_path: Path, topics: TopicStore) -> None:
    file = tmp_path / "claude/projects" / LOGS / "memory/topics/Deploy Day.md"
    file.parent.mkdir()
    file.write_text("# Deploys\n")
    assert topics.path_of("shop", "deploy-day", logs_of(tmp_path)) == file
    assert topics.path_of("shop", "deploys", logs_of(tmp_path)).name == "deploys.md"


def test_of_writers_at_once_one_writes(topics: TopicStore) -> None:
    path, start = topics.path_of("shop", "deploys"), threading.Barrier(8)

    def write(number: int) -> bool:
        start.wait()
        try:
            topics.write_topic(APPROVAL, path, None, str(number))
        except TopicChanged:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(write, range(8)))
    assert topics.read(path) == str(done.index(True))
    assert sum(done) == 1


def test_write_replaces_the_expected_text_alone(tmp_path: Path, topics: TopicStore) -> None:
    path = topics.path_of("shop", "deploys", logs_of(tmp_path))
    assert topics.read(path) is None
    assert topics.write_topic(APPROVAL, path, None, "one\r\n") == Written("", hash_of("one\r\n"))
    path.chmod(0o644)
    topics.write_topic(APPROVAL, path, "one\r\n", "\ufefftwo")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"\xef\xbb\xbftwo", 0o644)
    for expected in (None, "one\r\n"):
        with pytest.raises(TopicChanged, match="was changed since p1"):
            topics.write_topic(APPROVAL, path, expected, "three")
    assert topics.read(path) == "\ufefftwo"
    assert [each.name for each in path.parent.iterdir()] == ["deploys.md"]


def test_former_text_is_kept_and_undoing_is_exact(tmp_path: Path, topics: TopicStore) -> None:
    path = topics.path_of("shop", "deploys")
    made = topics.write_topic(APPROVAL, path, None, "one")
    done = topics.write_topic(APPROVAL, path, "one", "two")
    topics.write_topic(APPROVAL, path, "two", topics.former(done.former))
    assert topics.read(path) == "one"
    topics.write_topic(APPROVAL, path, "one", topics.former(made.former))
    assert (topics.read(path), path.exists()) == (None, False)
    with pytest.raises(TopicRefused, match="not kept"):
        topics.former("../../etc/passwd")


def test_write_without_approval_is_refused(topics: TopicStore) -> None:
    with pytest.raises(TopicRefused, match="accept the proposal"):
        topics.write_topic(Approval("", "", APPROVAL.at), topics.path_of("shop", "deploys"), None, "x")


@pytest.mark.parametrize(
    "below",
    [
        "home/topics/deploys.md",
        "home/topics/shop/deep/deploys.md",
        "home/topics/.former/x.md",
        "home/topics/shop/../../config.md",
        "home/topics/shop/deploys.txt",
        "home/topics/shop/MEMORY.md",
        "claude/projects/-home-ann-shop/memory/MEMORY.md",
        "claude/projects/-home-ann-shop/memory/deploys.md",
        "claude/projects/-home-ann-shop/topics/deploys.md",
        "other/-home-ann-shop/memory/topics/deploys.md",
        "elsewhere/deploys.md",
    ],
)
def test_places_without_topics_are_refused(tmp_path: Path, topics: TopicStore, below: str) -> None:
    with pytest.raises(TopicRefused, match="no place of topics"):
        topics.write_topic(APPROVAL, tmp_path / below, None, "x")
    assert not (tmp_path / below).exists()


def test_link_out_of_the_folder_is_refused(tmp_path: Path, topics: TopicStore) -> None:
    (tmp_path / "mine.md").write_text("mine")
    folder = tmp_path / "home/topics/shop"
    folder.mkdir(parents=True)
    (folder / "deploys.md").symlink_to(tmp_path / "mine.md")
    with pytest.raises(TopicRefused, match="no place of topics"):
        topics.write_topic(APPROVAL, folder / "deploys.md", "mine", "x")
    (tmp_path / "home/topics/linked").symlink_to(tmp_path)
    with pytest.raises(TopicRefused, match="no place of topics"):
        topics.write_topic(APPROVAL, tmp_path / "home/topics/linked/new.md", None, "x")
    assert ((tmp_path / "mine.md").read_text(), (tmp_path / "new.md").exists()) == ("mine", False)


def test_unreadable_and_large_topics_are_refused(topics: TopicStore) -> None:
    path = topics.path_of("shop", "deploys")
    with pytest.raises(TopicRefused, match="split the topic"):
        topics.write_topic(APPROVAL, path, None, "x" * (MAX_BYTES + 1))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"caf\xe9")
    with pytest.raises(TopicRefused, match=r"not UTF-8 \(byte 3\)"):
        topics.read(path)


def test_failed_write_leaves_the_former_text(topics: TopicStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = topics.path_of("shop", "deploys")
    topics.write_topic(APPROVAL, path, None, "one")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(TopicRefused, match="No space left"):
        topics.write_topic(APPROVAL, path, "one", "two")
    assert (topics.read(path), len(list(path.parent.iterdir()))) == ("one", 1)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=25))
def test_folder_of_a_project_names_it(project: str) -> None:
    name = project_folder(project)
    assert unquote(name) == project
    assert not name.startswith(".")
    assert not {"/", "\x00"} & set(name)


def test_name_of_a_topic_is_of_words() -> None:
    assert topic_name("../Deploy Day: É!.md") == "deploy-day-é"
    for title in ("", "...", "MEMORY", "memory.md"):
        with pytest.raises(TopicRefused, match="cannot be the name"):
            topic_name(title)


WRITING = {"write_text", "write_bytes", "unlink", "rename", "mkstemp", "fsync", "rmtree", "mkdir", "open", "new_file"}


def test_one_module_writes_topics_and_needs_an_approval() -> None:
    """No other module knows a place of topics and calls a function that writes files; `write_topic` gets an approval,
    which mypy checks to be one, in every call.
    """
    package = Path(anamnesis_pipeline.__file__).parent
    own = package / "knowledge/topic_store.py"
    for file in package.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        calls = [(node, node.func) for node in nodes if isinstance(node, ast.Call)]
        for call, function in calls:
            if isinstance(function, ast.Attribute) and function.attr == "write_topic":
                assert "approval" in ast.dump(call.args[0]).lower(), f"{file}:{call.lineno}: pass the approval first"
        imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        knows_a_place = f"{package.name}.knowledge.topic_store" in imported or "topics_dir" in named
        if file != own and knows_a_place:
            called = {getattr(function, "attr", getattr(function, "id", "")) for _, function in calls}
            assert not called & WRITING, f"{file} writes files; topics are written by {own.name} alone"
