"""Detector of texts and notes that claim what a project's files do not hold."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from anamnesis_pipeline.knowledge.detecting import Memory
from anamnesis_pipeline.knowledge.drift import STALE, Finding, Severity, check_project
from anamnesis_pipeline.knowledge.project_files import ProjectFolders
from anamnesis_pipeline.model import EpisodeFilter, Status
from anamnesis_pipeline.store.knowledge_model import Change, Evidence, Kind, Observation, Proposal, Signal, StatusEdit

TITLE_CHARS = 100
_CONFIDENCE = {Severity.ERROR: 0.9, Severity.WARNING: 0.8}


class DriftedTexts:
    """A path, function, command, package or variable that a text names and the project does not have. What was done
    in a project is reason to look at all that is claimed of it.
    """

    kind = Kind.DRIFT
    signals = tuple(Signal)
    looks_back: timedelta | None = None

    def find(self, memory: Memory, fresh: Sequence[Observation]) -> Iterator[Proposal]:
        """Yield one for each claim of each project in which something was observed."""
        projects = {each.project for each in fresh if each.project} - memory.checked
        memory.checked |= projects
        folders = ProjectFolders(memory.store, EpisodeFilter())
        for project in sorted(projects):
            for finding in check_project(memory.store, folders, project, memory.now, EpisodeFilter()).findings:
                if finding.kind != STALE:
                    yield _proposal(finding, memory)


def _proposal(finding: Finding, memory: Memory) -> Proposal:
    return Proposal(
        Kind.DRIFT,
        finding.project,
        f"drift {finding.episode_id} {finding.kind} {finding.value}",
        f"{finding.value}: {finding.problem}"[:TITLE_CHARS],
        Change((StatusEdit(finding.episode_id, _status_for(finding)),)),
        (Evidence(finding.episode_id, finding.quote, "", finding.at),),
        _CONFIDENCE[finding.severity],
        "drifted_texts",
        memory.now,
    )


def _status_for(finding: Finding) -> Status:
    """Return INVALIDATED for a note, which says one thing, and CHALLENGED for a section, the rest of which may hold."""
    return Status.CHALLENGED if finding.path else Status.INVALIDATED
