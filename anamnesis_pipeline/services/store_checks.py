"""Checks of the stored data, with advice. One small check per subject."""

import os
import random
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.errors import AnamnesisError, BadSetting
from anamnesis_pipeline.model import EpisodeFilter, FileCursor
from anamnesis_pipeline.parsing.claude_logs.observers import read_rules
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.archived import damaged_files
from anamnesis_pipeline.pipeline.dead_letters import EVERY_LETTER
from anamnesis_pipeline.pipeline.host_clock import read_since
from anamnesis_pipeline.pipeline.sessions import observed_sessions, odd_times, unknown_records
from anamnesis_pipeline.runtime.home_wiring import open_archive
from anamnesis_pipeline.runtime.up_lock import read_lock
from anamnesis_pipeline.services.crawler_control import CrawlerControl
from anamnesis_pipeline.services.embedding_control import EmbeddingControl
from anamnesis_pipeline.services.embedding_control import coverage as embedded_of
from anamnesis_pipeline.services.forget import JOB
from anamnesis_pipeline.services.log_folders import cowork_folders
from anamnesis_pipeline.services.machine_checks import Finding
from anamnesis_pipeline.services.model_health import (
    Problem,
    llm_problems,
    llm_text,
    model_problems,
    reembed_notes,
    reembed_problems,
)
from anamnesis_pipeline.services.wiring import default_model_note, effective_settings, what_is_private
from anamnesis_pipeline.sources.base import is_log
from anamnesis_pipeline.sources.specs import CLAUDE_DOCUMENTS, DOCUMENTS
from anamnesis_pipeline.store.base import Store

AT_REST_AFTER = timedelta(days=1)
BEING_EMBEDDED = timedelta(minutes=5)
"""For this long after its ingest, content without vectors is no problem while `anamnesis up` runs."""
RESTORE = (
    "stop Anamnesis and put a backup of the home back; without one, move the database away and fill a new one from the "
    "archived lines: anamnesis rebuild --from-archive"
)
REBUILD = "make full text again from the stored passages, while Anamnesis runs: anamnesis rebuild"
FILES_LOOKED_AT = 200
"""Archive files in the sample: a full check grows with the archive."""
NAMED = 20
"""Max damaged files named in a finding."""
INDEX_IS_DOWN = (
    "nothing is damaged, nothing has to be restored: look at MongoDB's search process (mongot) and its log; the index "
    "catches up once that runs"
)


def writable(store: Store) -> Finding:
    """Check that the store accepts writes: a server may be up but full."""
    problem = cannot_write(store)
    advice = "until then searches answer, and nothing new is remembered"
    return Finding(problem is None, "writing", problem or "the store takes what is written", advice)


def unread_logs(store: Store) -> Finding:
    """Check that every file was readable at the last try. An incomplete last line of a log waits for its rest."""
    cursors, private = store.files.incomplete_files(), what_is_private(store)
    problems = [private.file_shown(cursor.source, cursor.unread) for cursor in cursors if cursor.unread]
    detail = (
        f"{counted(len(problems), 'file')} cannot be read: {'; '.join(problems[:3])}"
        if problems
        else "every file could be read"
    )
    torn = [
        private.file_shown(cursor.source, cursor.path)
        for cursor in cursors
        if not cursor.unread and is_log(cursor.path) and _is_at_rest(cursor)
    ]
    note = (
        f"{counted(len(torn), 'log ends', 'logs end')} inside a line and did not grow for a day, e.g. {torn[0]}"
        if torn
        else ""
    )
    advice = "let the user who runs Anamnesis read them; the next ingest does"
    return Finding(not problems, "reading", detail, advice, note)


def archived(store: Store) -> Finding:
    """Check that this memory writes the archive, and that the latest data of a random sample of files is there."""
    archive = open_archive(effective_settings(store))
    if other := archive.other_writer():
        holder, advice = other
        return Finding(False, "archive", f"another memory writes it, {holder}, and this one reads nothing new", advice)
    files = [
        (source.key, cursor)
        for source in store.files.sources()
        for cursor in store.files.cursors(source.key).values()
        if cursor.lines
    ]
    chosen = random.sample(files, min(len(files), FILES_LOOKED_AT))
    private = what_is_private(store)
    cut = [
        private.file_shown(key, cursor.path)
        for key, cursor in chosen
        for frame in store.archive.frames(key, cursor.path, cursor.generation, cursor.lines - 1)[-1:]
        if archive.lacks(key, cursor.path, frame)
    ]
    if cut:
        detail = f"of {counted(len(chosen), 'archived file')} {len(cut):,} lost lines, e.g. {cut[0]}"
        return Finding(False, "archive", detail, "put the archive of a backup back: anamnesis restore")
    return Finding(True, "archive", f"the ends of {counted(len(chosen), 'archived file')} are there")


