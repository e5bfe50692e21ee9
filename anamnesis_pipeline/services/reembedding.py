"""Adding, building, switching and dropping embedding spaces, for the HTTP API and the command line.

A re-embed is one space that is `building`. Work is launched through a callable, which keeps this module free of
Dagster; if it is None, the sensors do the work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from anamnesis_pipeline.embeddings.models import ModelFiles
from anamnesis_pipeline.errors import AnamnesisError, SpaceConflict
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.index import add_model, begin, building_space, generations, is_of_model, known_space
from anamnesis_pipeline.pipeline.reembed_state import (
    JOB,
    clear_failure,
    failure_of,
    forget_answers,
    forget_space,
    is_paused,
    job_of,
    rate_of,
    record_job,
    set_paused,
    set_stopped_backfill,
    set_wanted_model,
    stopped_backfill,
    wanted_model,
)
from anamnesis_pipeline.store.base import Store

Launch = Callable[[str, Sequence[str]], str | None]
"""(space key, source keys) -> id of the backfill that embeds them; None: the sensors do it.

:raises ServiceUnreachable: Dagster does not answer.
:raises SpaceConflict: a manually launched backfill embeds another space.
"""
State = Literal["idle", "running", "paused", "failed", "complete"]
FAILED_AFTER = 3
"""Failures in a row after which a re-embed counts as failed; retries continue at growing intervals."""


@dataclass(frozen=True, slots=True)
class Started:
    """Result of a request to use a space: active at once (`switched`, or it was already), or being built.

    `stopped`: the space whose build was stopped. `stopped_backfill`: its backfill, to be canceled.
    """

    space: Space
    switched: bool
    backfill_id: str | None
    total: int
    """Passages of the space, embedded ones included."""
    missing: int
    """Passages not embedded yet."""
    stopped: str | None = None
    stopped_backfill: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest write of a re-embed, in passages."""

    last_id: str
    done: int
    total: int
    model_id: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ReembedStatus:
    """Progress of the re-embed. `done` and `total` count passages; `errors` failures since the last checkpoint.

    `rate_per_s` and `eta_s` are None when the next checkpoint is overdue. `waiting_for_use`: complete, and the setting
    `switch` requires confirmation.
    """

    state: State
    space: str | None = None
    model_id: str | None = None
    done: int = 0
    total: int = 0
    episodes_done: int = 0
    episodes_total: int = 0
    errors: int = 0
    last_error: str | None = None
    rate_per_s: float | None = None
    eta_s: float | None = None
    started_at: datetime | None = None
    checkpoint: Checkpoint | None = None
    backfill_id: str | None = None
    active_space: str | None = None
    active_model_id: str | None = None
    waiting_for_use: bool = False


def use(store: Store, wanted: str | ModelFiles, precision: str, launch: Launch | None = None) -> Started:
    """Make a space answer searches: at once if it is complete, else once it is built.

    Requesting the active space stops the current build, which keeps its vectors.
    :param wanted: the key of a space, or a model, which is added when it is new.
    :raises SpaceNotFound: no such key.
    :raises SpaceConflict: another space is being built; finish or give it up first.
    :raises ServiceUnreachable: Dagster does not answer; nothing has changed.
    """
    active, building = store.spaces.active(), building_space(store)
    if active is not None and building is not None and _is_it(active, wanted):
        _refuse_new_files(building, active)
        set_wanted_model(store, active.model_id)  # first, or the sensor would start it again
        backfill_id = _backfill_of(store, building)
        set_stopped_backfill(store, backfill_id)
        store.spaces.stop(building.key)
        forget_space(store, building.key)
        return replace(_started(store, active.key), stopped=building.key, stopped_backfill=backfill_id)
    before = {space.key for space in store.spaces.all()}
    if building is not None:
        if store.vectors.pending_sources(building.key):  # its completion would undo the switch
            raise _busy(store, building)
        if not _is_it(building, wanted):  # it is complete but unconfirmed: this request declines it
            store.spaces.stop(building.key)
            forget_space(store, building.key)
    space = known_space(store, wanted) if isinstance(wanted, str) else add_model(store, wanted, precision)
    if not store.vectors.pending_sources(space.key):
        set_wanted_model(store, space.model_id)  # first: a sensor that sees it now switches to the same space
        if store.spaces.activate(space.key):
            set_paused(store, False)
            return _started(store, space.key, switched=space.status != "active")
    if space.status == "active":
        set_wanted_model(store, space.model_id)
        return _started(store, space.key)
    return _start(store, space, launch, is_new=space.key not in before)


