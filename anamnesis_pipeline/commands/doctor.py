"""`anamnesis doctor`: what is wrong, and what to do about it. One small check per subject."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from anamnesis_pipeline.api_wiring import api_refusal
from anamnesis_pipeline.archive_model import DeadLetter
from anamnesis_pipeline.commands.dagster_state import dagster_state, stuck
from anamnesis_pipeline.commands.embedding_health import Problem, model_problems, reembed_notes, reembed_problems
from anamnesis_pipeline.commands.llm_health import llm_problems, llm_text
from anamnesis_pipeline.commands.status import (
    DIAGNOSED_WITHIN_S,
    SAME_STORE,
    memory_status,
    other_store,
    sidecar_status,
)
from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.models import find_model
from anamnesis_pipeline.errors import AnamnesisError, ServiceUnreachable, StoreCorrupt
from anamnesis_pipeline.model import EXCLUDED, FileCursor, Where
from anamnesis_pipeline.settings import Settings, claude_projects_dir
from anamnesis_pipeline.sidecar.crawler_control import CrawlerControl
from anamnesis_pipeline.sidecar.embedding_control import EmbeddingControl
from anamnesis_pipeline.sidecar.room import cannot_write
from anamnesis_pipeline.sources.base import is_log
from anamnesis_pipeline.sources.specs import CLAUDE_DOCUMENTS
from anamnesis_pipeline.steps.dead_letters import EVERY_LETTER
from anamnesis_pipeline.steps.forget import JOB
from anamnesis_pipeline.steps.host_clock import read_since
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.supervisor.log_roots import EXAMPLE_LOGS, retention_advice, survey
from anamnesis_pipeline.supervisor.up_lock import log_roots_in_use, read_lock
from anamnesis_pipeline.wiring import effective_settings, impatient, open_store
from anamnesis_pipeline.wording import counted

MIN_FREE_BYTES = 1_000_000_000
AT_REST_AFTER = timedelta(days=1)
LINE_BREAK_BYTES = 2
BEING_EMBEDDED = timedelta(minutes=5)
"""So long after it was read, what has no vectors yet is no problem while `anamnesis up` runs."""
_START_IT = "start it with: anamnesis up (in containers: ./start.sh)"
_START_MONGO = "start MongoDB, or let ANAMNESIS_MONGO_URI say where it is; what runs goes on by itself then"
_RESTORE = (
    "stop `anamnesis up` and put a backup of the home back; without one, move the database away and start again: "
    "logs that still exist are read anew, the archive of others is kept aside as `*.kept-1`"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `advice` says what to do when it is not `ok`, `note` what may be done when it is."""

    ok: bool
    name: str
    detail: str
    advice: str = ""
    note: str = ""


def examine(settings: Settings) -> list[Finding]:
    """Run every check; those of the store only when there is one."""
    if not settings.has_store:
        missing = Finding(False, "store", f"{settings.database} does not exist yet", _START_IT)
        return [*_general(settings), missing]
    try:
        with closing(open_store(impatient(settings, DIAGNOSED_WITHIN_S))) as store:
            return _general(effective_settings(store)) + [check(store) for check in STORE_CHECKS]
    except StoreCorrupt as exc:
        return [*_general(settings), Finding(False, "store", str(exc), _RESTORE)]
    except AnamnesisError as exc:  # a full disk, a busy store: the text says what to do, and the file is sound
        advice = _START_MONGO if settings.store == "mongo" else ""
        return [*_general(settings), Finding(False, "store", str(exc), advice)]


def _general(settings: Settings) -> list[Finding]:
    return [check(settings) for check in CHECKS]


