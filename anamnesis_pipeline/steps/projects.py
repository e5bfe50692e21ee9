"""Names of projects: what a directory resolved to is remembered, and aliases merge what belongs together."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from anamnesis_pipeline.errors import BadSetting, HostRefused, HostUnreachable, SourceUnreadable
from anamnesis_pipeline.exchanges.parsing import FileState
from anamnesis_pipeline.exchanges.projects import project_label, resolved_project
from anamnesis_pipeline.file_names import composed
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES, SettingsRecords, names_of, store_name

SEEN = "projects.seen."
"""Stored under this prefix and a directory of this machine, or `<machine>:` and one of another: its project."""
GUESSED = "projects.guessed."
"""Stored under this prefix, `<machine>:` and a directory of it: what logs from there are called by, as the machine was
away when they were parsed and had never been asked."""

SPELLINGS_MERGED = "projects.spellings_merged"


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
) -> Callable[[str], str]:
    """As `project_labels`, for directories of another machine. One that does not answer is asked no more, and what was
    seen on it before counts.

    :param resolve: what the machine's disk says of a directory; None: nothing.
    :param must_answer: what a machine that does not answer raises is raised for directories that were never seen;
        else these are called by their paths, and that is noted for `right_guesses`.
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
            return known(cwd)  # what it raises is not kept: another run may see the machine meanwhile
        except (HostUnreachable, HostRefused):
            if must_answer:
                raise
        return _guessed(settings, machine, cwd)

    return label


def _guessed(settings: SettingsRecords, machine: str, cwd: str) -> str:
    """What a directory is called by its path, noted for `right_guesses`."""
    guess, name = project_label(cwd), f"{GUESSED}{machine}:{cwd}"
    if cwd.startswith("/") and settings.get(name) != guess:
        settings.set(name, guess)
    return guess


def guesses_of(settings: SettingsRecords, machine: str) -> dict[str, str]:
    """Directory of a machine that could not be asked -> the project that logs from there are called by until it is."""
    prefix = f"{GUESSED}{machine}:"
    named = {name.removeprefix(prefix): str(project) for name, project in settings.all(prefix).items()}
    return {cwd: project for cwd, project in named.items() if cwd.startswith("/")}


def right_guesses(store: Store, machine: str, label: Callable[[str], str]) -> int:
    """Give what was parsed under a guess its project, now that the machine answers. Each directory is asked for once;
    without guesses, or while the machine is away, nothing changes. Returns how many parts changed.

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
    """Key of a source of logs of a machine -> directory -> the files whose session began there."""
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
    """Merge projects that an earlier version stored in two Unicode forms; once per store."""
    if store.settings.get(SPELLINGS_MERGED):
        return
    for name in sorted({called for _, called, _ in store.projects.names()}):
        if name not in {composed(name), store_name(project_aliases(store), composed(name))}:
            add_alias(store, name, composed(name))
    store.settings.set(SPELLINGS_MERGED, True)


def project_rows(store: Store) -> list[ProjectRow]:
    """Every project, the largest first."""
    totals: dict[str, int] = {}
    for _, name, episodes in store.projects.names():
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
    return sum(store.projects.call(name, store_name(after, name)) for name in {*before, *after})


def project_aliases(store: Store) -> dict[str, str]:
    """Name -> what it is called instead."""
    return dict(store.settings.get(PROJECT_ALIASES, {}))
