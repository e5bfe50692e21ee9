"""Which project a folder of another machine belongs to."""

import os
import subprocess
from contextlib import ExitStack

import pytest

from anamnesis_pipeline.parsing.claude_logs.projects import LOCAL_DISK, resolved_project
from anamnesis_pipeline.parsing.text.file_names import name_of
from anamnesis_pipeline.sources.ssh.machine import SshHost
from anamnesis_tests.support.ssh_servers import SSHD, openssh_server

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is not installed")


@pytest.fixture(params=["sftp", "shell"])
def disk(request, far_server, known, tmp_path, user_key):
    with ExitStack() as stack:
        server = far_server.server
        if request.param == "shell":
            server = stack.enter_context(openssh_server(tmp_path / "another", user_key, sftp=""))
        known(server)
        host = SshHost("far", server.place)
        yield host.disk()
        host.close()


@pytest.fixture
def repository(tmp_path, user_home):
    def git(*words):
        subprocess.run(
            ["git", "-C", tmp_path / "acme", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True
        )

    (tmp_path / "acme" / "src").mkdir(parents=True)
    git("init", "-q")
    git("remote", "add", "origin", "git@github.com:acme/tools.git")
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("worktree", "add", "-q", tmp_path / "tree")
    (tmp_path / "link").symlink_to(tmp_path / "acme" / "src")
    return tmp_path


def test_a_repository_has_one_name_on_every_machine(disk, repository):
    for path in ("acme", "acme/src", "tree", "link", "acme/src/gone/deeper"):
        cwd = os.fspath(repository / path)
        assert resolved_project(cwd, disk) == resolved_project(cwd, LOCAL_DISK) == "acme/tools"


def test_a_folder_without_a_repository_is_called_by_its_path(disk, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(odd)
    for path in (os.fspath(tmp_path / "link"), name_of(odd), os.fspath(tmp_path / "gone"), "relative", ""):
        assert resolved_project(path, disk) == resolved_project(path, LOCAL_DISK)
    assert resolved_project(os.fspath(tmp_path / "link"), disk) == os.fspath(tmp_path / "real")


def test_a_broken_repository_stops_nobody(disk, tmp_path):
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all\n")
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / ".git")
    for path in (tmp_path, tmp_path / "pipes"):
        for each in (disk, LOCAL_DISK):
            assert isinstance(resolved_project(os.fspath(path), each), str | None)
