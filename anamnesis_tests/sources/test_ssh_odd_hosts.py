"""Hosts over SSH that can do less than others, or do it in another way."""

import os
import time
from contextlib import suppress

import pytest

from anamnesis_pipeline.documents.languages import format_of
from anamnesis_pipeline.errors import HostRefused, HostUnreachable, SourceMissing, SourceUnreadable
from anamnesis_pipeline.sources import clock_estimate, ssh
from anamnesis_pipeline.sources.document_selection import Rules
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_pipeline.sources.ssh_link import SshLink
from anamnesis_pipeline.sources.ssh_shell import SshShell
from anamnesis_pipeline.steps.source_trial import try_source
from anamnesis_tests.sources.conftest import survey
from anamnesis_tests.ssh_servers import SSHD, openssh_server

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is not installed")


def test_a_host_that_allows_few_sessions_is_told_so(tmp_path, user_key, known, opened):
    (tmp_path / "docs").mkdir()
    with openssh_server(tmp_path / "sshd", user_key, options="MaxSessions 1") as server:
        known(server)
        host = opened(server.place)
        survey(host, tmp_path / "docs")
        (tmp_path / "docs" / "a.md").write_text("a")
        assert host.read(os.fspath(tmp_path / "docs" / "a.md"), 0, 9) == b"a"
        assert len(survey(host, tmp_path / "docs").files) == 1


def test_a_host_that_allows_sftp_only_is_listed_and_read(tmp_path, user_key, known, opened):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("a")
    with openssh_server(tmp_path / "sshd", user_key, options="ForceCommand internal-sftp") as server:
        known(server)
        host = opened(server.place)
        found = survey(host, tmp_path / "docs")
        assert [file.path for file in found.files] == ["a.md"]
        assert host.home().startswith("/")
        assert host.clock_skew_s() is None
        with host.fetching([(f"{found.root}/a.md", 1)] * 2) as read:
            assert read(f"{found.root}/a.md", 0, 1) == b"a"


@pytest.mark.parametrize("line", ["", "Subsystem sftp /bin/false"])
def test_a_host_without_sftp_is_listed_and_read_by_its_shell(tmp_path, user_key, known, opened, line):
    (tmp_path / "docs").mkdir()
    odd = os.fsencode(tmp_path) + b"/docs/it's \xe9\n.md"
    with open(odd, "wb") as file:
        file.write(bytes(range(256)) * 100)
    with openssh_server(tmp_path / "sshd", user_key, sftp=line) as server:
        known(server)
        host = opened(server.place)
        (found,) = survey(host, tmp_path / "docs").files
        path = f"{tmp_path}/docs/{found.path}"
        assert host.read(path, 25_590, 1_000) == bytes(range(246, 256))
        assert host.read(path, 25_600, 1_000) == b""
        with host.fetching([(path, 25_600)]) as read:
            assert read(path, 0, 30_000) == bytes(range(256)) * 100
        with pytest.raises(SourceMissing, match="no such file"):
            host.read(f"{tmp_path}/docs/b.md", 0, 1)
        with pytest.raises(SourceUnreadable, match="folder"):
            host.read(f"{tmp_path}/docs", 0, 1)
        spec = SourceSpec("docs", DOCUMENTS, os.fspath(tmp_path / "docs"), host=server.place, machine="far")
        assert try_source(host, spec, Rules(format_of), ()).problems == ()


def test_a_host_with_neither_sftp_nor_gnu_find_is_said_to_lack_both(tmp_path, user_key, known, opened):
    (tmp_path / "docs").mkdir()
    with openssh_server(tmp_path / "sshd", user_key, sftp="", options="ForceCommand /bin/false") as server:
        known(server)
        host = opened(server.place)
        with pytest.raises(HostRefused, match=r"SFTP subsystem of .* nor does a shell .* enable `Subsystem sftp"):
            survey(host, tmp_path / "docs")
        with pytest.raises(HostRefused, match="enable `Subsystem sftp"):
            host.read(f"{tmp_path}/docs/a.md", 0, 1)


@pytest.fixture
def slow_to_send(monkeypatch):
    """Nothing is sent before the far side has closed a channel."""
    opening = SshLink.open_channel

    def opened_late(link, start):
        connection, channel = opening(link, start)
        deadline = time.monotonic() + 30
        while not channel.closed and time.monotonic() < deadline:
            time.sleep(0.005)
        return connection, channel

    monkeypatch.setattr(SshLink, "open_channel", opened_late)


