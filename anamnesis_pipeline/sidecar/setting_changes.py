"""Storing settings, for the API and the pages: what is refused changes nothing."""

from collections.abc import Mapping
from typing import Any

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wiring import CONFIG_PREFIX, stored_settings


def settings_after(store: Store, changes: Mapping[str, Any]) -> Settings:
    """The settings as these changes would make them; None removes what is stored. Nothing is written.

    :raises BadSetting: a value that cannot be, or one that the environment decides (ANAMNESIS_LOCK_ENV).
    """
    stored = {**stored_settings(store), **changes}
    after = settings_module.load({name: value for name, value in stored.items() if value is not None})
    for name, value in changes.items():
        if value is not None and getattr(after, name) != (tuple(value) if isinstance(value, list) else value):
            raise BadSetting(f"{name} is set by environment or file, and ANAMNESIS_LOCK_ENV lets these win")
    return after


def store_settings(store: Store, changes: Mapping[str, Any]) -> None:
    """Write them; `settings_after` has looked at them."""
    for name, value in changes.items():
        store.settings.set(CONFIG_PREFIX + name, value)
