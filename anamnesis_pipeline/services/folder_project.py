"""Find the stored project of a working directory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.parsing.claude_logs.projects import project_label, resolved_project
from anamnesis_pipeline.parsing.text.file_names import composed
from anamnesis_pipeline.pipeline.projects import SEEN, project_aliases
from anamnesis_pipeline.pipeline.source_specs import STORED
from anamnesis_pipeline.search.project_labels import Private, labels_of, sources_around
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import store_name

MAX_LABELS = 5
"""Maximum projects that one bare name may mean; only the first are taken."""
PARENTS = 12
"""Maximum parent folders that are looked up."""


@dataclass(frozen=True, slots=True)
class CurrentProject:
    """The project of a folder; None where none is named. `known`: something of it is stored. `private_sources`: keys of
    the private sources that the folder is in.
    """

    project: str | None = None
    known: bool = False
    private_sources: tuple[str, ...] = ()


def current_project(store: Store, cwd: str | None, machine: str, private: Private) -> CurrentProject:
    """Return the project of a folder of this machine; None: no folder is known."""
    if not cwd:
        return CurrentProject()
    stored = projects_of_folder(store, cwd, machine, is_here=True, private=private)
    project = stored[0] if stored else resolved_project(cwd) or project_label(cwd)
    return CurrentProject(project, bool(stored), tuple(private.around(cwd, machine)))


def projects_called(store: Store, name: str) -> tuple[str, ...]:
    """Return the stored projects that a name means, under their current names: `api` also means `acme/api`."""
    called = store_name(project_aliases(store), composed(name))
    if store.context.has_project(called):
        return (called,)
    return tuple(labels_of(name, store.projects.all())[:MAX_LABELS])


def projects_alike(store: Store, private: Private, name: str) -> list[str]:
    """Return the other stored projects that a bare name may mean, without private ones: `acme/api` for `api`."""
    called = store_name(project_aliases(store), composed(name))
    alike = [label for label in labels_of(name, store.projects.all()) if label != called and not private.is_of(label)]
    shown = set(private.open_projects(store)) if alike and private else alike
    return [label for label in alike if label in shown][:MAX_LABELS] if name else []


def project_meant(store: Store, private: Private, name: str) -> str:
    """Return the full name of a project: the name itself, or if nothing is stored of it the only one that is alike."""
    if store.context.has_project(store_name(project_aliases(store), composed(name))):
        return name
    alike = projects_alike(store, private, name)
    return alike[0] if len(alike) == 1 else name


def projects_of_folder(store: Store, cwd: str, machine: str, *, is_here: bool, private: Private) -> tuple[str, ...]:
    """Return the stored projects of a working directory, named as ingest names them; none: nothing is stored of it.

    A folder without a project gets the project with its name, if there is exactly one. A private project is taken so
    only if it has no folder and its label is just that name: the folder is not inside another.

    :param is_here: the folder is on this machine, whose disk may be read; else only stored observations count.
    """
    aliases = project_aliases(store)
    for name in _names(store, cwd, machine, is_here=is_here):
        if store.context.has_project(called := store_name(aliases, name)):
            return (called,)
    base = project_label(cwd).rsplit("/", 1)[-1]
    same = [label for label in store.projects.all() if label.rsplit("/", 1)[-1] == base] if base else []
    if len(same) != 1 or (private.is_of(same[0]) and same[0] != base):
        return ()
    held = (EpisodeFilter(projects=(same[0],), source=key, include_superseded=True) for key in private.keys)
    return () if any(map(store.episodes.count, held)) else (same[0],)


def _names(store: Store, cwd: str, machine: str, *, is_here: bool) -> Iterable[str]:
    """Yield possible names of the folder, the most certain first: by its repository, as stored before, by its path, by
    its stored parent folders, and by the project configured for a source of documents around it.
    """
    if is_here and (found := resolved_project(cwd)) is not None:
        yield found
    folders = [cwd, *map(str, _parents(cwd))]
    prefixes = [SEEN, f"{SEEN}{machine}:"] if is_here else [f"{SEEN}{machine}:"]
    for number, folder in enumerate(folders):
        for prefix in prefixes:
            if (seen := store.settings.get(prefix + folder)) is not None:
                yield composed(str(seen))
        if number == 0:
            yield project_label(cwd)
    for source in sources_around(store.files.sources(), cwd, machine):
        if named := store.settings.get(STORED + source.spec, {}).get("project"):
            yield str(named)


def _parents(cwd: str) -> Sequence[PurePosixPath]:
    """Return the parent folders without those that hold homes: a whole home's project is not that of its subfolders."""
    if not cwd.startswith("/"):
        return []
    outer = {"", "/", "~", "/home", "/Users"}
    return [p for p in list(PurePosixPath(cwd).parents)[:PARENTS] if project_label(str(p)) not in outer]
