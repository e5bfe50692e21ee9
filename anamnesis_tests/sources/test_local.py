"""What only folders of this machine can show; what every host does is in `test_hosts.py`."""

import os

import pytest

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_tests.sources.conftest import session_name, write

HOST = LocalHost("box")


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


def test_a_nul_byte_in_a_path_is_told(tmp_path):
    with pytest.raises(SourceUnreadable, match="nul byte"):
        HOST.list_files(f"{tmp_path}/no\0name")
