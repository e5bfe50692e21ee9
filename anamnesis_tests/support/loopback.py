"""A server on loopback that answers from a script and remembers what it was sent; the services' forms build on it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from anamnesis_pipeline.llm.prompts import Request

REQUEST = Request("0123456789abcdef" * 2, "Summarize.", "SECRET-PROMPT: why did the webhook charge twice?", 1_500)
"""A call as the summaries step makes it, small."""
SUMMARY = '{"skip": false, "summary": "The key was missing.", "tags": [], "records": []}'
"""A reply."""


@dataclass(frozen=True)
class Received:
    """One request: `path` with its query, header names in lower case, and the JSON that was sent."""

    method: str
    path: str
    headers: dict[str, str]
    json: Any


@dataclass(frozen=True)
class Answer:
    """One response. `pieces` go out one by one, `pause_s` after each; `after` says what follows the last one.

    `after`: `end` as HTTP wants it, `stall` sends nothing more and keeps the connection, `break` closes it.
    """

    status: int = 200
    pieces: tuple[bytes, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    after: str = "end"
    pause_s: float = 0


def json_answer(body: Any, status: int = 200, **headers: str) -> Answer:
    """A whole JSON body; `retry_after="7"` becomes the header `retry-after`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, (json.dumps(body).encode(),), named)


class LoopbackServer:
    """Gives its `script` out in order, the last answer for ever; `routes` answer for themselves."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.received: list[Received] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._http.owner = self  # type: ignore[attr-defined]
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def answer(self, request: Received) -> Answer:
        """What a request gets; subclasses route here."""
        del request
        with self._lock:
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def respond(self, *answers: Answer) -> Self:
        """Set the script."""
        self.script = list(answers)
        return self

    @contextmanager
    def running(self) -> Iterator[Self]:
        self._thread.start()
        try:
            yield self
        finally:
            self.closing.set()
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(json.loads(self.rfile.read(int(self.headers.get("content-length", 0)))))

    def _serve(self, body: Any) -> None:
        owner: LoopbackServer = self.server.owner  # type: ignore[attr-defined]
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Received(self.command, self.path, headers, body)
        owner.received.append(request)
        self.close_connection = True
        answer = owner.answer(request)
        self.send_response(answer.status)
        fixed = {"content-type": answer.content_type, "transfer-encoding": "chunked", "connection": "close"}
        for name, value in (fixed | answer.headers).items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # the client may give up first, as it should
            for piece in answer.pieces:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                time.sleep(answer.pause_s)
            if answer.after == "stall":
                owner.closing.wait(20)
            if answer.after == "end":
                self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass
