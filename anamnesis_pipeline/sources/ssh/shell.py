"""A shell on a remote host, reused for each script: one round trip, no login."""

import math
import shlex
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anamnesis_pipeline.errors import HostUnreachable
from anamnesis_pipeline.sources.ssh.link import SshLink

MAX_ANSWER_BYTES = 256 << 20
"""Enough for a million files. A larger answer is no listing of documents."""
MAX_COMPLAINT_BYTES = 1 << 20
LOOK_S = 0.2
"""Seconds between two reads of the standard error of a silent command."""


@dataclass(frozen=True, slots=True)
class Ran:
    """The output of a script; `at_s`: local time half way between sending it and its first word; `round_trip_s`: the
    seconds between both.
    """

    stdout: bytes
    stderr: bytes
    at_s: float
    round_trip_s: float


class SshShell:
    """One shell at a time. Thread-safe; threads wait for each other."""

    def __init__(self, link: SshLink) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._kept: tuple[Any, Any] | None = None

    def run(self, script: bytes, token: str, timeout_s: float) -> Ran:
        """Run a script with empty standard input.

        :param token: letters that it writes only at the start.
        :returns: output without the token if no shell ran it, e.g. if only SFTP is allowed.
        :raises HostUnreachable: no connection, or it takes longer than `timeout_s`.
        """
        with self._lock:
            if self._kept is not None and self._kept[0].is_alive:
                try:
                    ran = self._ran(*self._kept, script, token, timeout_s)
                    if token.encode() in ran.stdout:
                        return ran
                except HostUnreachable:
                    if self._kept[0].is_overdue:
                        self._drop()
                        raise
            self._drop()
            self._kept = self._link.open_channel(lambda channel: channel.exec_command("exec sh"))
            try:
                ran = self._ran(*self._kept, script, token, timeout_s)
            except BaseException:
                self._drop()
                raise
            if token.encode() not in ran.stdout:
                self._drop()
            return ran

    def close(self) -> None:
        """End the shell, unless it is busy."""
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _drop(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            self._link.close_channel(kept[1])

    def _ran(self, connection: Any, channel: Any, script: bytes, token: str, timeout_s: float) -> Ran:
        end = f"{token}.end\n"
        ending = f"\n) </dev/null; printf %s {shlex.quote(end)} >&2; printf %s {shlex.quote(end)}\n"
        with self._link.using(connection, timeout_s):
            sent = time.time()
            channel.settimeout(None)
            with suppress(OSError):  # a forced command may have ended already: its output shows why
                channel.sendall(b"(\n" + script + ending.encode())
            return _answer(channel, end.encode(), sent)


def _answer(channel: Any, end: bytes, sent: float) -> Ran:
    stdout, stderr = bytearray(), bytearray()
    arrived = 0.0
    channel.settimeout(LOOK_S)
    while not stdout.endswith(end):
        piece = _received(channel)
        arrived = arrived or (time.time() if piece else 0.0)
        stdout += piece or b""
        while channel.recv_stderr_ready():
            _complain(stderr, channel.recv_stderr(1 << 16))
        if piece == b"":
            return _cut_off(channel, bytes(stdout), bytes(stderr))
        if len(stdout) > MAX_ANSWER_BYTES:
            raise HostUnreachable("the host lists more than a million files; give the source a narrower root")
    channel.settimeout(None)
    while not stderr.endswith(end) and (piece := channel.recv_stderr(1 << 16)):
        _complain(stderr, piece)
    said, complained = bytes(stdout.removesuffix(end)), bytes(stderr.removesuffix(end))
    return Ran(said, complained, (sent + arrived) / 2, arrived - sent)


def _received(channel: Any) -> bytes | None:
    """Return the received bytes; empty at the end; None: none arrived for a moment."""
    try:
        return bytes(channel.recv(1 << 18))
    except TimeoutError:
        return None


def _complain(stderr: bytearray, piece: bytes) -> None:
    stderr += piece
    del stderr[MAX_COMPLAINT_BYTES:-100]  # the end is parsed


def _cut_off(channel: Any, stdout: bytes, stderr: bytes) -> Ran:
    """Handle a shell that ended: the host has none, or the connection broke off.

    :raises EOFError: it broke off.
    """
    channel.status_event.wait(1)
    if channel.exit_status < 0:
        raise EOFError
    return Ran(stdout, stderr, time.time(), math.inf)
