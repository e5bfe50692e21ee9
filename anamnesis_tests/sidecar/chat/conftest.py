"""A real server whose models are services on loopback, in their own formats."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import TestServices, open_services, wait_for
from anamnesis_tests.support.chat_services import ChatServer, ClaudeCommand
from anamnesis_tests.support.live_system import free_ports


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer().running() as server:
        yield server


@pytest.fixture
def claude(tmp_path: Path) -> ClaudeCommand:
    (tmp_path / "bin").mkdir()
    return ClaudeCommand(tmp_path / "bin")


@pytest.fixture
def services(
    tmp_path: Path, server: ChatServer, claude: ClaudeCommand, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestServices]:
    for name, value in {
        "LOCAL_ONLY": "0",
        "OLLAMA_URLS": server.url,
        "OPENAI_URL": f"{server.url}/v1",
        "ANTHROPIC_URL": server.url,
        "ANTHROPIC_API_KEY": "KEY",
        "CLAUDE_COMMAND": str(claude.path),
    }.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    services = open_services(tmp_path)
    yield services
    services.close()


@pytest.fixture
def client(services: TestServices) -> Iterator[httpx.Client]:
    (port,) = free_ports(1)
    running = uvicorn.Server(uvicorn.Config(create_app(services), port=port, log_level="warning"))
    thread = threading.Thread(target=running.run)
    thread.start()
    wait_for(lambda: running.started, 30)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
        wait_for(lambda: services.pool.ready, 30)
        yield client
    running.should_exit = True
    thread.join()
