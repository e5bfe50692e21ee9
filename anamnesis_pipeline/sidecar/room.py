"""Whether the store has room for what is written: searches answer from a full one, and nothing new is remembered."""

from datetime import UTC, datetime

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.store.base import Store

PROBE = "probe.write"
"""The stored setting that is written to find out."""


def cannot_write(store: Store) -> str | None:
    """Why nothing can be written now; None: it can."""
    try:
        store.settings.set(PROBE, datetime.now(UTC).isoformat(timespec="seconds"))
    except AnamnesisError as exc:
        return str(exc)
    return None


class Room:
    """What one application knows: only after a write was refused is the store asked, until it takes one again."""

    def __init__(self) -> None:
        self._was_refused = False

    def refused(self) -> None:
        """A write met a full store."""
        self._was_refused = True

    def problem(self, store: Store) -> str | None:
        """Why it still takes nothing; None: it does, or was not full."""
        if not self._was_refused:
            return None
        problem = cannot_write(store)
        self._was_refused = problem is not None
        return problem
