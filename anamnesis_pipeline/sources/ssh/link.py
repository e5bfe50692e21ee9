"""One SSH connection to a host: reused, shared by threads, reopened when it broke off, dropped when it stalls."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import paramiko

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, NoSftp
from anamnesis_pipeline.sources.base import CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from anamnesis_pipeline.sources.ssh.connection import connected, translated

IDLE_S = 900.0
"""Seconds after which an idle connection is closed: three ticks by default."""
KEEPALIVE_S = 30
MAX_CHANNELS = 8
"""sshd allows ten sessions on a connection by default."""
LOOK_S = 0.25
"""Seconds between two checks for overdue operations."""


def no_sftp(place: str) -> NoSftp:
    """Return the error for a host that serves no files by SFTP and has no shell for it."""
    return NoSftp(
        f"the SFTP subsystem of {place} does not answer, nor does a shell with GNU find; enable `Subsystem sftp "
        "internal-sftp` in its sshd_config"
    )


class Borrower(Protocol):
    """What keeps channels of a link open for its next use."""

    def close(self) -> None:
        """Close the channels that are not in use."""


class SshLink:
    """The only connection of this process to a host, opened on demand."""

    def __init__(
        self,
        place: str,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """:param place: as `ssh` takes it: a host, `user@host:port` or a name in `~/.ssh/config`.
        :param connect_timeout_s: for connecting, greeting, login and each new channel.
        :param read_timeout_s: for each piece of an answer.
        """
        self.place = place
        self.read_timeout_s = read_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CHANNELS)
        self._open: _Connection | None = None
        self.borrowers: list[Borrower] = []
        self._failed: tuple[float, HostRefused | HostUnreachable] | None = None

    @contextmanager
    def channel(self, command: str, timeout_s: float) -> Iterator[Any]:
        """Open a channel that runs a command, and close it at the end. Errors while it is open are translated.

        :param timeout_s: for the whole block; the connection is dropped then, since a stalled server answers no client.
        :raises HostRefused: the host's key is not the known one, or login is refused.
        :raises HostUnreachable: no connection, or it stalls or breaks off.
        """
        with self._slots:
            connection, channel = self._started(command)
            try:
                with self.using(connection, timeout_s):
                    yield channel
            finally:
                channel.close()

    def open_channel(self, command: str | None) -> tuple["_Connection", Any]:
        """Open a channel that runs a command, or SFTP without one, and return (its connection, itself). Close it by
        `close_channel`.

        :raises NoSftp: the host has no SFTP.
        """
        if not self._slots.acquire(timeout=self._connect_timeout_s):
            raise HostUnreachable(f"{self.place} is busy with {MAX_CHANNELS} transfers; try again later")
        try:
            return self._started(command)
        except BaseException:
            self._slots.release()
            raise

    def close_channel(self, channel: Any) -> None:
        """Close a channel from `open_channel`."""
        channel.close()
        self._slots.release()

    def make_room(self) -> None:
        """Close the channels that are open but not in use."""
        for borrower in self.borrowers:
            borrower.close()

    def close(self) -> None:
        """Close the connection. The next call connects again."""
        self.make_room()
        with self._lock:
            connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    def _started(self, command: str | None) -> tuple["_Connection", Any]:
        connection, is_fresh = self._connection()
        try:
            return connection, self._channel(connection, command)
        except HostUnreachable:
            if is_fresh or connection.is_alive:
                raise
        connection, _ = self._connection()  # the reused connection had died unnoticed
        return connection, self._channel(connection, command)

    def _channel(self, connection: "_Connection", command: str | None) -> Any:
        with self.using(connection, self._connect_timeout_s):
            deadline = time.monotonic() + self._connect_timeout_s / 2
            while True:  # on a host with a session limit, until another session ends
                try:
                    channel = connection.transport.open_session(timeout=self._connect_timeout_s)
                    break
                except paramiko.ChannelException:
                    self.make_room()
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(LOOK_S)
            try:
                channel.settimeout(self.read_timeout_s)
                if command is not None:
                    channel.exec_command(command)
                    return channel
                try:
                    channel.invoke_subsystem("sftp")
                except paramiko.SSHException as problem:
                    if channel.get_transport().is_active() and str(problem) == "Channel closed.":
                        raise no_sftp(self.place) from None
                    raise
            except BaseException:
                channel.close()
                raise
            return channel

    @contextmanager
    def using(self, connection: "_Connection", timeout_s: float) -> Iterator[None]:
        """Translate errors on a channel of `connection`; the connection is dropped after `timeout_s`.

        :raises HostUnreachable: it stalls or breaks off.
        """
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
        """Return (connection, whether it was just made). Threads that wait for a failed attempt share its outcome."""
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
    """An open connection, and a thread that closes it when an operation is overdue or the connection is idle.

    paramiko waits without a limit for some answers, and for space to send; closing the connection ends that.
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
        """Return whether it can still be used, as far as is known locally."""
        return not self._closed.is_set() and bool(self.transport.is_active())

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Close the connection if the block takes longer."""
        key = object()
        self._deadlines[key] = time.monotonic() + seconds
        try:
            yield
        finally:
            self._used = time.monotonic()
            self._deadlines.pop(key, None)

    def close(self) -> None:
        """Close the connection, here and at each jump host."""
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
