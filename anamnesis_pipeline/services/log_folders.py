"""Folders of this machine that may hold logs of Claude Code or Cowork, other users' and mounted ones included."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anamnesis_pipeline.sources.base import is_log
from anamnesis_pipeline.sources.discovery import COWORK

PLACES = (
    "/home/*/.claude/projects",
    "/Users/*/.claude/projects",
    "/root/.claude/projects",
    "/mnt/*/Users/*/.claude/projects",
    "/mnt/*/.claude/projects",
    "/mnt/*/projects",
    "/media/*/*/.claude/projects",
)
SETTINGS_FOLDERS = (".config/Claude", "Library/Application Support/Claude")
"""Settings of the desktop app on Linux and macOS, below a home."""
COWORK_PLACES = (
    *(f"{home}/{folder}/{COWORK}" for home in ("/home/*", "/Users/*", "/root") for folder in SETTINGS_FOLDERS),
    f"/mnt/*/Users/*/AppData/Roaming/Claude/{COWORK}",
    f"/mnt/*/Users/*/AppData/Local/Packages/Claude_*/LocalCache/Roaming/Claude/{COWORK}",
)
MAX_FOLDERS = 50
MAX_LOGS = 100_000
"""Counting stops here."""


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A folder and its number of logs; `readable`: this user may list it."""

    path: str
    logs: int
    readable: bool


def log_folders(own: Path) -> list[LogFolder]:
    """Return the existing folders, the user's `own` first, also those without logs."""
    found = [own, *_matching(PLACES), *cowork_folders()]
    there = [path for path in dict.fromkeys(found) if _is_folder(path)]
    return [LogFolder(str(path), _logs(path), os.access(path, os.R_OK | os.X_OK)) for path in there[:MAX_FOLDERS]]


def cowork_folders() -> list[Path]:
    """Return the folders with Cowork sessions, the user's own first."""
    own = [Path.home() / folder / COWORK for folder in SETTINGS_FOLDERS]
    return [path for path in dict.fromkeys([*own, *_matching(COWORK_PLACES)]) if _is_folder(path)]


def _matching(patterns: Sequence[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(Path("/").glob(pattern.lstrip("/")))]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _logs(path: Path) -> int:
    count = 0
    for _, _, names in os.walk(path):
        count += sum(map(is_log, names))
        if count > MAX_LOGS:
            break
    return min(count, MAX_LOGS)
