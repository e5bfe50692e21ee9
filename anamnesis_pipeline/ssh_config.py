"""The user's `~/.ssh/config` with what it includes, which paramiko leaves out."""

import glob
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko

from anamnesis_pipeline.errors import HostRefused

DEEPEST = 16
"""Files that include each other; OpenSSH's own limit."""


def user_config() -> Any:
    """The configuration as a `paramiko.SSHConfig`; an empty one where there is no file.

    :raises HostRefused: it includes itself. What paramiko raises is for `ssh_connection.translated`.
    """
    return paramiko.SSHConfig.from_text("\n".join(_lines(Path.home() / ".ssh" / "config", 0)))


def _lines(file: Path, depth: int) -> Iterator[str]:
    """The lines of a file, those of included ones in their places. A file that is not there has none."""
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
        yield block  # what an included file opened ends with it


def _included(patterns: str) -> Iterator[Path]:
    """The files that an `Include` names, by pattern in order; relative ones lie in `~/.ssh`."""
    home = Path.home()
    for pattern in shlex.split(patterns):
        path = pattern.replace("~", str(home), 1) if pattern.startswith("~/") else pattern
        yield from (Path(found) for found in sorted(glob.glob(str(home / ".ssh" / path))))
