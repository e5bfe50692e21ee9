"""Named JSON values in MongoDB."""

import json
from typing import Any

from anamnesis_pipeline.store.mongo.client import Database, Tables
from anamnesis_pipeline.store.values import as_json

_LAST = "\U0010ffff"
"""The last of all characters."""


class MongoSettings:
    """See `SettingsRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str, default: Any = None) -> Any:
        """See `SettingsRecords.get`."""
        found = self._database.read(lambda tables: tables["settings"].one({"name": name}, ("value",)))
        return default if found is None else json.loads(found["value"])

    def set(self, name: str, value: Any) -> None:
        """See `SettingsRecords.set`."""
        # in turn: a write of episodes that read the aliases before ends before
        self._database.write(lambda tables: _set(tables, name, value))

    def swap(self, name: str, before: Any, value: Any) -> bool:
        """See `SettingsRecords.swap`."""

        def work(tables: Tables) -> bool:
            found = tables["settings"].one({"name": name}, ("value",))
            if (None if found is None else json.loads(found["value"])) != before:
                return False
            _set(tables, name, value)
            return True

        return self._database.write(work)

    def all(self, prefix: str = "") -> dict[str, Any]:
        """See `SettingsRecords.all`."""
        where = {"name": {"$gte": prefix, "$lt": prefix + _LAST}}
        found = self._database.read(
            lambda tables: tables["settings"].find(where, ("name", "value"), order=[("name", 1)])
        )
        return {each["name"]: json.loads(each["value"]) for each in found}


def _set(tables: Tables, name: str, value: Any) -> None:
    if value is None:
        tables["settings"].delete({"name": name})
    else:
        tables["settings"].upsert({"name": name}, {"$set": {"value": as_json(value)}})
