"""A shell on a remote host, reused for each script: one round trip, no login. It reads files where SFTP is absent."""

import math
import secrets
import shlex
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anamnesis_pipeline.errors import HostUnreachable, SourceMissing, SourceUnreadable
from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of
from anamnesis_pipeline.sources.ssh.link import SshLink, no_sftp
from anamnesis_pipeline.sources.ssh.sftp import Attributes

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
        link.borrowers.append(self)

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
            self._kept = self._link.open_channel("exec sh")
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
    """Receive the output of a script.

    :raises EOFError: the connection broke off.
    """
    stdout, stderr = bytearray(), bytearray()
    arrived = 0.0
    channel.settimeout(LOOK_S)
    while not stdout.endswith(end):
        try:
            piece = bytes(channel.recv(1 << 18))
        except TimeoutError:  # none arrived for a moment
            piece = None
        arrived = arrived or (time.time() if piece else 0.0)
        stdout += piece or b""
        while channel.recv_stderr_ready():
            _complain(stderr, channel.recv_stderr(1 << 16))
        if piece == b"":  # the shell ended: the host has none, or the connection broke off
            channel.status_event.wait(1)
            if channel.exit_status < 0:
                raise EOFError
            return Ran(bytes(stdout), bytes(stderr), time.time(), math.inf)
        if len(stdout) > MAX_ANSWER_BYTES:
            raise HostUnreachable("the host lists more than a million files; give the source a narrower root")
    channel.settimeout(None)
    while not stderr.endswith(end) and (piece := channel.recv_stderr(1 << 16)):
        _complain(stderr, piece)
    said, complained = bytes(stdout.removesuffix(end)), bytes(stderr.removesuffix(end))
    return Ran(said, complained, (sent + arrived) / 2, arrived - sent)


def _complain(stderr: bytearray, piece: bytes) -> None:
    stderr += piece
    del stderr[MAX_COMPLAINT_BYTES:-100]  # the end is parsed


RANGE_BYTES = 16 << 20
"""Size of one answer."""
_LOOK = """\
LC_ALL=C; export LC_ALL; cd /; printf %s {token}
if [ -d "$F" ]; then printf d
elif [ -f "$F" ]; then if [ -r "$F" ]; then printf f; else printf p; fi
elif [ -e "$F" ]; then printf o
else P=$F
  while [ ! -d "$P" ]; do P=${{P%/*}}; P=${{P:-/}}; done
  if [ -x "$P" ]; then printf m; else printf p; fi
fi
"""
_SIZE = """\
if [ -f "$F" ] && [ -r "$F" ]; then printf '%s\\0' "$(stat -L -c %s "$F" 2>/dev/null || wc -c <"$F")"; fi
"""
_REAL = """printf '%s' "$(readlink -m "$F" 2>/dev/null || readlink -f "$F")" """
_REASONS = {
    "m": "no such file or directory",
    "p": "permission denied",
    "o": "not a regular file",
    "d": "it is a folder",
}


class ShellFiles:
    """Files by the shell of a host. Thread-safe; threads wait for each other.

    Every method may also raise `HostUnreachable`, and `HostRefused` if there is no shell either.
    """

    def __init__(self, link: SshLink, timeout_s: float) -> None:
        """:param timeout_s: for each answer."""
        self._link = link
        self._timeout_s = timeout_s
        self._shell = SshShell(link)

    def stat(self, path: str) -> Attributes:
        """Return the attributes of a file or folder, or of a link's target, without the time and without a file's size.

        :raises SourceMissing: nothing is there.
        :raises SourceUnreadable: it cannot be seen.
        """
        kind, answer = self._asked(path, _SIZE)
        size, _, _ = answer.partition(b"\0")
        if kind in {"m", "p"}:
            raise _problem(path, kind)
        modes = {"d": stat.S_IFDIR, "f": stat.S_IFREG}
        return Attributes(self._number(path, size) if kind == "f" else 0, modes.get(kind, stat.S_IFIFO), 0)

    def real_path(self, path: str) -> str:
        """Return the absolute path without links and dots, even if nothing is there.

        :raises SourceUnreadable: the host does not answer.
        """
        _, found = self._asked(path, _REAL)
        if not found.startswith(b"/"):
            raise _problem(path, "m")
        return name_of(found)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return at most `length` bytes of a regular file; fewer only at its end.

        :raises SourceUnreadable: it is missing, not a regular file, or cannot be read.
        """
        pieces: list[bytes] = []
        while length > 0:
            wanted = min(length, RANGE_BYTES)
            kind, answer = self._asked(path, f'{_SIZE}[ -f "$F" ] && tail -c +{offset + 1} "$F" | head -c {wanted}')
            if kind != "f":
                raise _problem(path, kind)
            size, _, data = answer.partition(b"\0")
            if len(data) < min(wanted, self._number(path, size) - offset):
                raise self._without_tools(path)
            pieces.append(data)
            offset, length = offset + len(data), length - len(data)
            if len(data) < wanted:
                break
        return b"".join(pieces)

    def _number(self, path: str, size: bytes) -> int:
        if not size.strip().isdigit():
            raise self._without_tools(path)
        return int(size)

    def _without_tools(self, path: str) -> SourceUnreadable:
        """Return the error for a file that shrank, or for missing tools: neither must count as the file's end."""
        return SourceUnreadable(
            f"cannot read the file {path} whole: {self._link.place} has no SFTP, and its shell needs stat, tail and "
            "head; if it has these, the next crawl reads it"
        )

    def _asked(self, path: str, command: str) -> tuple[str, bytes]:
        """Return (type of the path, output of the command). Types: `d` folder, `f` file, `o` other, `m` missing, `p` no
        permission. In the command, `$F` is the path.
        """
        token = secrets.token_hex(8)
        quoted = b"'" + bytes_of(path).replace(b"'", b"'\"'\"'") + b"'"
        script = b"F=" + quoted + b"\n" + _LOOK.format(token=token).encode() + command.encode()
        answer = self._shell.run(script, token, self._timeout_s).stdout
        begin = answer.find(token.encode())
        if begin < 0:
            raise no_sftp(self._link.place)
        said = answer[begin + len(token) :]
        if not said:
            raise HostUnreachable(f"{self._link.place} broke off in the middle of its answer; try again later")
        return said[:1].decode("ascii", "replace"), said[1:]


def _problem(path: str, kind: str) -> SourceUnreadable:
    problem = SourceMissing if kind == "m" else SourceUnreadable
    return problem(
        f"cannot read the file {path}: {_REASONS.get(kind, 'the host says no')}; check the path and that this user may "
        "read it"
    )
