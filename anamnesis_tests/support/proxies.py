"""A TCP proxy on loopback that counts, delays, stalls or cuts what passes."""

import getpass
import heapq
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Passes connections to `target` on. `sent` and `received` count bytes to it and from it, and
    `pieces` what went to it at a time.
    """

    def __init__(self, target: int, latency_s: float = 0.0) -> None:
        self.sent = 0
        self.received = 0
        self.pieces = 0
        self.connections = 0
        self.cut_after: int | None = None
        """Hang up once so many more bytes came back."""
        self._target = target
        self._latency_s = latency_s
        self._passing = threading.Event()
        self._passing.set()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    @property
    def place(self) -> str:
        return f"{getpass.getuser()}@127.0.0.1:{self.port}"

    def stall(self) -> None:
        """From now on nothing passes, and nobody hangs up."""
        self._passing.clear()

    def resume(self) -> None:
        """What was held back passes now, and all that follows."""
        self._passing.set()

    @property
    def is_open(self) -> bool:
        """Whether anybody is connected."""
        return any(thread.is_alive() for thread in self._threads[1:])

    def cut(self) -> None:
        """Hang up on everybody."""
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._passing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)
        for each in self._sockets:
            each.close()

    def _start(self, work, *arguments) -> None:  # type: ignore[no-untyped-def]
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += [near, far]
                self.connections += 1
                self._start(self._pump, near, far, True)
                self._start(self._pump, far, near, False)

    def _pump(self, source: socket.socket, sink: socket.socket, is_out: bool) -> None:
        late = _Late(sink, self._latency_s / 2) if self._latency_s else None
        with suppress(OSError):
            while piece := source.recv(65_536):
                self._passing.wait()
                if is_out:
                    self.sent += len(piece)
                    self.pieces += 1
                else:
                    self.received += len(piece)
                    if self.cut_after is not None:
                        piece = piece[: self.cut_after]
                        self.cut_after -= len(piece)
                if late:
                    late.send(piece)
                else:
                    sink.sendall(piece)
                if not is_out and self.cut_after == 0:
                    self.cut_after = None
                    self.cut()
        if late:
            late.close()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


class _Late:
    """Sends what it is given some time later, in order, without holding up who gives it."""

    def __init__(self, sink: socket.socket, delay_s: float) -> None:
        self._sink = sink
        self._delay_s = delay_s
        self._waiting: list[tuple[float, int, bytes]] = []
        self._number = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def send(self, piece: bytes) -> None:
        with self._changed:
            self._number += 1
            heapq.heappush(self._waiting, (time.monotonic() + self._delay_s, self._number, piece))
            self._changed.notify()

    def close(self) -> None:
        self.send(b"")
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                due, _, piece = heapq.heappop(self._waiting)
            if not piece:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            with suppress(OSError):
                self._sink.sendall(piece)


@contextmanager
def proxy(target: int, latency_s: float = 0.0) -> Iterator[Proxy]:
    """A proxy to a port of this machine.

    :param latency_s: of a round trip.
    """
    running = Proxy(target, latency_s)
    try:
        yield running
    finally:
        running.close()
