"""Resources of assets, sensors and schedules: the store with its steps, the embedding pool, the LLM, other machines.

Their fields show the settings in Dagster's UI and launchpad. A run's config overrides them for that run.
"""

import atexit
import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import Field

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.embeddings.base import EmbeddingPool
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.precision import choose_device
from anamnesis_pipeline.errors import AnamnesisError, BadSetting, HostRefused
from anamnesis_pipeline.model import Source, Space, SummarizerName
from anamnesis_pipeline.pipeline.reembed_state import noting_failure
from anamnesis_pipeline.pipeline.survey import Crawler
from anamnesis_pipeline.runtime.crawler_wiring import configured_specs, open_crawler, remote_host
from anamnesis_pipeline.runtime.llm_wiring import llm_address, llm_key
from anamnesis_pipeline.services.ingest import Pipeline
from anamnesis_pipeline.services.wiring import (
    configured_cores,
    effective_settings,
    impatient,
    open_llm_of,
    open_pipeline,
    open_pool_of,
    open_store,
    store_place,
)
from anamnesis_pipeline.settings import Settings, overridden
from anamnesis_pipeline.sources.base import COMMAND_TIMEOUT_S, CONNECT_TIMEOUT_S, READ_TIMEOUT_S
from anamnesis_pipeline.store.base import Store

if TYPE_CHECKING:
    from anamnesis_pipeline.sources.ssh.machine import SshHost

log = logging.getLogger("anamnesis.resources")
TICK_WAIT_S = 20
"""Dagster ends a sensor's tick after 60 s, and does not show the reason for the delay."""

_kept: dict[str, Store] = {}
_keeping = threading.Lock()


def kept_store(settings: Settings) -> Store:
    """Return the store of this process, opened once: the code server uses it at each sensor tick, and a server login
    costs more than a query.

    :raises AnamnesisError: as `open_store`.
    """
    place = store_place(settings)
    with _keeping:
        if place not in _kept:
            _kept[place] = open_store(impatient(settings, TICK_WAIT_S))
        return _kept[place]


@atexit.register
def close_kept() -> None:
    """Close the stores that `kept_store` opened."""
    with _keeping:
        while _kept:
            _kept.popitem()[1].close()


def settings_at_load() -> tuple[Settings, list[str], bool]:
    """Return the settings when Dagster loads the definitions, the SSH hosts of the configured sources, and whether all
    could be read. Never creates the home folder.

    Unreadable settings are reported by the doctor and must not prevent the definitions from loading: those outside the
    store, or the defaults, are shown. `HourlyCheck` reloads the definitions once they can be read.
    """
    try:
        settings = settings_module.load()
    except BadSetting:
        return Settings.model_construct(), [], False
    if not settings.has_store:
        return settings, [], True
    try:
        store = kept_store(settings)
        stored = effective_settings(store)
        return stored, sorted({spec.host for spec in configured_specs(stored, store) if spec.host}), True
    except AnamnesisError as exc:
        log.warning("the stored settings cannot be read; the definitions are loaded without them: %s", exc)
        return settings, [], False


AT_LOAD, HOSTS_AT_LOAD, IS_COMPLETE = settings_at_load()

LEFT = "If a run leaves it as shown, the setting at the time of the run counts."
"""Ends every field's description, since settings change after the definitions are loaded."""


SEPARATED = ", separated by `,`"
"""Part of a list's description about the environment variable; a run's config has a real list."""


def shown(name: str) -> Any:
    """Return a field that shows a setting."""
    value = getattr(AT_LOAD, name)
    default = list(value) if isinstance(value, tuple) else value
    said = str(Settings.model_fields[name].description).replace(SEPARATED, "").replace("`", "")  # not Markdown
    return Field(default=default, description=f"{said}. {LEFT}")


class SettingsResource(dg.ConfigurableResource[Any]):
    """Fields named after settings, with their values at load time. A different value overrides the setting for one
    run.
    """

    def given(self) -> dict[str, Any]:
        """Return name -> value of the settings that this run's config overrides."""
        names = type(self).model_fields.keys() & Settings.model_fields.keys()
        values = {name: getattr(self, name) for name in sorted(names)}
        return {name: value for name, value in values.items() if value != shown(name).default}

    def settings(self, memory: "MemoryResource") -> Settings:
        """Return the current settings with this run's overrides.

        :raises dg.Failure: a value is invalid for the setting.
        """
        try:
            return overridden(memory.settings, self.given())
        except BadSetting as exc:
            raise refused(str(exc)) from exc


