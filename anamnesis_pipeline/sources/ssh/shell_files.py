"""Files of a remote host by its shell, where it has no SFTP: stat one, and read ranges."""

import secrets
import stat

from anamnesis_pipeline.errors import HostUnreachable, SourceMissing, SourceUnreadable
from anamnesis_pipeline.parsing.text.file_names import bytes_of, name_of
from anamnesis_pipeline.sources.ssh.link import SshLink, no_sftp
from anamnesis_pipeline.sources.ssh.sftp import Attributes
from anamnesis_pipeline.sources.ssh.shell import SshShell

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

    def close(self) -> None:
        """End the shell, unless it is busy."""
        self._shell.close()

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
