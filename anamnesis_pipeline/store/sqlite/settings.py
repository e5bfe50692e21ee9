"""Named JSON values in SQLite."""

import json
import sqlite3
from typing import Any

from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_pipeline.store.values import as_json


class SqliteSettings:
    """See `SettingsRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str, default: Any = None) -> Any:
        """See `SettingsRecords.get`."""
        with self._database.read() as connection:
            row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def set(self, name: str, value: Any) -> None:
        """See `SettingsRecords.set`."""
        with self._database.write() as connection:
            _set(connection, name, value)

    def swap(self, name: str, before: Any, value: Any) -> bool:
        """See `SettingsRecords.swap`."""
        with self._database.write() as connection:
            row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
            if (None if row is None else json.loads(row[0])) != before:
                return False
            _set(connection, name, value)
        return True

    def all(self, prefix: str = "") -> dict[str, Any]:
        """See `SettingsRecords.all`."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT name, value FROM settings WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name", (prefix,)
            ).fetchall()
        return {name: json.loads(value) for name, value in rows}


def _set(connection: sqlite3.Connection, name: str, value: Any) -> None:
    if value is None:
        connection.execute("DELETE FROM settings WHERE name = ?", (name,))
        return
    connection.execute(
        "INSERT INTO settings VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, as_json(value)),
    )
