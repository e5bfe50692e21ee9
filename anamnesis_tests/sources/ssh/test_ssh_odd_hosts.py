"""Hosts over SSH that can do less than others, or do it in another way."""

import os
import time
from contextlib import suppress

import pytest

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, SourceMissing, SourceUnreadable
from anamnesis_pipeline.parsing.documents.languages import format_of
from anamnesis_pipeline.services.source_trial import try_source
from anamnesis_pipeline.sources.document_selection import Rules
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS, SourceSpec
from anamnesis_pipeline.sources.ssh import machine
from anamnesis_pipeline.sources.ssh import machine as ssh
from anamnesis_pipeline.sources.ssh.link import SshLink
from anamnesis_pipeline.sources.ssh.shell import SshShell
from anamnesis_tests.sources.conftest import paths, survey, write
from anamnesis_tests.support.ssh_servers import SSHD, openssh_server

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is not installed")


@pytest.fixture
def docs(tmp_path):
    """A folder with one document, `a.md`."""
    return write(tmp_path / "docs" / "a.md", "a").parent


def test_a_host_that_allows_few_sessions_is_told_so(docs, serve):
    host = serve(options="MaxSessions 1")
    survey(host, docs)
    assert host.read(os.fspath(docs / "a.md"), 0, 9) == b"a"
    assert paths(survey(host, docs)) == ["a.md"]


def test_a_host_that_allows_sftp_only_is_listed_and_read(docs, serve):
    host = serve(options="ForceCommand internal-sftp")
    assert paths(survey(host, docs)) == ["a.md"]
    assert host.home().startswith("/")
    assert host.clock_skew_s() is None
    with host.fetching([(f"{docs}/a.md", 1)] * 2) as read:
        assert read(f"{docs}/a.md", 0, 1) == b"a"


@pytest.mark.parametrize("line", ["", "Subsystem sftp /bin/false"])
def test_a_host_without_sftp_is_listed_and_read_by_its_shell(tmp_path, serve, line):
    (tmp_path / "docs").mkdir()
    odd = os.fsencode(tmp_path) + b"/docs/it's \xe9\n.md"
    with open(odd, "wb") as file:
        file.write(bytes(range(256)) * 100)
    host = serve(sftp=line)
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
    spec = SourceSpec("docs", DOCUMENTS, os.fspath(tmp_path / "docs"), host=host.place, machine="far")
    assert try_source(host, spec, Rules(format_of), ()).problems == ()


def test_a_host_with_neither_sftp_nor_gnu_find_is_said_to_lack_both(docs, serve):
    host = serve(sftp="", options="ForceCommand /bin/false")
    with pytest.raises(HostRefused, match=r"SFTP subsystem of .* nor does a shell .* enable `Subsystem sftp"):
        survey(host, docs)
    with pytest.raises(HostRefused, match="enable `Subsystem sftp"):
        host.read(f"{docs}/a.md", 0, 1)


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
def test_a_forced_command_that_ended_before_it_was_asked_is_no_dead_host(tmp_path, serve):
    host = serve(options="ForceCommand /bin/false")
    for _ in range(3):
        with pytest.raises(HostRefused, match="nor does a shell"):
            host.list_files(f"{tmp_path}")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["internal-sftp", "/bin/false"])
def test_a_forced_command_never_makes_a_host_that_answers_a_dead_one(tmp_path, serve, command):
    host = serve(options=f"ForceCommand {command}")
    for _ in range(60):
        with suppress(HostRefused):
            host.folders(os.fspath(tmp_path))


def test_a_shell_that_its_host_ended_is_started_again(tmp_path, user_key, known):
    with openssh_server(tmp_path / "sshd", user_key) as server:
        known(server)
        link = SshLink(server.place)
        shell = SshShell(link)
        assert shell.run(b"printf one; trap 'exit 3' EXIT", "one", 10).stdout == b"one"
        shell._kept[1].shutdown_write()
        shell._kept[1].recv(1)
        assert shell.run(b"printf two", "two", 10).stdout == b"two"
        link.close()


def test_what_start_up_files_print_does_not_matter(tmp_path, docs, serve):
    for name in (".bashrc", ".profile", ".zshenv"):
        write(tmp_path / name, "echo welcome\n")
    assert paths(survey(serve({"HOME": os.fspath(tmp_path)}), f"~/{docs.name}")) == ["a.md"]


@pytest.mark.parametrize("ahead_s", [3_600, -7_200])
def test_the_difference_of_clocks_is_measured(docs, serve, ahead_s):
    host = serve(programs={"date": f'exec /bin/date -d "{ahead_s} seconds" "$@"'})
    assert host.clock_skew_s() is None
    survey(host, docs)
    assert abs(host.clock_skew_s() - ahead_s) < 5


@pytest.mark.parametrize(("kept_s", "asked"), [(900, 1), (0, 3)])
def test_the_clock_is_asked_for_now_and_then(tmp_path, docs, serve, monkeypatch, kept_s, asked):
    monkeypatch.setattr(ssh, "CLOCK_S", kept_s)
    monkeypatch.setattr(machine, "LONG_S", 60.0)
    host = serve(programs={"date": f'echo >>{tmp_path}/asked; exec /bin/date "$@"'})
    for _ in range(3):
        survey(host, docs)
    assert len((tmp_path / "asked").read_text().splitlines()) == asked
    assert abs(host.clock_skew_s()) < 2


def test_a_host_whose_grep_is_another_one_still_tells_what_to_ignore(docs, serve):
    write(docs / ".gitignore", "secret\n")
    assert survey(serve(programs={"grep": "exit 2"}), docs).ignores == {".gitignore": "secret\n"}


@pytest.mark.parametrize("kind", [DOCUMENTS, LOGS])
def test_a_listing_that_was_killed_half_way_is_none(docs, serve, kind):
    host = serve(programs={"find": '[ "$1" = / ] && exit 0\nkill -9 $$'})
    with pytest.raises(HostUnreachable, match="before it was done"):
        survey(host, docs, kind)