def render(findings: Sequence[Finding]) -> str:
    """One line for what is well, two for what is not. Pure."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok   ' if finding.ok else 'WRONG'} {finding.name}: {finding.detail}")
        if not finding.ok and finding.advice:
            lines.append(f"      -> {finding.advice}")
        if finding.note:
            lines.append(f"      note: {finding.note}")
    wrong = sum(not finding.ok for finding in findings)
    return "\n".join([*lines, "", f"{wrong} of {len(findings)} checks found something" if wrong else "All is well."])


def python_version(_settings: Settings) -> Finding:
    """The interpreter is one the package was made for."""
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding(sys.version_info >= (3, 11), "python", found, "install Python 3.11 or newer, then run: make up")


def home_writable(settings: Settings) -> Finding:
    """Files can be created in the home, or the home itself can."""
    place = _nearest_existing(settings.home)
    advice = f"give yourself the right to write to {place}, or set ANAMNESIS_HOME to another folder"
    return Finding(os.access(place, os.W_OK | os.X_OK), "home", str(settings.home), advice)


def free_space(settings: Settings) -> Finding:
    """There is room for the next ingest."""
    free = shutil.disk_usage(_nearest_existing(settings.home)).free
    advice = f"free at least {MIN_FREE_BYTES / 1e9:.0f} GB there, or set ANAMNESIS_HOME to a larger disk"
    return Finding(free >= MIN_FREE_BYTES, "disk", f"{free / 1e9:.1f} GB free at {settings.home}", advice)


def log_roots(settings: Settings) -> Finding:
    """Every log root exists and can be read, and there is at least one log."""
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


def writable(store: Store) -> Finding:
    """Something can be written: a server may be there, and have no room."""
    problem = cannot_write(store)
    advice = "until then searches answer, and nothing new is remembered"
    return Finding(problem is None, "writing", problem or "the store takes what is written", advice)


def unread_logs(store: Store) -> Finding:
    """Every file could be read the last time it was tried. A line of a log that is not whole yet waits for its rest."""
    cursors = [cursor for cursor in _cursors(store) if not cursor.gone]
    problems = [cursor.unread for cursor in cursors if cursor.unread and not cursor.unread.startswith(EXCLUDED)]
    detail = (
        f"{counted(len(problems), 'file')} cannot be read: {'; '.join(problems[:3])}"
        if problems
        else "every file could be read"
    )
    torn = [c.path for c in cursors if is_log(c.path) and c.size - c.offset > LINE_BREAK_BYTES and _is_at_rest(c)]
    note = (
        f"{counted(len(torn), 'log ends', 'logs end')} inside a line and did not grow for a day, e.g. {torn[0]}"
        if torn
        else ""
    )
    advice = "let the user who runs Anamnesis read them; the next ingest does"
    return Finding(not problems, "reading", detail, advice, note)


def dead_letters(store: Store) -> Finding:
    """Every line of every log could be read, but for one at the end of a log that a crash tore apart for good."""
    cursors = {(cursor.source, cursor.path): cursor for cursor in _cursors(store)}
    letters = store.ingest.dead_letters(limit=EVERY_LETTER)
    torn = sum(_is_torn_for_good(letter, cursors[letter.source, letter.path]) for letter in letters)
    found = store.ingest.counts().dead_letters - torn
    advice = "see them with: anamnesis dead-letters list; after an upgrade: anamnesis dead-letters retry"
    logs = counted(torn, "log that did not grow for a day ends", "logs that did not grow for a day end")
    note = f"{logs} in a torn line; see: anamnesis dead-letters list"
    return Finding(
        not found, "dead letters", f"{counted(found, 'line')} could not be read in full", advice, note if torn else ""
    )


def _is_torn_for_good(letter: DeadLetter, cursor: FileCursor) -> bool:
    is_last = (letter.generation, letter.line) == (cursor.generation, cursor.lines - 1)
    return is_last and (cursor.gone or _is_at_rest(cursor))


def _is_at_rest(cursor: FileCursor) -> bool:
    """Whether a log did not change for a day."""
    return cursor.mtime_ns / 1e9 < (datetime.now(UTC) - AT_REST_AFTER).timestamp()


def _cursors(store: Store) -> Iterator[FileCursor]:
    return (cursor for source in store.ingest.sources() for cursor in store.ingest.cursors(source.key).values())


def retention(_settings: Settings) -> Finding:
    """How long Claude Code keeps its logs. What was read of them stays, so that a short time is no more than a note."""
    folder = claude_projects_dir().parent
    if not folder.is_dir():
        return Finding(True, "retention", f"Claude Code has no folder {folder} here")
    advice = retention_advice(folder / "settings.json")
    if advice is None:
        return Finding(True, "retention", "Claude Code keeps its logs for a year or longer")
    what, _, how = advice.partition(". ")
    return Finding(True, "retention", f"{what}; what was read of them stays", note=" ".join(how.split()))


def model_files(settings: Settings) -> Finding:
    """The embedding model is on this disk and complete, or a service's that may be asked."""
    if known := api_model(settings.model):
        refusal = api_refusal(settings, known)
        said = f"{known.model_id} ({known.dim} dimensions) of {known.service}: every text is sent there"
        return Finding(refusal is None, "model", said if refusal is None else str(refusal))
    try:
        files = find_model(settings.model, local_only=True)
    except AnamnesisError as exc:
        return Finding(False, "model", str(exc), "a model of the hub is downloaded by the first `anamnesis up`")
    return Finding(True, "model", f"{files.model_id} ({files.dim} dimensions) in {files.path}")


