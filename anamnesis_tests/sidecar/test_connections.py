"""Half-sent requests keep nobody else out: real sockets to a real server."""

import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn import Server

from anamnesis_pipeline.sidecar.connections import Config, Connections, Wholeness
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.sidecar.test_process import COMMAND, STARTS_S, answers, environment, free_port

HEAD = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = b"POST /api/episodes/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
HALVES = {
    "nothing": b"",
    "half a head": HEAD,
    "no body": POST + b"Content-Length: 100\r\n\r\n",
    "half a body": POST + b"Content-Length: 100\r\n\r\n{",
    "half a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
}


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that says how long the body was."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


@contextmanager
def serving(most: int = 1_000, patience_s: float = 60.0) -> Iterator[tuple[str, int]]:
    config = Config(
        Wholeness(echo), log_config=None, lifespan="off", timeout_keep_alive=60, timeout_graceful_shutdown=1
    )
    config.connections = Connections(most, patience_s)
    server = Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_for(lambda: server.started)
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(30)


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has ended it, which may take it a moment."""
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.fixture
def connect() -> Iterator[Callable[[tuple[str, int], bytes], socket.socket]]:
    with ExitStack() as opened:

        def made(address: tuple[str, int], said: bytes) -> socket.socket:
            connection = opened.enter_context(socket.create_connection(address, timeout=30))
            connection.sendall(said)
            return connection

        yield made


Connect = Callable[[tuple[str, int], bytes], socket.socket]


@pytest.mark.parametrize("half", HALVES)
def test_half_sent_request_makes_room_or_is_closed(half: str, connect: Connect) -> None:
    with serving(most=4) as address:
        waiting = [connect(address, HALVES[half]) for _ in range(4)]
        assert httpx.post(f"http://{address[0]}:{address[1]}/", content=b"x" * 300_000, timeout=30).text == "300000"
        wait_for(lambda: is_closed(waiting[0]))
        assert not is_closed(waiting[3])
    with serving(patience_s=0.2) as address:
        connection = connect(address, HALVES[half])
        wait_for(lambda: is_closed(connection))


def test_a_request_that_goes_on_is_answered_however_slow(connect: Connect) -> None:
    with serving(patience_s=0.5) as address:
        connection = connect(address, POST + b"Content-Length: 30\r\n\r\n")
        for _ in range(30):
            assert not is_closed(connection)
            connection.sendall(b"x")
        connection.settimeout(30)
        assert connection.recv(10_000).endswith(b"30")


def test_a_kept_connection_serves_one_request_after_the_other() -> None:
    with serving(most=4) as (host, port), httpx.Client(base_url=f"http://{host}:{port}", timeout=30) as client:
        for size in (0, 10, 200_000, 0, 1):
            assert client.post("/", content=b"x" * size).text == str(size)


@pytest.mark.parametrize("half", ["half a head", "half a body"])
def test_a_thousand_half_sent_requests_lock_nobody_out(half: str, tmp_path: Path, connect: Connect) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4_096), most))  # of this process, for its own ends
    port = free_port()
    limited = ["bash", "-c", 'ulimit -n 1024 && exec "$@"', "sidecar", *COMMAND]
    process = subprocess.Popen(limited, env=environment(tmp_path, port), stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}"), STARTS_S)
        for _ in range(1_050):
            connect(("127.0.0.1", port), HALVES[half])
        assert answers(f"http://127.0.0.1:{port}")
        found = httpx.post(f"http://127.0.0.1:{port}/api/episodes/search", json={"query": "zeppelin"}, timeout=60)
        assert found.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("descriptors", "most"), [(1_024, 256), (256, 64), (32, 16)])
def test_few_descriptors_leave_less_room(descriptors: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    monkeypatch.setattr("anamnesis_pipeline.sidecar.connections.Connections", made.append)
    Config(Wholeness(echo))
    assert made == [most]
