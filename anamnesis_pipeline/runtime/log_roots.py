"""Survey of the log roots, and advice on Claude Code's retention of logs."""

import json
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anamnesis_pipeline.runtime.dagster_home import bundled
from anamnesis_pipeline.settings import default_home
from anamnesis_pipeline.sources.base import is_log

KEEP_AT_LEAST_DAYS = 365
EXAMPLE_LOGS = "examples/claude_logs"


@dataclass(frozen=True, slots=True)
class Survey:
    """Current contents of the log roots. `bytes` is the size of all logs."""

    files: int
    bytes: int
    absent: tuple[Path, ...]
    unreadable: tuple[Path, ...]


def survey(roots: Sequence[Path]) -> Survey:
    """Count the logs under `roots`, from directory entries only."""
    files = size = 0
    refused: list[Path] = []
    for root in roots:
        for folder, _, names in os.walk(root, onerror=lambda error: refused.append(Path(error.filename))):
            for name in names:
                if is_log(name):
                    files += 1
                    with suppress(OSError):
                        size += Path(folder, name).stat().st_size
    absent = tuple(root for root in roots if not root.is_dir())
    return Survey(files, size, absent, tuple(path for path in refused if path not in absent))


def advice_without_logs(roots: Sequence[Path], found: Survey) -> str:
    """Return the advice for a user without logs."""
    looked = ", ".join(f"{root} ({'absent' if root in found.absent else 'no logs in it'})" for root in roots)
    return (
        f"No Claude Code logs found. Looked at: {looked or 'no folder at all'}.\n"
        f"Try the examples: make up LOGS={EXAMPLE_LOGS}; or set ANAMNESIS_LOG_ROOTS. "
        "Until then, episodes can be posted over HTTP, and what `anamnesis sources list` shows is read."
    )


def examples_advice(roots: Sequence[Path], home: Path) -> str | None:
    """Return how to remove the example sessions from a memory; None when no root contains them."""
    examples = bundled(EXAMPLE_LOGS).parent.resolve()
    if not any(root.resolve().is_relative_to(examples) for root in roots):
        return None
    way = "" if home == default_home() else f"ANAMNESIS_HOME={shlex.quote(str(home))} "
    return (
        f"The logs in {examples} are invented; {home} remembers them from now on. To take them out again:\n"
        f"  {way}anamnesis forget --path {shlex.quote(str(examples))} --yes"
    )


def retention_days(settings_json: str) -> int | None:
    """Return `cleanupPeriodDays` of a Claude Code settings file; None when it is not set."""
    try:
        days = json.loads(settings_json).get("cleanupPeriodDays")
    except (ValueError, AttributeError):
        return None
    return days if isinstance(days, int) and not isinstance(days, bool) else None


def retention_advice(claude_settings: Path) -> str | None:
    """Return how to stop Claude Code from deleting its logs; None when it keeps them for a year or more, or was never
    here.
    """
    if not claude_settings.parent.is_dir():
        return None
    try:
        days = retention_days(claude_settings.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        days = None
    if days is not None and days >= KEEP_AT_LEAST_DAYS:
        return None
    kept = f"{days} days" if days is not None else "30 days unless told otherwise"
    return (
        f"Claude Code deletes its logs after {kept}. To keep them for ten years, put this into {claude_settings}:\n"
        '  "cleanupPeriodDays": 3650'
    )
