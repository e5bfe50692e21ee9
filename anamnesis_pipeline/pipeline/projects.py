"""Project names: a directory's project is remembered, and aliases merge projects."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Protocol
from urllib.parse import unquote

from anamnesis_pipeline.errors import BadSetting, HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.model import EpisodeFilter, Source
from anamnesis_pipeline.parsing.claude_logs.parser import FileState
from anamnesis_pipeline.parsing.claude_logs.projects import project_label, resolved_project
from anamnesis_pipeline.parsing.text.file_names import composed
from anamnesis_pipeline.sources.specs import LOGS, TOPICS, SourceSpec
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES, SettingsRecords, names_of, store_name

Label = Callable[[str], str]
"""Working directory -> project."""
SEEN = "projects.seen."
"""Settings prefix, then a directory of this machine, or `<machine>:` and a directory of another -> project."""
GUESSED = "projects.guessed."
"""Settings prefix, then `<machine>:` and a directory -> provisional project of its logs, which were parsed while the
machine was unreachable and the directory was unknown."""

SPELLINGS_MERGED = "projects.spellings_merged"


class Labels(Protocol):
    """The projects of directories on all machines."""

    def of(self, source: Source) -> Label:
        """Return a function: directory on the machine of a source -> project."""


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project's name, its number of episodes, and the names merged into it."""

    name: str
    episodes: int
    aliases: tuple[str, ...] = ()


def project_labels(settings: SettingsRecords) -> Label:
    """Return a function: working directory -> project. A removed directory keeps the project that it had when last
    seen, even inside a repository of a whole home.
    """

    @lru_cache(maxsize=10_000)
    def label(cwd: str) -> str:
        seen, is_here = settings.get(SEEN + cwd), os.path.isdir(cwd)
        if seen is not None and not is_here:
            return composed(str(seen))
        found = resolved_project(cwd)
        if found is None:
            return project_label(cwd)
        if is_here and seen != found:
            settings.set(SEEN + cwd, found)
        return found

    return label


def machine_labels(
    settings: SettingsRecords, machine: str, resolve: Callable[[str], str | None], *, must_answer: bool = False
) -> Label:
    """Return a function as `project_labels` does, for directories of another machine. After a failed connection, use
    only what was seen before.

    :param resolve: project of a directory by the machine's disk; None: unknown.
    :param must_answer: raise the connection error for unknown directories; else name them by their paths and note that
        for `right_guesses`.
    """
    away: HostUnreachable | HostRefused | None = None

    @lru_cache(maxsize=10_000)
    def known(cwd: str) -> str:
        nonlocal away
        name = f"{SEEN}{machine}:{cwd}"
        seen, found = settings.get(name), None
        if cwd.startswith("/") and away is None:
            try:
                found = resolve(cwd)
            except (HostUnreachable, HostRefused) as problem:
                away = problem
            except SourceUnreadable:
                found = None
        if found is not None and found != seen:
            settings.set(name, found)
        if away is not None and found is None and seen is None:
            raise type(away)(str(away))
        return found or (composed(str(seen)) if seen is not None else project_label(cwd))

    def label(cwd: str) -> str:
        try:
            return known(cwd)  # errors are not cached: a later run may reach the machine
        except (HostUnreachable, HostRefused):
            if must_answer:
                raise
        return _guessed(settings, machine, cwd)

    return label


def _guessed(settings: SettingsRecords, machine: str, cwd: str) -> str:
    """Return a directory's name by its path, and note it for `right_guesses`."""
    guess, name = project_label(cwd), f"{GUESSED}{machine}:{cwd}"
    if cwd.startswith("/") and settings.get(name) != guess:
        settings.set(name, guess)
    return guess


def guesses_of(settings: SettingsRecords, machine: str) -> dict[str, str]:
    """Return directory -> provisional project, for a machine that has not answered yet."""
    prefix = f"{GUESSED}{machine}:"
    named = {name.removeprefix(prefix): str(project) for name, project in settings.all(prefix).items()}
    return {cwd: project for cwd, project in named.items() if cwd.startswith("/")}