def reembed_active(store: Store, files: ModelFiles, precision: str, launch: Launch | None = None) -> Started:
    """Embed everything again with the active model: a new generation, activated once it is complete.

    :param files: of the active space's model.
    :raises SpaceConflict: a space is being built.
    :raises ServiceUnreachable: Dagster does not answer; nothing has changed.
    """
    if building := building_space(store):
        raise _busy(store, building)
    known = generations(store, files)
    spare = [space for space in known if space.status == "added" and not store.vectors.count(space.key)]
    number = spare[0].generation if spare else 1 + max((space.generation for space in known), default=0)
    fresh = files.space(number, precision)
    is_new = store.spaces.put(fresh)
    return _start(store, known_space(store, fresh.key), launch, is_new=is_new)


def adopt(store: Store, space: Space, backfill_id: str) -> bool:
    """Treat a manually launched backfill of an added space as the current re-embed.

    Return False if it belongs to a re-embed that was given up.
    :raises SpaceConflict: another space is being built.
    """
    if backfill_id == stopped_backfill(store):
        return False
    begin(store, space, backfill_id)
    set_wanted_model(store, space.model_id)
    return True


def follow(store: Store, space: Space, backfill_id: str) -> None:
    """Note that another backfill, re-executed in Dagster, continues the re-embed into a space."""
    job = job_of(store)
    if job is not None and job.space == space.key and job.backfill_id != backfill_id:
        record_job(store, space, backfill_id, job.started_at)


def _is_it(space: Space, wanted: str | ModelFiles) -> bool:
    return space.key == wanted if isinstance(wanted, str) else is_of_model(space, wanted)


def _backfill_of(store: Store, building: Space) -> str | None:
    job = job_of(store)
    return job.backfill_id if job is not None and job.space == building.key else None


def _busy(store: Store, building: Space) -> SpaceConflict:
    active = store.spaces.active()
    stay = f", or give it up: anamnesis model use {active.key}" if active is not None else ""
    wait = "wait until it is complete, go on if it is paused (anamnesis reembed resume)"
    return SpaceConflict(f"{building.key} is being built; {wait}{stay}")


def _start(store: Store, space: Space, launch: Launch | None, *, is_new: bool) -> Started:
    """Start a build. The store lets one of two concurrent callers start; only that one launches."""
    wanted_before, job_before = wanted_model(store), store.settings.get(JOB)
    begin(store, space)
    set_wanted_model(store, space.model_id)
    sources = list(store.vectors.pending_sources(space.key))
    try:
        backfill_id = launch(space.key, sources) if launch is not None and sources else None
    except AnamnesisError:
        set_wanted_model(store, wanted_before)
        forget_space(store, space.key)
        if is_new:
            store.spaces.drop(space.key)
            forget_answers(store, space.key)
        else:
            store.spaces.stop(space.key, status=space.status)
        store.settings.set(JOB, job_before)
        raise
    if backfill_id is not None:
        record_job(store, space, backfill_id)
    return _started(store, space.key, backfill_id=backfill_id)


def _started(store: Store, key: str, *, switched: bool = False, backfill_id: str | None = None) -> Started:
    progress = store.vectors.progress(key)
    missing = progress.passages - progress.passages_done
    return Started(known_space(store, key), switched, backfill_id, progress.passages, missing)


def pause(store: Store, switch: str = "auto") -> ReembedStatus:
    """Pause the re-embed; its runs end within one checkpoint. Do nothing if all is embedded."""
    building = building_space(store)
    if building is not None and store.vectors.pending_sources(building.key):
        set_paused(store, True)
    return status(store, switch)


