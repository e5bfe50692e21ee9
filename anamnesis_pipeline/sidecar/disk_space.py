"""Disk-space check of the store. When it is full, searches go on but nothing new is stored."""

from datetime import UTC, datetime

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.store.base import Store

PROBE = "probe.write"
"""The stored setting that the check writes."""


def cannot_write(store: Store) -> str | None:
    """Return why writing fails; None: it works."""
    try:
        store.settings.set(PROBE, datetime.now(UTC).isoformat(timespec="seconds"))
    except AnamnesisError as exc:
        return str(exc)
    return None


class Room:
    """Disk-space state of one application: after a refused write, the store is probed until a write succeeds."""

    def __init__(self) -> None:
        self._was_refused = False

    def refused(self) -> None:
        """Record that a full store refused a write."""
        self._was_refused = True

    def problem(self, store: Store) -> str | None:
        """Return why the store still refuses writes; None: it accepts them, or never refused."""
        if not self._was_refused:
            return None
        problem = cannot_write(store)
        self._was_refused = problem is not None
        return problem