def refused(reason: str) -> dg.Failure:
    """Return the failure of a run with an invalid config: retries would not help."""
    return dg.Failure(f"The config of this run is refused: {reason}", allow_retries=False)


class MemoryResource(dg.ConfigurableResource[Any]):
    """The memory of this deployment: the store, the settings and the source steps."""

    store_kind: Literal["sqlite", "mongo"] = Field(
        default=AT_LOAD.store, description="The store. Set by ANAMNESIS_STORE; a run's config cannot choose another."
    )
    store_place: str = Field(
        default=store_place(AT_LOAD),
        description="Its file, or its hosts and database. Set by ANAMNESIS_HOME, or ANAMNESIS_MONGO_URI and "
        "ANAMNESIS_MONGO_DATABASE; a run's config cannot choose another.",
    )
    keeps_open: bool = Field(
        default=False, description="Whether a process opens the store once, not for each run or tick."
    )

    @cached_property
    def store(self) -> Store:
        """Return the deployment's store.

        :raises dg.Failure: the config of the run names another.
        """
        if (self.store_kind, self.store_place) != (AT_LOAD.store, store_place(AT_LOAD)):
            own = f"{AT_LOAD.store}, {store_place(AT_LOAD)}"
            raise refused(
                f"it names the store {self.store_kind}, {self.store_place}, but all runs of this deployment work on "
                f"{own}; a deployment on another store needs its own environment (ANAMNESIS_HOME, ANAMNESIS_STORE)"
            )
        settings = settings_module.load()
        return kept_store(settings) if self.keeps_open else open_store(settings)

    @property
    def settings(self) -> Settings:
        """Read the settings at each access, so that a stored setting counts from the next tick or run."""
        return effective_settings(self.store)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The source steps."""
        return open_pipeline(self.settings, self.store)

    @property
    def crawler(self) -> Crawler:
        """The crawler of the currently configured sources."""
        return open_crawler(self.settings, self.store)

    def source(self, key: str) -> Source:
        """Return the source of a partition.

        :raises dg.Failure: the store does not know it.
        """
        for source in self.store.files.sources():
            if source.key == key:
                return source
        raise dg.Failure(f"no source {key!r} in the store; crawl_sensor adds sources when it finds them")

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close the store at the end of a run or tick, unless the process keeps it."""
        if "store" in self.__dict__ and not self.keeps_open:
            self.store.close()


class EmbeddingPoolResource(SettingsResource):
    """The CPU-pinned embedding pool, as set when the definitions were loaded. The model is loaded once per run, when
    the first passage needs it.
    """

    model: str = shown("model")
    device: Literal["auto", "cpu", "cuda"] = shown("device")
    precision: Literal["auto", "bf16", "fp32"] = shown("precision")
    embed_cpu_pct: int = shown("embed_cpu_pct")
    embed_cores: list[int] = shown("embed_cores")
    checkpoint_every: int = shown("checkpoint_every")

    def given(self) -> dict[str, Any]:
        """Return the overrides; a share of the cores in the run's config replaces the configured cores."""
        given = super().given()
        return {"embed_cores": (), **given} if "embed_cpu_pct" in given else given

    def settings(self, memory: MemoryResource) -> Settings:
        """Return the current settings with this run's overrides.

        :raises dg.Failure: a value is invalid for the setting, or names absent cores.
        """
        settings = super().settings(memory)
        if self.given():
            try:
                configured_cores(settings)
                choose_device(settings.device)
            except BadSetting as exc:
                raise refused(str(exc)) from exc
        return settings

    def check(self, memory: MemoryResource, space: Space) -> None:
        """Refuse an invalid config for a space, even if nothing is left to embed.

        :raises dg.Failure: it names another model, an invalid value, or absent cores.
        """
        if self.given().get("model", space.model_id) != space.model_id:
            raise refused(
                f"it names the model {self.model}, but the vectors of {space.key} are of {space.model_id}, and vectors "
                f"of two models cannot be compared; begin a space with: anamnesis model add {self.model}"
            )
        self.settings(memory)

    def open(self, memory: MemoryResource, space: Space) -> "closing[EmbeddingPool]":
        """Return a loaded pool for a space's model; close it with `with`. The active space's has priority.

        A failure is recorded for the sensor, which then waits before the next attempt.
        :raises dg.Failure: as `check`.
        :raises GiveUp: the model is unknown, or its vectors do not fit the space.
        """
        self.check(memory, space)  # an invalid config is no failure of the space
        priority = Priority.LIVE if space.status == "active" else Priority.BACKGROUND
        with noting_failure(memory.store, space.key):
            pool = open_pool_of(memory.store, space, priority=priority, settings_of=lambda _: self.settings(memory))
            pool.load()
        return closing(pool)


