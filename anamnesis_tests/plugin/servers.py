"""Servers that behave as servers do when things go wrong, on real sockets."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Answer = Callable[[socket.socket], None]


@dataclass
class Server:
    """One that listens; `requests` are what came in, `connections` how many came."""

    port: int
    requests: list[tuple[str, dict[str, str], dict[str, object]]] = field(default_factory=list)
    connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def read_request(client: socket.socket) -> tuple[str, dict[str, str], dict[str, object]]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += client.recv(65_536)
    return first, headers, json.loads(body)


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    """Answers each connection, after its request was read, in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener.getsockname()[1])
    clients: list[socket.socket] = []

    def handle(client: socket.socket) -> None:
        with suppress(OSError, ValueError), client:
            server.requests.append(read_request(client))
            answer(client)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server.connections += 1
                clients.append(client)
                threading.Thread(target=handle, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def reply(status: str, body: bytes, *more: str) -> Answer:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *more])
    return lambda client: client.sendall(head.encode() + b"\r\n\r\n" + body)


def hang(_: socket.socket) -> None:
    time.sleep(60)


def drip(client: socket.socket) -> None:
    """A sound answer, a byte at a time: no single wait is long."""
    body = json.dumps({"text": "x" * 600}).encode()
    for byte in f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body:
        client.sendall(bytes([byte]))
        time.sleep(0.1)


def drip_headers(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(90):
        client.sendall(f"X-{number}: y\r\n".encode())
        time.sleep(0.5)


def flood(client: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        client.sendall(b" " * 65_536)


def garbage(client: socket.socket) -> None:
    client.sendall(bytes(range(256)) * 100)


def hang_up(client: socket.socket) -> None:
    client.close()


@contextmanager
def deaf() -> Iterator[str]:
    """An address that takes no connection and refuses none: its queue is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    address = listener.getsockname()
    waiting = []
    for _ in range(4):
        client = socket.socket()
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.connect(address)
        waiting.append(client)
    try:
        yield f"http://127.0.0.1:{address[1]}"
    finally:
        for each in (*waiting, listener):
            each.close()
