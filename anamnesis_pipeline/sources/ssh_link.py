"""One SSH connection to a host: kept, shared by threads, opened anew when it broke off, given up when it stalls."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import paramiko

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, NoSftp
from anamnesis_pipeline.sources.base import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from anamnesis_pipeline.ssh_connection import connected, translated

IDLE_S = 900.0
"""A connection that nobody used for so long is closed: three ticks, as they are by default."""
KEEPALIVE_S = 30
MAX_CHANNELS = 8
"""sshd allows ten sessions on a connection unless it is told otherwise."""
LOOK_S = 0.25
"""Seconds between two looks at what is overdue."""


def no_sftp(place: str) -> NoSftp:
    """What to say of a host that serves no files, and has no shell that could."""
    return NoSftp(
        f"the SFTP subsystem of {place} does not answer, nor does a shell with GNU find; enable `Subsystem sftp "
        "internal-sftp` in its sshd_config"
    )


class SshLink:
    """The one connection of this process to a host, opened when it is needed."""

    def __init__(
        self, place: str, *, connect_timeout_s: float = CONNECT_TIMEOUT_S, read_timeout_s: float = READ_TIMEOUT_S,
        idle_s: float = IDLE_S,
    ) -> None:  # fmt: skip
        """:param place: as `ssh` takes it: a host, `user@host:port` or a name of `~/.ssh/config`.

        :param connect_timeout_s: for connecting, greeting, log-in and each new channel.
        :param read_timeout_s: for each piece of an answer.
        """
        self.place = place
        self.read_timeout_s = read_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CHANNELS)
        self._open: _Connection | None = None
        self.make_room: Callable[[], None] = lambda: None
        """Called where the host opens no more sessions: closes those that nobody uses."""
        self._failed: tuple[float, HostRefused | HostUnreachable] | None = None

    @contextmanager
    def channel(self, start: Callable[[Any], None], timeout_s: float) -> Iterator[Any]:
        """A new channel, closed at the end. All that goes wrong while it is open is translated.

        :param start: what to do with it first, such as to run a command.
        :param timeout_s: for all of it; the connection is dropped then, since a server that stalls answers nobody.
        :raises HostRefused: the host's key is not the known one, or it lets nobody in.
        :raises HostUnreachable: no connection, or it stalls or breaks off.
        """
        with self._slots:
            connection, channel = self._started(start)
            try:
                with self._bounded(connection, timeout_s):
                    yield channel
            finally:
                channel.close()

    def open_channel(self, start: Callable[[Any], None]) -> tuple["_Connection", Any]:
        """A channel that is kept: (its connection, itself). It is closed by `close_channel`."""
        if not self._slots.acquire(timeout=self._connect_timeout_s):
            raise HostUnreachable(f"{self.place} is busy with {MAX_CHANNELS} transfers; try again later")
        try:
            return self._started(start)
        except BaseException:
            self._slots.release()
            raise

    def start_sftp(self, channel: Any) -> None:
        """Have a new channel speak SFTP.

        :raises HostRefused: the host has none.
        """
        try:
            channel.invoke_subsystem("sftp")
        except paramiko.SSHException as problem:
            if channel.get_transport().is_active() and str(problem) == "Channel closed.":
                raise no_sftp(self.place) from None
            raise

    def close_channel(self, channel: Any) -> None:
        """Close a channel that `open_channel` gave."""
        channel.close()
        self._slots.release()

    @contextmanager
    def using(self, connection: "_Connection", timeout_s: float) -> Iterator[None]:
        """What goes wrong with a channel of `connection`, translated; the connection is dropped if it takes longer.

        :raises HostUnreachable: it stalls or breaks off.
        """
        with self._bounded(connection, timeout_s):
            yield

    def close(self) -> None:
        """Hang up. The next call connects again."""
        with self._lock:
            connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def _started(self, start: Callable[[Any], None]) -> tuple["_Connection", Any]:
        connection, is_fresh = self._connection()
        try:
            return connection, self._start(connection, start)
        except HostUnreachable:
            if is_fresh or connection.is_alive:
                raise
        connection, _ = self._connection()  # the one that was kept had died unseen
        return connection, self._start(connection, start)

    def _start(self, connection: "_Connection", start: Callable[[Any], None]) -> Any:
        with self._bounded(connection, self._connect_timeout_s):
            channel = self._session(connection)
            try:
                channel.settimeout(self.read_timeout_s)
                start(channel)
            except BaseException:
                channel.close()
                raise
            return channel

    def _session(self, connection: "_Connection") -> Any:
        """A new session, where the host allows only a few as soon as another one is gone."""
        deadline = time.monotonic() + self._connect_timeout_s / 2
        while True:
            try:
                return connection.transport.open_session(timeout=self._connect_timeout_s)
            except paramiko.ChannelException:
                self.make_room()
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_S)

    @contextmanager
    def _bounded(self, connection: "_Connection", timeout_s: float) -> Iterator[None]:
        try:
            with translated(self.place), connection.within(timeout_s):
                yield
        except HostUnreachable as problem:
            cause = problem.__context__
            if isinstance(cause, paramiko.ChannelException) and connection.transport.is_active():
                raise HostUnreachable(
                    f"{self.place} opens no more sessions; see MaxSessions in its sshd_config"
                ) from None
            connection.close()
            if connection.is_overdue or isinstance(cause, TimeoutError):
                raise HostUnreachable(f"{self.place} stopped answering; try again later") from None
            raise

    def _connection(self) -> tuple["_Connection", bool]:
        """The connection, and whether it was just made. Who waited for another's vain attempt shares its outcome."""
        asked = time.monotonic()
        with self._lock:
            if self._open is not None and self._open.is_alive:
                return self._open, False
            if self._failed is not None and self._failed[0] > asked:
                raise type(self._failed[1])(str(self._failed[1]))
            if self._open is not None:
                self._open.close()
            try:
                with translated(self.place):
                    self._open = _Connection(self.place, self._connect_timeout_s, self._idle_s)
            except (HostRefused, HostUnreachable) as problem:
                self._failed = time.monotonic(), problem
                raise
            return self._open, True


class _Connection:
    """An open connection, and a thread that hangs up when something on it is overdue or nobody uses it any more.

    paramiko waits for ever for some answers, and for room to send; hanging up ends all that waiting.
    """

    def __init__(self, place: str, timeout_s: float, idle_s: float) -> None:
        self._stack = ExitStack()
        client = self._stack.enter_context(connected(place, timeout_s))
        self.transport = client.get_transport()
        self.transport.set_keepalive(KEEPALIVE_S)
        self.is_overdue = False
        self._idle_s = idle_s
        self._deadlines: dict[object, float] = {}
        self._used = time.monotonic()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name=f"ssh {place}", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether it can still be used, as far as is known here."""
        return not self._closed.is_set() and bool(self.transport.is_active())

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Hang up if this takes longer."""
        key = object()
        self._deadlines[key] = time.monotonic() + seconds
        try:
            yield
        finally:
            self._used = time.monotonic()
            self._deadlines.pop(key, None)

    def close(self) -> None:
        """Hang up, here and at each host on the way."""
        if not self._closed.is_set():
            self._closed.set()
            self._stack.close()

    def _watch(self) -> None:
        while not self._closed.wait(LOOK_S):
            now = time.monotonic()
            deadlines = list(self._deadlines.values())
            self.is_overdue = self.is_overdue or any(deadline < now for deadline in deadlines)
            if self.is_overdue or not self.transport.is_active() or (not deadlines and now - self._used > self._idle_s):
                self.close()
