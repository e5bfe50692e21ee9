"""Remind people of proposals that wait: in a line at the start of a session, and in figures."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from typing_extensions import TypedDict

from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.proposals import Waiting, waiting_of
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.store.base import Store

WAITS_FOR = timedelta(days=1)
"""How long the oldest proposal waits before a session's start says so."""
AGAIN_AFTER = timedelta(days=1)
REMINDED = "dream.reminded"
"""Stored setting: machine -> when a session on it was reminded last."""
MAX_MACHINES = 200
"""Machines remembered, those reminded last."""


class KnowledgeOut(TypedDict):
    """Proposals that wait for a decision, for how many days the oldest one does, and the days since detectors last
    ran; null: none waits, or they never ran. Without private projects.
    """

    waiting: int
    oldest_days: float | None
    dream_days: float | None
    dreamt_at: str | None


@dataclass(frozen=True, slots=True)
class Reminder:
    """Says at a session's start that proposals wait, at most once a day per machine.

    :param private: of what is private nothing is counted.
    :param page: address of the page that decides on them.
    """

    store: Store
    private: Private
    page: str

    def due(self, machine: str, now: datetime) -> str:
        """Return the line that a session on a machine gets now; empty: none. Of two calls at once, one gets it."""
        former: dict[str, str] = self.store.settings.get(REMINDED, {})
        last = former.get(machine)
        if last is not None and now - datetime.fromisoformat(last) < AGAIN_AFTER:
            return ""
        waiting = waiting_of(self.store, self.private)
        if waiting.since is None or now - waiting.since < WAITS_FOR:
            return ""
        told = {name: at for name, at in former.items() if now - datetime.fromisoformat(at) < AGAIN_AFTER}
        newest = sorted(told.items(), key=lambda each: each[1])[-(MAX_MACHINES - 1) :]
        if not self.store.settings.swap(REMINDED, former or None, {**dict(newest), machine: now.isoformat()}):
            return ""
        wait = counted(waiting.open, "proposal")
        return f"{wait} {'waits' if waiting.open == 1 else 'wait'} for the user: {self.page}, or anamnesis dream list"


def knowledge_body(waiting: Waiting, now: datetime) -> KnowledgeOut:
    """Return what waits, and when detectors last ran."""
    return {
        "waiting": waiting.open,
        "oldest_days": _days(waiting.since, now),
        "dream_days": _days(waiting.dreamt_at, now),
        "dreamt_at": utc_text(waiting.dreamt_at) if waiting.dreamt_at else None,
    }


def waiting_text(found: KnowledgeOut) -> str:
    """Return the same in words."""
    wait = f"{counted(found['waiting'], 'proposal')} {'waits' if found['waiting'] == 1 else 'wait'}"
    oldest = f", the oldest for {_in_days(found['oldest_days'])}" if found["oldest_days"] is not None else ""
    ran = f"ran {_in_days(found['dream_days'])} ago" if found["dream_days"] is not None else "never ran"
    return f"{wait}{oldest}; detectors {ran}"


def _days(since: datetime | None, now: datetime) -> float | None:
    return round(max((now - since).total_seconds(), 0) / 86_400, 1) if since else None


def _in_days(days: float | None) -> str:
    return counted(int(days), "day") if days is not None and days >= 1 else "less than a day"