def sidecar(settings: Settings) -> Finding:
    """The sidecar answers and has its store and model."""
    status = sidecar_status(settings)
    if (other := other_store(settings, status)) is not None:
        return Finding(False, "sidecar", other, SAME_STORE)
    detail = f"{status['url']}: {'ready' if status['ready'] else '; '.join(status['missing']) or 'not ready'}"
    advice = f"see {settings.logs_dir / 'sidecar.log'}" if status["reachable"] else _START_IT
    return Finding(bool(status["ready"]), "sidecar", detail, advice)


def dagster(settings: Settings) -> Finding:
    """Dagster answers, its daemons have a heartbeat, and no run is stuck."""
    try:
        state = dagster_state(settings)
    except ServiceUnreachable as exc:
        return Finding(False, "dagster", str(exc), _START_IT)
    ill = [name for name, healthy in state.daemons.items() if not healthy]
    if ill:
        advice = f"wait a minute after a start; else see {settings.logs_dir / 'daemon.log'} and restart `anamnesis up`"
        return Finding(False, "dagster", f"no heartbeat from: {', '.join(ill)}", advice)
    if late := stuck(state.unfinished, datetime.now(UTC)):
        names = ", ".join(f"{run.job} {run.run_id[:8]} ({run.status})" for run in late[:5])
        return Finding(
            False, "dagster", f"{counted(len(late), 'stuck run')}: {names}", "restart `anamnesis up`, which fails them"
        )
    return Finding(True, "dagster", f"daemons alive, {counted(len(state.unfinished), 'unfinished run')}")


def store_integrity(store: Store) -> Finding:
    """The database engine finds nothing wrong with itself."""
    problems = store.text.check()
    return Finding(not problems, "store", "; ".join(problems[:3]) or "passes its integrity check", _RESTORE)


def coverage(store: Store) -> Finding:
    """Every passage can be found by its meaning, or came a moment ago and is being embedded."""
    status = memory_status(store)
    detail = f"{status['coverage']:.1%} of {counted(status['counts']['passages'], 'passage')} embedded"
    advice = "the rest is embedded while `anamnesis up` runs; see the embed job in the Dagster UI"
    if status["coverage"] < 1 and _is_embedding(store):
        return Finding(True, "coverage", detail, note="the rest was read a moment ago and is being embedded")
    return Finding(status["coverage"] >= 1, "coverage", detail, advice)


