"""What projects are called: aliases merge the names of what belongs together."""

import json
from collections.abc import Mapping

from anamnesis_pipeline.store.gateway import Tables

PROJECT_ALIASES = "projects.aliases"
"""Name of the stored setting {project: what to call it}. Every episode is written under the name it leads to; what it
was called itself is kept beside it.
"""


def read_aliases(tables: Tables) -> dict[str, str]:
    """Return project -> what it is called instead."""
    found = tables["settings"].one({"name": PROJECT_ALIASES}, ["value"])
    return json.loads(found["value"]) if found else {}


def store_name(aliases: Mapping[str, str], name: str) -> str:
    """Return what a project is called; aliases of aliases are followed."""
    while name in aliases:
        name = aliases[name]
    return name


def names_of(aliases: Mapping[str, str], name: str) -> set[str]:
    """Return all names, own ones and aliases, of the project that `name` is one of."""
    called = store_name(aliases, name)
    return {called} | {alias for alias in aliases if store_name(aliases, alias) == called}