def right_guesses(store: Store, machine: str, label: Label) -> int:
    """Replace provisional projects once the machine answers; ask about each directory once. Return how many chunks
    changed; 0 without guesses or while the machine is unreachable.

    :param label: as `machine_labels` with `must_answer`.
    """
    guesses, changed = guesses_of(store.settings, machine), 0
    if not guesses:
        return 0
    files = _files_begun_in(store, machine)
    for cwd, guess in guesses.items():
        try:
            project = label(cwd)
        except (HostUnreachable, HostRefused):
            break
        for source, begun in files.items():
            changed += store.projects.move_parts(source, begun.get(cwd, ()), cwd, guess, project)
        store.settings.set(f"{GUESSED}{machine}:{cwd}", None)
    return changed


def _files_begun_in(store: Store, machine: str) -> dict[str, dict[str, list[str]]]:
    """Return log source key -> directory -> files whose session began there."""
    found: dict[str, dict[str, list[str]]] = {}
    for source in store.files.sources():
        if source.machine != machine or not source.kind.startswith("claude"):
            continue
        begun = found.setdefault(source.key, {})
        for path, cursor in store.files.cursors(source.key).items():
            state = FileState.from_json(cursor.parser_state) if cursor.parser_state else None
            if state is not None:
                for cwd in dict.fromkeys((state.first_cwd, *(other.first_cwd for other in state.others))):
                    begun.setdefault(cwd, []).append(path)
    return found


def merge_spellings(store: Store) -> None:
    """Merge projects that an earlier version stored in two Unicode forms; runs once per store."""
    if store.settings.get(SPELLINGS_MERGED):
        return
    for name in sorted({called for _, called, _ in store.projects.names()}):
        if name not in {composed(name), store_name(project_aliases(store), composed(name))}:
            add_alias(store, name, composed(name))
    store.settings.set(SPELLINGS_MERGED, True)


def project_rows(store: Store) -> list[ProjectRow]:
    """Return every project, the largest first."""
    totals: dict[str, int] = {}
    for _, name, episodes in store.projects.names():
        totals[name] = totals.get(name, 0) + episodes
    aliases = project_aliases(store)
    merged = {name: tuple(sorted(names_of(aliases, name) - {name})) for name in {*aliases.values()} - {*aliases}}
    rows = [ProjectRow(name, totals.get(name, 0), merged.get(name, ())) for name in {*totals, *merged} - {*aliases}]
    return sorted(rows, key=lambda row: (-row.episodes, row.name))


def add_alias(store: Store, name: str, target: str) -> int:
    """Rename the project `name` to `target`, stored episodes included. Return how many episodes changed.

    :raises BadSetting: `target` is called `name` already, or one of them is empty.
    """
    aliases = project_aliases(store)
    if not name or not target or store_name(aliases, target) == name:
        raise BadSetting(f"cannot call {name!r} {target!r}: {target!r} is {store_name(aliases, target)!r} itself")
    return _apply(store, aliases, {**aliases, name: target})


def remove_alias(store: Store, name: str) -> int:
    """Remove an alias. Return how many episodes changed.

    :raises BadSetting: `name` is no alias.
    """
    aliases = project_aliases(store)
    if name not in aliases:
        known = ", ".join(sorted(aliases)) or "none"
        raise BadSetting(f"{name!r} is no alias; those that are: {known}")
    return _apply(store, aliases, {alias: target for alias, target in aliases.items() if alias != name})


def _apply(store: Store, before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Write the alias table first, so that concurrent writes follow it."""
    store.settings.set(PROJECT_ALIASES, dict(sorted(after.items())) or None)
    return sum(store.projects.call(name, store_name(after, name)) for name in {*before, *after})


def project_aliases(store: Store) -> dict[str, str]:
    """Return alias -> project name."""
    return dict(store.settings.get(PROJECT_ALIASES, {}))


# --- memory projects -------------------------------------------------------------------------------------

# The project of a memory that Claude Code keeps beside a project's logs: that of these logs.

_CLAUDE_MEMORY = re.compile(r"/projects/([^/]+)/memory/")


def project_named(store: Store, source: Source, spec: SourceSpec) -> Callable[[str], str]:
    """Return a function: absolute path -> configured project of the source, or, for a memory, the project of the logs
    beside it as far as they were read, or, for a topic of the home, that of its folder; empty: none of these.
    """
    if spec.project:
        return lambda path: spec.project
    if spec.name == TOPICS:
        return lambda path: unquote(PurePosixPath(path).parent.name)
    logs = {s.folder: s.key for s in store.files.sources() if s.kind == LOGS and s.machine == source.machine}

    @cache
    def project_of_logs(folder: str) -> str:
        newest = store.episodes.page(EpisodeFilter(source=logs[folder]), 1).items if folder in logs else []
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
