"""Changes of stored settings, for the API, the pages and the command line. A refused change stores nothing."""

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.errors import BadSetting, ServiceUnreachable
from anamnesis_pipeline.pipeline.daily import TIME_SETTINGS, timings
from anamnesis_pipeline.services.dagster.api import Dagster
from anamnesis_pipeline.services.dagster.definitions import LoadedSchedule
from anamnesis_pipeline.services.wiring import CONFIG_PREFIX, effective_settings, loaded_values, stored_settings
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store


def settings_after(store: Store, changes: Mapping[str, Any]) -> Settings:
    """Return the settings after these changes; None removes a stored value. Writes nothing.

    :raises BadSetting: a value is invalid, or the environment decides (ANAMNESIS_LOCK_ENV).
    """
    stored = {**stored_settings(store), **changes}
    after = settings_module.load({name: value for name, value in stored.items() if value is not None})
    for name, value in changes.items():
        if value is not None and getattr(after, name) != (tuple(value) if isinstance(value, list) else value):
            raise BadSetting(f"{name} is set by environment or file, and ANAMNESIS_LOCK_ENV lets these win")
    return after


def store_settings(store: Store, changes: Mapping[str, Any], dagster: Dagster | None = None) -> str:
    """Store settings checked by `settings_after`.

    :return: as `reload_changed`.
    """
    before = readable_settings(store)
    for name, value in changes.items():
        store.settings.set(CONFIG_PREFIX + name, value)
    return reload_changed(before, readable_settings(store), dagster)


def readable_settings(store: Store) -> Settings | None:
    """Return the effective settings; None if one is invalid."""
    try:
        return effective_settings(store)
    except BadSetting:
        return None


def reload_changed(before: Settings | None, after: Settings | None, dagster: Dagster | None) -> str:
    """Reload Dagster's definitions if they use one of the changed settings.

    :param dagster: None if it does not run.
    :return: the outcome, for the user; empty if no definition changed.
    """
    if after is None or (before is not None and loaded_values(before) == loaded_values(after)):
        return ""
    are_times = before is None or any(getattr(before, name) != getattr(after, name) for name in TIME_SETTINGS)
    if dagster is None:
        return "Dagster does not run; its next start reads the change." if are_times else ""
    try:
        dagster.reload_definitions()
        return _loaded_times(dagster.schedules(), after) if are_times else "Dagster's UI shows the change."
    except ServiceUnreachable as exc:
        reads = "reads" if are_times else "shows"
        return f"Dagster {reads} the change within an hour, or at its next start: {exc}."


def _loaded_times(schedules: Sequence[LoadedSchedule], after: Settings) -> str:
    loaded = {each.name: each for each in schedules}
    for name, timing in timings(after).items():
        if name not in loaded or (loaded[name].cron, loaded[name].zone) != (timing.cron, timing.zone):
            return f"Dagster still has the former times of {name}: stop and start `anamnesis up`, or its container."
    ingest = loaded["daily_ingest"]
    if ingest.next_at is None:
        return "Dagster reloaded its schedules and sensors; daily_ingest is stopped."
    local = ingest.next_at.astimezone(ZoneInfo(after.timezone))
    return f"Dagster reloaded its schedules and sensors; daily_ingest runs next on {local:%Y-%m-%d at %H:%M %Z}."
