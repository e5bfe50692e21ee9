"""Hosts over SSH that are not as they should be: real sshd, and what lies between."""

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, SourceMissing
from anamnesis_pipeline.sources.base import Wanted
from anamnesis_pipeline.sources.specs import DOCUMENTS, LOGS
from anamnesis_tests.sources.conftest import paths, session_name, survey, write
from anamnesis_tests.support.proxies import proxy
from anamnesis_tests.support.ssh_servers import SSHD, SshServer, known_host, openssh_server

pytestmark = pytest.mark.skipif(SSHD is None, reason="sshd is not installed")

QUICK = {"connect_timeout_s": 1.0, "command_timeout_s": 1.0, "read_timeout_s": 1.0}


@pytest.fixture
def way(far_server, known):
    """A proxy before the usual host, which is known there."""
    server = far_server.server
    with proxy(server.port) as running:
        known(SshServer(running.port, server.known_host.replace(str(server.port), str(running.port))))
        yield running


def test_an_unknown_host_is_refused_with_the_command_that_adds_it(far_server, user_home, opened, tmp_path):
    host = opened(far_server.place)
    with pytest.raises(HostRefused, match=f"ssh-keyscan -p {far_server.server.port} 127.0.0.1 >> ~/.ssh/known_hosts"):
        survey(host, tmp_path)
    keys = subprocess.run(
        ["ssh-keyscan", "-p", str(far_server.server.port), "127.0.0.1"], capture_output=True, text=True, check=True
    )
    (user_home / ".ssh" / "known_hosts").write_text(keys.stdout)
    assert survey(host, tmp_path).files == ()


def test_a_host_with_another_key_is_refused_though_it_was_in_use(tmp_path, user_key, user_home, known, opened):
    with openssh_server(tmp_path / "one", user_key) as server:
        known(server)
        host = opened(server.place)
        survey(host, tmp_path)
        (user_home / ".ssh" / "known_hosts").write_text(known_host(server.port, paramiko.ECDSAKey.generate()))
        host.close()
        with pytest.raises(HostRefused, match="is not the one in"):
            survey(host, tmp_path)


def test_a_key_that_lets_nobody_in_is_refused(far_server, user_home, known, opened, tmp_path):
    known(far_server.server)
    paramiko.ECDSAKey.generate().write_private_key_file(os.fspath(user_home / ".ssh" / "id_ecdsa"))
    with pytest.raises(HostRefused, match="refuses the available keys"):
        survey(opened(far_server.place), tmp_path)


def test_a_name_without_a_machine_and_a_port_without_an_answer_are_told_apart(free_port, user_home, opened, tmp_path):
    with pytest.raises(HostUnreachable, match="no machine has that name"):
        opened("ann@nosuchhost.invalid").home()
    host = opened(f"ann@127.0.0.1:{free_port}", **QUICK)
    for _ in range(2):  # it is tried again
        with pytest.raises(HostUnreachable, match=r"no SSH connection.*nothing answers at its port"):
            survey(host, tmp_path)


def test_a_server_that_never_greets_is_given_up(way, opened, tmp_path):
    way.stall()
    started = time.monotonic()
    with pytest.raises(HostUnreachable):
        survey(opened(way.place, **QUICK), tmp_path)
    assert time.monotonic() - started < 20, "given up by its own time-out, not by the caller's"


@pytest.mark.parametrize("call", ["survey", "read", "fetching"])
def test_a_server_that_stalls_in_the_middle_is_given_up_and_comes_back(way, opened, tmp_path, call):
    path = tmp_path / "a.md"
    path.write_bytes(b"x" * 100_000)
    host = opened(way.place, **QUICK)
    survey(host, tmp_path)
    host.read(os.fspath(path), 0, 10)
    way.stall()
    started = time.monotonic()
    with pytest.raises(HostUnreachable, match=r"stopped answering|no SSH connection"):
        _call(host, call, path)
    assert time.monotonic() - started < 20
    way.resume()
    assert "a.md" in [file.path for file in survey(host, tmp_path).files]


def _call(host, call, path):
    if call == "survey":
        return survey(host, path.parent)
    if call == "read":
        return host.read(os.fspath(path), 0, 100_000)
    other = path.with_name("b.md")
    other.write_text("b")
    with host.fetching([(os.fspath(path), 100_000), (os.fspath(other), 1)]) as read:
        return read(os.fspath(path), 0, 100_000)


