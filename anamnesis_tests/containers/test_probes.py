"""The health checks and the entry point as the shell runs them, against servers of this test."""

import socket
import socketserver
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bson
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer

DEPLOY = Path(__file__).parents[2] / "deploy"
HEALTHY = '{"data": {"instance": {"daemonHealth": {"allDaemonStatuses": [{"required": true, "healthy": true}, %s]}}}}'
OP_MSG = 2013


@contextmanager
def serving(answer: bytes) -> Iterator[int]:
    """A server on loopback that gives this answer to whatever it is asked first; its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)
            self.request.shutdown(socket.SHUT_WR)
            while self.request.recv(65536):  # with a rest unread, the kernel would take the answer back
                pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


@contextmanager
def code_server(threads: ThreadPoolExecutor) -> Iterator[tuple[int, HealthServicer]]:
    """A gRPC server with the health service of Dagster's code server; its port and what it says."""
    server, health = grpc.server(threads), HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port, health
    server.stop(grace=None).wait()


def succeeds(*command: str, **environment: str) -> bool:
    script, *arguments = command
    path = f"PATH={Path('/usr/bin')}:/bin"
    done = subprocess.run(
        [
            "env",
            "-i",
            path,
            *(f"{name}={value}" for name, value in environment.items()),
            "bash",
            str(DEPLOY / script),
            *arguments,
        ],
        capture_output=True,
        timeout=30,
        check=False,
    )
    return done.returncode == 0


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def http(status: str, body: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def is_alive(kind: str, port: int, *more: str, **environment: str) -> bool:
    return succeeds("probe.sh", kind, "127.0.0.1", str(port), *more, **environment)


REFUSALS = (http("503 Service Unavailable"), http("401 Unauthorized", "200"), b"", b"nonsense")


@pytest.mark.parametrize("answer", [http("200 OK"), *REFUSALS])
def test_service_is_alive_when_it_answers_with_200(answer: bytes) -> None:
    with serving(answer) as port:
        assert is_alive("http", port, "/health") is (answer not in REFUSALS)


@pytest.mark.parametrize("kind", ["grpc", "http", "daemons"])
def test_service_that_nobody_serves_is_not_alive(kind: str) -> None:
    assert not is_alive(kind, closed_port(), "/health")


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize(
    ("service", "status", "alive"),
    [("DagsterApi", SERVING, True), ("DagsterApi", NOT_SERVING, False), ("another", SERVING, False)],
)
def test_a_code_server_is_alive_when_it_says_that_it_serves(service: str, status: int, alive: bool) -> None:
    with ThreadPoolExecutor(1) as threads, code_server(threads) as (port, health):
        health.set(service, status)
        assert is_alive("grpc", port) is alive


def test_a_code_server_whose_threads_all_hang_is_not_alive() -> None:
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as threads, code_server(threads) as (port, health):
        health.set("DagsterApi", SERVING)
        threads.submit(go_on.wait)
        assert not is_alive("grpc", port)
        go_on.set()
        assert is_alive("grpc", port)


@pytest.mark.parametrize(
    ("last", "alive"),
    [
        ('{"required": true, "healthy": true}', True),
        ('{"required": false, "healthy": false}', True),
        ('{"required": true, "healthy": false}', False),
        ('{"required": true, "healthy": null}', False),
    ],
)
def test_daemons_are_alive_when_all_required_ones_are(last: str, alive: bool) -> None:
    with serving(http("200 OK", HEALTHY % last)) as port:
        assert is_alive("daemons", port) is alive


def test_dagsters_guard_is_told_the_token() -> None:
    heard: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while (line := self.rfile.readline().strip()) != b"":
                heard.append(line)
            self.wfile.write(http("200 OK", HEALTHY % '{"required": true, "healthy": true}'))

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = int(server.server_address[1])
        assert is_alive("daemons", port)
        assert not any(line.startswith(b"Authorization") for line in heard)
        assert is_alive("daemons", port, ANAMNESIS_API_TOKEN="abc 123")
        assert b"Authorization: Bearer abc 123" in heard
        server.shutdown()


def hello(**fields: Any) -> bytes:
    """What a MongoDB server answers to `hello`."""
    body = b"\0\0\0\0\0" + bson.encode({"ok": 1.0, **fields})
    return struct.pack("<iiii", 16 + len(body), 7, 1, OP_MSG) + body


@pytest.mark.parametrize(
    ("answer", "healthy"),
    [
        (hello(isWritablePrimary=True, secondary=False), True),
        (hello(secondary=False, isWritablePrimary=True), True),
        (hello(isWritablePrimary=False, secondary=True), False),
        (hello(secondary=True), False),
        (b"", False),
    ],
)
def test_mongodb_is_healthy_when_it_is_a_writable_primary(answer: bytes, healthy: bool) -> None:
    with serving(answer) as port:
        assert succeeds("mongo-health.sh", MONGO_PORT=str(port)) is healthy


def test_question_to_mongodb_is_one_that_servers_understand() -> None:
    asked: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            asked.append(self.request.recv(65536))
            self.request.sendall(hello(isWritablePrimary=True))

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert succeeds("mongo-health.sh", MONGO_PORT=str(server.server_address[1]))
    length, _, _, opcode, flags, kind = struct.unpack_from("<iiiiib", asked[0])
    assert (length, opcode, flags, kind) == (len(asked[0]), OP_MSG, 0, 0)
    assert bson.decode(asked[0][21:]) == {"hello": 1, "$db": "admin"}


def test_role_starts_when_what_it_waits_for_is_there() -> None:
    port = closed_port()
    waiting = subprocess.Popen(
        ["bash", str(DEPLOY / "entrypoint.sh"), "echo", "started"],
        env={"PATH": "/usr/bin:/bin", "WAIT_FOR": f"127.0.0.1:{port}"},
        stdout=subprocess.PIPE,
    )
    time.sleep(0.3)
    assert waiting.poll() is None
    with socket.create_server(("127.0.0.1", port)):
        output, _ = waiting.communicate(timeout=30)
    assert output == b"started\n"
