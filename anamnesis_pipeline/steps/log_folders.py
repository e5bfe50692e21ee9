"""Folders of this machine that may hold logs of Claude Code, other users' and mounted ones included."""

import os
from dataclasses import dataclass
from pathlib import Path

from anamnesis_pipeline.sources.base import is_log

PLACES = (
    "/home/*/.claude/projects", "/Users/*/.claude/projects", "/root/.claude/projects",
    "/mnt/*/Users/*/.claude/projects", "/mnt/*/.claude/projects", "/mnt/*/projects", "/media/*/*/.claude/projects",
)  # fmt: skip
MOST_FOLDERS = 50
MOST_LOGS = 100_000
"""More are not counted."""


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A folder and how many logs are in it; `readable`: this user may list it."""

    path: str
    logs: int
    readable: bool


def log_folders(own: Path) -> list[LogFolder]:
    """The folders that are there, the user's `own` first; one without logs counts as well."""
    root = Path("/")
    found = [own, *(path for pattern in PLACES for path in sorted(root.glob(pattern.lstrip("/"))))]
    there = [path for path in dict.fromkeys(found) if _is_folder(path)]
    return [LogFolder(str(path), _logs(path), os.access(path, os.R_OK | os.X_OK)) for path in there[:MOST_FOLDERS]]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _logs(path: Path) -> int:
    count = 0
    for _, _, names in os.walk(path):
        count += sum(map(is_log, names))
        if count > MOST_LOGS:
            break
    return min(count, MOST_LOGS)