def archive_in_full(store: Store) -> Finding:
    """Compare every archived file with its checksums. Reads the whole archive."""
    damaged = damaged_files(store, open_archive(effective_settings(store)))
    if not damaged:
        found = archived(store)
        return Finding(True, "archive", "every archived file agrees with its checksums") if found.ok else found
    private = what_is_private(store)
    named = "; ".join(private.file_shown(d.source, f"{d.path} of {d.source}") for d in damaged[:NAMED])
    more = f"; and {len(damaged) - NAMED:,} more" if len(damaged) > NAMED else ""
    advice = (
        "the others are sound; put these back from a backup of the home, or give them up: anamnesis forget --path; the "
        f"first: {damaged[0].problem}"
    )
    return Finding(False, "archive", f"{counted(len(damaged), 'archived file')} cannot be read: {named}{more}", advice)


def dead_letters(store: Store) -> Finding:
    """Check that every log line was readable, except a last line that a crash cut off for good."""
    letters = store.messages.dead_letters(limit=EVERY_LETTER)
    lasts = {(letter.source, letter.path): letter for letter in letters}.values()  # by line: the last of each file
    torn = 0
    for last in lasts:
        cursor = store.files.cursor(last.source, last.path)
        if cursor is not None and (last.generation, last.line) == (cursor.generation, cursor.lines - 1):
            torn += cursor.gone or _is_at_rest(cursor)
    found = len(letters) - torn
    advice = "see them with: anamnesis dead-letters list; after an upgrade: anamnesis dead-letters retry"
    logs = counted(torn, "log that did not grow for a day ends", "logs that did not grow for a day end")
    note = f"{logs} in a torn line; see: anamnesis dead-letters list"
    return Finding(
        not found, "dead letters", f"{counted(found, 'line')} could not be read in full", advice, note if torn else ""
    )


def record_types(store: Store) -> Finding:
    """Check that all record types of the logs are known. Unknown ones stay in the archive."""
    unknown = unknown_records(store.settings)
    if not unknown:
        return Finding(True, "records", "every type of record is known")
    told = "; ".join(
        f"{name!r} ({count:,}, last written by Claude Code {version or 'of unknown version'})"
        for name, (count, version) in sorted(unknown.items(), key=lambda each: -each[1][0])[:5]
    )
    detail = f"{counted(len(unknown), 'unknown type')} of records, or of what is in them, only archived: {told}"
    return Finding(True, "records", detail, note="a newer version of Anamnesis may know them")


def observers(store: Store) -> Finding:
    """Check the rules on other memory tools, and count their excluded sessions."""
    name = "other memory tools"
    try:
        read_rules(effective_settings(store).home)
    except BadSetting as problem:
        return Finding(False, name, str(problem), "until then only the rules of this package hold")
    found = observed_sessions(store.settings)
    told = ", ".join(f"{count:,} of {tool}" for tool, count in sorted(found.items()))
    detail = f"sessions that are archived and not indexed: {told}" if found else "no sessions of theirs were read"
    return Finding(True, name, detail)


def _is_at_rest(cursor: FileCursor) -> bool:
    """Return whether a log did not change for a day."""
    return cursor.mtime_ns / 1e9 < (datetime.now(UTC) - AT_REST_AFTER).timestamp()


def store_integrity(store: Store) -> Finding:
    """Check the database's integrity and its full-text index."""
    problems = store.text.check()
    told = "; ".join(problem.text for problem in problems[:3])
    states = {problem.state for problem in problems}
    if states == {"behind"}:
        return Finding(True, "store", told, note="nothing is damaged: searches read what the index lacks by themselves")
    advice = REBUILD if "damaged" in states else INDEX_IS_DOWN
    return Finding(not problems, "store", told or "passes its integrity check", advice)


def coverage(store: Store) -> Finding:
    """Check that every passage is embedded, or was ingested a moment ago."""
    covered = embedded_of(store)
    is_whole = covered["embedded"] >= covered["stored"]
    share = covered["embedded"] / covered["stored"] if covered["stored"] else 1.0
    detail = f"{share:.1%} of {counted(covered['stored'], 'passage')} embedded"
    advice = "the rest is embedded while Anamnesis runs; see the embed job in the Dagster UI"
    space = store.spaces.active()
    if not is_whole and space is not None and read_lock(effective_settings(store).home / "up.lock") is not None:
        waiting = store.vectors.pending_sources(space.key)
        if read_since(store.settings, waiting, datetime.now(UTC) - BEING_EMBEDDED):
            return Finding(True, "coverage", detail, note="the rest was read a moment ago and is being embedded")
    return Finding(is_whole, "coverage", detail, advice)


def vector_index(store: Store) -> Finding:
    """Check that the vector index of the active space is complete and finds the nearest vectors."""
    space = store.spaces.active()
    if space is None:
        return Finding(True, "vector index", "no space is searched yet")
    state = store.vectors.index_state(space.key)
    if state.is_exact:
        return Finding(True, "vector index", state.problem, note="answers are complete, and take longer")
    measured = (
        "no index file: every vector is compared"
        if state.recall is None
        else f"finds {state.recall:.1%} of what is nearest"
    )
    advice = "answers are complete, and take longer; it is built again while Anamnesis runs, or by: anamnesis ingest"
    return Finding(not state.problem, "vector index", state.problem or measured, advice)


