"""Run a command on another host over SSH: pinned host keys, keys and agent of this user, bounded time and output."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import InvalidHostKey

from anamnesis_pipeline.errors import BadSetting, LlmAnswerInvalid, LlmRefused, LlmUnavailable
from anamnesis_pipeline.summaries.local_command import MAX_OUTPUT_BYTES, PIECE_BYTES, Outcome

CONNECT_TIMEOUT_S = 15.0
GRACE_S = 5.0
"""Seconds that the far end has to end the command itself before the connection is dropped."""
LOOK_S = 0.2
"""Seconds between two looks at the clock while the command is silent."""
MAX_JUMPS = 8
SSH_PORT = 22

_SCRIPT = """\
exec 3<&0
PATH="$HOME/.local/bin:$PATH:/usr/local/bin:/opt/homebrew/bin"
unset {unset}
{export}
cd /
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
"""Runs in a process group of its own, as sshd gives one to each command; `kill 0` ends whatever is left of it.

A shell that is no login shell lacks the folders that Claude's installers use. In `/` nobody else can leave a CLAUDE.md.
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to connect to, as the user's SSH configuration has it."""

    host: str
    port: int
    user: str | None
    key_files: tuple[str, ...] = ()
    jumps: tuple[str, ...] = ()


def parse_place(text: str) -> tuple[str | None, str, int | None]:
    """(user, host, port) of `host`, `user@host`, `user@host:port` or `user@[IPv6 address]:port`.

    :raises BadSetting: it is none of these.
    """
    user, _, rest = text.strip().rpartition("@")
    host, _, port = rest.rpartition(":") if rest.count(":") == 1 or "]:" in rest else (rest, "", "")
    host = host.strip("[]")
    if not host or any(c.isspace() for c in text.strip()) or host.startswith("-") or not (port or "1").isdigit():
        raise BadSetting(f"claude_host must be host, user@host or user@host:port, not {text!r}")
    return user or None, host, int(port) if port else None


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
    :param without: variables taken away there.
    :raises LlmRefused: the host's key is not known or has changed, or it lets nobody in.
    :raises LlmUnavailable: no connection, or the command runs for longer than `timeout_s`.
    :raises LlmAnswerInvalid: it writes more than MAX_OUTPUT_BYTES.
    """
    script = _SCRIPT.format(
        unset=" ".join(without),
        export="\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
        command=" ".join([_program(command[0]), *map(shlex.quote, command[1:])]),
        seconds=int(timeout_s) + 1,
    )
    try:
        with _connected(place) as client:
            return _run(client, f"exec sh -c {shlex.quote(script)}", text, timeout_s + GRACE_S, place)
    except paramiko.BadHostKeyException:
        raise LlmRefused(
            f"the host key of {place} is not the one in ~/.ssh/known_hosts; find out why before you replace it with "
            "`ssh-keygen -R`"
        ) from None
    except paramiko.AuthenticationException:
        raise LlmRefused(f"{place} lets nobody in with the keys at hand; check that `ssh {place}` works") from None
    except paramiko.ConfigParseError:
        raise LlmRefused("~/.ssh/config cannot be read; `ssh -G` says where it is wrong") from None
    except (paramiko.SSHException, OSError, EOFError) as exc:
        raise LlmUnavailable(f"no SSH connection with {place} ({type(exc).__name__}); try again later") from None


def _program(word: str) -> str:
    """A program's name, quoted; a `~` at its start is the far user's home."""
    return f'"$HOME"/{shlex.quote(word[2:])}' if word.startswith("~/") else shlex.quote(word)


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        del client
        host, _, port = hostname.strip("[").partition("]:")
        raise LlmRefused(
            f"the host key of {hostname} is not known ({key.fingerprint}); check it, then add it with "
            f"`ssh-keyscan -p {port or SSH_PORT} {host} >> ~/.ssh/known_hosts`"
        )


@contextmanager
def _connected(place: str) -> Iterator[paramiko.SSHClient]:
    """A connection to `place`, through the hosts that the user's `ProxyJump` names."""
    config_file = Path.home() / ".ssh" / "config"
    config = paramiko.SSHConfig.from_path(str(config_file)) if config_file.is_file() else paramiko.SSHConfig()
    route = _route(place, config)
    with ExitStack() as stack:
        channel = None
        client = None
        for target in route:
            if client is not None:
                transport = client.get_transport()
                channel = transport.open_channel(
                    "direct-tcpip", (target.host, target.port), ("127.0.0.1", 0), timeout=CONNECT_TIMEOUT_S
                )
            client = stack.enter_context(_client())
            _connect(client, target, channel)
        yield client


def _route(place: str, config: Any, depth: int = 0) -> list[Place]:
    """The hosts to pass, `place` last. As with OpenSSH, only the first of several jumps may have jumps of its own."""
    if depth > MAX_JUMPS:
        raise LlmRefused(f"the way to {place} has too many hosts; see ProxyJump in ~/.ssh/config")
    target = _look_up(place, config)
    hops = [_route(target.jumps[0], config, depth + 1)] if target.jumps else []
    hops += [[_look_up(jump, config)] for jump in target.jumps[1:]]
    return [*(hop for way in hops for hop in way), target]


def _look_up(place: str, config: Any) -> Place:
    user, alias, port = parse_place(place)
    found = config.lookup(alias)
    if found.get("proxycommand", "none") != "none":
        raise LlmRefused(f"~/.ssh/config has a ProxyCommand for {alias}, which is not supported; use ProxyJump")
    jump = found.get("proxyjump", "none")
    return Place(
        found["hostname"],
        port or int(found.get("port", SSH_PORT)),
        user or found.get("user"),
        tuple(f for f in found.get("identityfile", ()) if Path(f).is_file()),
        () if jump == "none" else tuple(piece.strip() for piece in jump.split(",")),
    )


def _client() -> Any:
    client = paramiko.SSHClient()
    known = Path.home() / ".ssh" / "known_hosts"
    for path in (known, Path("/etc/ssh/ssh_known_hosts")):
        try:
            if path.is_file():
                client.load_system_host_keys(str(path))
        except (InvalidHostKey, ValueError, IndexError):  # what paramiko raises depends on where a line is torn
            raise LlmRefused(
                f"{path} has a line that is no host key; `ssh-keygen -l -f {path}` shows the others"
            ) from None
    client.set_missing_host_key_policy(_RefuseUnknown())
    return client


def _connect(client: Any, target: Place, channel: Any) -> None:
    client.connect(
        target.host,
        target.port,
        target.user,
        key_filename=list(target.key_files) or None,
        sock=channel,
        timeout=CONNECT_TIMEOUT_S,
        banner_timeout=CONNECT_TIMEOUT_S,
        auth_timeout=CONNECT_TIMEOUT_S,
        channel_timeout=CONNECT_TIMEOUT_S,
    )


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
    """All that the command writes, until it closes its standard output."""
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
