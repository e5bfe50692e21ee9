"""Checks of this machine and its services, with advice. One small check per subject."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.models import MINILM, find_model
from anamnesis_pipeline.errors import AnamnesisError, ServiceUnreachable
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.runtime.advice import START_STOPPED, log_of, restart_it, start_it
from anamnesis_pipeline.runtime.api_wiring import api_refusal
from anamnesis_pipeline.runtime.home_wiring import home_problem
from anamnesis_pipeline.runtime.log_roots import EXAMPLE_LOGS, retention_advice, survey
from anamnesis_pipeline.runtime.up_lock import log_roots_in_use
from anamnesis_pipeline.services.dagster.state import dagster_state, stopped_text, stuck
from anamnesis_pipeline.settings import Settings, claude_projects_dir

MIN_FREE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `advice` when it is not `ok`, an optional `note` when it is."""

    ok: bool
    name: str
    detail: str
    advice: str = ""
    note: str = ""


T = TypeVar("T")


def run_checks(checks: Sequence[Callable[[T], Finding]], of: T) -> list[Finding]:
    """Run all checks. One that cannot run, since the store is away, reports that."""
    found = []
    for check in checks:
        try:
            found.append(check(of))
        except AnamnesisError as exc:
            found.append(Finding(False, check.__name__.replace("_", " "), str(exc)))
    return found


def python_version(_settings: Settings) -> Finding:
    """Check that Python is supported."""
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding(sys.version_info >= (3, 11), "python", found, "install Python 3.11 or newer, then run: make up")


def home_writable(settings: Settings) -> Finding:
    """Check that files can be created in the home, or the home itself."""
    problem = home_problem(settings.home)
    return Finding(not problem, "home", problem or str(settings.home))


def free_space(settings: Settings) -> Finding:
    """Check that there is disk space for the next ingest."""
    existing = next(place for place in (settings.home, *settings.home.parents) if os.path.exists(place))
    free = shutil.disk_usage(existing).free
    advice = f"free at least {MIN_FREE_BYTES / 1e9:.0f} GB there, or set ANAMNESIS_HOME to a larger disk"
    return Finding(free >= MIN_FREE_BYTES, "disk", f"{free / 1e9:.1f} GB free at {settings.home}", advice)


def log_roots(settings: Settings) -> Finding:
    """Check that every log root exists and is readable, and that there is at least one log."""
    roots = log_roots_in_use(settings)
    found = survey(roots)
    detail = f"{counted(found.files, 'log')}, {found.bytes / 1e6:.1f} MB in {', '.join(map(str, roots))}"
    if found.absent:
        detail += f"; absent: {', '.join(map(str, found.absent))}"
    if found.unreadable:
        detail += f"; not readable: {', '.join(map(str, found.unreadable))}"
    advice = f"set ANAMNESIS_LOG_ROOTS to folders with logs, or try the examples: make up LOGS={EXAMPLE_LOGS}"
    if found.unreadable:
        advice = "let the user who runs Anamnesis read these folders (chmod, or its group), or leave them out"
    return Finding(bool(found.files) and not found.absent and not found.unreadable, "logs", detail, advice)


def retention(_settings: Settings) -> Finding:
    """Report how long Claude Code keeps its logs. Ingested logs stay, so a short time is only a note."""
    folder = claude_projects_dir().parent
    if not folder.is_dir():
        return Finding(True, "retention", f"Claude Code has no folder {folder} here")
    advice = retention_advice(folder / "settings.json")
    if advice is None:
        return Finding(True, "retention", "Claude Code keeps its logs for a year or longer")
    what, _, how = advice.partition(". ")
    return Finding(True, "retention", f"{what}; what was read of them stays", note=" ".join(how.split()))


def model_files(settings: Settings) -> Finding:
    """Check that the embedding model is complete on this disk, or its service is allowed."""
    if known := api_model(settings.model):
        refusal = api_refusal(settings, known)
        said = f"{known.model_id} ({known.dim} dimensions) of {known.service}: every text is sent there"
        return Finding(refusal is None, "model", said if refusal is None else str(refusal))
    try:
        files = find_model(settings.model, local_only=True)
    except AnamnesisError as exc:
        if settings.follows_default_model:
            falls_back = f"the first start downloads it, or takes {MINILM} where it cannot"
            return Finding(True, "model", f"the default model {settings.model} is not on this disk; {falls_back}")
        return Finding(False, "model", str(exc), "a model of the hub is downloaded by the first start")
    return Finding(True, "model", f"{files.model_id} ({files.dim} dimensions) in {files.path}")


def dagster(settings: Settings) -> Finding:
    """Check that Dagster answers, its daemons have a heartbeat, its sensors and schedules run, and no run is stuck."""
    try:
        state = dagster_state(settings)
    except ServiceUnreachable as exc:
        return Finding(False, "dagster", str(exc), start_it(settings))
    ill = [name for name, healthy in state.daemons.items() if not healthy]
    if ill:
        advice = f"wait a minute after a start; else see {log_of(settings, 'daemon')} and {restart_it(settings)}"
        return Finding(False, "dagster", f"no heartbeat from: {', '.join(ill)}", advice)
    if state.stopped:
        return Finding(False, "dagster", stopped_text(state.stopped), START_STOPPED)
    if late := stuck(state.unfinished, datetime.now(UTC)):
        names = ", ".join(f"{run.job} {run.run_id[:8]} ({run.status})" for run in late[:5])
        advice = f"{restart_it(settings)}, which fails them"
        return Finding(False, "dagster", f"{counted(len(late), 'stuck run')}: {names}", advice)
    return Finding(True, "dagster", f"daemons alive, {counted(len(state.unfinished), 'unfinished run')}")


CHECKS: Sequence[Callable[[Settings], Finding]] = (
    python_version,
    home_writable,
    free_space,
    log_roots,
    retention,
    model_files,
)
"""Checks of the machine; `dagster` and the sidecar are checked separately."""
