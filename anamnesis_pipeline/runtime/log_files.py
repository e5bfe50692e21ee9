"""Log files of the children: appended to, limited in size, and read when a child dies."""

import contextlib
import os
import re
import shutil
from pathlib import Path

MAX_BYTES = 5_000_000
KEPT = 3
"""Older files kept per log, as `<name>.1` (the newest) to `<name>.3`."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def rotate(path: Path, max_bytes: int = MAX_BYTES) -> bool:
    """Rotate a log larger than `max_bytes`; return whether that was due.

    The file is copied and truncated, not renamed: the child keeps appending through its descriptor.
    """
    if not path.exists() or path.stat().st_size <= max_bytes:
        return False
    for number in range(KEPT, 1, -1):
        with contextlib.suppress(FileNotFoundError):
            _older(path, number - 1).replace(_older(path, number))
    with contextlib.suppress(OSError):  # on a full disk the old text is lost
        shutil.copyfile(path, _older(path, 1))
    os.truncate(path, 0)
    return True


def last_lines(path: Path, count: int = 20, max_bytes: int = 64_000) -> list[str]:
    """Return the last `count` lines without colours, from at most the last `max_bytes` bytes; none without a file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - max_bytes))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return _COLOURS.sub("", text).splitlines()[-count:]


def _older(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
