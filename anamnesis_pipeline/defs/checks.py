"""Asset checks: what must hold after each step. All but the integrity check are cheap enough for every run."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from anamnesis_pipeline.defs.reporting import table
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.model import RESERVED_SOURCES, Where
from anamnesis_pipeline.session_model import SESSION_KIND
from anamnesis_pipeline.steps.crawler_status import SpecStatus, crawler_status
from anamnesis_pipeline.steps.episodes import RECORD_KIND
from anamnesis_pipeline.steps.survey import dead_host_text

MOST_REASONS = 3
"""Reasons that a source's row in the table names."""

NO_EPISODE = "Some parts have no episode yet: work that is left for `episodes`."


@dg.asset_check(asset="crawled_files", description="Every configured source was seen within three of its intervals.")
def sources_are_fresh(memory: MemoryResource) -> dg.AssetCheckResult:
    """A stale one means that its machine is away or its root is gone; nothing is lost, and it is tried again."""
    return freshness(memory)


def freshness(memory: MemoryResource) -> dg.AssetCheckResult:
    """What the check says now; the sensor tells it too, since no run starts where nothing can be read."""
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
    """How a source is doing, for a table. Pure."""
    seen = row.look
    wrong = list(dict.fromkeys([*([seen.error] if seen.error else []), *row.errors, *seen.problems]))
    return {
        "source": row.spec.name,
        "machine": row.spec.machine,
        "last success": f"{seen.seen_at:%Y-%m-%d %H:%M} UTC" if seen.seen_at else "never",
        "lag in seconds": "unknown" if row.lag_s is None else round(row.lag_s),
        "files": seen.files,
        "MB": round(seen.bytes / 1e6, 1),
        "what is wrong": "; ".join(wrong[:MOST_REASONS]) + (" and more" if len(wrong) > MOST_REASONS else ""),
    }


@dg.asset_check(asset="exchanges", description="Every archived line was parsed.")
def every_line_is_parsed(memory: MemoryResource) -> dg.AssetCheckResult:
    """Lines that wait mean that a run ended early, or that another run is still parsing."""
    waiting = memory.store.ingest.counts().unparsed_lines
    return dg.AssetCheckResult(passed=waiting == 0, severity=dg.AssetCheckSeverity.WARN, metadata={"waiting": waiting})


@dg.asset_check(asset="exchanges", description="Every archived line could be read.")
def no_line_is_a_dead_letter(memory: MemoryResource) -> dg.AssetCheckResult:
    """A line that a crash tore apart stays one; one that is only too new is read by a later version."""
    letters = memory.store.ingest.counts().dead_letters
    first = memory.store.ingest.dead_letters(limit=5)
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
    """Those that stand in are tried again by themselves; `anamnesis doctor` says why they are missing."""
    waiting = memory.store.ingest.summary_counts().get("problem", 0)
    return dg.AssetCheckResult(passed=waiting == 0, severity=dg.AssetCheckSeverity.WARN, metadata={"waiting": waiting})


@dg.asset_check(asset="episodes", description="Every part of every exchange is a searchable episode.")
def every_part_is_an_episode(memory: MemoryResource) -> dg.AssetCheckResult:
    """What a rule holds back, or was deleted, is missing on purpose; what another run publishes just now is not, so the
    check warns only.
    """
    ingest = memory.store.ingest
    counts = ingest.counts()
    reserved = [ingest.counts(source) for source in RESERVED_SOURCES]
    others = sum(each.episodes - each.parts for each in reserved)  # what was posted is of no part; an upload is
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
    """Typed records, and records of sessions, among the episodes of a source, or of all."""
    return memory.store.episodes.count(Where(kinds=(RECORD_KIND, SESSION_KIND), source=source, include_superseded=True))


@dg.asset_check(asset="embeddings", description="Every passage has its vectors in the active space.")
def every_passage_is_embedded(memory: MemoryResource) -> dg.AssetCheckResult:
    """Coverage below 100 % means that search by meaning misses what is not embedded yet; words find it."""
    active = memory.store.spaces.active()
    if active is not None:
        progress = memory.store.vectors.progress(active.key)
        stored, embedded = progress.passages, progress.passages_done
    else:
        stored, embedded = memory.store.ingest.counts().passages, 0
    return dg.AssetCheckResult(
        passed=embedded == stored,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"embedded": embedded, "stored": stored, "space": active.key if active else "(none)"},
    )


@dg.asset_check(asset="vector_index", description="The full-text index agrees with the rows it indexes.")
def full_text_is_sound(memory: MemoryResource) -> dg.AssetCheckResult:
    """The engine's own integrity check; reads the whole index."""
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
    every_llm_summary_is_made,
    no_line_is_a_dead_letter,
    every_part_is_an_episode,
    every_passage_is_embedded,
    full_text_is_sound,
]
