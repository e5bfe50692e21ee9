"""The project of a memory that Claude Code keeps beside a project's logs: that of these logs."""

import re
from collections.abc import Callable, Iterable
from functools import cache

from anamnesis_pipeline.model import Source, Where
from anamnesis_pipeline.sources.specs import LOGS, SourceSpec
from anamnesis_pipeline.store.base import Store

_CLAUDE_MEMORY = re.compile(r"/projects/([^/]+)/memory/")


def project_named(store: Store, source: Source, spec: SourceSpec) -> Callable[[str], str]:
    """Return a function: absolute path -> configured project of the source, or, for a memory, the project of the logs
    beside it as far as they were read; empty: neither.
    """
    if spec.project:
        return lambda path: spec.project
    logs = {s.folder: s.key for s in store.files.sources() if s.kind == LOGS and s.machine == source.machine}

    @cache
    def project_of_logs(folder: str) -> str:
        newest = store.episodes.page(Where(source=logs[folder]), 1).items if folder in logs else []
        return newest[0].project if newest else ""

    def named(path: str) -> str:
        found = _CLAUDE_MEMORY.search(path)
        return project_of_logs(found[1]) if found else ""

    return named


def misnamed(store: Store, source: Source, root: str, paths: Iterable[str], named: Callable[[str], str]) -> set[str]:
    """Return the memories that were read before the logs beside them, and so have another project.

    :param paths: relative to `root`; paths that are no memories are ignored.
    :param named: see `project_named`.
    """
    found = set()
    for path in paths:
        absolute = f"{root.rstrip('/')}/{path}"
        if not _CLAUDE_MEMORY.search(absolute) or not (project := named(absolute)):
            continue
        parts = [s.part_id for s in store.documents.sightings_of(source.key, path) if s.present]
        if any(episode.project != project for episode in store.episodes.get(parts).values()):
            found.add(path)
    return found
