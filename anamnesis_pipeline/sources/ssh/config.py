"""The user's `~/.ssh/config` with its includes, which paramiko ignores."""

import glob
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko

from anamnesis_pipeline.errors import HostRefused

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
        for included in _included(rest):
            yield from _lines(included, depth + 1)
        yield block  # a block opened by an included file ends with it


def _included(patterns: str) -> Iterator[Path]:
    """Yield the files that an `Include` names, in the order of its patterns; relative paths start in `~/.ssh`."""
    home = Path.home()
    for pattern in shlex.split(patterns):
        path = pattern.replace("~", str(home), 1) if pattern.startswith("~/") else pattern
        yield from (Path(found) for found in sorted(glob.glob(str(home / ".ssh" / path))))
