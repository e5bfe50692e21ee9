"""Dagster's storage for processes that live long and ask often: opened once, over connections that stay open.

By itself Dagster opens its storage anew for each tick of a sensor, and makes a connection for each question, which
costs the process and PostgreSQL more than the answer.
"""

import atexit
import threading
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage

STATEMENT_TIMEOUT_MS = 60_000
CONNECTION_AGE_S = 3_600
MOST_CONNECTIONS = 20
"""Of each of the three storages, while many questions are asked at once; one of each stays open."""

_kept: list[tuple[InstanceRef, dg.DagsterInstance]] = []
"""At most one: a process serves one deployment."""
_keeping = threading.Lock()


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Let its storages ask over connections that they keep; those of SQLite are files, and stay as they are."""
    # The name is from Dagster's webserver, the other process that lives long and asks often.
    instance.optimize_for_webserver(STATEMENT_TIMEOUT_MS, CONNECTION_AGE_S, MOST_CONNECTIONS)
    schedules = instance.schedule_storage
    if isinstance(schedules, SqlScheduleStorage) and schedules.has_instigators_table():
        # A third of all questions otherwise: each look at a sensor's state asks first whether its table was migrated.
        schedules._has_instigators_table = lambda conn: True  # type: ignore[method-assign]
        schedules.has_instigators_table = lambda: True  # type: ignore[method-assign]


def instance_of(context: dg.SensorEvaluationContext) -> dg.DagsterInstance:
    """The instance that a tick belongs to, as this process opened it at the first tick; that of a test is its own."""
    ref = context.instance_ref
    if ref is None:
        return context.instance
    with _keeping:
        if not _kept or _kept[0][0] != ref:
            close_kept()
            instance = dg.DagsterInstance.from_ref(ref)
            try:
                keep_connections(instance)
            except BaseException:
                instance.dispose()
                raise
            _kept.append((ref, instance))
        return _kept[0][1]


def on_kept_instance(sensor: dg.SensorDefinition) -> dg.SensorDefinition:
    """The sensor, each tick on `instance_of` it: by itself Dagster opens one at each, to make the resources."""
    evaluate = sensor._evaluation_fn

    def evaluate_on_kept(context: dg.SensorEvaluationContext) -> Any:
        context._instance = instance_of(context)  # nothing public is there before the resources are made
        return evaluate(context)

    sensor._evaluation_fn = evaluate_on_kept
    return sensor


@atexit.register
def close_kept() -> None:
    """Close what `instance_of` opened."""
    while _kept:
        _kept.pop()[1].dispose()