def space_models(store: Store) -> Finding:
    """Check that the models of the spaces in use are on this disk, with the weights that made the vectors."""
    well = f"{counted(len(store.spaces.all()), 'space')}, the models of those in use are here"
    return replace(_finding("spaces", model_problems(store), well), note=default_model_note(store))


def reembedding(store: Store) -> Finding:
    """Check that no re-embed is paused or failing."""
    state = EmbeddingControl(store).reembed_status()
    well = f"{state['state']}, {state['done']:,} of {counted(state['total'], 'passage')}"
    return replace(_finding("re-embed", reembed_problems(state), well), note="; ".join(reembed_notes(state)))


def _finding(name: str, problems: Sequence[Problem], well: str) -> Finding:
    if not problems:
        return Finding(True, name, well)
    return Finding(False, name, "; ".join(p.text for p in problems), "; ".join(p.advice for p in problems))


def llm(store: Store) -> Finding:
    """Check that the summary LLM can be opened, has a budget and answers."""
    return _finding("summaries", llm_problems(store), llm_text(store))


def forgetting(store: Store) -> Finding:
    """Check that no `forget` is left half done."""
    is_done = store.settings.get(JOB) is None
    detail = "nothing is half forgotten" if is_done else "forgetting was interrupted, and some of it is still there"
    return Finding(is_done, "forget", detail, "finish it with: anamnesis forget --resume")


def crawler(store: Store) -> Finding:
    """Check that every host answers, every source was scanned, and every configured one has content. A host without
    memory files of Claude is fine.
    """
    control = CrawlerControl(store, effective_settings(store))
    state = control.state()
    away = [f"{host.machine}: {host.clock.error}" for host in state.hosts if host.state == "away"]
    failed = [row for row in state.sources if row.look.error]
    may_be_missing = [row for row in failed if row.spec.is_built_in and row.spec.kind == DOCUMENTS]
    broken = [
        f"{row.spec.name}: {row.look.error}" for row in failed if row not in may_be_missing or not row.look.is_missing
    ]
    rows = [row for row in state.sources if not row.spec.is_built_in]
    to_be_full = [row for row in rows if row.spec.include != CLAUDE_DOCUMENTS]
    empty = [row.spec.name for row in to_be_full if row.look.seen_at and not row.partitions]
    nothing = [f"{name} holds nothing that is read" for name in empty]
    well = f"{counted(len(state.sources), 'source')} on {counted(len(state.hosts), 'machine')}"
    problems = [*away, *broken, *nothing, *control.warnings()]
    advice = "try them with: anamnesis sources test NAME; take out what is not wanted: anamnesis sources remove NAME"
    roots = {os.path.expanduser(row.spec.root) for row in state.sources}
    offered = [f"anamnesis sources add {shlex.quote(str(path))}" for path in cowork_folders() if str(path) not in roots]
    note = f"sessions of Cowork are not read; to read them: {'; '.join(offered)}" if offered else ""
    return Finding(not problems, "sources", "; ".join(problems) or well, advice, note)


def clock(store: Store) -> Finding:
    """Check that no episode is in the future: then this clock is slow, or was fast."""
    now = datetime.now(UTC)
    newest = store.episodes.page(EpisodeFilter(), 1).items
    if newest and newest[0].timestamp > now + timedelta(minutes=5):
        detail = f"the newest episode is of {newest[0].timestamp.isoformat()}, this clock says {now.isoformat()}"
        return Finding(False, "clock", detail, "set the clock of this machine, or of the one that wrote that log")
    odd = odd_times(store.settings)
    told = f"{counted(odd.count, 'message')} had a time that cannot be, and took that of the message before it"
    note = f"{told}, e.g. {'; '.join(odd.examples)}" if odd.count else ""
    return Finding(True, "clock", f"{now:%Y-%m-%d %H:%M} UTC", note=note)


OTHER_STORE_CHECKS: Sequence[Callable[[Store], Finding]] = (
    writable,
    unread_logs,
    archived,
    dead_letters,
    record_types,
    observers,
    coverage,
    vector_index,
    space_models,
    reembedding,
    llm,
    forgetting,
    crawler,
    clock,
)
STORE_CHECKS = (
    store_integrity,
    *(archive_in_full if check is archived else check for check in OTHER_STORE_CHECKS),
)
"""All checks, for a command without a time limit."""


PROBE = "probe.write"
"""The stored setting that the check writes."""


def cannot_write(store: Store) -> str | None:
    """Return why writing fails; None: it works."""
    try:
        store.settings.set(PROBE, datetime.now(UTC).isoformat(timespec="seconds"))
    except AnamnesisError as exc:
        return str(exc)
    return None
