"""How a user's own `ssh` reaches a machine is how a source of it is added and read: agent, names, jump hosts."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import paramiko
import pytest
from typer.testing import CliRunner

from anamnesis_pipeline.cli import app as cli
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.sensors import crawl_sensor
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.services.ingest import ingest_source
from anamnesis_tests.defs.conftest import Daemon
from anamnesis_tests.support.ssh_servers import SSHD, SshServer, openssh_server

pytestmark = pytest.mark.skipif(not SSHD, reason="OpenSSH's sshd is not installed")


@pytest.fixture
def user(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `~/.ssh` of who runs Anamnesis, without any key."""
    ssh = tmp_path / "user/.ssh"
    ssh.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(ssh.parent))
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "false")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return ssh


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key with a passphrase, which is in no agent yet."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "swordfish", "-f", tmp_path / "id_far"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return tmp_path / "id_far"


def loaded(key: Path) -> paramiko.PKey:
    found: paramiko.PKey = paramiko.Ed25519Key.from_private_key_file(str(key), password="swordfish")
    return found


@contextmanager
def agent_with(key: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A real ssh-agent that holds the key."""
    socket = key.parent / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE) as agent:
        assert agent.stdout
        agent.stdout.readline()  # it says where it listens when it does
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        plain = key.parent / "plain"
        plain.write_bytes(key.read_bytes())
        plain.chmod(0o600)
        rewritten = ["ssh-keygen", "-q", "-p", "-P", "swordfish", "-N", "", "-f", plain]
        subprocess.run(rewritten, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["ssh-add", "-q", plain], check=True)
        plain.unlink()
        try:
            yield
        finally:
            agent.terminate()


@contextmanager
def two_hosts(folder: Path, ssh: Path, key: Path) -> Iterator[tuple[SshServer, SshServer]]:
    """`gate`, and `far` behind it, which has notes; both are names of an included part of `~/.ssh/config`."""
    (folder / "far/notes").mkdir(parents=True)
    (folder / "far/notes/keeper.md").write_text("# Lighthouse\nThe keeper winds the clock at noon.\n")
    with (
        openssh_server(folder / "sshd-gate", loaded(key)) as gate,
        openssh_server(folder / "sshd-far", loaded(key), {"HOME": str(folder / "far")}) as far,
    ):
        (ssh / "known_hosts").write_text(gate.known_host + far.known_host)
        (ssh / "config.d").mkdir()
        (ssh / "config").write_text("Include config.d/*\n\nHost *\n  ServerAliveInterval 30\n")
        (ssh / "config.d/ours").write_text(
            f"Host gate\n  HostName 127.0.0.1\n  Port {gate.port}\n"
            f"Host far\n  HostName 127.0.0.1\n  Port {far.port}\n  ProxyJump gate\n"
        )
        yield gate, far


def add(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, ["sources", "add", *arguments])
    if isinstance(result.exception, GiveUp):
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.output


def test_key_of_the_agent_opens_a_host_behind_another_by_name(
    user: Path, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    with two_hosts(tmp_path, user, key), agent_with(key, monkeypatch):
        assert "keeper.md" in add("far:~/notes", "--name", "notes")
        memory = MemoryResource()
        (request,) = Daemon(memory, instance).requests(crawl_sensor)
        (source,) = [s for s in memory.store.files.sources() if s.key == request.partition_key]
        assert ingest_source(memory.pipeline, source).crawl.problems == []
        (found,) = memory.store.episodes.page(EpisodeFilter(), 10).items
        assert (found.machine, found.path) == ("far", f"{tmp_path}/far/notes/keeper.md")
        memory.store.close()


def test_key_with_a_passphrase_is_told_with_what_adds_it(user: Path, key: Path, tmp_path: Path) -> None:
    with two_hosts(tmp_path, user, key):
        (user / "config").write_text(f"IdentityFile {key}\n" + (user / "config").read_text())
        said = add("gate:/srv", "--name", "notes")
        assert "passphrase" in said
        assert "ssh-add" in said
        assert "swordfish" not in said
