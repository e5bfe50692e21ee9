"""Run a command on this machine in a separate process group, with a timeout and bounded output."""

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from anamnesis_pipeline.errors import LlmAnswerInvalid, LlmRefused, LlmUnavailable

MAX_OUTPUT_BYTES = 1_000_000
LOOK_S = 0.2
"""Seconds between checks whether a silent command still runs."""
PIECE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Outcome:
    """Output and exit status of a command. The texts are untrusted: never put them into an error."""

    stdout: str
    stderr: str
    status: int


def run_here(command: Sequence[str], text: str, environment: Mapping[str, str], timeout_s: float) -> Outcome:
    """Run `command` in an empty folder with `text` on its standard input.

    In every case all processes of its group are killed at the end.
    :raises LlmRefused: there is no such command, or it may not be run.
    :raises LlmUnavailable: it runs longer than `timeout_s`.
    :raises LlmAnswerInvalid: it writes more than MAX_OUTPUT_BYTES.
    """
    with tempfile.TemporaryDirectory(prefix="anamnesis-") as folder, tempfile.TemporaryFile() as stdin:
        stdin.write(text.encode("utf-8", "replace"))
        stdin.seek(0)
        try:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        except OSError as exc:
            raise LlmRefused(f"cannot run {command[0]!r} ({exc.strerror}); set claude_command to its path") from None
        with process:
            try:
                return _outcome(process, time.monotonic() + timeout_s, command[0])
            finally:
                _kill_group(process.pid)


def _outcome(process: subprocess.Popen[bytes], deadline: float, name: str) -> Outcome:
    written: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    with selectors.DefaultSelector() as pipes:
        assert process.stdout
        assert process.stderr
        pipes.register(process.stdout, selectors.EVENT_READ, "stdout")
        pipes.register(process.stderr, selectors.EVENT_READ, "stderr")
        while pipes.get_map():
            ready = pipes.select(LOOK_S)
            for key, _ in ready:
                piece = os.read(key.fd, PIECE_BYTES)
                written[key.data] += piece
                if not piece:
                    pipes.unregister(key.fileobj)
            if sum(map(len, written.values())) > MAX_OUTPUT_BYTES:
                raise LlmAnswerInvalid(f"{name} wrote more than {MAX_OUTPUT_BYTES:,} bytes and was ended")
            if time.monotonic() > deadline:
                raise LlmUnavailable(f"{name} did not end in time and was ended; raise summary_timeout_s if it is slow")
            if not ready and process.poll() is not None:
                break  # a child process still holds the pipes
    try:
        status = process.wait(max(deadline - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        raise LlmUnavailable(f"{name} did not end in time and was ended") from None
    return Outcome(written["stdout"].decode("utf-8", "replace"), written["stderr"].decode("utf-8", "replace"), status)


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
