"""Drift of projects: what their texts claim and their files do not hold, with a score."""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from typing_extensions import TypedDict

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.knowledge.drift import DriftReport, Finding, check_project
from anamnesis_pipeline.knowledge.project_files import ProjectFolders
from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.claude_logs.projects import project_label, resolved_project
from anamnesis_pipeline.pipeline.projects import project_aliases
from anamnesis_pipeline.search.project_labels import ALL, Private
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import store_name

MAX_PROJECTS = 100
"""Projects that are checked at once, by name."""


class FindingOut(TypedDict):
    """Something that a text says and that does not hold.

    `kind`: path, function, script, target, dependency, variable or stale; `quote`: verbatim; `path` and `line`, from 1:
    where the text is, empty and 0 for a note; `looked_at`: the files that speak against it; `suggestion`: where it may
    have gone.
    """

    severity: str
    kind: str
    value: str
    problem: str
    episode_id: str
    quote: str
    path: str
    line: int
    looked_at: str
    suggestion: str
    timestamp: str


class DriftReportOut(TypedDict):
    """What was checked of a project. `score`: 100 less 10 per error, 3 per warning and 1 per info, at least 0;
    `unknown`: claims of which too little is known to say.
    """

    project: str
    score: int
    texts: int
    claims: int
    unknown: int
    looked_at: list[str]
    findings: list[FindingOut]


class DriftOut(TypedDict):
    """The projects with texts that claim something, the lowest score first."""

    projects: list[DriftReportOut]


def drift_of(
    store: Store,
    private: Private,
    now: datetime,
    project: str = "",
    included: Collection[str] = (),
    *,
    root: str = "",
    functions: bool = True,
) -> list[DriftReport]:
    """Check the claims of a project, or of all, the lowest score first.

    :param project: a bare name also means `acme/<name>`; empty: that of `root`, else all.
    :param included: private projects and sources to include without a project; `*`: all.
    :param root: folder of this machine that holds the project's files; empty: where the memory has seen it.
    :param functions: also check functions and classes.
    :raises GiveUp: `root` is no folder, means none of several projects, or one that is not stored.
    """
    if root and not os.path.isdir(root):
        raise GiveUp(f"{root} is no folder of this machine; name the one that holds the project's files")
    root = os.path.realpath(root) if root else ""
    of_root = store_name(project_aliases(store), resolved_project(root) or project_label(root)) if root else ""
    named = project or of_root
    where = private.visible(store, EpisodeFilter(projects=(named,) if named else ()), included)
    known = store.projects.all()
    if not where.projects:
        shown = (each for each in known if not private.withholds(each, included) or ALL in included)
        names = [each for each in sorted(shown) if each][:MAX_PROJECTS]
    else:
        names = [each for each in where.projects if each in known]
    if root and not names:
        raise GiveUp(f"nothing is stored of {named}; name the project: anamnesis drift PROJECT --root {root}")
    if root and len(names) > 1:
        raise GiveUp(f"{named} means {', '.join(names)}; name one of them with --root")
    hidden = replace(where, projects=())
    folders = ProjectFolders(store, hidden)
    for name in names if root else ():
        folders.use(name, root)
    reports = [check_project(store, folders, name, now, hidden, functions=functions) for name in names]
    return sorted((each for each in reports if each.texts), key=lambda each: (each.score, each.project))


def drift_body(reports: Sequence[DriftReport]) -> DriftOut:
    """Return reports as they are answered."""
    return {
        "projects": [
            {
                "project": each.project,
                "score": each.score,
                "texts": each.texts,
                "claims": each.claims,
                "unknown": each.unknown,
                "looked_at": list(each.looked_at),
                "findings": [_finding(finding) for finding in each.findings],
            }
            for each in reports
        ]
    }


def _finding(finding: Finding) -> FindingOut:
    return {
        "severity": str(finding.severity),
        "kind": str(finding.kind),
        "value": finding.value,
        "problem": finding.problem,
        "episode_id": finding.episode_id,
        "quote": finding.quote,
        "path": finding.path,
        "line": finding.line,
        "looked_at": finding.looked_at,
        "suggestion": finding.suggestion,
        "timestamp": utc_text(finding.at),
    }
