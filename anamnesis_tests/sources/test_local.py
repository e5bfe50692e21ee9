"""Listing and reading real folders."""

import os

import pytest

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_tests.sources.conftest import session_name

HOST = LocalHost("box")


def write(path, text="{}\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_sessions_and_subagents_are_found_at_any_depth(project):
    folder, _ = project
    session = session_name().removesuffix(".jsonl")
    for path in (f"{session}.jsonl", "agent-old.jsonl", f"{session}/subagents/agent-1.jsonl",
                 f"{session}/subagents/agent-1.meta.json", f"{session}.jsonl.orphaned-1",
                 f"{session}/subagents/workflows/run/agent-2.jsonl"):  # fmt: skip
        write(folder / path)
    for path in (f"{session}/subagents/workflows/run/journal.jsonl", f"{session}/a.meta.json", "memory/MEMORY.md"):
        write(folder / path)
    listing = HOST.list_files(os.fspath(folder))
    assert [file.path for file in listing] == [
        f"{session}.jsonl", f"{session}.jsonl.orphaned-1", f"{session}/subagents/agent-1.jsonl",
        f"{session}/subagents/agent-1.meta.json",
        f"{session}/subagents/workflows/run/agent-2.jsonl", "agent-old.jsonl",
    ]  # fmt: skip
    assert listing.problems == ()


def test_a_file_is_listed_with_its_size_time_and_identity(project):
    folder, _ = project
    write(folder / session_name(), "12345")
    (file,) = HOST.list_files(os.fspath(folder))
    status = os.stat(folder / session_name())
    assert (file.size, file.mtime_ns, file.device, file.inode) == (5, status.st_mtime_ns, status.st_dev, status.st_ino)


def test_a_loop_of_links_ends(project):
    folder, _ = project
    write(folder / "sub" / session_name())
    (folder / "sub" / "back").symlink_to(folder)
    assert [file.path for file in HOST.list_files(os.fspath(folder))] == [f"sub/{session_name()}"]


def test_a_project_folder_that_is_a_link_to_all_is_refused(tmp_path):
    for name, target in (("root", "/"), ("up", ".."), ("here", ".")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(SourceUnreadable, match="link to a folder above it"):
            HOST.list_files(f"{tmp_path}/{name}")
    assert HOST.list_files(f"{tmp_path}/../{tmp_path.name}/.").files == ()


def test_links_to_other_folders_are_followed_within_bounds(project, tmp_path, monkeypatch):
    folder, _ = project
    monkeypatch.setattr("anamnesis_pipeline.sources.local.MAX_LINKED_FOLDERS", 3)
    other = tmp_path / "other disk"
    for number in range(9):
        write(other / f"{number}" / session_name(number))
        write(folder / f"own {number}" / session_name(number))
    (folder / "linked").symlink_to(other)
    listing = HOST.list_files(os.fspath(folder))
    assert sum(file.path.startswith("own") for file in listing) == 9
    assert sum(file.path.startswith("linked") for file in listing) == 2
    (problem,) = listing.problems
    assert "more than 3 folders behind links" in problem


def test_an_endless_descent_is_cut_and_reported(project):
    folder, _ = project
    write(folder.joinpath(*"abcdefghijklmno") / session_name())
    listing = HOST.list_files(os.fspath(folder))
    assert listing.files == ()
    assert "deeper than" in listing.problems[0]


def test_a_dangling_link_hides_nothing(project):
    folder, _ = project
    write(folder / session_name(1))
    (folder / session_name(2)).symlink_to(folder / "nowhere")
    assert [file.path for file in HOST.list_files(os.fspath(folder))] == [session_name(1)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to drop privileges")
def test_a_folder_without_permission_is_named_and_the_others_are_read(tmp_path):
    folder = tmp_path / "project"
    write(folder / session_name(1))
    write(folder / "locked" / session_name(2))
    os.chmod(folder / "locked", 0)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        os.chmod(parent, 0o755)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.setuid(65534)
        listing = HOST.list_files(os.fspath(folder))
        os.write(writer, repr(([f.path for f in listing], listing.problems)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        paths, problems = eval(answer.read())
    assert paths == [session_name(1)]
    assert "locked: permission denied" in problems[0]


def test_a_missing_folder_and_a_missing_file_are_told_apart_from_empty_ones(tmp_path):
    with pytest.raises(SourceUnreadable, match="no such file or directory"):
        HOST.list_files(os.fspath(tmp_path / "nowhere"))
    with pytest.raises(SourceUnreadable, match="nul byte"):
        HOST.list_files(f"{tmp_path}/no\0name")
    with pytest.raises(SourceUnreadable, match="cannot read the file"):
        HOST.read(os.fspath(tmp_path / "nothing.jsonl"), 0, 10)
    assert HOST.list_files(os.fspath(tmp_path)).files == ()


def test_a_file_in_place_of_a_folder_is_reported(tmp_path):
    write(tmp_path / "file")
    with pytest.raises(SourceUnreadable, match="it is a file, not a directory"):
        HOST.list_files(os.fspath(tmp_path / "file"))


def test_reading_gives_the_asked_range_and_nothing_behind_the_end(tmp_path):
    write(tmp_path / "file", "0123456789")
    path = os.fspath(tmp_path / "file")
    assert (HOST.read(path, 3, 4), HOST.read(path, 8, 10), HOST.read(path, 10, 1)) == (b"3456", b"89", b"")
