"""Asset checks: invariants after each step. All but the integrity check are cheap enough for every run.

Two block the rest of a run, one per stage: `archive_is_there` (ingest), which the asset reports for its source, and
`vectors_are_sound` (memory). Both fail only if all later steps would be wrong; a damaged file, line or text never
blocks a source. Most others warn of unfinished work for the next run.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from anamnesis_pipeline.defs.posted import POSTED
from anamnesis_pipeline.defs.reporting import table
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.errors import StoreCorrupt
from anamnesis_pipeline.model import RECORD_KIND, RESERVED_SOURCES, EpisodeFilter, content_id
from anamnesis_pipeline.pipeline.documents import holds_documents
from anamnesis_pipeline.pipeline.index import check_vectors
from anamnesis_pipeline.pipeline.memory_map import is_map_due, map_path, read_map
from anamnesis_pipeline.pipeline.survey import dead_host_text
from anamnesis_pipeline.runtime.home_wiring import open_archive
from anamnesis_pipeline.services.crawler_status import SpecStatus, crawler_status
from anamnesis_pipeline.store.session_model import SESSION_KIND

MAX_REASONS = 3
"""Max reasons per source in the table."""

FILES_LOOKED_AT = 50
"""Max archived files of a source per check."""
ARCHIVE_STATE = "archive.check."
"""Prefix of settings with the last result of each source."""
ARCHIVE_CHECK = dg.AssetCheckSpec(
    "archive_is_there",
    asset="crawled_files",
    blocking=True,
    description="At least half of the archived files of the run's own source still have the lines that were read last. "
    "Else the archive is not that of this memory, or its disk is away, and nothing of the source is parsed. A result "
    "is of one source; its table has the last result of each, and its description names those that failed.",
)

EMBEDDING_CHECKS = (
    dg.AssetCheckSpec(
        "every_passage_is_embedded",
        asset="embeddings",
        description="Every passage has its vectors in the active space.",
    ),
    dg.AssetCheckSpec(
        "vectors_are_sound",
        asset="embeddings",
        blocking=True,
        description="The newest vectors of each space are finite, not zero, and of its length. Otherwise "
        "`vector_index` fails and makes no index of them.",
    ),
)
"""The asset reports them: its materializations are no output that a separate check could follow."""

NO_EPISODE = "Some parts have no episode yet: work that is left for `episodes`."


@dg.asset_check(asset="crawled_files", description="Every configured source was seen within three of its intervals.")
def sources_are_fresh(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of stale sources: the machine is away or the root is gone; nothing is lost, and the scan is retried."""
    return freshness(memory)


def freshness(memory: MemoryResource) -> dg.AssetCheckResult:
    """Return the current result; the sensor reports it too, since without readable sources no run starts."""
    crawler = memory.crawler
    status = crawler_status(memory.store, crawler.specs, crawler.interval_s, datetime.now(UTC))
    stale = [row for row in status.sources if not row.fresh]
    away = [dead_host_text(host.machine, host.clock) for host in status.hosts if host.state == "away"]
    lags = [row.lag_s for row in status.sources if row.lag_s is not None]
    return dg.AssetCheckResult(
        passed=not stale,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "stale": ", ".join(row.spec.name for row in stale) or "none",
            "machines away": "; ".join(away) or "none",
            "sources": table([_source_row(row) for row in status.sources]),
            "longest lag in seconds": max(lags) if lags else "unknown",
        },
    )


def _source_row(row: SpecStatus) -> dict[str, Any]:
    """Return a table row with the state of a source. Pure."""
    seen = row.look
    wrong = list(dict.fromkeys([*([seen.error] if seen.error else []), *row.errors, *seen.problems]))
    return {
        "source": row.spec.name,
        "machine": row.spec.machine,
        "last success": f"{seen.seen_at:%Y-%m-%d %H:%M} UTC" if seen.seen_at else "never",
        "lag in seconds": "unknown" if row.lag_s is None else round(row.lag_s),
        "files": seen.files,
        "MB": round(seen.bytes / 1e6, 1),
        "what is wrong": "; ".join(wrong[:MAX_REASONS]) + (" and more" if len(wrong) > MAX_REASONS else ""),
    }


