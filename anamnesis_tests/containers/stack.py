"""The stack as a user has it: a copy of the repository, its scripts, and what they start."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from anamnesis_pipeline.services.dagster.api import DagsterApi
from anamnesis_tests.containers.docker_host import BASE, POSTGRES
from anamnesis_tests.support.live_system import EXAMPLES, free_ports

ROOT = Path(__file__).parents[2]
COPIED = (
    "anamnesis_pipeline",
    "deploy",
    "examples",
    "plugin",
    "anamnesis_tests/__init__.py",
    "anamnesis_tests/containers",
    "anamnesis_tests/support/__init__.py",
    "anamnesis_tests/support/mongo_server",
    "Dockerfile",
    ".dockerignore",
    "docker-compose.yml",
    "deploy.sh",
    "start.sh",
    "stop.sh",
    "pyproject.toml",
    "constraints.txt",
    "README.md",
    "LICENSE",
    "dagster.yaml",
    "workspace.yaml",
)
ABSENT_MODEL = "anamnesis-tests/absent"
"""Of the model hub, with or without a network: memories begin with MiniLM."""
OWNER = 10001
"""Whose logs are read."""
SECRETS = {
    "settings/anamnesis_api_token": "a token, of one's own",
    "databases/mongo_password": "m@ngo:50%/ $x\"'",
    "databases/postgres_password": "p@stgres:50%/ $x\"'",
}
"""File -> content: of characters that mean something in an URI, in YAML or to a shell."""
PATIENCE_S = 600.0
"""Two cores, shared with whatever else the machine does."""


class Stack:
    """One deployment. `environment` leads `docker` to the daemon."""

    first_states: dict[str, dict[str, Any]]
    """Service -> what Docker told of it right after the deployment."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.repository, self.home, self.environment = folder / "anamnesis", folder / "home", environment
        _copy_repository(self.repository)
        _install_server(self.repository / "libraries")
        shutil.copytree(EXAMPLES, self.home / ".claude/projects")
        for path in [self.home, *self.home.rglob("*")]:
            os.chown(path, OWNER, OWNER)
        self.port, self.dagster_port, mongo_port = free_ports(3)
        settings = self._written_env() | {
            "COMPOSE_FILE": "docker-compose.yml:anamnesis_tests/containers/compose.loopback.yml",
            "ANAMNESIS_IMAGE": "anamnesis:test",
            "ANAMNESIS_CPUSET": "0",
            "ANAMNESIS_DEFAULT_MODEL": ABSENT_MODEL,
            "ANAMNESIS_PORT": str(self.port),
            "ANAMNESIS_DAGSTER_PORT": str(self.dagster_port),
            "MONGO_PORT": str(mongo_port),
            "POSTGRES_IMAGE": POSTGRES,
            "DOCKER_SOCKET": environment["DOCKER_SOCKET"],
        }
        (self.repository / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            timeout=120,
            trust_env=False,
            headers={"Authorization": f"Bearer {SECRETS['settings/anamnesis_api_token']}"},
        )
        self._write_secrets()
        token = SecretStr(SECRETS["settings/anamnesis_api_token"])
        self.dagster = DagsterApi(f"http://127.0.0.1:{self.dagster_port}", token=token)

    def _written_env(self) -> dict[str, str]:
        """What the script writes for the owner of the logs."""
        written = self.run("deploy/write-env.sh", ANAMNESIS_USER_HOME=str(self.home))
        return dict(line.split("=", 1) for line in written.splitlines())

    def _write_secrets(self) -> None:
        """Those of one's own; the script adds what is missing."""
        folder = self.repository / "secrets"
        for name, content in SECRETS.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{content}\n")
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
            os.chown(path, OWNER, OWNER)

    def deploy(self) -> None:
        self.run("deploy.sh", "--network", "host", "--build-arg", f"BASE={BASE}", "--build-arg", "TORCH_INDEX=")
        self.first_states = {name: self.service(name) for name in ("mongo", "sidecar", "code-server")}

    def run(self, script: str, *arguments: str, **extra: str) -> str:
        """Run a script of the repository, or `docker-compose`; its output."""
        own = self.repository / script
        done = subprocess.run(
            [str(own) if own.exists() else script, *arguments],
            cwd=self.repository,
            env=self.environment | extra,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, f"{script} {arguments}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def docker(self, *arguments: str) -> list[str]:
        """Lines that `docker` prints."""
        return self.run("docker", *arguments).splitlines()

    def inspect(self, *containers: str) -> list[dict[str, Any]]:
        """All that Docker tells of containers."""
        found: list[dict[str, Any]] = json.loads(self.run("docker", "inspect", *containers))
        return found

    def service(self, name: str) -> dict[str, Any]:
        """All that Docker tells of the one container of a service."""
        (container,) = self.run("docker-compose", "ps", "-q", name).split()
        return self.inspect(container)[0]

    def run_containers(self) -> list[str]:
        """Ids of the containers in which runs of Dagster go on."""
        return self.docker("ps", "--quiet", "--no-trunc", "--filter", "label=anamnesis=run")

    def is_ready(self) -> bool:
        return self.http.get("/ready").status_code == 200

    def is_covered(self) -> bool:
        """Whether every passage has its vectors in the active space."""
        coverage = self.http.get("/ready").json()["coverage"]
        return bool(coverage["stored"] > 1 and coverage["embedded"] == coverage["stored"])

    def reembed(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.http.get("/api/episodes/reembed/status").json()
        return answer

    def wait_until(self, what: str, condition: Callable[[], object]) -> None:
        """Poll until `condition` holds; else fail with what the containers printed last."""
        deadline = time.monotonic() + PATIENCE_S
        while not _holds(condition):
            if time.monotonic() > deadline:
                pytest.fail(f"{what}: waited in vain\n{self.run('docker-compose', 'logs', '--no-color', '--tail=40')}")
            time.sleep(0.3)

    def remove(self) -> None:
        """Everything but the images."""
        self.http.close()
        self.run("stop.sh")
        self.run("docker-compose", "down", "--volumes")


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except httpx.HTTPError:
        return False


def _install_server(folder: Path) -> None:
    """What stands in MongoDB's place, which the image does not hold, for the Python of Debian 12."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "--python-version", "3.11"]
    subprocess.run(
        [*command, "--only-binary=:all:", "-c", str(ROOT / "constraints.txt"), "secantusdb", "nltk"], check=True
    )


def _copy_repository(to: Path) -> None:
    """As a checkout under umask 077 has it."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    for path in to.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
