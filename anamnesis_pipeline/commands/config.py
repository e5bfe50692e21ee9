"""`anamnesis config`: which value every setting has, and where it came from."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from anamnesis_pipeline import settings as settings_file
from anamnesis_pipeline.settings import Origin, Settings
from anamnesis_pipeline.wiring import CONFIG_PREFIX, open_store, stored_settings


def setting_rows(settings: Settings) -> list[Origin]:
    """Every setting; a home without a store has no stored ones, and is not given one by looking."""
    stored: Mapping[str, Any] = {}
    if settings.database.exists():
        with closing(open_store(settings)) as store:
            stored = stored_settings(store)
    return settings_file.origins(stored)


def store_setting(settings: Settings, name: str, text: str) -> None:
    """Store a value; it then wins over environment and file.

    :raises BadSetting: unknown, not storable, or a value it cannot have.
    """
    value = settings_file.check_storable(name, text)
    with closing(open_store(settings)) as store:
        store.settings.set(CONFIG_PREFIX + name, value)


def unstore_setting(settings: Settings, name: str) -> bool:
    """Forget a stored value; False when there was none."""
    with closing(open_store(settings)) as store:
        had = name in stored_settings(store)
        store.settings.set(CONFIG_PREFIX + name, None)
    return had


def render(rows: Sequence[Origin]) -> str:
    """A table in plain text: name, value, origin. Pure."""
    shown = [(row.name, shown_value(row.value), row.origin) for row in rows]
    first, second = (max(len(row[column]) for row in shown) for column in (0, 1))
    return "\n".join(f"{name:<{first}}  {value:<{second}}  {origin}" for name, value, origin in shown)


def shown_value(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, tuple | list):
        return os.pathsep.join(map(str, value))
    return "" if value is None else str(value)
