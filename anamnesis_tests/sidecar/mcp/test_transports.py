"""How both transports behave when things go wrong, and how soon they answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.client.session import ClientSession
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from anamnesis_pipeline.sidecar.mcp.client import RemoteTools, open_http
from anamnesis_pipeline.sidecar.mcp.handshake import HANDSHAKE_VERSIONS, answer_to
from anamnesis_pipeline.sidecar.mcp.server import build_server
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.sidecar.mcp.conftest import Client, OpenClient, Sidecar, initialize, run_sidecar, stdio_parameters
from anamnesis_tests.sidecar.test_process import answers, free_port

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
TOO_DEEP = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
)
LIST_TOOLS = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}


@contextmanager
def started(**env: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The process, with no sidecar to ask."""
    parameters = stdio_parameters(free_port(), more=env)
    process = subprocess.Popen(
        [parameters.command, *parameters.args], env=parameters.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def stdio() -> Iterator["subprocess.Popen[bytes]"]:
    with started() as process:
        yield process


def exchange(process: "subprocess.Popen[bytes]", message: bytes) -> dict[str, object]:
    process.stdin.write(message)
    process.stdin.flush()
    answer: dict[str, object] = json.loads(process.stdout.readline())
    return answer


def test_initialize_over_stdio_is_answered_before_the_sdk(tmp_path: Path) -> None:
    sdk = tmp_path / "mcp"
    sdk.mkdir()
    (sdk / "__init__.py").write_text("import time\ntime.sleep(60)\n")
    with started(PYTHONPATH=str(tmp_path)) as process:
        assert exchange(process, initialize())["id"] == 1


def test_quick_answer_is_given_once(stdio: "subprocess.Popen[bytes]") -> None:
    exchange(stdio, initialize())
    answer = exchange(
        stdio, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n' + json.dumps(LIST_TOOLS).encode() + b"\n"
    )
    assert answer["id"] == 7
    assert stdio.communicate(timeout=20)[0] == b""
    assert stdio.returncode == 0


@pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, "1999-01-01", "2026-07-28"])
def test_the_quick_answer_is_the_sdks_own(version: str) -> None:
    from mcp.shared.memory import create_client_server_memory_streams
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    async def ask() -> dict[str, object]:
        async with (
            open_http("http://127.0.0.1:9", None) as http,
            create_client_server_memory_streams() as (ours, theirs),
            anyio.create_task_group() as tasks,
        ):
            quick = answer_to(initialize(version))
            assert quick is not None
            server = build_server(RemoteTools(http, "x"), quick["result"]["serverInfo"]["version"], lambda _: None)
            tasks.start_soon(server.run, *theirs, server.create_initialization_options())
            await ours[1].send(SessionMessage(jsonrpc_message_adapter.validate_json(initialize(version))))
            answer = await ours[0].receive()
            tasks.cancel_scope.cancel()
        assert isinstance(answer, SessionMessage)
        dumped: dict[str, object] = answer.message.model_dump(by_alias=True, exclude_unset=True)
        return dumped

    assert anyio.run(ask) == answer_to(initialize(version))
    assert HANDSHAKE_VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b'{"jsonrpc":"2.0","id":1,"method":"initialize"}',
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":null,"method":"initialize","params":{}}',
        json.dumps(LIST_TOOLS).encode(),
        *TOO_DEEP,
    ],
)
def test_what_is_no_sound_initialize_is_left_to_the_sdk(line: bytes) -> None:
    assert answer_to(line) is None


def test_garbage_before_and_after_the_handshake_ends_nothing(stdio: "subprocess.Popen[bytes]") -> None:
    for garbage in (b"\xff\xfe no json", *TOO_DEEP):
        refused: dict[str, Any] = exchange(stdio, garbage + b"\n")
        assert (refused["id"], refused["error"]["code"]) == (None, -32700)
    assert exchange(stdio, initialize(number=5))["id"] == 5
    for garbage in TOO_DEEP:
        assert exchange(stdio, garbage + b"\n")["id"] is None
    assert exchange(stdio, b'\n{"jsonrpc":"2.0","id":6,"method":"ping"}\n')["id"] == 6


