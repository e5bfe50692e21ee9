"""The rows that tell how a re-embed goes, in the store's settings: what runs, whether it is paused, how fast it is, and
what went wrong. Each row has one kind of writer, so that processes never undo each other's.
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
"""Written by whoever starts a re-embed."""
PAUSED = "reembed.paused"
"""There while a re-embed is paused; written by pause and resume."""
STOPPED = "reembed.stopped"
"""The backfill of the re-embed that was given up last: what Dagster still runs of it ends, and starts none."""
RATE = "reembed.rate."
FAILURE = "reembed.failure."
"""These two are written by the runs that embed, with the space's key behind them."""
RECALL = "index.recall."
"""Written by who indexes a space, with its key behind: how much its index found when that was measured last."""
ANSWERS = "embedding.answers."
"""Before the key of a service's space: the service's answer to a fixed text when the space was begun. It stays for as
long as the space does, also while nobody builds it: the vectors that are there were made by what gave that answer."""

RATE_COUNTS = 2.0
"""Checkpoints' time after which a pace is an old one: nobody writes any more."""
RATE_COUNTS_S = 10.0
"""At least so long: the next checkpoint may hold longer texts."""
FIRST_BACKOFF_S = 30.0


@dataclass(frozen=True, slots=True)
class Job:
    """The re-embed that was started last. `backfill_id` is None when sensors do the work without one."""

    space: str
    model_id: str
    backfill_id: str | None
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Failure:
    """How often in a row embedding a space failed, and why it did last."""

    count: int
    last: str
    at: datetime

    def next_try(self, longest_s: float) -> datetime:
        """When a new attempt is due: 30 s doubled with each failure, at most `longest_s`."""
        return self.at + timedelta(seconds=min(longest_s, FIRST_BACKOFF_S * 2 ** min(self.count, 20)))


def record_job(store: Store, space: Space, backfill_id: str | None = None, started_at: datetime | None = None) -> Job:
    """Note which re-embed is going on; called again once its backfill is known."""
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
    """The re-embed that was started last; None before the first."""
    row = store.settings.get(JOB)
    return Job(row["space"], row["model_id"], row["backfill_id"], _time(row["started_at"])) if row else None


def is_paused(store: Store) -> bool:
    """Whether the re-embed is to wait."""
    return store.settings.get(PAUSED) is True


def set_paused(store: Store, paused: bool) -> None:
    """Let the re-embed wait, or go on."""
    store.settings.set(PAUSED, True if paused else None)


def record_rate(store: Store, space: str, passages_per_s: float, checkpoint_s: float) -> None:
    """Note how fast a space is embedded now.

    :param checkpoint_s: seconds that the last checkpoint took; the next one is expected after as many.
    """
    row = {"passages_per_s": round(passages_per_s, 2), "checkpoint_s": checkpoint_s, "at": _text(datetime.now(UTC))}
    store.settings.set(RATE + space, row)


def rate_of(store: Store, space: str, now: datetime) -> float | None:
    """Passages a second; None when the next checkpoint is overdue: whoever embedded the space has ended."""
    row = store.settings.get(RATE + space)
    if not row or now - _time(row["at"]) > timedelta(seconds=max(RATE_COUNTS_S, RATE_COUNTS * row["checkpoint_s"])):
        return None
    return float(row["passages_per_s"])


def record_recall(store: Store, space: str, recall: float, passages: int) -> None:
    """Note how much of what is nearest a space's index finds, measured over so many passages."""
    store.settings.set(RECALL + space, {"recall": recall, "passages": passages})


def forget_recall(store: Store, space: str) -> None:
    """Have it measured again."""
    store.settings.set(RECALL + space, None)


def recall_of(store: Store, space: str) -> tuple[float, int] | None:
    """The recall that was measured last, and over how many passages; None: it never was."""
    row = store.settings.get(RECALL + space)
    return (float(row["recall"]), int(row["passages"])) if row else None


def failure_of(store: Store, space: str) -> Failure | None:
    """What went wrong last; None when the last checkpoint was written."""
    row = store.settings.get(FAILURE + space)
    return Failure(int(row["count"]), row["last"], _time(row["at"])) if row else None


def clear_failure(store: Store, space: str) -> None:
    """Forget what went wrong: something was written since, or somebody wants it tried again."""
    if store.settings.get(FAILURE + space) is not None:
        store.settings.set(FAILURE + space, None)


@contextmanager
def noting_failure(store: Store, space: str) -> Iterator[None]:
    """Note that embedding a space failed, if it does; the error goes on. A space that is gone keeps no row."""
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
    # The text of an error that is not ours may quote what was being embedded.
    last = str(exc) if isinstance(exc, AnamnesisError) else type(exc).__name__
    row = {"count": before.count + 1 if before else 1, "last": last, "at": _text(datetime.now(UTC))}
    store.settings.set(FAILURE + space, row)


def forget_space(store: Store, space: str) -> None:
    """Remove every row about a space; what was paused, if it was this one, is paused no more."""
    store.settings.set(RATE + space, None)
    store.settings.set(FAILURE + space, None)
    store.settings.set(LEVEL + space, None)
    store.settings.set(RECALL + space, None)
    job = job_of(store)
    if job is not None and job.space == space:
        store.settings.set(JOB, None)
        set_paused(store, False)


def forget_answers(store: Store, space: str) -> None:
    """Of a space that is gone, with its vectors: one of the same key begins anew."""
    store.settings.set(ANSWERS + space, None)


def stopped_backfill(store: Store) -> str | None:
    """The backfill of the re-embed that was given up last."""
    found: str | None = store.settings.get(STOPPED)
    return found


def set_stopped_backfill(store: Store, backfill_id: str | None) -> None:
    """Note which backfill is to start nothing any more."""
    store.settings.set(STOPPED, backfill_id)


def wanted_model(store: Store) -> Any:
    """The stored setting `model`; None when environment, file or default say it."""
    return store.settings.get(WANTED_MODEL)


def set_wanted_model(store: Store, model_id: Any) -> None:
    """Store the setting `model`; None leaves it to environment, file or default."""
    store.settings.set(WANTED_MODEL, model_id)


def _text(moment: datetime) -> str:
    return moment.isoformat()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