def test_a_connection_cut_in_the_middle_of_a_file_gives_no_half_of_it(way, opened, tmp_path):
    contents = {os.fspath(tmp_path / f"{n}.md"): os.urandom(200_000) for n in range(20)}
    for path, data in contents.items():
        Path(path).write_bytes(data)
    host = opened(way.place, **QUICK)
    survey(host, tmp_path)
    way.cut_after = 1_100_000
    whole = []
    with host.fetching([(path, 200_000) for path in contents]) as read, pytest.raises(HostUnreachable):
        whole.extend(read(path, 0, 200_000) == data for path, data in contents.items())
    assert len(whole) < 10  # how many were whole by then depends on how far ahead is read
    assert all(whole)
    path, data = next(iter(contents.items()))
    assert host.read(path, 0, 200_000) == data


def test_a_connection_cut_in_the_middle_of_a_large_file_gives_no_half_of_it(way, opened, tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 5_000_000)
    host = opened(way.place, **QUICK)
    host.read(os.fspath(tmp_path / "large"), 0, 1)
    way.cut_after = 2_000_000
    with pytest.raises(HostUnreachable):
        host.read(os.fspath(tmp_path / "large"), 0, 5_000_000)
    assert len(host.read(os.fspath(tmp_path / "large"), 0, 5_000_000)) == 5_000_000


def test_a_connection_that_died_unseen_is_replaced(way, opened, tmp_path):
    host = opened(way.place, **QUICK)
    survey(host, tmp_path)
    way.cut()
    assert survey(host, tmp_path).files == ()
    assert way.connections == 2


def test_one_connection_serves_many_calls_and_threads(way, opened, tmp_path):
    for number in range(40):
        (tmp_path / f"{number}.md").write_text(f"{number}")
    host = opened(way.place)

    def work(number):
        survey(host, tmp_path)
        return host.read(os.fspath(tmp_path / f"{number}.md"), 0, 10)

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(work, range(40))) == [str(number).encode() for number in range(40)]
    assert way.connections == 1


def test_an_idle_connection_is_closed_and_opened_again(way, opened, tmp_path):
    host = opened(way.place, idle_s=0.1)
    survey(host, tmp_path)
    deadline = time.monotonic() + 30
    while way.is_open and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not way.is_open
    assert survey(host, tmp_path).files == ()


def test_hosts_of_the_ssh_configuration_and_behind_others_are_reached(far_server, user_home, known, opened, tmp_path):
    server = far_server.server
    known(server)
    (user_home / ".ssh" / "config").write_text(
        f"Host *\n  Port {server.port}\n  HostName 127.0.0.1\nHost deep\n  ProxyJump middle\n"
    )
    assert survey(opened("deep"), tmp_path).files == ()


def test_the_clock_of_a_usual_host_is_right(far, tmp_path):
    survey(far, tmp_path)
    assert abs(far.clock_skew_s()) < 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be another user over there")
def test_what_may_not_be_seen_is_named_and_the_rest_is_found(tmp_path, serve):
    docs = tmp_path / "docs"
    for name in ("open", "locked", "unlisted"):
        write(docs / name / "a.md")
        write(docs / name / session_name())
    write(docs / "open" / "secret.md").chmod(0)
    (docs / "locked").chmod(0)
    (docs / "unlisted").chmod(0o444)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    # sshd logs in who runs it; a shell that steps down to nobody stands for another account
    step_down = 'setpriv --reuid=nobody --clear-groups sh -c "$SSH_ORIGINAL_COMMAND"'
    host = serve(options=f"ForceCommand {step_down}")
    found = survey(host, docs, names=("*.md",))
    assert paths(found) == ["open/a.md", "open/secret.md"]
    assert sorted(found.problems) == [f"{docs}/locked: permission denied", f"{docs}/unlisted: permission denied"]
    logs = survey(host, docs, LOGS)
    assert paths(logs) == [f"open/{session_name()}"]
    assert sorted(logs.problems) == sorted(found.problems)
    locked, inside = host.survey([Wanted(DOCUMENTS, f"{docs}/{name}") for name in ("locked", "locked/inside")])
    assert "permission denied" in str(locked)
    assert not isinstance(inside, SourceMissing)
    assert survey(host, docs, names=("*.md",), known=found.state).files is None