@pytest.mark.parametrize("number", range(2))
def test_json_nested_too_deep_is_a_parse_error(sidecar: Sidecar, number: int) -> None:
    url = f"{sidecar.base}/mcp"
    for _ in range(2):  # before the SDK is loaded, and after
        reply = httpx.post(url, content=TOO_DEEP[number], headers=HEADERS, timeout=60)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, -32700)
    assert httpx.post(url, json=LIST_TOOLS, headers=HEADERS, timeout=60).status_code == 200


def test_a_server_that_is_down_is_told_with_its_command() -> None:
    with OpenClient("stdio", free_port()) as client:
        for name, arguments in [("search", {"query": "x"}), ("remember", {"text": "x"}), ("status", {})]:
            text = client.refused(name, **arguments)
            assert "does not run at http://127.0.0.1:" in text
            assert "anamnesis up" in text


def test_a_wrong_token_is_told_over_stdio_and_refused_over_http(guarded: Sidecar) -> None:
    guarded.post("zeppelin")
    assert "ANAMNESIS_API_TOKEN" in Client("stdio", guarded.port, token="wrong").refused("search", query="zeppelin")
    assert "zeppelin" in Client("stdio", guarded.port, token="s3cret").call("search", query="zeppelin")
    assert "zeppelin" in Client("http", guarded.port, token="s3cret").call("search", query="zeppelin")
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        reply = httpx.post(f"{guarded.base}/mcp", content=initialize(), headers=HEADERS | headers, timeout=60)
        assert reply.status_code == 401


def test_foreign_pages_and_bodies_are_refused(sidecar: Sidecar) -> None:
    def status(method: str, content: bytes = b"", **headers: str) -> int:
        url = f"{sidecar.base}/mcp"
        return httpx.request(method, url, content=content, headers=HEADERS | headers, timeout=60).status_code

    assert status("POST", initialize(), Origin="https://evil.example") == 403
    assert status("POST", initialize(), Host="evil.example") == 421
    assert (status("GET"), status("DELETE")) == (405, 405)
    assert (status("POST", b"x" * 2_000_000), status("POST", b"{")) == (413, 400)


def test_initialize_over_http_is_answered_before_the_sdk(tmp_path: Path) -> None:
    port = free_port()
    base, parameters = f"http://127.0.0.1:{port}", stdio_parameters(port, more={"ANAMNESIS_LOCAL_ONLY": "1"})
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "anamnesis_pipeline.sidecar"], env=parameters.env, stdout=log, stderr=log
        )
    try:
        wait_for(lambda: answers(base), 60)
        reply = httpx.post(f"{base}/mcp", content=initialize(), headers=HEADERS, timeout=20)
        assert httpx.get(f"{base}/ready", timeout=60).status_code == 503
        assert reply.json()["result"]["serverInfo"]["name"] == "anamnesis"
        tools = httpx.post(f"{base}/mcp", json=LIST_TOOLS, headers=HEADERS, timeout=20).json()
        assert len(tools["result"]["tools"]) == 6
    finally:
        process.terminate()
        process.wait(60)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_many_calls_at_once_are_all_answered(sidecar: Sidecar) -> None:
    sidecar.post("zeppelin")

    async def ask(session: ClientSession) -> list[bool]:
        failed: list[bool] = []

        async def one() -> None:
            failed.append((await session.call_tool("search", {"query": "zeppelin"})).is_error)

        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(one)
        return failed

    assert Client("http", sidecar.port).session(ask) == [False] * 30


def test_the_sidecar_starts_and_ends_again_and_again(tmp_path: Path) -> None:
    for number in range(2):
        running = run_sidecar(tmp_path / str(number))
        (tmp_path / str(number)).mkdir()
        sidecar = next(running)
        assert httpx.post(f"{sidecar.base}/mcp", content=initialize(), headers=HEADERS, timeout=60).status_code == 200
        with pytest.raises(StopIteration):
            next(running)
