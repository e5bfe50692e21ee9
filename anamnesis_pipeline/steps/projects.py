"""Names of projects: what a directory resolved to is remembered, and aliases merge what belongs together."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from anamnesis_pipeline.errors import BadSetting, HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.exchanges.projects import project_label, resolved_project
from anamnesis_pipeline.store.base import PROJECT_ALIASES, SettingsRecords, Store
from anamnesis_pipeline.store.project_names import names_of, store_name

SEEN = "projects.seen."
"""Stored under this prefix and a directory of this machine, or `<machine>:` and one of another: its project."""


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project as it is called, how many episodes it has, and the names that are merged into it."""

    name: str
    episodes: int
    aliases: tuple[str, ...] = ()


def project_labels(settings: SettingsRecords) -> Callable[[str], str]:
    """Working directory -> project. A directory that was removed keeps the project that it had when it was seen, also
    where a repository of somebody's whole home is left around it.
    """

    @lru_cache(maxsize=10_000)
    def label(cwd: str) -> str:
        seen, is_here = settings.get(SEEN + cwd), os.path.isdir(cwd)
        if seen is not None and not is_here:
            return str(seen)
        found = resolved_project(cwd)
        if found is None:
            return project_label(cwd)
        if is_here and seen != found:
            settings.set(SEEN + cwd, found)
        return found

    return label


def machine_labels(
    settings: SettingsRecords, machine: str, resolve: Callable[[str], str | None], *, must_answer: bool = False
) -> Callable[[str], str]:
    """As `project_labels`, for directories of another machine. One that does not answer is asked no more, and what was
    seen on it before counts.

    :param resolve: what the machine's disk says of a directory; None: nothing.
    :param must_answer: what a machine that does not answer raises is raised for directories that were never seen;
        else these are called by their paths.
    """
    away: HostUnreachable | HostRefused | None = None

    @lru_cache(maxsize=10_000)
    def label(cwd: str) -> str:
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
        if must_answer and away is not None and found is None and seen is None:
            raise type(away)(str(away))
        return found or (str(seen) if seen is not None else project_label(cwd))

    return label


def project_rows(store: Store) -> list[ProjectRow]:
    """Every project, the largest first."""
    totals: dict[str, int] = {}
    for _, name, episodes in store.episodes.project_names():
        totals[name] = totals.get(name, 0) + episodes
    aliases = project_aliases(store)
    merged = {name: tuple(sorted(names_of(aliases, name) - {name})) for name in {*aliases.values()} - {*aliases}}
    rows = [ProjectRow(name, totals.get(name, 0), merged.get(name, ())) for name in {*totals, *merged} - {*aliases}]
    return sorted(rows, key=lambda row: (-row.episodes, row.name))


def add_alias(store: Store, name: str, target: str) -> int:
    """Call the project `name` `target` from now on, also what is stored; returns how many episodes changed.

    :raises BadSetting: `target` is called `name` already, or one of them is empty.
    """
    aliases = project_aliases(store)
    if not name or not target or store_name(aliases, target) == name:
        raise BadSetting(f"cannot call {name!r} {target!r}: {target!r} is {store_name(aliases, target)!r} itself")
    return _apply(store, aliases, {**aliases, name: target})


def remove_alias(store: Store, name: str) -> int:
    """Give a project its own name back; returns how many episodes changed.

    :raises BadSetting: `name` is no alias.
    """
    aliases = project_aliases(store)
    if name not in aliases:
        known = ", ".join(sorted(aliases)) or "none"
        raise BadSetting(f"{name!r} is no alias; those that are: {known}")
    return _apply(store, aliases, {alias: target for alias, target in aliases.items() if alias != name})


def _apply(store: Store, before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """The table first, so that what is written meanwhile follows it."""
    store.settings.set(PROJECT_ALIASES, dict(sorted(after.items())) or None)
    return sum(store.episodes.call_project(name, store_name(after, name)) for name in {*before, *after})


def project_aliases(store: Store) -> dict[str, str]:
    """Name -> what it is called instead."""
    return dict(store.settings.get(PROJECT_ALIASES, {}))
