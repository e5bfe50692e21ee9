"""`anamnesis projects`: which there are, and which are one and the same."""

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from anamnesis_pipeline.cli.local_services import store_to_write
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.parsing.claude_logs.projects import project_label
from anamnesis_pipeline.parsing.text.wording import counted, project_name
from anamnesis_pipeline.pipeline.projects import ProjectRow, add_alias, project_rows, remove_alias
from anamnesis_pipeline.services import worktrees
from anamnesis_pipeline.services.wiring import open_to_read, what_is_private
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.overview import EVERYTHING


def listed(settings: Settings, *, private: bool = False) -> str:
    """Every project, and which seem to be worktrees of one repository, as text; a home without a store has none.

    :param private: private ones as well.
    """
    if not settings.has_store:
        return render([])
    with closing(open_to_read(settings)) as store:
        offered = worktrees.offers(store, what_is_private(store), settings.machine)
        return "\n".join((render(*rows(store, private=private)), *map(render_offer, offered)))


def rows(store: Store, *, private: bool) -> tuple[list[ProjectRow], int]:
    """Every project, and how many episodes are of none of them, being private.

    :param private: private ones as well.
    """
    found = project_rows(store)
    if private or not (hidden := what_is_private(store)):
        return found, 0
    shown = store.overview.census(hidden.visible(store, EVERYTHING, ()))
    left = store.overview.census().episodes - shown.episodes
    named = [replace(row, episodes=shown.projects.get(row.name, 0)) for row in found]
    return [row for row in named if row.episodes], left


def join(settings: Settings, target: str, *, undo: bool = False) -> str:
    """Merge the worktrees that are offered for a repository into it, or take that back; returns what to say.

    :raises BadSetting: none are offered for it, or none were joined.
    """
    target = project_label(target)
    with store_to_write(settings) as store:
        if undo:
            names, changed = worktrees.part(store, target)
            return f"{', '.join(names)} parted from {target}: {counted(changed, 'episode')} changed"
        offer, changed = worktrees.join(store, what_is_private(store), settings.machine, target)
        return f"{', '.join(offer.projects)} joined to {target}: {counted(changed, 'episode')} changed"


def alias(settings: Settings, name: str, target: str) -> str:
    """Merge a project into another; returns what to say. Paths may be whole: a shell writes `~` out.

    :raises BadSetting: `target` is called `name` already, there is no project `name`, or only `name` is private.
    """
    name, target = project_label(name), project_label(target)
    with store_to_write(settings) as store:
        if not any(name in names[:2] for names in store.projects.names()):
            raise BadSetting(f"no project is called {name!r}; those that there are: anamnesis projects list")
        worktrees.require_not_exposed(store, what_is_private(store), name, target)
        return f"{name} is called {target} now: {counted(add_alias(store, name, target), 'episode')} changed"


def unalias(settings: Settings, name: str) -> str:
    """Part them again; returns what to say.

    :raises BadSetting: `name` is no alias.
    """
    with store_to_write(settings) as store:
        return f"{name} has its own name again: {counted(remove_alias(store, name), 'episode')} changed"


def render(found: Sequence[ProjectRow], private: int = 0) -> str:
    """One line per project, and one for episodes that are private. Pure."""
    if not found and not private:
        return "No projects yet."
    width = max((len(project_name(row.name)) for row in found), default=0)
    lines = [
        f"{project_name(row.name):<{width}}  {counted(row.episodes, 'episode')}"
        + (f", also {', '.join(row.aliases)}" if row.aliases else "")
        for row in found
    ]
    return "\n".join([*lines, *([f"private: {counted(private, 'episode')}; --private names them"] if private else [])])


def render_offer(offer: worktrees.Offer) -> str:
    """What is offered for one repository, and how to accept it. Pure."""
    names = "".join(f"\n  {project_name(name)} ({reason})" for name, reason in offer.projects.items())
    return (
        f"\nThese seem to be worktrees of {project_name(offer.target)} whose folders are gone:{names}\n"
        f"To join them: anamnesis projects join {shlex.quote(offer.target)}"
    )
