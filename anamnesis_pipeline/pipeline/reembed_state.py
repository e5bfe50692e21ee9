"""State of a re-embed as rows in the store's settings: job, pause, rate and failures. Each row has one kind of writer,
so that processes never overwrite each other's.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.search.levels import LEVEL
from anamnesis_pipeline.store.base import Store

WANTED_MODEL = "config.model"
"""The stored setting `model`."""
JOB = "reembed.job"
"""Written when a re-embed starts."""
PAUSED = "reembed.paused"
"""Set while a re-embed is paused; written by pause and resume."""
STOPPED = "reembed.stopped"
"""Backfill of the re-embed given up last: its remaining Dagster runs end and start nothing."""
RATE = "reembed.rate."
FAILURE = "reembed.failure."
"""Prefixes of a space's key, like RATE; written by the embedding runs."""
RECALL = "index.recall."
"""Prefix of a space's key: the index recall measured last; written by the indexer."""
ANSWERS = "embedding.answers."
"""Prefix of the key of a service's space: the service's answer to a fixed text when the space was begun. Kept as long
as the space, since that service state made its vectors."""

RATE_COUNTS = 2.0
"""Checkpoint durations after which a rate is outdated: the writer has ended."""
RATE_COUNTS_S = 10.0
"""Minimum seconds: the next checkpoint may hold longer texts."""
FIRST_BACKOFF_S = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """The last started re-embed. `backfill_id` is None when sensors do the work without one."""

    space: str
    model_id: str
    backfill_id: str | None
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """Consecutive failures to embed a space, and the last reason."""

    count: int
    last: str
    at: datetime

    def next_try(self, longest_s: float) -> datetime:
        """Return when the next attempt is due: 30 s doubled with each failure, at most `longest_s`."""
        return self.at + timedelta(seconds=min(longest_s, FIRST_BACKOFF_S * 2 ** min(self.count, 20)))


def record_job(store: Store, space: Space, backfill_id: str | None = None, started_at: datetime | None = None) -> Job:
    """Store the current re-embed; called again once its backfill is known."""
    job = Job(space.key, space.model_id, backfill_id, started_at or datetime.now(UTC))
    row = {
        "space": job.space,
        "model_id": job.model_id,
        "backfill_id": backfill_id,
        "started_at": _text(job.started_at),
    }
    store.settings.set(JOB, row)
    return job


def job_of(store: Store) -> Job | None:
    """Return the last started re-embed; None before the first."""
    row = store.settings.get(JOB)
    return Job(row["space"], row["model_id"], row["backfill_id"], _time(row["started_at"])) if row else None


def is_paused(store: Store) -> bool:
    """Return whether the re-embed is paused."""
    return store.settings.get(PAUSED) is True


def set_paused(store: Store, paused: bool) -> None:
    """Pause or resume the re-embed."""
    store.settings.set(PAUSED, True if paused else None)


def record_rate(store: Store, space: str, passages_per_s: float, checkpoint_s: float) -> None:
    """Store a space's current embedding rate.

    :param checkpoint_s: seconds that the last checkpoint took; the next should take as long.
    """
    row = {"passages_per_s": round(passages_per_s, 2), "checkpoint_s": checkpoint_s, "at": _text(datetime.now(UTC))}
    store.settings.set(RATE + space, row)


def rate_of(store: Store, space: str, now: datetime) -> float | None:
    """Return passages per second; None when the next checkpoint is overdue: the embedding run has ended."""
    row = store.settings.get(RATE + space)
    if not row or now - _time(row["at"]) > timedelta(seconds=max(RATE_COUNTS_S, RATE_COUNTS * row["checkpoint_s"])):
        return None
    return float(row["passages_per_s"])


def record_recall(store: Store, space: str, recall: float, passages: int) -> None:
    """Store the recall of a space's index, measured over `passages` passages."""
    store.settings.set(RECALL + space, {"recall": recall, "passages": passages})


def forget_recall(store: Store, space: str) -> None:
    """Delete the measurement, so that recall is measured again."""
    store.settings.set(RECALL + space, None)


def recall_of(store: Store, space: str) -> tuple[float, int] | None:
    """Return the last measured recall, and over how many passages; None: never measured."""
    row = store.settings.get(RECALL + space)
    return (float(row["recall"]), int(row["passages"])) if row else None


def failure_of(store: Store, space: str) -> Failure | None:
    """Return the last failure; None when the last checkpoint was written."""
    row = store.settings.get(FAILURE + space)
    return Failure(int(row["count"]), row["last"], _time(row["at"])) if row else None


def clear_failure(store: Store, space: str) -> None:
    """Clear the failure, after a successful write or for an immediate retry."""
    if store.settings.get(FAILURE + space) is not None:
        store.settings.set(FAILURE + space, None)


@contextmanager
def noting_failure(store: Store, space: str) -> Iterator[None]:
    """Store an embedding failure and re-raise it. A deleted space keeps no row."""
    try:
        yield
    except Exception as exc:
        with suppress(AnamnesisError):  # the store itself may be what fails
            _record_failure(store, space, exc)
        raise


def _record_failure(store: Store, space: str, exc: Exception) -> None:
    if all(known.key != space for known in store.spaces.all()):
        return
    before = failure_of(store, space)
    # The text of a foreign error may quote what was being embedded.
    last = str(exc) if isinstance(exc, AnamnesisError) else type(exc).__name__
    row = {"count": before.count + 1 if before else 1, "last": last, "at": _text(datetime.now(UTC))}
    store.settings.set(FAILURE + space, row)


def forget_space(store: Store, space: str) -> None:
    """Remove every row about a space, and end its pause."""
    store.settings.set(RATE + space, None)
    store.settings.set(FAILURE + space, None)
    store.settings.set(LEVEL + space, None)
    store.settings.set(RECALL + space, None)
    job = job_of(store)
    if job is not None and job.space == space:
        store.settings.set(JOB, None)
        set_paused(store, False)


def forget_answers(store: Store, space: str) -> None:
    """Remove the answers of a deleted space, so that one of the same key starts from scratch."""
    store.settings.set(ANSWERS + space, None)


def stopped_backfill(store: Store) -> str | None:
    """Return the backfill of the re-embed given up last."""
    found: str | None = store.settings.get(STOPPED)
    return found


def set_stopped_backfill(store: Store, backfill_id: str | None) -> None:
    """Store which backfill may start nothing any more."""
    store.settings.set(STOPPED, backfill_id)


def wanted_model(store: Store) -> Any:
    """Return the stored setting `model`; None: environment, file or default apply."""
    return store.settings.get(WANTED_MODEL)


def set_wanted_model(store: Store, model_id: Any) -> None:
    """Store the setting `model`; None leaves it to environment, file or default."""
    store.settings.set(WANTED_MODEL, model_id)


def _text(moment: datetime) -> str:
    return moment.isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