@pytest.mark.usefixtures("slow_to_send")
def test_a_forced_command_that_ended_before_it_was_asked_is_no_dead_host(tmp_path, user_key, known, opened):
    with openssh_server(tmp_path / "sshd", user_key, options="ForceCommand /bin/false") as server:
        known(server)
        host = opened(server.place)
        for _ in range(3):
            with pytest.raises(HostRefused, match="nor does a shell"):
                host.list_files(f"{tmp_path}")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["internal-sftp", "/bin/false"])
def test_a_forced_command_never_makes_a_host_that_answers_a_dead_one(tmp_path, user_key, known, opened, command):
    with openssh_server(tmp_path / "sshd", user_key, options=f"ForceCommand {command}") as server:
        known(server)
        host = opened(server.place)
        for _ in range(60):
            with suppress(HostRefused):
                host.folders(os.fspath(tmp_path))


def test_a_shell_that_its_host_ended_is_started_anew(tmp_path, user_key, known, opened):
    (tmp_path / "docs").mkdir()
    with openssh_server(tmp_path / "sshd", user_key) as server:
        known(server)
        link = SshLink(server.place)
        shell = SshShell(link)
        assert shell.run(b"printf one; trap 'exit 3' EXIT", "one", 10).stdout == b"one"
        shell._kept[1].shutdown_write()
        shell._kept[1].recv(1)
        assert shell.run(b"printf two", "two", 10).stdout == b"two"
        link.close()


def test_what_start_up_files_print_does_not_matter(tmp_path, user_key, known, opened):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("a")
    for name in (".bashrc", ".profile", ".zshenv"):
        (tmp_path / name).write_text("echo welcome\n")
    with openssh_server(tmp_path / "sshd", user_key, {"HOME": os.fspath(tmp_path)}) as server:
        known(server)
        found = survey(opened(server.place), "~/docs")
        assert [file.path for file in found.files] == ["a.md"]


@pytest.mark.parametrize("ahead_s", [3_600, -7_200])
def test_the_difference_of_clocks_is_measured(tmp_path, user_key, known, opened, ahead_s):
    (tmp_path / "bin").mkdir()
    date = tmp_path / "bin" / "date"
    date.write_text(f'#!/bin/sh\nexec /bin/date -d "{ahead_s} seconds" "$@"\n')
    date.chmod(0o755)
    with openssh_server(tmp_path / "sshd", user_key, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}) as server:
        known(server)
        host = opened(server.place)
        assert host.clock_skew_s() is None
        survey(host, tmp_path / "bin")
        assert abs(host.clock_skew_s() - ahead_s) < 5


@pytest.mark.parametrize(("kept_s", "asked"), [(900, 1), (0, 3)])
def test_the_clock_is_asked_for_now_and_then(tmp_path, user_key, known, opened, monkeypatch, kept_s, asked):
    monkeypatch.setattr(ssh, "CLOCK_S", kept_s)
    monkeypatch.setattr(clock_estimate, "LONG_S", 60.0)
    (tmp_path / "bin").mkdir()
    date = tmp_path / "bin" / "date"
    date.write_text(f'#!/bin/sh\necho >>{tmp_path}/asked; exec /bin/date "$@"\n')
    date.chmod(0o755)
    with openssh_server(tmp_path / "sshd", user_key, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}) as server:
        known(server)
        host = opened(server.place)
        for _ in range(3):
            survey(host, tmp_path / "bin")
        assert len((tmp_path / "asked").read_text().splitlines()) == asked
        assert abs(host.clock_skew_s()) < 2


def test_a_host_whose_grep_is_another_one_still_tells_what_to_ignore(tmp_path, user_key, known, opened):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / ".gitignore").write_text("secret\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "grep").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "bin" / "grep").chmod(0o755)
    with openssh_server(tmp_path / "sshd", user_key, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}) as server:
        known(server)
        assert survey(opened(server.place), docs).ignores == {".gitignore": "secret\n"}


def test_a_listing_that_was_killed_half_way_is_none(tmp_path, user_key, known, opened):
    (tmp_path / "bin").mkdir()
    find = tmp_path / "bin" / "find"
    find.write_text('#!/bin/sh\n[ "$1" = / ] && exit 0\nkill -9 $$\n')
    find.chmod(0o755)
    with openssh_server(tmp_path / "sshd", user_key, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}) as server:
        known(server)
        for kind in (DOCUMENTS, LOGS):
            with pytest.raises(HostUnreachable, match="before it was done"):
                survey(opened(server.place), tmp_path / "bin", kind)
