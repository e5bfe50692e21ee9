"""Run a command on another host over SSH, with bounded time and output."""

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

from anamnesis_pipeline.errors import HostRefused, HostUnreachable, LlmAnswerInvalid, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.local_command import MAX_OUTPUT_BYTES, PIECE_BYTES, Outcome
from anamnesis_pipeline.sources.ssh.connection import CONNECT_TIMEOUT_S, connected, translated

GRACE_S = 5.0
"""Seconds for the remote side to end the command before the connection is dropped."""
LOOK_S = 0.2
"""Seconds between checks of the deadline while the command is silent."""

_SCRIPT = """\
exec 3<&0
{surroundings}
{command} <&3 3<&- &
command=$!
(exec 3<&- >/dev/null 2>&1; sleep {seconds}; trap '' TERM; kill -TERM 0; sleep 2; kill -KILL 0) &
exec 3<&-
wait $command
status=$?
trap '' TERM
kill -TERM 0
exit $status
"""
"""Runs in a separate process group, as sshd starts each command; `kill 0` ends all that is left of it."""
_SURROUNDINGS = """\
PATH="$HOME/.local/bin:$PATH:/usr/local/bin:/opt/homebrew/bin"
unset {unset}
{export}
cd /"""
"""A non-login shell lacks the folders of Claude's installers. No other user can leave a CLAUDE.md in `/`."""


def run_there(
    place: str,
    command: Sequence[str],
    text: str,
    timeout_s: float,
    *,
    environment: Mapping[str, str],
    without: Sequence[str],
) -> Outcome:
    """Run `command` on the host `place` with `text` on its standard input.

    :param environment: variables added there.
    :param without: variables removed there.
    :raises LlmRefused: the host key is unknown or has changed, or login failed.
    :raises LlmUnavailable: no connection, or the command runs longer than `timeout_s`.
    :raises LlmAnswerInvalid: it writes more than MAX_OUTPUT_BYTES.
    """
    script = _SCRIPT.format(
        surroundings=surroundings(environment, without),
        command=quoted(command),
        seconds=int(timeout_s) + 1,
    )
    try:
        with translated(place), connected(place) as client:
            return _run(client, f"exec sh -c {shlex.quote(script)}", text, timeout_s + GRACE_S, place)
    except HostRefused as problem:
        raise LlmRefused(str(problem)) from None
    except HostUnreachable as problem:
        raise LlmUnavailable(str(problem)) from None


def surroundings(environment: Mapping[str, str], without: Sequence[str]) -> str:
    """Return the beginning of a script that runs a command there. Pure.

    :param environment: variables added.
    :param without: variables removed.
    """
    export = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    return _SURROUNDINGS.format(unset=" ".join(without), export=export)


def quoted(command: Sequence[str]) -> str:
    """Return a command quoted for a remote shell. Pure."""
    return " ".join([_program(command[0]), *map(shlex.quote, command[1:])])


def _program(word: str) -> str:
    """Return a program's name, quoted; a `~` at its start is the remote user's home."""
    return f'"$HOME"/{shlex.quote(word[2:])}' if word.startswith("~/") else shlex.quote(word)


def _run(client: Any, command: str, text: str, timeout_s: float, place: str) -> Outcome:
    deadline = time.monotonic() + timeout_s
    with client.get_transport().open_session(timeout=CONNECT_TIMEOUT_S) as channel:
        channel.settimeout(timeout_s)
        channel.exec_command(command)
        channel.sendall(text.encode("utf-8", "replace"))
        channel.shutdown_write()
        channel.settimeout(LOOK_S)
        stdout, stderr = _read(channel, deadline, place)
        channel.status_event.wait(max(deadline - time.monotonic(), 0.1))
        status = channel.exit_status
    if status < 0:  # ended by a signal, or the connection broke
        raise LlmUnavailable(f"the command on {place} was ended, or the connection broke off; try again later")
    return Outcome(stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"), status)


def _read(channel: Any, deadline: float, place: str) -> tuple[bytes, bytes]:
    """Return all output of the command, until it closes its standard output."""
    stdout, stderr = bytearray(), bytearray()
    open_end = True
    while open_end:
        try:
            piece = channel.recv(PIECE_BYTES)
            stdout += piece
            open_end = bool(piece)
        except TimeoutError:
            pass  # nothing for a moment
        while channel.recv_stderr_ready():
            stderr += channel.recv_stderr(PIECE_BYTES)
        if len(stdout) + len(stderr) > MAX_OUTPUT_BYTES:
            raise LlmAnswerInvalid(f"the command on {place} wrote more than {MAX_OUTPUT_BYTES:,} bytes")
        if time.monotonic() > deadline:
            raise LlmUnavailable(f"the command on {place} did not end in time; raise summary_timeout_s if it is slow")
    return bytes(stdout), bytes(stderr)
