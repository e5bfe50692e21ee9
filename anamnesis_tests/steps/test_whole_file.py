"""A file appears whole, and never in place of another."""

import errno
import os
from pathlib import Path

import pytest

from anamnesis_pipeline.errors import GiveUp, StoreFull
from anamnesis_pipeline.steps.whole_file import appearing


def test_a_file_appears_when_it_is_whole_and_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with appearing(tmp_path / "a") as file:
        file.write(b"all of it")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"all of it"
    assert synced == [9]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_two_that_write_one_name_do_not_spoil_each_other(tmp_path: Path) -> None:
    first, second = appearing(tmp_path / "a"), appearing(tmp_path / "a")
    one, two = first.__enter__(), second.__enter__()
    one.write(b"of the first")
    two.write(b"of the second, unfinished")
    first.__exit__(None, None, None)
    with pytest.raises(GiveUp, match=r"a is there already, and is not written over; choose another name"):
        second.__exit__(None, None, None)
    assert (tmp_path / "a").read_bytes() == b"of the first"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_without_links_a_file_appears_too_and_not_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with appearing(tmp_path / "a") as file:
        file.write(b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    with pytest.raises(GiveUp, match="there already"), appearing(tmp_path / "b") as file:
        (tmp_path / "b").write_bytes(b"appeared meanwhile")
    assert (tmp_path / "b").read_bytes() == b"appeared meanwhile"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EACCES, GiveUp)])
def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path, number: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=os.strerror(number)), appearing(tmp_path / "a"):
        raise OSError(number, os.strerror(number))
    assert list(tmp_path.iterdir()) == []
