"""Connect over SSH as this user's own `ssh` would: pinned host keys, keys and agent, `~/.ssh/config`, jump hosts."""

import glob
import logging
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import InvalidHostKey
from paramiko.ssh_exception import NoValidConnectionsError

from anamnesis_pipeline.errors import HostRefused, HostUnreachable
from anamnesis_pipeline.sources.specs import parse_place

DEEPEST = 16
"""Max depth of includes; OpenSSH's own limit."""


def user_config() -> Any:
    """Return the configuration as a `paramiko.SSHConfig`; empty if there is no file.

    :raises HostRefused: it includes itself. Errors of paramiko are for `ssh_connection.translated`.
    """
    return paramiko.SSHConfig.from_text("\n".join(_lines(Path.home() / ".ssh" / "config", 0)))


def _lines(file: Path, depth: int) -> Iterator[str]:
    """Yield the lines of a file, with included files in place. A missing file has none."""
    if depth > DEEPEST:
        raise HostRefused(f"the files that ~/.ssh/config includes are more than {DEEPEST} deep, lastly {file}")
    if not file.is_file():
        return
    block = "Host *"
    for line in file.read_text(errors="replace").splitlines():
        word, _, rest = line.strip().replace("=", " ", 1).partition(" ")
        if word.lower() != "include":
            block = line if word.lower() in ("host", "match") else block
            yield line
            continue
        home = Path.home()
        for pattern in shlex.split(rest):  # relative paths start in `~/.ssh`
            path = pattern.replace("~", str(home), 1) if pattern.startswith("~/") else pattern
            for included in sorted(glob.glob(str(home / ".ssh" / path))):
                yield from _lines(Path(included), depth + 1)
        yield block  # a block opened by an included file ends with it


CONNECT_TIMEOUT_S = 15.0
MAX_JUMPS = 8
SSH_PORT = 22

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # errors are raised; print no traceback on a terminal


@dataclass(frozen=True, slots=True)
class Place:
    """A target host according to the user's SSH configuration."""

    host: str
    port: int
    user: str | None
    key_files: tuple[str, ...] = ()
    jumps: tuple[str, ...] = ()


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Translate connection errors with `place` into our own.

    :raises HostRefused: the host key is unknown or has changed, login failed, or a file of `~/.ssh` is broken.
    :raises HostUnreachable: no connection, or it stalls or breaks off.
    """
    try:
        yield
    except paramiko.BadHostKeyException:
        raise HostRefused(
            f"the host key of {place} is not the one in ~/.ssh/known_hosts; find out why before you replace it with "
            "`ssh-keygen -R`"
        ) from None
    except paramiko.PasswordRequiredException:
        raise HostRefused(
            f"the key for {place} has a passphrase, and there is no terminal to type it; start Anamnesis with an SSH "
            "agent that holds the key (`ssh-add`)"
        ) from None
    except paramiko.AuthenticationException:
        raise HostRefused(f"{place} refuses the available keys; check that `ssh {place}` works") from None
    except paramiko.ConfigParseError:
        raise HostRefused("~/.ssh/config cannot be read; `ssh -G` says where it is wrong") from None
    except socket.gaierror:
        raise HostUnreachable(
            f"no SSH connection with {place}: no machine has that name; check it, or HostName in ~/.ssh/config"
        ) from None
    except (ConnectionRefusedError, NoValidConnectionsError):
        raise HostUnreachable(
            f"no SSH connection with {place}: nothing answers at its port; check that sshd runs there, and the port"
        ) from None
    except (paramiko.SSHException, OSError, EOFError) as exc:
        # the text of an OS error; of any other only its type, since its text is untrusted
        reason = (isinstance(exc, OSError) and (exc.strerror or str(exc))) or type(exc).__name__
        raise HostUnreachable(f"no SSH connection with {place} ({reason}); try again later") from None


@contextmanager
def connected(place: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Iterator[Any]:
    """Yield a connection to `place`, through the user's `ProxyJump` hosts, as a `paramiko.SSHClient`.

    :param timeout_s: for each of: connection, greeting, login, of each host on the way.
    :raises HostRefused: the route is not usable as configured. Errors of paramiko are for `translated`.
    """
    route = _route(place, user_config())
    with ExitStack() as stack:
        channel = None
        client = None
        for target in route:
            if client is not None:
                transport = client.get_transport()
                channel = transport.open_channel(
                    "direct-tcpip", (target.host, target.port), ("127.0.0.1", 0), timeout=timeout_s
                )
            client = stack.enter_context(_client())
            client.connect(
                target.host,
                target.port,
                target.user,
                key_filename=list(target.key_files) or None,
                sock=channel,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
            )
        yield client


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        del client
        host, _, port = hostname.strip("[").partition("]:")
        raise HostRefused(
            f"the host key of {hostname} is not known ({key.fingerprint}); check it, then add it with "
            f"`ssh-keyscan -p {port or SSH_PORT} {host} >> ~/.ssh/known_hosts`"
        )


def _route(place: str, config: Any, depth: int = 0) -> list[Place]:
    """Return the hosts on the route, `place` last. As in OpenSSH, only the first jump may have further jumps."""
    if depth > MAX_JUMPS:
        raise HostRefused(f"the way to {place} has too many hosts; see ProxyJump in ~/.ssh/config")
    target = _look_up(place, config)
    hops = [_route(target.jumps[0], config, depth + 1)] if target.jumps else []
    hops += [[_look_up(jump, config)] for jump in target.jumps[1:]]
    return [*(hop for way in hops for hop in way), target]


def _look_up(place: str, config: Any) -> Place:
    user, alias, port = parse_place(place)
    found = config.lookup(alias)
    if found.get("proxycommand", "none") != "none":
        raise HostRefused(f"~/.ssh/config has a ProxyCommand for {alias}, which is not supported; use ProxyJump")
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
        except (InvalidHostKey, ValueError, IndexError):  # the error depends on where a line is torn
            raise HostRefused(
                f"{path} has a line that is no host key; `ssh-keygen -l -f {path}` shows the others"
            ) from None
    client.set_missing_host_key_policy(_RefuseUnknown())
    return client
