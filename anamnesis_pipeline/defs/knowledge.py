"""Assets of what holds: what was observed, the proposals of each detector, and the weekly review."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any

import dagster as dg

from anamnesis_pipeline.defs.partitions import SOURCES
from anamnesis_pipeline.defs.reporting import ROWS, per_second, table, watermark
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource
from anamnesis_pipeline.knowledge.detecting import Detector
from anamnesis_pipeline.knowledge.dream import DETECTORS, has_work, name_of, observe
from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.proposals import Proposals
from anamnesis_pipeline.services.topic_edits import TopicEdits
from anamnesis_pipeline.services.topics import open_topics
from anamnesis_pipeline.services.wiring import open_pieces, what_is_private
from anamnesis_pipeline.store.knowledge_model import Proposal, State
from anamnesis_pipeline.store.records.proposals import Proposed

NEWEST = 10
"""Proposals in the table of a detector."""
REVIEWED = 200
"""Proposals in the weekly review."""


@dg.asset(partitions_def=SOURCES, deps=["episodes"], group_name="knowledge", kinds={"python"})
def observations(context: dg.AssetExecutionContext, memory: MemoryResource) -> dg.MaterializeResult[None]:
    """What the sessions, notes and texts that changed say and do that may hold beyond them, each with its quote. Every
    run also observes what was posted.
    """
    started = time.perf_counter()
    report = observe(memory.store, [context.partition_key, *RESERVED_SOURCES])
    counts = memory.store.overview.counts(context.partition_key)
    return dg.MaterializeResult(
        data_version=watermark(counts, "episodes"),
        metadata={
            ROWS: report.observations,
            "observed": report.observed,
            "observed per second": per_second(report.observed, time.perf_counter() - started),
            "not readable": len(report.unread),
            "waiting in all sources": report.waiting,
        },
    )


KEYS = {dg.AssetKey(["proposals", name_of(each)]): each for each in DETECTORS}
"""Asset -> its detector."""


@dg.multi_asset(
    specs=[
        dg.AssetSpec(
            key,
            deps=[observations],
            group_name="knowledge",
            kinds={"python"},
            description=f"{(type(each).__doc__ or '').strip()} Proposals of kind `{each.kind}`.",
        )
        for key, each in KEYS.items()
    ],
    can_subset=True,
)
def proposals(
    context: dg.AssetExecutionContext, memory: MemoryResource, embedding_pool: EmbeddingPoolResource
) -> Iterator[dg.MaterializeResult[None]]:
    """Observe what no ingest has observed, and run the detectors. One that fails stops no other; the run fails at its
    end.
    """
    store, problems = memory.store, dict[str, str]()
    _proposals(memory).observe()
    wanted = {key: each for key, each in KEYS.items() if key in context.selected_asset_keys}
    space = store.spaces.active() if any(map(partial(has_work, store), wanted.values())) else None
    with embedding_pool.open(memory, space) if space is not None else nullcontext() as pool:
        for key, detector in wanted.items():
            report = _proposals(memory).detect(detector, memory.settings, pool)
            if problem := report.problems.get(name_of(detector)):
                problems[name_of(detector)] = problem
                continue
            found = report.proposed.get(name_of(detector), Proposed())
            counts = _states(memory, detector)
            newest = _proposals(memory).listed(State.OPEN, detector.kind, limit=NEWEST)
            metadata: dict[str, Any] = {ROWS: sum(counts.values()), "newest": table([_row(each) for each in newest])}
            metadata |= {"new": found.new, "renewed": found.renewed, "reopened": found.reopened} | counts
            version = "-".join(f"{state}:{n}" for state, n in sorted(counts.items())) or "none"
            yield dg.MaterializeResult(asset_key=key, data_version=dg.DataVersion(version), metadata=metadata)
    if problems:
        raise dg.Failure("; ".join(f"{name}: {problem}" for name, problem in problems.items()))


@dg.asset(deps=list(KEYS), group_name="knowledge", kinds={"python"})
def review_report(memory: MemoryResource) -> dg.MaterializeResult[None]:
    """What waits for a decision, by kind and project, with its quotes: the weekly review."""
    waiting = _proposals(memory).listed(limit=REVIEWED)
    kinds = Counter(str(each.kind) for each in waiting)
    lines = [f"# Review of {datetime.now(UTC):%Y-%m-%d}", ""]
    for each in sorted(waiting, key=lambda proposal: (proposal.kind, proposal.project)):
        lines += [f"- **{each.kind}** ({each.project or 'no project'}): {each.title}"]
        lines += [f"  - {f'{quote.at:%Y-%m-%d} ' if quote.at else ''}> {quote.quote}" for quote in each.evidence]
    return dg.MaterializeResult(
        data_version=dg.DataVersion("-".join(sorted(each.proposal_id[:8] for each in waiting)) or "none"),
        metadata={ROWS: len(waiting), "report": dg.MetadataValue.md("\n".join(lines)), **kinds},
    )


# --- checks ----------------------------------------------------------------------------------------------


@dg.asset_check(asset=observations, description="Every session, note and text that changed is observed.")
def everything_is_observed(memory: MemoryResource) -> dg.AssetCheckResult:
    """Warn of what waits for the next run."""
    waiting = memory.store.observations.unobserved_count()
    return dg.AssetCheckResult(passed=not waiting, severity=dg.AssetCheckSeverity.WARN, metadata={"waiting": waiting})


@dg.asset_check(asset=review_report, description="Every accepted proposal is in its topic file, approved by a person.")
def topics_are_written(memory: MemoryResource) -> dg.AssetCheckResult:
    """Fail if a topic file of an accepted proposal is not written; the next dream writes it."""
    left = memory.store.proposals.unfinished(REVIEWED)
    shown = _proposals(memory).without_private(left)
    metadata: dict[str, Any] = {"not written": ", ".join(each.title for each in shown), "in all": len(left)}
    return dg.AssetCheckResult(passed=not left, metadata=metadata)


def _quotes_check(key: dg.AssetKey, detector: Detector) -> dg.AssetChecksDefinition:
    """Return the check that every quote of the open proposals of a detector is verbatim in its episode."""

    @dg.asset_check(
        asset=key, name="quotes_are_verbatim", description="Every quote of an open proposal is verbatim in its episode."
    )
    def quotes_are_verbatim(memory: MemoryResource) -> dg.AssetCheckResult:
        opened = memory.store.proposals.page(REVIEWED, State.OPEN, detector.kind)
        episodes = memory.store.episodes.get([name for each in opened for name in each.episode_ids])
        texts = {name: f"{each.summary}\n{each.raw_exchange}" for name, each in episodes.items()}
        wrong = [
            each.proposal_id
            for each in opened
            if any(quote.quote not in texts.get(quote.episode_id, "") for quote in each.evidence)
        ]
        return dg.AssetCheckResult(passed=not wrong, metadata={"looked at": len(opened), "wrong": " ".join(wrong[:10])})

    return quotes_are_verbatim


KNOWLEDGE_CHECKS = [
    everything_is_observed,
    topics_are_written,
    *(_quotes_check(key, detector) for key, detector in KEYS.items()),
]


def _proposals(memory: MemoryResource) -> Proposals:
    writer = EpisodeWriter(memory.store, open_redactor(memory.settings).mask_text, open_pieces(), None)
    topics = TopicEdits(memory.store, open_topics(memory.settings), memory.settings.machine)
    return Proposals(memory.store, writer, topics, what_is_private(memory.store))


def _states(memory: MemoryResource, detector: Detector) -> Counter[str]:
    found: Counter[str] = Counter()
    for (state, kind, _), count in memory.store.proposals.counts().items():
        found[state] += count if kind == detector.kind else 0
    return found


def _row(of: Proposal) -> dict[str, str]:
    return {"state": str(of.state), "project": of.project, "title": of.title, "made": f"{of.created_at:%Y-%m-%d}"}
