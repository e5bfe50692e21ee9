"""What assets, sensors and schedules work with: the store with its steps, and the embedding pool."""

import atexit
import threading
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from typing import Any

import dagster as dg

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.crawler_wiring import open_crawler
from anamnesis_pipeline.embeddings.base import EmbeddingPool
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.model import Source, Space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.pipeline import Pipeline
from anamnesis_pipeline.steps.reembed_state import noting_failure
from anamnesis_pipeline.steps.survey import Crawler
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wiring import (
    configured_cores,
    effective_settings,
    impatient,
    open_pipeline,
    open_pool_of,
    open_store,
    store_place,
)

TICK_WAIT_S = 20
"""Dagster ends a tick of a sensor after 60 s, and shows nothing of why it took so long."""

_kept: dict[str, Store] = {}
_keeping = threading.Lock()


def kept_store(settings: Settings) -> Store:
    """The store of this process, opened once: the code server asks it at each tick of a sensor for as long as it lives,
    and to log in to a server costs more than to ask.

    :raises AnamnesisError: see `open_store`.
    """
    place = store_place(settings)
    with _keeping:
        if place not in _kept:
            _kept[place] = open_store(impatient(settings, TICK_WAIT_S))
        return _kept[place]


@atexit.register
def close_kept() -> None:
    """Close what `kept_store` opened."""
    with _keeping:
        while _kept:
            _kept.popitem()[1].close()


class MemoryResource(dg.ConfigurableResource[Any]):
    """The store, the settings and the source steps of this deployment.

    `keeps_open`: the store is that of the process, not one for each execution.
    """

    keeps_open: bool = False

    @cached_property
    def store(self) -> Store:
        """The deployment's store."""
        settings = settings_module.load()
        return kept_store(settings) if self.keeps_open else open_store(settings)

    @property
    def settings(self) -> Settings:
        """Read anew each time, so that a stored setting counts from the next tick or run on."""
        return effective_settings(self.store)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The source steps."""
        return open_pipeline(self.settings, self.store)

    @property
    def crawler(self) -> Crawler:
        """What looks at all machines, as the sources are configured now."""
        return open_crawler(self.settings, self.store)

    def source(self, key: str) -> Source:
        """The source of a partition.

        :raises dg.Failure: the store does not know it.
        """
        for source in self.store.ingest.sources():
            if source.key == key:
                return source
        raise dg.Failure(f"no source {key!r} in the store; crawl_sensor adds sources when it finds them")

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close the store at the end of a run or tick, unless it is the process's."""
        if "store" in self.__dict__ and not self.keeps_open:
            self.store.close()


class EmbeddingPoolResource(dg.ConfigurableResource[Any]):
    """The CPU-pinned embedding pool. The model is loaded once per run, when the first passage needs it."""

    def open(self, memory: MemoryResource, space: Space) -> "closing[EmbeddingPool]":
        """A loaded pool for a space's model; close it with `with`. The active space's goes before any other's.

        A failure is noted for the sensor, which then waits before it tries again.
        :raises GiveUp: the model is unknown or makes other vectors than the space holds.
        """
        priority = Priority.LIVE if space.status == "active" else Priority.BACKGROUND
        with noting_failure(memory.store, space.key):
            pool = open_pool_of(memory.store, space, priority=priority)
            pool.load()
        return closing(pool)


def follow_cores(pool: EmbeddingPool, settings: Settings, warn: Callable[[str], None]) -> None:
    """Move a pool to the cores that are set now, if they changed."""
    try:
        cores = configured_cores(settings)
    except BadSetting as exc:
        warn(f"{exc}; embedding stays on cores {pool.cores}")
        return
    if cores != list(pool.cores):
        pool.use_cores(cores)
