"""SSH servers on loopback for the user who runs the tests: the real OpenSSH where it is installed, and paramiko's.

Both run what they are sent by a real shell, in a process group of its own, and pass connections on (`ProxyJump`).
"""

import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
import pytest

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin")


@dataclass(frozen=True)
class SshServer:
    """Where a server listens, and its line for `known_hosts`."""

    port: int
    known_host: str

    @property
    def place(self) -> str:
        return f"{getpass.getuser()}@127.0.0.1:{self.port}"


def known_host(port: int, key: paramiko.PKey) -> str:
    """A line of `known_hosts`."""
    return f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n"


@contextmanager
def openssh_server(
    folder: Path,
    user_key: paramiko.PKey,
    environment: Mapping[str, str] | None = None,
    options: str = "",
    sftp: str = "Subsystem sftp internal-sftp",
) -> Iterator[SshServer]:
    """The system's own sshd, unprivileged where the tests are.

    :param environment: of what it runs, such as another HOME or PATH.
    :param sftp: the line that has it serve files; empty: it does not.
    :param options: further lines of its configuration.
    """
    assert SSHD
    folder.mkdir()
    host_key = paramiko.ECDSAKey.generate()
    host_key.write_private_key_file(str(folder / "host_key"))
    (folder / "authorized_keys").write_text(f"{user_key.get_name()} {user_key.get_base64()}\n")
    port = _free_port()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nStrictModes no\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nPasswordAuthentication no\nAllowTcpForwarding yes\n"
        f"{sftp}\n{options}\n"
        + "".join(
            ["SetEnv", *(f' "{name}={value}"' for name, value in environment.items()), "\n"] if environment else ""
        )
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a privileged sshd keeps its unprivileged half
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield SshServer(port, known_host(port, host_key))
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as probe:
            if probe.recv(4) == b"SSH-":
                return
        time.sleep(0.05)
    raise TimeoutError("sshd does not answer")


@contextmanager
def paramiko_server(folder: Path, user_key: paramiko.PKey) -> Iterator[SshServer]:
    """A server by paramiko, wherever there is no sshd."""
    del folder
    host_key = paramiko.ECDSAKey.generate()
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        threads: list[threading.Thread] = []
        transports: list[paramiko.Transport] = []

        def accept() -> None:
            while not closing.is_set():
                with suppress(TimeoutError):
                    connection, _ = listener.accept()
                    transport = paramiko.Transport(connection)
                    transports.append(transport)
                    transport.add_server_key(host_key)
                    with suppress(paramiko.SSHException, EOFError, OSError):  # who refuses our key hangs up
                        transport.start_server(server=_Session(transport, user_key, threads))

        accepting = threading.Thread(target=accept)
        accepting.start()
        port = listener.getsockname()[1]
        try:
            yield SshServer(port, known_host(port, host_key))
        finally:
            closing.set()
            accepting.join()
            for transport in transports:
                transport.close()
            for thread in threads:
                thread.join(10)


class _Session(paramiko.ServerInterface):
    def __init__(self, transport: paramiko.Transport, user_key: paramiko.PKey, threads: list[threading.Thread]) -> None:
        self.transport = transport
        self.user_key = user_key
        self.threads = threads

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        is_known = key == self.user_key and username == getpass.getuser()
        return paramiko.AUTH_SUCCESSFUL if is_known else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(self, chanid: int, origin: Any, destination: tuple[str, int]) -> int:
        onward = socket.create_connection(destination)
        self._start(lambda: self._forward(onward))
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self._start(lambda: self._execute(channel, command))
        return True

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self.threads.append(thread)
        thread.start()

    def _execute(self, channel: paramiko.Channel, command: bytes) -> None:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        stdin = process.stdin

        def feed() -> None:
            assert stdin
            with suppress(OSError, ValueError):  # it may end without reading
                while piece := channel.recv(65_536):
                    stdin.write(piece)
                    stdin.flush()
                stdin.close()

        self._start(feed)
        with process, suppress(OSError):
            assert process.stdout
            assert process.stderr
            for piece in iter(lambda: os.read(process.stdout.fileno(), 65_536), b""):  # type: ignore[union-attr]
                channel.sendall(piece)
            channel.sendall_stderr(process.stderr.read())
            status = process.wait()
            if status >= 0:
                channel.send_exit_status(status)
            channel.shutdown_write()
            channel.close()

    def _forward(self, onward: socket.socket) -> None:
        channel = self.transport.accept(5)
        back = threading.Thread(target=_pump, args=(onward.recv, channel.sendall, channel.close))
        back.start()
        _pump(channel.recv, onward.sendall, lambda: onward.shutdown(socket.SHUT_RDWR))
        back.join()
        onward.close()


def _pump(read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]) -> None:
    with suppress(OSError):
        while piece := read(65_536):
            write(piece)
    with suppress(OSError):
        end()


def home_with_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user, from now on, with a key of its own and no agent."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    paramiko.ECDSAKey.generate().write_private_key_file(str(home / ".ssh" / "id_ecdsa"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home