def archive_is_there(memory: MemoryResource, source: str) -> dg.AssetCheckResult:
    """Return the result of `ARCHIVE_CHECK` for the files with most lines; a random sample would make it flicker.

    Dagster keeps only the result of the last run, so each result shows all sources.
    """
    archive, cursors = open_archive(memory.settings), memory.store.files.cursors(source).values()
    files = sorted((each for each in cursors if each.lines), key=lambda each: -each.lines)[:FILES_LOOKED_AT]
    lost = 0
    for each in files:
        last = memory.store.archive.frames(source, each.path, each.generation, each.lines - 1)[-1:]
        lost += any(archive.lacks(source, each.path, frame) for frame in last)
    passed = 2 * lost <= len(files)
    states, known = memory.store.settings.all(ARCHIVE_STATE), {each.key for each in memory.store.files.sources()}
    for key in [key for key in states if key.removeprefix(ARCHIVE_STATE) not in known]:
        memory.store.settings.set(key, None)
        del states[key]
    state = {"source": source, "passed": passed, "files looked at": len(files), "files that lack lines": lost}
    if states.get(ARCHIVE_STATE + source) != state:
        memory.store.settings.set(ARCHIVE_STATE + source, state)
    states[ARCHIVE_STATE + source] = state
    failed = sorted(each["source"] for each in states.values() if not each["passed"])
    return dg.AssetCheckResult(
        check_name=ARCHIVE_CHECK.name,
        passed=passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"Lost at the last look: {', '.join(failed)}" if failed else None,
        metadata={
            "files looked at": len(files),
            "files that lack lines": lost,
            "source": source,
            "sources": table([states[key] for key in sorted(states)]),
        },
    )


