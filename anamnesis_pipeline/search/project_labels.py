"""Resolve bare project names, and hide private content unless it is named or requested from inside."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from posixpath import normpath

from anamnesis_pipeline.model import Episode, EpisodeFilter, EpisodeHead, Source
from anamnesis_pipeline.parsing.text.file_names import composed
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.overview import EVERYTHING

ALL = "*"
NO_PROJECT = "(none)"
"""Name for episodes without a project."""
PRIVATE = "private"
"""Replaces the names of private projects in counts."""


def with_labels(store: Store, where: EpisodeFilter) -> EpisodeFilter:
    """Return the filter with bare project names replaced by the matching labels."""
    if not where.projects:
        return where
    known = store.projects.all()
    projects = {label for name in where.projects for label in (name, *labels_of(name, known))}
    return replace(where, projects=tuple(sorted(projects)))


@dataclass(frozen=True, slots=True)
class Private:
    """The private sources, and the names of the private projects as `is_private` takes them."""

    sources: tuple[Source, ...] = ()
    projects: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is private."""
        return bool(self.sources or self.projects)

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the private sources."""
        return frozenset(source.key for source in self.sources)

    def is_of(self, project: str) -> bool:
        """Return whether a project is private."""
        return bool(project) and is_private(project, self.projects)

    def holds(self, episode: Episode | EpisodeHead) -> bool:
        """Return whether an episode is private."""
        return any(episode.source == source.key for source in self.sources) or self.is_of(episode.project)

    def withholds(self, project: str, included: Collection[str]) -> bool:
        """Return whether a project is private and not among the requested names; `*`: all are requested."""
        return self.is_of(project) and ALL not in included and not is_private(project, tuple(included))

    def open_projects(self, store: Store) -> list[str]:
        """Return the projects with any stored content that is not private."""
        if not self:
            return store.projects.all()
        return sorted(store.overview.census(self.visible(store, EVERYTHING, ())).projects)

    def file_shown(self, source: str, told: str) -> str:
        """Return `told`, the text about a file; for a file of a private source, only name the source."""
        own = next((each for each in self.sources if each.key == source), None)
        return f"a file of the private source {own.spec or own.key}" if own else told

    def around(self, folder: str, machine: str) -> tuple[str, ...]:
        """Return the keys of the private sources that contain a folder of a machine."""
        return tuple(source.key for source in sources_around(self.sources, folder, machine))

    def elsewhere(self, store: Store, projects: Sequence[str], inside: Collection[str]) -> tuple[str, ...]:
        """Return the keys of the private sources other than `inside`, given by key or name; none if the projects have
        no content outside of these sources.
        """
        others = tuple(s.key for s in self.sources if s.key not in inside and s.spec not in inside)
        among = EpisodeFilter(projects=tuple(projects), hidden_sources=others, include_superseded=True)
        return others if others and projects and store.episodes.count(among) else ()

    def visible_of(self, store: Store, session_id: str, project: str) -> EpisodeFilter:
        """Return the filter for a session's content in its project, and in others that are not private."""
        return self.visible(store, EpisodeFilter(session_id=session_id), [project or NO_PROJECT])

    def visible(self, store: Store, where: EpisodeFilter, included: Collection[str]) -> EpisodeFilter:
        """Return the filter with bare project names replaced by the matching labels, and without private content unless
        it names a project, a source or a session. A project's full name does not match a private one with that ending.

        :param included: names of projects, and names or keys of sources, requested in addition; `*`: all. With a
            session: the requested part of it, if any. With a project known from a folder: that project and the folder's
            sources.
        """
        known = store.projects.all()
        if where.projects:
            labels = {
                label
                for name in where.projects
                for label in (name, *labels_of(name, known))
                if label == name or name not in known or not self.is_of(label)
            }
            named = replace(where, projects=tuple(sorted(labels)))
            if not included or ALL in included:
                return named
            return replace(named, hidden_sources=self.elsewhere(store, named.projects, included))
        if where.source or ALL in included or (where.session_id and not included):
            return where
        shown = {
            label
            for label in known
            if label in included or is_private(label, [name for name in included if name not in known])
        }
        return replace(
            where,
            hidden_projects=(*where.hidden_projects, *(p for p in known if self.is_of(p) and p not in shown)),
            hidden_sources=tuple(s.key for s in self.sources if s.key not in included and s.spec not in included),
            shown_projects=tuple(sorted(shown)),
        )


NOTHING_PRIVATE = Private()


def sources_around(sources: Iterable[Source], folder: str, machine: str) -> list[Source]:
    """Return the sources whose root is or contains a folder of a machine."""
    inside = f"{normpath(composed(folder))}/"
    return [
        source
        for source in sources
        if source.root and source.machine == machine and inside.startswith(f"{composed(source.root).rstrip('/')}/")
    ]


def labels_of(name: str, known: Sequence[str]) -> list[str]:
    """Return the project labels for a name: `api` means `api`, `acme/api` and `~/code/api`, never `my-api`. Unicode
    forms of a name are equivalent.
    """
    called = "/" + composed(name)
    return [label for label in known if f"/{composed(label)}".endswith(called)]


def is_private(project: str, names: Sequence[str]) -> bool:
    """Return whether a project is a private one; `api` also means `acme/api`."""
    if not names:
        return False
    label = f"/{composed(project)}".casefold()
    return any(label.endswith(f"/{composed(name)}".casefold()) for name in names)