def test_a_file_that_changes_while_it_is_read_never_gives_bytes_it_never_had(far, tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes(b"a" * 500_000)
    others = [tmp_path / f"{n}.md" for n in range(30)]
    for other in others:
        other.write_bytes(b"o" * 50_000)
    done = threading.Event()

    def change():
        while not done.is_set():
            for size in (500_000, 3, 100_000):
                path.write_bytes(b"a" * size)

    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(3):
            wanted = [(os.fspath(each), 50_000) for each in [others[0], path, *others[1:]]]
            with far.fetching(wanted) as read:
                for each, _ in wanted:
                    assert set(read(each, 0, 500_000)) <= set(b"ao")
    finally:
        done.set()
        writer.join()


def test_a_file_that_really_ends_in_zeros_is_read_whole(far, tmp_path):
    wanted = []
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(b"x" * number + b"\0" * 600)
        wanted.append((os.fspath(tmp_path / f"{number}"), 600 + number))
    with far.fetching(wanted) as read:
        for number, (path, size) in enumerate(wanted):
            assert read(path, 0, size) == b"x" * number + b"\0" * 600


def test_a_log_that_was_replaced_is_not_read_from_the_old_file(far, tmp_path):
    path = tmp_path / "log"
    path.write_text("old")
    assert far.read(os.fspath(path), 0, 3) == b"old"
    (tmp_path / "new").write_text("new!")
    (tmp_path / "new").rename(path)
    survey(far, tmp_path)
    assert far.read(os.fspath(path), 0, 9) == b"new!"
    with path.open("a") as file:
        file.write("!!")
    assert far.read(os.fspath(path), 4, 9) == b"!!"


def test_nothing_is_written_on_the_host(tmp_path, serve):
    home, docs = tmp_path / "home", tmp_path / "docs"
    home.mkdir()
    for name in ("a.md", "b.md"):
        write(docs / name)
    host = serve({"HOME": os.fspath(home), "TMPDIR": os.fspath(home)})
    before = os.stat(docs).st_mtime_ns
    found = survey(host, docs)
    with host.fetching([(f"{found.root}/{file.path}", file.size) for file in found.files]) as read:
        read(f"{found.root}/a.md", 0, 1)
    assert os.listdir(home) == []
    assert os.stat(docs).st_mtime_ns == before


def test_each_root_is_answered_for_in_one_command_and_known_ones_in_a_few_bytes(way, opened, tmp_path):
    for number in range(500):
        folder = tmp_path / f"{number % 5}"
        folder.mkdir(exist_ok=True)
        (folder / f"a rather long name of a file {number}.md").write_text("x")
    host = opened(way.place)
    wanted = [Wanted(DOCUMENTS, f"{tmp_path}/{number}") for number in range(5)]
    found = host.survey(wanted)
    assert [len(each.files) for each in found] == [100] * 5
    before = way.received
    again = host.survey([Wanted(DOCUMENTS, w.root, f.state) for w, f in zip(wanted, found, strict=True)])
    assert [each.files for each in again] == [None] * 5
    assert way.received - before < 1_500
    (tmp_path / "3" / "new.md").write_text("new")
    changed = host.survey([Wanted(DOCUMENTS, w.root, f.state) for w, f in zip(wanted, found, strict=True)])
    assert [each.files is None for each in changed] == [True, True, True, False, True]


@pytest.mark.slow
def test_a_hundred_thousand_files_are_listed_and_known_again(far, tmp_path):
    for number in range(100_000):
        if number % 1000 == 0:
            (tmp_path / f"{number // 1000}").mkdir()
        os.close(os.open(tmp_path / f"{number // 1000}" / f"{number}.md", os.O_CREAT))
    found = survey(far, tmp_path)
    assert len(found.files) == 100_000
    assert survey(far, tmp_path, known=found.state).files is None


@pytest.mark.slow
def test_a_file_of_two_gigabytes_is_read_in_bounded_memory(far, tmp_path):
    import resource

    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(2 << 30)
        file.seek((2 << 30) - 4)
        file.write(b"end\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    at, last = 0, b""
    while block := far.read(os.fspath(path), at, 1 << 20):
        at, last = at + len(block), block
    assert at == 2 << 30
    assert last.endswith(b"end\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
