"""Log folders made of real files, and hosts over SSH."""

import json
import os
import shutil
import socket
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import paramiko
import pytest

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.base import Wanted
from anamnesis_pipeline.sources.discovery import source_key
from anamnesis_pipeline.sources.specs import DOCUMENTS
from anamnesis_pipeline.sources.ssh.machine import SshHost
from anamnesis_tests.support.ssh_servers import SshServer, openssh_server


def record(number, text="hello"):
    """One log line without its newline."""
    return json.dumps({"type": "user", "uuid": f"{number}", "message": {"role": "user", "content": text}})


def session_name(number=0):
    """A file name as Claude Code gives sessions."""
    return f"{uuid.UUID(int=number + 1)}.jsonl"


@pytest.fixture
def project(tmp_path):
    """An empty Claude project folder below a log root, and its source."""
    folder = tmp_path / "projects" / "-home-dev-acme"
    folder.mkdir(parents=True)
    root = os.fspath(folder.parent)
    return folder, Source(source_key("box", root, folder.name), "box", root, folder.name)


@dataclass(frozen=True)
class Far:
    """A running sshd: `place` as `ssh` takes it, and the home of who logs in there."""

    server: SshServer
    home: Path

    @property
    def place(self):
        return self.server.place


@pytest.fixture(scope="session")
def user_key():
    return paramiko.ECDSAKey.generate()


@pytest.fixture(scope="session")
def far_server(tmp_path_factory, user_key):
    """A host with all that a usual one has."""
    folder = tmp_path_factory.mktemp("far")
    (folder / "home").mkdir()
    with openssh_server(folder / "sshd", user_key, {"HOME": os.fspath(folder / "home")}) as server:
        yield Far(server, folder / "home")


@pytest.fixture(scope="session")
def bare_server(tmp_path_factory, user_key):
    """A host that lacks find, tar and whatever else is no part of a shell."""
    folder = tmp_path_factory.mktemp("bare")
    for name in ("home", "bin"):
        (folder / name).mkdir()
    environment = {"HOME": os.fspath(folder / "home"), "PATH": os.fspath(folder / "bin")}
    (folder / "bin" / "sh").symlink_to("/bin/sh")
    (folder / "bin" / "date").symlink_to(shutil.which("date"))
    with openssh_server(folder / "sshd", user_key, environment) as server:
        yield Far(server, folder / "home")


@pytest.fixture
def user_home(tmp_path_factory, monkeypatch, user_key):
    """The home of who connects: with a key, and no host known yet."""
    home = tmp_path_factory.mktemp("user")
    (home / ".ssh").mkdir()
    user_key.write_private_key_file(os.fspath(home / ".ssh" / "id_ecdsa"))
    monkeypatch.setenv("HOME", os.fspath(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture
def known(user_home):
    """Make hosts known."""

    def add(*servers):
        with (user_home / ".ssh" / "known_hosts").open("a") as file:
            file.writelines(server.known_host for server in servers)

    return add


@pytest.fixture
def free_port():
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def opened():
    """Hosts that are closed at the end."""
    hosts = []

    def make(place, **options):
        hosts.append(SshHost("far", place, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def far(far_server, known, opened):
    """The usual host, which is known."""
    known(far_server.server)
    return opened(far_server.place)


@pytest.fixture
def serve(tmp_path, user_key, known, opened):
    """Starts an sshd that is known, and gives its host; `programs` are scripts that it finds first, by name."""
    with ExitStack() as stack:

        def start(environment=None, programs=None, **config):
            environment = dict(environment or {})
            for name, script in (programs or {}).items():
                write(tmp_path / "bin" / name, f"#!/bin/sh\n{script}\n").chmod(0o755)
                environment["PATH"] = f"{tmp_path}/bin:/usr/bin:/bin"
            server = stack.enter_context(openssh_server(tmp_path / "sshd", user_key, environment, **config))
            known(server)
            return opened(server.place)

        yield start


def write(path, text="text\n"):
    """A file with the folders that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def paths(found):
    return [file.path for file in found.files]


def survey(host, root, kind=DOCUMENTS, **more):
    """What a host shows of one root."""
    (found,) = host.survey([Wanted(kind, os.fspath(root), **more)])
    if isinstance(found, SourceUnreadable):
        raise found
    return found