@dg.asset_check(asset="documents", description="Every archived version of a document was parsed.")
def every_version_is_parsed(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of pending versions: a run ended early. An unreadable version is a problem of its run."""
    sources = [source.key for source in memory.store.files.sources() if holds_documents(source)]
    waiting = {key: count for key in sources if (count := memory.store.overview.counts(key).unparsed_lines)}
    return dg.AssetCheckResult(
        passed=not waiting,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"waiting": sum(waiting.values()), "sources of documents": len(sources)},
    )


@dg.asset_check(asset="exchanges", description="Every archived line was parsed.")
def every_line_is_parsed(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of pending lines: a run ended early, or another one is still parsing."""
    waiting = memory.store.overview.counts().unparsed_lines
    return dg.AssetCheckResult(passed=waiting == 0, severity=dg.AssetCheckSeverity.WARN, metadata={"waiting": waiting})


@dg.asset_check(asset="exchanges", description="Every archived line could be read.")
def no_line_is_a_dead_letter(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of dead letters: a line cut off by a crash stays one; a later release may read one that is too new."""
    letters = memory.store.overview.counts().dead_letters
    first = memory.store.messages.dead_letters(limit=5)
    return dg.AssetCheckResult(
        passed=letters == 0,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "dead letters": letters,
            "the first": "; ".join(f"{at.path}, line {at.line + 1}: {at.reason}" for at in first) or "none",
        },
    )


@dg.asset_check(asset="summaries", description="No extractive summary stands in for an LLM's.")
def every_llm_summary_is_made(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of stand-ins: they are retried automatically; `anamnesis doctor` gives the reason."""
    waiting = memory.store.summaries.summary_counts().get("problem", 0)
    return dg.AssetCheckResult(passed=waiting == 0, severity=dg.AssetCheckSeverity.WARN, metadata={"waiting": waiting})


@dg.asset_check(asset="episodes", description="Every part of every exchange is a searchable episode.")
def every_part_is_an_episode(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of missing episodes. Excluded and deleted ones do not count; those that another run is publishing do, so the
    check only warns.
    """
    overview = memory.store.overview
    counts = overview.counts()
    reserved = [overview.counts(source) for source in RESERVED_SOURCES]
    others = sum(each.episodes - each.parts for each in reserved)  # posted ones have no chunk; uploads do
    others += _records(memory, None) - sum(_records(memory, source) for source in RESERVED_SOURCES)
    kept_away = counts.kept_away - sum(each.kept_away for each in reserved)
    missing = max(0, counts.parts - kept_away - (counts.episodes - others))
    return dg.AssetCheckResult(
        passed=missing == 0,
        severity=dg.AssetCheckSeverity.WARN,
        description=NO_EPISODE if missing else None,
        metadata={"missing": missing, "kept away": counts.kept_away},
    )


def _records(memory: MemoryResource, source: str | None) -> int:
    """Return the number of typed records and session records of a source, or of all."""
    return memory.store.episodes.count(
        EpisodeFilter(kinds=(RECORD_KIND, SESSION_KIND), source=source, include_superseded=True)
    )


def _check_of_posted(source: str, spec: dg.AssetSpec) -> dg.AssetChecksDefinition:
    """Return the check of an external asset. No run makes the asset, so `embed_sensor` reports the result."""

    @dg.asset_check(
        asset=spec.key,
        name="all_is_searchable",
        description="Everything that was sent is an episode, and every passage of it has its vectors in the active "
        "space. What lacks vectors is found by its words, and embedded by the next run of `embed`; what is no episode "
        "yet is made one by the next run of `finish_posted`.",
    )
    def all_is_searchable(memory: MemoryResource) -> dg.AssetCheckResult:
        return posted_searchability(memory, source)

    return all_is_searchable


def posted_searchability(memory: MemoryResource, source: str) -> dg.AssetCheckResult:
    """Return the result of `all_is_searchable` for a reserved source; from counts, cheap enough for a sensor tick."""
    store = memory.store
    counts, active = store.overview.counts(source), store.spaces.active()
    lacking = store.vectors.pending_sources(active.key).get(source, 0) if active else counts.passages
    published = counts.episodes - _records(memory, source)
    missing = max(0, counts.parts - counts.kept_away - published) + counts.unparsed_lines
    return dg.AssetCheckResult(
        passed=not missing and not lacking,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={
            "episodes": counts.episodes,
            "without an episode": missing,
            "passages without vectors": lacking,
            "space": active.key if active else "(none)",
        },
    )


def posted_evaluations(
    memory: MemoryResource, told: Mapping[str, str]
) -> tuple[dict[str, str], list[dg.AssetCheckEvaluation]]:
    """Evaluate the checks of external assets.

    :param told: asset -> fingerprint of the last reported result.
    :returns: the current fingerprints, and the results that differ from `told`.
    """
    now, evaluations = dict[str, str](), list[dg.AssetCheckEvaluation]()
    for source, spec in POSTED.items():
        result, asset = posted_searchability(memory, source), spec.key.to_user_string()
        now[asset] = content_id(json.dumps({name: value.value for name, value in result.metadata.items()}))
        if now[asset] != told.get(asset):
            evaluations.append(evaluation(dg.AssetCheckKey(spec.key, "all_is_searchable"), result))
    return now, evaluations


def embedding_evaluations(memory: MemoryResource) -> list[dg.AssetCheckEvaluation]:
    """Evaluate the checks of `embeddings`, for a partition materialized without a run."""
    results = (every_passage_is_embedded(memory), vectors_are_sound(memory))
    return [evaluation(spec.key, result) for spec, result in zip(EMBEDDING_CHECKS, results, strict=True)]


def evaluation(key: dg.AssetCheckKey, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """Convert a result to an event for a sensor, when no run evaluates the check."""
    return dg.AssetCheckEvaluation(
        asset_key=key.asset_key,
        check_name=key.name,
        passed=result.passed,
        metadata=result.metadata,
        severity=result.severity,
        description=result.description,
    )


def every_passage_is_embedded(memory: MemoryResource) -> dg.AssetCheckResult:
    """Check the coverage: below 100 %, semantic search misses some passages, which keyword search finds."""
    active = memory.store.spaces.active()
    if active is not None:
        progress = memory.store.vectors.progress(active.key)
        stored, embedded = progress.passages, progress.passages_done
    else:
        stored, embedded = memory.store.overview.counts().passages, 0
    return dg.AssetCheckResult(
        check_name="every_passage_is_embedded",
        passed=embedded == stored,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"embedded": embedded, "stored": stored, "space": active.key if active else "(none)"},
    )


def vectors_are_sound(memory: MemoryResource) -> dg.AssetCheckResult:
    """Check the newest episodes' vectors; pending ones are skipped."""
    found = {space.key: check_vectors(memory.store, space) for space in memory.store.spaces.all()}
    wrong = {key: bad for key, (_, bad) in found.items() if bad}
    looked_at = sum(count for count, _ in found.values())
    return dg.AssetCheckResult(
        check_name="vectors_are_sound",
        passed=not wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={"vectors looked at": looked_at, "wrong": sum(wrong.values()), "spaces": ", ".join(wrong) or "none"},
    )


@dg.asset_check(asset="session_summaries", description="Every session at rest has a record of what was said last.")
def every_session_is_recorded(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of pending sessions: they are new, or their source's run is still to come."""
    store = memory.store
    waiting = sum(bool(store.sessions.changed(source.key, "", 1)) for source in store.files.sources())
    return dg.AssetCheckResult(
        passed=waiting == 0,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"sources with sessions that wait": waiting},
    )


@dg.asset_check(asset="memory_map", description="The map can be read, and shows at least 98% of what is searched.")
def map_is_current(memory: MemoryResource) -> dg.AssetCheckResult:
    """Report a damaged map as an error, since the page Map then shows nothing. An old one is redrawn each morning."""
    home, problem = memory.settings.home, ""
    try:
        made = read_map(map_path(home))
    except StoreCorrupt as exc:
        made, problem = None, str(exc)
    is_due = not problem and is_map_due(memory.store, home)
    return dg.AssetCheckResult(
        passed=not problem and not is_due,
        severity=dg.AssetCheckSeverity.ERROR if problem else dg.AssetCheckSeverity.WARN,
        description=problem or ("Much came or went since it was drawn, or another model searches." if is_due else None),
        metadata={
            "drawn": f"{made.made_at:%Y-%m-%d %H:%M} UTC" if made else "never",
            "space": made.space if made else "none",
        },
    )


@dg.asset_check(asset="consolidation_report", description="No session with new episodes waits to be consolidated.")
def every_session_is_consolidated(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of pending sessions: some wait for the next run, or for vectors."""
    waiting = memory.store.consolidation.changed_count()
    return dg.AssetCheckResult(passed=waiting == 0, severity=dg.AssetCheckSeverity.WARN, metadata={"waiting": waiting})


@dg.asset_check(asset="vector_index", description="The full-text index agrees with the rows it indexes.")
def full_text_is_sound(memory: MemoryResource) -> dg.AssetCheckResult:
    """Run the engine's integrity check; reads the whole index."""
    problems = memory.store.text.check()
    is_damaged = any(problem.state == "damaged" for problem in problems)
    return dg.AssetCheckResult(
        passed=not problems,
        severity=dg.AssetCheckSeverity.ERROR if is_damaged else dg.AssetCheckSeverity.WARN,
        metadata={"problems": "\n".join(problem.text for problem in problems) or "none"},
    )


CHECKS = [
    sources_are_fresh,
    every_line_is_parsed,
    every_version_is_parsed,
    every_llm_summary_is_made,
    no_line_is_a_dead_letter,
    every_part_is_an_episode,
    every_session_is_recorded,
    map_is_current,
    every_session_is_consolidated,
    full_text_is_sound,
    *(_check_of_posted(source, spec) for source, spec in POSTED.items()),
]
