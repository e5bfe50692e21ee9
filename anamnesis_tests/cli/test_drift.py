"""Drift as a command and as a git hook, over a real memory."""

import os
import subprocess
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.git_hook import BEGIN, change_hook, with_block, without_block
from anamnesis_pipeline.errors import GiveUp

OWN = "#!/bin/bash\nset -e\necho theirs\nexit 0\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a file, of an author."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ann@example.org")
    subprocess.run(["git", "init", "-q", str(tmp_path / "shop")], check=True)
    (tmp_path / "shop" / "a.txt").write_text("a")
    return tmp_path / "shop"


def commit(repository: Path) -> str:
    """Commit everything; return what is printed."""
    subprocess.run(["git", "-C", str(repository), "add", "-A"], check=True)
    command = ["git", "-C", str(repository), "commit", "-qm", "a"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.stdout


def test_hook_says_nothing_without_a_memory(repository: Path, tmp_path: Path) -> None:
    change_hook(repository, tmp_path / "home", install=True, dry_run=False)
    assert commit(repository) == ""


def test_hook_keeps_what_is_there_and_goes_again(repository: Path, tmp_path: Path) -> None:
    file = repository / ".git" / "hooks" / "post-commit"
    file.parent.mkdir(exist_ok=True)
    file.write_text(OWN)
    file.chmod(0o755)
    change_hook(repository, tmp_path / "home", install=True, dry_run=False)
    assert BEGIN in file.read_text()
    assert os.access(file, os.X_OK)
    assert commit(repository) == "theirs\n"
    change_hook(repository, tmp_path / "home", install=False, dry_run=False)
    assert file.read_text() == OWN


def test_hook_of_ours_alone_is_removed(repository: Path, tmp_path: Path) -> None:
    file = repository / ".git" / "hooks" / "post-commit"
    change_hook(repository, tmp_path, install=True, dry_run=True)
    assert not file.exists()
    for install, is_there in ((True, True), (True, True), (False, False), (False, False)):
        change_hook(repository, tmp_path, install=install, dry_run=False)
        assert file.exists() == is_there


def test_hook_in_another_language_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GiveUp, match="no shell script"):
        with_block("#!/usr/bin/env python3\nprint()\n", tmp_path)
    assert without_block(with_block(OWN, tmp_path)) == OWN


def test_folder_without_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GiveUp, match="no git repository"):
        change_hook(tmp_path, tmp_path, install=True, dry_run=False)
