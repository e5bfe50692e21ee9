"""Named JSON values in SQLite."""

# ruff: noqa: D102
# the contract documents them, see store/base.py

import json
from typing import Any

from anamnesis_pipeline.store.sqlite.columns import as_json
from anamnesis_pipeline.store.sqlite.connection import Database


class SqliteSettings:
    """See `SettingsRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str, default: Any = None) -> Any:
        with self._database.read() as connection:
            row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def set(self, name: str, value: Any) -> None:
        with self._database.write() as connection:
            if value is None:
                connection.execute("DELETE FROM settings WHERE name = ?", (name,))
                return
            connection.execute(
                "INSERT INTO settings VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, as_json(value)),
            )

    def all(self, prefix: str = "") -> dict[str, Any]:
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT name, value FROM settings WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name", (prefix,)
            ).fetchall()
        return {name: json.loads(value) for name, value in rows}
