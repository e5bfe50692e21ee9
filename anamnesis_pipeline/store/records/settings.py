"""Small JSON values by name: stored settings, checkpoints, statistics; of these, what projects are called."""

import json
from collections.abc import Mapping
from typing import Any

from anamnesis_pipeline.store.gateway import Gateway, Tables
from anamnesis_pipeline.store.values import LAST_CHARACTER, as_json


class SettingsRecords:
    """Named JSON values."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value, or `default`."""
        with self._gateway.read() as tables:
            return value_of(tables, name, default)

    def set(self, name: str, value: Any) -> None:
        """Write a value; None removes it."""
        self._gateway.write(lambda tables: _set(tables, name, value))

    def swap(self, name: str, before: Any, value: Any) -> bool:
        """Write a value if the stored one is `before` (None: there is none). Return whether it was."""

        def work(tables: Tables) -> bool:
            if value_of(tables, name) != before:
                return False
            _set(tables, name, value)
            return True

        return self._gateway.write(work)

    def all(self, prefix: str = "") -> dict[str, Any]:
        """Return name -> value for names that begin with `prefix`."""
        beginning = {"name": {"$gte": prefix, "$lt": prefix + LAST_CHARACTER}}
        with self._gateway.read() as tables:
            return {row["name"]: json.loads(row["value"]) for row in tables["settings"].find(beginning, order=["name"])}


def value_of(tables: Tables, name: str, default: Any = None) -> Any:
    """Return the value of this name, or `default`."""
    row = tables["settings"].one({"name": name}, ["value"])
    return default if row is None else json.loads(row["value"])


def _set(tables: Tables, name: str, value: Any) -> None:
    if value is None:
        tables["settings"].delete({"name": name})
    else:
        tables["settings"].put([{"name": name, "value": as_json(value)}])


# --- what projects are called: aliases merge the names of what belongs together --------------------------

PROJECT_ALIASES = "projects.aliases"
"""Name of the stored setting {project: what to call it}. Every episode is written under the name it leads to; what it
was called itself is kept beside it.
"""


def read_aliases(tables: Tables) -> dict[str, str]:
    """Return project -> what it is called instead."""
    aliases: dict[str, str] = value_of(tables, PROJECT_ALIASES, {})
    return aliases


def store_name(aliases: Mapping[str, str], name: str) -> str:
    """Return what a project is called; aliases of aliases are followed."""
    while name in aliases:
        name = aliases[name]
    return name


def names_of(aliases: Mapping[str, str], name: str) -> set[str]:
    """Return all names, own ones and aliases, of the project that `name` is one of."""
    called = store_name(aliases, name)
    return {called} | {alias for alias in aliases if store_name(aliases, alias) == called}