class LlmResource(SettingsResource):
    """The LLM that writes summaries, as set when the definitions were loaded. Its address and key are settings that no
    run's config overrides: a key goes to no address but its own.
    """

    summarizer: SummarizerName = shown("summarizer")
    summary_model: str = shown("summary_model")
    summary_timeout_s: int = shown("summary_timeout_s")
    llm_daily_tokens: int | None = shown("llm_daily_tokens")
    llm_daily_dollars: float | None = shown("llm_daily_dollars")
    llm_requests_per_minute: int = shown("llm_requests_per_minute")
    address: str = Field(
        default=llm_address(AT_LOAD), description="Its base address, or machine. A run cannot change it."
    )
    api_key: str = Field(
        default=llm_key(AT_LOAD), description="Whether there is a key: present or absent. Never the key."
    )

    def pipeline(self, memory: MemoryResource) -> Pipeline:
        """Return the source steps that summarize with this LLM.

        :raises dg.Failure: the config of the run is invalid.
        """
        for name, own in (("address", llm_address(AT_LOAD)), ("api_key", llm_key(AT_LOAD))):
            if getattr(self, name) != own:
                raise refused(f"it gives {name}, which only settings do; see anamnesis config")
        return replace(memory.pipeline, llm=open_llm_of(self.settings(memory), memory.store))


class SshResource(dg.ConfigurableResource[Any]):
    """Other machines that sources are read from, over SSH: with this user's keys, read-only, and only where their host
    keys are known.
    """

    hosts: list[str] = Field(
        default=HOSTS_AT_LOAD,
        description=f"Hosts of the configured sources; a run asks none but these. {LEFT}",
    )
    connect_timeout_s: int = Field(
        default=int(CONNECT_TIMEOUT_S), gt=0, le=3600, description="Seconds for each of: connection, greeting, log-in"
    )
    command_timeout_s: int = Field(
        default=int(COMMAND_TIMEOUT_S), gt=0, le=3600, description="Seconds for the listing of a source"
    )
    read_timeout_s: int = Field(
        default=int(READ_TIMEOUT_S), gt=0, le=3600, description="Seconds for each piece of a file"
    )

    def host(self, machine: str, place: str) -> "SshHost":
        """Return a machine, without connecting.

        :raises HostRefused: the run's config leaves it out.
        """
        if self.hosts != HOSTS_AT_LOAD and place not in self.hosts:
            raise HostRefused(f"this run may not contact {place}; its config names other hosts: add it to `hosts`")
        return remote_host(
            machine,
            place,
            connect_timeout_s=float(self.connect_timeout_s),
            command_timeout_s=float(self.command_timeout_s),
            read_timeout_s=float(self.read_timeout_s),
        )

    def pipeline(self, memory: MemoryResource) -> Pipeline:
        """Return the source steps that read other machines this way.

        :raises dg.Failure: the config of the run names a host without a source.
        """
        settings = memory.settings
        known = {spec.host for spec in configured_specs(settings, memory.store) if spec.host}
        if self.hosts != HOSTS_AT_LOAD and (unknown := sorted(set(self.hosts) - known)):
            named = ", ".join(sorted(known)) or "none"
            raise refused(f"{unknown[0]!r} is the host of no source; the hosts are: {named}")
        return open_pipeline(settings, memory.store, self.host)


def follow_cores(pool: EmbeddingPool, settings: Settings, warn: Callable[[str], None]) -> None:
    """Move a pool to the currently configured cores, if they changed."""
    try:
        cores = configured_cores(settings)
    except BadSetting as exc:
        warn(f"{exc}; embedding stays on cores {pool.cores}")
        return
    if cores != list(pool.cores):
        pool.use_cores(cores)
