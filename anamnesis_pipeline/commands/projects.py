"""`anamnesis projects`: which there are, and which are one and the same."""

from collections.abc import Sequence
from contextlib import closing

from anamnesis_pipeline.commands.searched_store import store_to_write
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.exchanges.projects import project_label
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.projects import ProjectRow, add_alias, project_rows, remove_alias
from anamnesis_pipeline.wiring import open_to_read
from anamnesis_pipeline.wording import counted, project_name


def rows(settings: Settings) -> list[ProjectRow]:
    """Every project; a home without a store has none."""
    if not settings.has_store:
        return []
    with closing(open_to_read(settings)) as store:
        return project_rows(store)


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


def render(found: Sequence[ProjectRow]) -> str:
    """One line per project. Pure."""
    if not found:
        return "No projects yet."
    width = max(len(project_name(row.name)) for row in found)
    return "\n".join(
        f"{project_name(row.name):<{width}}  {counted(row.episodes, 'episode')}"
        + (f", also {', '.join(row.aliases)}" if row.aliases else "")
        for row in found
    )