def resume(store: Store, launch: Launch | None = None, switch: str = "auto") -> ReembedStatus:
    """Resume the re-embed, or retry a failed one now. Do nothing without one, or while it runs.

    :raises ServiceUnreachable: Dagster does not answer; it stays paused.
    :raises SpaceConflict: another space is being embedded by hand; it stays paused.
    """
    space = building_space(store)
    if space is not None and (is_paused(store) or failure_of(store, space.key) is not None):
        sources = list(store.vectors.pending_sources(space.key))
        backfill_id = launch(space.key, sources) if launch is not None and sources else None
        if backfill_id is not None:
            job = job_of(store)
            record_job(store, space, backfill_id, job.started_at if job is not None else None)
        clear_failure(store, space.key)
        set_paused(store, False)
    return status(store, switch)


def drop(store: Store, key: str) -> str | None:
    """Delete an inactive space with its vectors. Return the backfill that was building it, to be canceled.

    If the settings ask for its model, set them to the active model.
    :raises SpaceNotFound: no such space.
    :raises SpaceConflict: it is active, or would be restarted since the active model's files changed.
    """
    space, active = known_space(store, key), store.spaces.active()
    if space.status == "active":
        raise SpaceConflict(f"{key} answers the searches; switch to another space with `anamnesis model use` first")
    if space.status == "building" and active is not None:
        _refuse_new_files(space, active)
    stored = wanted_model(store)  # None: the settings ask for the model of the building space
    is_wanted = stored == space.model_id or (stored is None and space.status == "building")
    if active is not None and is_wanted and active.model_id != space.model_id:
        set_wanted_model(store, active.model_id)  # first, or the sensor would start it again
    backfill_id = _backfill_of(store, space) if space.status == "building" else None
    if backfill_id is not None:
        set_stopped_backfill(store, backfill_id)
    store.spaces.drop(key)
    forget_space(store, key)
    forget_answers(store, key)
    return backfill_id


def _refuse_new_files(building: Space, active: Space) -> None:
    """Refuse to stop a build with the active model's name but other files: it would restart at once.

    :raises SpaceConflict: it is one.
    """
    if building.model_id == active.model_id and _without_generation(building) != _without_generation(active):
        raise SpaceConflict(
            f"{building.key} is built since the files of {building.model_id} changed; put the former ones back, or use "
            "another model first"
        )


def _without_generation(space: Space) -> str:
    return space.key.removesuffix(f"-g{space.generation}")


def status(store: Store, switch: str = "auto") -> ReembedStatus:
    """Return the status of the current re-embed, or of the last one.

    :param switch: the setting of this name.
    """
    active, job = store.spaces.active(), job_of(store)
    shown = building_space(store)
    if shown is None and active is not None and job is not None and job.space == active.key:
        shown = active
    found = ReembedStatus("idle")
    if shown is not None:
        its_job = job if job is not None and job.space == shown.key else None
        progress = store.vectors.progress(shown.key)
        missing = progress.passages - progress.passages_done
        failure = failure_of(store, shown.key)
        rate = rate_of(store, shown.key, datetime.now(UTC)) if missing else None
        state: State = "failed" if failure is not None and failure.count >= FAILED_AFTER else "running"
        if shown.status == "active" or not missing:
            state = "complete"
        elif is_paused(store):
            state = "paused"
        checkpoint = None
        if progress.last_episode is not None and progress.written_at is not None:
            checkpoint = Checkpoint(
                progress.last_episode, progress.passages_done, progress.passages, shown.model_id, progress.written_at
            )
        found = ReembedStatus(
            state=state,
            space=shown.key,
            model_id=shown.model_id,
            done=progress.passages_done,
            total=progress.passages,
            episodes_done=progress.episodes_done,
            episodes_total=progress.episodes,
            errors=failure.count if failure is not None else 0,
            last_error=failure.last if failure is not None else None,
            rate_per_s=rate,
            eta_s=round(missing / rate, 1) if rate else None,
            started_at=its_job.started_at if its_job is not None else None,
            checkpoint=checkpoint,
            backfill_id=its_job.backfill_id if its_job is not None else None,
            waiting_for_use=shown.status == "building" and not missing and switch == "ask",
        )
    return found if active is None else replace(found, active_space=active.key, active_model_id=active.model_id)
