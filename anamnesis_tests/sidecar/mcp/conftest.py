"""A real sidecar on a port, and the SDK's own client over both transports."""

import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
import uvicorn
from anyio.from_thread import start_blocking_portal
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from anamnesis_pipeline.sidecar.__main__ import listen
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import TestServices, environment, open_services, wait_for

__all__ = ["environment"]
TRANSPORTS = ("http", "stdio")
POSTED: list[str] = []
"""Ids of what was posted, which answers show shortened."""


@dataclass
class Sidecar:
    """A running one; `services` are what it works on."""

    services: TestServices
    port: int
    home: Path
    token: str | None = None

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, summary: str, **fields: Any) -> str:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        body = {"summary": summary, "instance": "mac", "project": "acme", **fields}
        reply = httpx.post(f"{self.base}/api/episodes", json=body, headers=headers, timeout=60)
        assert reply.status_code == 201, reply.text
        POSTED.append(str(reply.json()["episode_id"]))
        return POSTED[-1]


@dataclass
class Client:
    """Calls tools, each in a session of its own."""

    transport: str
    port: int
    token: str | None = None
    folder: str | None = None

    def call(self, name: str, **arguments: Any) -> str:
        text, is_error = self.answer(name, arguments)
        assert not is_error, text
        return text

    def refused(self, name: str, **arguments: Any) -> str:
        text, is_error = self.answer(name, arguments)
        assert is_error, text
        return text

    def answer(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        async def ask(session: ClientSession) -> tuple[str, bool]:
            result = await session.call_tool(name, arguments)
            assert result.structured_content is None  # Claude Code would show this instead of the text
            return result.content[0].text, result.is_error  # type: ignore[union-attr]

        return self.session(ask)

    def session(self, work: Callable[[ClientSession], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with self._connect() as (reads, writes, *_), ClientSession(reads, writes) as session:
                await session.initialize()
                return await work(session)

        return anyio.run(run)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[Any]:
        if self.transport == "stdio":
            async with stdio_client(stdio_parameters(self.port, self.token, self.folder)) as streams:
                yield streams
            return
        query = f"?folder={self.folder}" if self.folder else ""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
            streamable_http_client(f"http://127.0.0.1:{self.port}/mcp{query}", http_client=http) as streams,
        ):
            yield streams


class OpenClient(Client):
    """Calls tools in one session, as Claude Code does: over stdio a process takes seconds to start."""

    def __enter__(self) -> "OpenClient":
        with ExitStack() as stack:
            self._portal = stack.enter_context(start_blocking_portal())
            self._session = stack.enter_context(self._portal.wrap_async_context_manager(self._opened()))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *ended: Any) -> None:
        self._open.__exit__(*ended)

    def session(self, work: Callable[[ClientSession], Awaitable[Any]]) -> Any:
        return self._portal.call(work, self._session)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[ClientSession]:
        async with self._connect() as (reads, writes, *_), ClientSession(reads, writes) as session:
            await session.initialize()
            yield session


def stdio_parameters(
    port: int, token: str | None = None, folder: str | None = None, more: dict[str, str] | None = None
) -> StdioServerParameters:
    """As Claude Code starts it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANAMNESIS_")}
    env |= {"ANAMNESIS_PORT": str(port), "ANAMNESIS_HOME": os.environ["ANAMNESIS_HOME"], **(more or {})}
    env |= {"ANAMNESIS_API_TOKEN": token} if token else {}
    env |= {"CLAUDE_PROJECT_DIR": folder} if folder else {"CLAUDE_PROJECT_DIR": "/nowhere/at/all"}
    return StdioServerParameters(command=sys.executable, args=["-m", "anamnesis_pipeline", "mcp"], env=env)


def run_sidecar(home: Path, token: str | None = None) -> Iterator[Sidecar]:
    services = open_services(home, api_token=token) if token else open_services(home)
    server = uvicorn.Server(uvicorn.Config(create_app(services), log_config=None, access_log=False))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_for(lambda: server.started and services.pool.ready, 60)
            yield Sidecar(services, listener.getsockname()[1], home, token)
        finally:
            server.should_exit = True
            thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def sidecar(tmp_path: Path, environment: None) -> Iterator[Sidecar]:
    yield from run_sidecar(tmp_path)


@pytest.fixture
def guarded(tmp_path: Path, environment: None) -> Iterator[Sidecar]:
    """One that wants a token."""
    yield from run_sidecar(tmp_path, "s3cret")


@pytest.fixture(params=TRANSPORTS)
def client(request: pytest.FixtureRequest, sidecar: Sidecar) -> Iterator[Client]:
    with OpenClient(request.param, sidecar.port) as client:
        yield client


def initialize(version: str = "2025-11-25", number: int = 1) -> bytes:
    """A first message, as a client writes it."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params}).encode() + b"\n"


@pytest.fixture
def http(sidecar: Sidecar) -> Client:
    """One that names no folder."""
    return Client("http", sidecar.port)
