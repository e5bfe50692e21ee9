"""`anamnesis projects`: which there are, and which are one and the same."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from anamnesis_pipeline.commands.searched_store import store_to_write
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.exchanges.projects import project_label
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.projects import ProjectRow, add_alias, project_rows, remove_alias
from anamnesis_pipeline.store.overview_base import EVERYTHING
from anamnesis_pipeline.wiring import open_to_read, what_is_private
from anamnesis_pipeline.wording import counted, project_name


def rows(settings: Settings, *, private: bool) -> tuple[list[ProjectRow], int]:
    """Every project, and how many episodes are of none of them, being private; a home without a store has none.

    :param private: private ones as well.
    """
    if not settings.has_store:
        return [], 0
    with closing(open_to_read(settings)) as store:
        found = project_rows(store)
        if private or not (hidden := what_is_private(store)):
            return found, 0
        shown = store.overview.census(hidden.visible(store, EVERYTHING, ()))
        left = store.overview.census().episodes - shown.episodes
        named = [replace(row, episodes=shown.projects.get(row.name, 0)) for row in found]
        return [row for row in named if row.episodes], left


def alias(settings: Settings, name: str, target: str) -> str:
    """Merge a project into another; returns what to say. Paths may be whole: a shell writes `~` out.

    :raises BadSetting: `target` is called `name` already, or there is no project `name`.
    """
    name, target = project_label(name), project_label(target)
    with store_to_write(settings) as store:
        if not any(name in names[:2] for names in store.episodes.project_names()):
            raise BadSetting(f"no project is called {name!r}; those that there are: anamnesis projects list")
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
