"""Asset: what texts claim of their projects, and the projects' files do not hold."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg

from anamnesis_pipeline.defs.reporting import ROWS, counted, table
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.services.drift import drift_of
from anamnesis_pipeline.services.wiring import what_is_private

SHOWN = 50
"""Findings in the table, those of the lowest scores first."""
FAIR = 80
"""Score below which the check warns, as a commit hook's line is yellow."""
DRIFT_CHECK = dg.AssetCheckSpec(
    "scores_are_fair", asset="drift_report", description=f"No project has a drift score below {FAIR}."
)


@dg.asset(deps=["episodes"], group_name="knowledge", kinds={"python"}, check_specs=[DRIFT_CHECK])
def drift_report(memory: MemoryResource) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Paths, functions, commands, packages and variables that curated texts and notes name, and the files of their
    project do not have: a score per project, as `anamnesis drift` prints it. Private projects are left out.
    """
    reports = drift_of(memory.store, what_is_private(memory.store), datetime.now(UTC))
    findings = [finding for report in reports for finding in report.findings]
    told = [f"{each.project} {each.episode_id} {each.kind} {each.value} {each.problem}" for each in findings]
    yield dg.MaterializeResult(
        data_version=dg.DataVersion(content_id("drift", *sorted(told))),
        metadata={
            ROWS: len(findings),
            "texts": sum(report.texts for report in reports),
            "claims": sum(report.claims for report in reports),
            "unknown": sum(report.unknown for report in reports),
            "kinds": counted(Counter(str(each.kind) for each in findings)),
            "scores": table([{"project": report.project, "score": report.score} for report in reports]),
            "findings": table(
                [
                    {"project": each.project, "severity": str(each.severity), "claim": each.value, "why": each.problem}
                    for each in findings[:SHOWN]
                ]
            ),
        },
    )
    low = [f"{report.project} {report.score}" for report in reports if report.score < FAIR]
    yield dg.AssetCheckResult(
        check_name=DRIFT_CHECK.name,
        passed=not low,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"low": ", ".join(low) or "none"},
    )