def _is_embedding(store: Store) -> bool:
    """Whether `anamnesis up` runs, and everything without vectors is of sources that were read within minutes."""
    space = store.spaces.active()
    if space is None or read_lock(effective_settings(store).home / "up.lock") is None:
        return False
    waiting = store.vectors.pending_sources(space.key)
    return read_since(store.settings, waiting, datetime.now(UTC) - BEING_EMBEDDED)


def space_models(store: Store) -> Finding:
    """The models of the spaces in use are on this disk, with the weights that made the vectors."""
    return _finding(
        "spaces",
        model_problems(store),
        f"{counted(len(store.spaces.all()), 'space')}, the models of those in use are here",
    )


def reembedding(store: Store) -> Finding:
    """No re-embed is paused or fails."""
    state = EmbeddingControl(store).reembed_status()
    well = f"{state['state']}, {state['done']:,} of {counted(state['total'], 'passage')}"
    return replace(_finding("re-embed", reembed_problems(state), well), note="; ".join(reembed_notes(state)))


def _finding(name: str, problems: Sequence[Problem], well: str) -> Finding:
    if not problems:
        return Finding(True, name, well)
    return Finding(False, name, "; ".join(p.text for p in problems), "; ".join(p.advice for p in problems))


def llm(store: Store) -> Finding:
    """The LLM that is to write summaries can be opened, may spend money, and answers."""
    return _finding("summaries", llm_problems(store), llm_text(store))


def forgetting(store: Store) -> Finding:
    """Nothing is half forgotten."""
    is_done = store.settings.get(JOB) is None
    detail = "nothing is half forgotten" if is_done else "forgetting was interrupted, and some of it is still there"
    return Finding(is_done, "forget", detail, "finish it with: anamnesis forget --resume")


def crawler(store: Store) -> Finding:
    """Every machine answers, and every source that people configured was seen and has something to read; that nobody
    wrote a memory for Claude on a machine is well.
    """
    control = CrawlerControl(store, effective_settings(store))
    state = control.state()
    away = [f"{host.machine}: {host.clock.error}" for host in state.hosts if host.state == "away"]
    rows = [row for row in state.sources if not row.spec.is_built_in]
    broken = [f"{row.spec.name}: {row.look.error}" for row in rows if row.look.error]
    to_be_full = [row for row in rows if row.spec.include != CLAUDE_DOCUMENTS]
    empty = [row.spec.name for row in to_be_full if row.look.seen_at and not row.partitions]
    nothing = [f"{name} holds nothing that is read" for name in empty]
    well = f"{counted(len(state.sources), 'source')} on {counted(len(state.hosts), 'machine')}"
    problems = [*away, *broken, *nothing, *control.warnings()]
    advice = "try them with: anamnesis sources test NAME; take out what is not wanted: anamnesis sources remove NAME"
    return Finding(not problems, "sources", "; ".join(problems) or well, advice)


def clock(store: Store) -> Finding:
    """No episode lies in the future, which would mean that this clock is slow or was fast."""
    now = datetime.now(UTC)
    newest = store.episodes.page(Where(), 1).items
    if newest and newest[0].timestamp > now + timedelta(minutes=5):
        detail = f"the newest episode is of {newest[0].timestamp.isoformat()}, this clock says {now.isoformat()}"
        return Finding(False, "clock", detail, "set the clock of this machine, or of the one that wrote that log")
    return Finding(True, "clock", f"{now:%Y-%m-%d %H:%M} UTC")


CHECKS: Sequence[Callable[[Settings], Finding]] = (
    python_version, home_writable, free_space, log_roots, retention, model_files, sidecar, dagster,
)  # fmt: skip
STORE_CHECKS: Sequence[Callable[[Store], Finding]] = (
    store_integrity, writable, unread_logs, dead_letters, coverage, space_models, reembedding, llm, forgetting, crawler,
    clock,
)  # fmt: skip


def _nearest_existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())
