"""Models, spaces, cores and the re-embed, as the API and the command line use them."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal, NotRequired, Protocol, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.embeddings.base import EmbeddingPool, QueryVectors
from anamnesis_pipeline.embeddings.cores import available_cores, cores_for
from anamnesis_pipeline.embeddings.models import ModelFiles, choose_precision, named
from anamnesis_pipeline.embeddings.registry import KNOWN_MODELS
from anamnesis_pipeline.errors import BadSetting, ServiceUnreachable, SpaceConflict, UnknownModel
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.api_pool import BREAKERS
from anamnesis_pipeline.pipeline.index import add_model, is_of_model, known_space
from anamnesis_pipeline.pipeline.llm_guard import close_breakers
from anamnesis_pipeline.pipeline.reembed_state import stopped_backfill
from anamnesis_pipeline.runtime.up_lock import settings_in_use
from anamnesis_pipeline.services import reembedding
from anamnesis_pipeline.services.dagster.api import Dagster, open_dagster
from anamnesis_pipeline.services.dagster.backfills import EMBED_TAG
from anamnesis_pipeline.services.fields import WHOLE, WORDED_PATTERN
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.schemas import CoverageOut
from anamnesis_pipeline.services.wiring import (
    CONFIG_PREFIX,
    configured_cores,
    effective_settings,
    model_files,
    stored_settings,
    wanted_precision,
)
from anamnesis_pipeline.settings import Settings, limits_of, words_of
from anamnesis_pipeline.store.base import Store

# --- embedding schemas -----------------------------------------------------------------------------------

# Bodies of the routes on models, spaces, cores and the re-embed.

_STRICT = ConfigDict(extra="forbid", strict=True)
MAX_CORES = 1024

ModelId = Annotated[
    str, Field(max_length=500, pattern=WORDED_PATTERN, description="Name of a known model, a hub id or a path")
]
CpuPct = Annotated[int, limits_of("embed_cpu_pct"), words_of("embed_cpu_pct"), WHOLE]
Core = Annotated[int, Field(ge=0, le=65535), WHOLE]
Cores = Annotated[list[Core], Field(min_length=1, max_length=MAX_CORES, description="Numbers of the cores")]


# --- requests --------------------------------------------------------------------------------------------


class ReembedIn(BaseModel):
    """What to embed with; without `model_id` the active model makes a new generation of its vectors."""

    model_config = _STRICT

    model_id: ModelId | None = None


class ModelIn(BaseModel):
    """The model to use from now on."""

    model_config = _STRICT

    model_id: ModelId


class CpuIn(BaseModel):
    """Which cores embed: the first `cpu_pct` % of them, or these."""

    model_config = ConfigDict(
        **_STRICT, json_schema_extra={"oneOf": [{"required": ["cpu_pct"]}, {"required": ["cores"]}]}
    )

    cpu_pct: Annotated[CpuPct, Field(default=100)]
    cores: Annotated[Cores, Field(default=[])]

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("give either cpu_pct or cores")
        return self


class EmbeddingChanges(BaseModel):
    """A model, cores, or both; when one of them is refused, nothing changes."""

    model_config = ConfigDict(
        **_STRICT, json_schema_extra={"minProperties": 1, "not": {"required": ["cpu_pct", "cores"]}}
    )

    model_id: Annotated[ModelId, Field(default="")]
    cpu_pct: Annotated[CpuPct, Field(default=100)]
    cores: Annotated[Cores, Field(default=[])]

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set or {"cpu_pct", "cores"} <= self.model_fields_set:
            raise ValueError("give model_id, and either cpu_pct or cores, or one of them")
        return self


# --- replies ---------------------------------------------------------------------------------------------


class BackfillOut(TypedDict):
    """The Dagster backfill that does the work. `sources` counts its partitions; `status` and counts are null while
    Dagster does not answer.
    """

    backfill_id: str
    link: str
    status: str | None
    sources: int | None
    sources_done: int | None
    sources_failed: int | None


class CheckpointOut(TypedDict):
    """The last write: what a restart goes on from. Counts are passages."""

    last_id: str
    done: int
    total: int
    model_id: str
    at: str


class ReembedOut(TypedDict):
    """The state of the re-embed, or of the last one. `done` and `total` are passages."""

    state: Literal["idle", "running", "paused", "failed", "complete"]
    space: str | None
    model_id: str | None
    done: int
    total: int
    episodes_done: int
    episodes_total: int
    errors: int
    last_error: str | None
    rate_per_s: float | None
    eta_s: float | None
    started_at: str | None
    checkpoint: CheckpointOut | None
    active_space: str | None
    active_model_id: str | None
    waiting_for_use: bool
    backfill: BackfillOut | None


class StartedOut(TypedDict):
    """Work that was asked for. `active` says that the space answers searches now, since it lacked nothing.

    `missing` of `total` passages are still to be embedded. `backfill_id` and `link` are null where there was nothing to
    launch, or where the sensors will do it. `stopped` is the space that was being built until now.
    """

    space: str
    model_id: str
    total: int
    missing: int
    active: bool
    backfill_id: str | None
    link: str | None
    stopped: str | None


class SpaceOut(TypedDict):
    """One embedding space; `embedded` of `stored` passages have all vectors there. `token_dims`: width of its token
    vectors, 0 when it has none; `token_bytes`: of all of them together. `vector_bytes`: about what the vectors of its
    passages take, with the index made of them.
    """

    key: str
    model_id: str
    dims: int
    generation: int
    status: Literal["added", "building", "active", "retired"]
    precision: str
    fidelity: float | None
    token_dims: int
    token_bytes: int
    vector_bytes: int
    embedded: int
    stored: int


class SpacesOut(TypedDict):
    """Every space, oldest first."""

    spaces: list[SpaceOut]


class KnownModelOut(TypedDict):
    """A model that is known by name; any other sentence-transformers model may be named by hub id or path."""

    model_id: str
    dims: int
    window: int
    licence: str
    download_mb: int
    description: str


class EmbeddingOut(TypedDict):
    """What embeds, on which cores. `model` is the one that is wanted; the space is the one that answers searches.

    `origin` says where the three settings come from: stored, environment, file or default. `precision` and `fidelity`
    are those of the space's first vectors; `computes_in` is the precision of the model in memory, null while none is.
    """

    model: str
    origin: dict[str, str]
    space: str | None
    model_id: str | None
    dims: int | None
    precision: str | None
    fidelity: float | None
    computes_in: str | None
    device: str
    cpu_pct: int
    cores: list[int]
    workers: int
    available_cores: list[int]
    problem: str | None
    spaces: list[SpaceOut]
    known_models: list[KnownModelOut]
    started: NotRequired[StartedOut | None]


_ORIGINS = ("model", "embed_cpu_pct", "embed_cores")

log = logging.getLogger(__name__)


class ModelPool(Protocol):
    """The embedding model: its state, its cores, and query vectors to measure its space."""

    @property
    def ready(self) -> bool:
        """Whether it is in memory."""

    @property
    def failure(self) -> str | None:
        """Why it will never load; None: it may."""

    @property
    def depth(self) -> int:
        """Number of waiting batches."""

    @property
    def model_id(self) -> str:
        """Its name."""

    @property
    def pool(self) -> EmbeddingPool | None:
        """The embedding pool; None until the model is in memory."""

    @property
    def next_failure(self) -> tuple[str, str] | None:
        """(model, reason) if the active space's model does not load and the previous one answers."""

    def load_in_background(self) -> None:
        """Start loading and return at once."""

    def space_for(self, active: Space) -> Space:
        """Return the space that is searched now."""

    def embed_query(self, text: str, space: Space) -> QueryVectors:
        """Embed a query in that space; raise RetryLater while its model loads."""

    def follow_cores(self) -> None:
        """Move to the configured cores."""


class EmbeddingControl:
    """Works on the store; every process follows its changes from there."""

    def __init__(self, store: Store, dagster: Dagster | None = None, pool: ModelPool | None = None) -> None:
        """:param dagster: launches the backfills; None: the sensors of the next `anamnesis up` do.
        :param pool: the models of this process, which follow a change of the cores at once.
        """
        self._store = store
        self._dagster = dagster
        self._pool = pool

    # --- models and spaces ---------------------------------------------------------------------------------

    def add(self, model_id: str) -> Space:
        """Create a space for a model; it is embedded on request only.

        :raises UnknownModel: no such model; the text names the choices.
        """
        settings = effective_settings(self._store)
        files = _files(self._store, settings, model_id)
        return add_model(self._store, files, wanted_precision(settings, files))

    def use_model(self, model_id: str) -> StartedOut:
        """Switch searches to a model once everything is embedded with it; persists over restarts. Naming the active
        model stops the build of another one, which keeps its progress.

        :raises UnknownModel: no such model; nothing has changed.
        :raises BadSetting: the environment decides (ANAMNESIS_LOCK_ENV).
        :raises SpaceConflict: another space is being built.
        :raises ServiceUnreachable: Dagster does not answer; nothing has changed.
        """
        settings = self._unless_locked({"model": model_id})
        self._ask_services_again()
        files = _files(self._store, settings, model_id)
        started = reembedding.use(self._store, files, wanted_precision(settings, files), self._launch())
        return self._started(started)

    def revert_model(self) -> StartedOut:
        """Use the model of environment, file or default, and remove the stored one. Raises as `use_model` does; then
        nothing has changed.
        """
        started = self.use_model(self._with_changes({"model": None}).model)
        self._store.settings.set(CONFIG_PREFIX + "model", None)
        return started

    def use_space(self, key: str) -> StartedOut:
        """Switch searches to an existing space, e.g. to move back.

        :raises SpaceNotFound: no such key.
        :raises UnknownModel: its model is gone or has other files now; nothing has changed. Others as `use_model`.
        """
        space = known_space(self._store, key)
        settings = self._unless_locked({"model": space.model_id})
        self._ask_services_again()
        if space.status != "active" and not is_of_model(space, _files(self._store, settings, space.model_id)):
            raise UnknownModel(f"the files of {space.model_id} are not those that made {key}; put the former ones back")
        precision = choose_precision(settings.precision, settings.device)
        return self._started(reembedding.use(self._store, key, precision, self._launch()))

    def start_reembed(self, model_id: str | None) -> StartedOut:
        """Embed with a model, or everything from scratch with the active one (a new generation).

        :raises SpaceConflict: a re-embed is in progress. Others as `use_model`.
        """
        self._ask_services_again()
        active, settings = self._store.spaces.active(), effective_settings(self._store)
        if active is None:
            return self.use_model(model_id or settings.model)
        try:
            files = _files(self._store, settings, model_id or active.model_id)
        except UnknownModel as exc:
            if model_id:
                raise
            raise SpaceConflict(f"the active model cannot embed again: {exc}") from exc
        if not is_of_model(active, files):
            return self.use_model(files.model_id)
        settings = self._unless_locked({"model": active.model_id})
        started = reembedding.reembed_active(self._store, files, wanted_precision(settings, files), self._launch())
        return self._started(started)

    def drop(self, key: str) -> None:
        """Delete a space with its vectors; cancel a backfill into it.

        :raises SpaceNotFound: no such key.
        :raises SpaceConflict: it answers the searches, or would be started again at once.
        :raises BadSetting: the environment selects its model (ANAMNESIS_LOCK_ENV).
        """
        space, active = known_space(self._store, key), self._store.spaces.active()
        if space.status == "building" and active is not None and active.model_id != space.model_id:
            self._unless_locked({"model": active.model_id})
        self._cancel(reembedding.drop(self._store, key))

    def list_spaces(self) -> list[SpaceOut]:
        """Return every space with its coverage, oldest first."""
        listed: list[SpaceOut] = []
        for space in self._store.spaces.all():
            progress = self._store.vectors.progress(space.key)
            listed.append(
                {
                    "key": space.key,
                    "model_id": space.model_id,
                    "dims": space.dim,
                    "generation": space.generation,
                    "status": cast(Any, space.status),
                    "precision": space.precision,
                    "fidelity": space.fidelity,
                    "token_dims": space.token_dims,
                    "token_bytes": self._store.vectors.token_bytes(space.key),
                    "vector_bytes": self._store.vectors.vector_bytes(space.key),
                    "embedded": progress.passages_done,
                    "stored": progress.passages,
                }
            )
        return listed

    # --- the re-embed --------------------------------------------------------------------------------------

    def pause(self) -> ReembedOut:
        """Pause the re-embed; its runs end within one checkpoint."""
        return self._reembed_body(reembedding.pause(self._store, effective_settings(self._store).switch))

    def resume(self) -> ReembedOut:
        """Resume the re-embed.

        :raises ServiceUnreachable: Dagster does not answer; it stays paused.
        """
        self._ask_services_again()
        return self._reembed_body(
            reembedding.resume(self._store, self._launch(), effective_settings(self._store).switch)
        )

    def reembed_status(self) -> ReembedOut:
        """Return its progress; without Dagster's part while that does not answer."""
        return self._reembed_body(reembedding.status(self._store, effective_settings(self._store).switch))

    # --- cores and the whole picture -----------------------------------------------------------------------

    def plan_cores(self, cores: Sequence[int], cpu_pct: int) -> dict[str, Any]:
        """Return the settings to store so that embedding runs on these cores, or without any on the first `cpu_pct` %.

        :raises BadSetting: this machine lacks one of them, or the environment decides (ANAMNESIS_LOCK_ENV).
        """
        cores_for(cpu_pct, cores, available_cores())
        if cores:
            plan: dict[str, Any] = {"embed_cores": list(dict.fromkeys(cores)), "embed_cpu_pct": None}
        else:
            plan = {"embed_cpu_pct": cpu_pct, "embed_cores": None}
            if self._with_changes(plan).embed_cores:  # of environment or file, which would win
                plan["embed_cores"] = []
        self._unless_locked(plan)
        return plan

    def set_cores(self, plan: Mapping[str, Any]) -> None:
        """Store the result of `plan_cores`: effective at once in every process, and over restarts."""
        for name, value in plan.items():  # the wanted value is first: no reader sees neither
            self._store.settings.set(CONFIG_PREFIX + name, value)
        if self._pool is not None:
            self._pool.follow_cores()

    def config(self) -> EmbeddingOut:
        """Return the embedding configuration and the origin of each setting. Missing cores are a `problem`."""
        settings, active = effective_settings(self._store), self._store.spaces.active()
        try:
            cores, no_cores = configured_cores(settings), None
        except BadSetting as exc:
            cores, no_cores = [], str(exc)
        origins = {row.name: row.origin for row in settings_module.origins(stored_settings(self._store))}
        pool, model_problem = None, None
        if self._pool is not None:
            pool, model_problem = self._pool.pool, self._pool.failure
            if waiting := self._pool.next_failure:
                model_problem = f"{waiting[0]} does not load, the model before it answers: {waiting[1]}"
        return {
            "model": settings.model,
            "origin": {name: origins[name] for name in _ORIGINS},
            "space": active.key if active else None,
            "model_id": active.model_id if active else None,
            "dims": active.dim if active else None,
            "precision": active.precision if active else None,
            "fidelity": active.fidelity if active else None,
            "computes_in": pool.precision if pool else None,
            "device": pool.device if pool else settings.device,
            "cpu_pct": settings.embed_cpu_pct,
            "cores": list(pool.cores) if pool else cores,
            "workers": pool.workers if pool else 0,
            "available_cores": available_cores(),
            "problem": no_cores or model_problem,
            "spaces": self.list_spaces(),
            "known_models": [
                {
                    "model_id": known.model_id,
                    "dims": known.dim,
                    "window": known.window,
                    "licence": known.licence,
                    "download_mb": known.download_mb,
                    "description": known.description,
                }
                for known in KNOWN_MODELS
            ],
        }

    # --- details -------------------------------------------------------------------------------------------

    def _ask_services_again(self) -> None:
        """Close the breakers: the user wants work now, and a key may have been fixed since."""
        close_breakers(self._store.settings, of=BREAKERS)

    def _launch(self) -> reembedding.Launch | None:
        dagster = self._dagster
        if dagster is None:
            return None

        def launch(space: str, sources: Sequence[str]) -> str:
            if by_hand := self._launched_by_hand(dagster, space):
                return by_hand
            tags = {**effective_settings(self._store).embed_run_tags, EMBED_TAG: space}
            return dagster.launch_embedding_backfill(space, sources, f"Embed into {space}", tags)

        return launch

    def _launched_by_hand(self, dagster: Dagster, space: str) -> str | None:
        """Return the unfinished backfill into a space that a user launched in the Dagster UI.

        :raises SpaceConflict: one embeds another space that is not active.
        """
        given_up = stopped_backfill(self._store)
        found = [backfill for backfill in dagster.unfinished_backfills() if backfill.backfill_id != given_up]
        mine = [backfill.backfill_id for backfill in found if space in backfill.spaces]
        if mine:
            return mine[0]
        others = {each.key for each in self._store.spaces.all() if each.status != "active"} - {space}
        for backfill in found:
            if embedded := sorted(backfill.spaces & others):
                raise SpaceConflict(
                    f"backfill {backfill.backfill_id}, launched in Dagster, embeds {', '.join(embedded)}; wait until "
                    f"it is over, or cancel it: {dagster.link(backfill.backfill_id)}"
                )
        return None

    def _cancel(self, backfill_id: str | None) -> None:
        if backfill_id is None or self._dagster is None:
            return
        try:
            self._dagster.cancel_backfill(backfill_id)
        except ServiceUnreachable as exc:  # its runs end anyway: their space is no longer built
            log.warning("backfill %s is not cancelled: %s", backfill_id, exc)

    def _with_changes(self, changes: Mapping[str, Any]) -> Settings:
        stored = {**stored_settings(self._store), **changes}
        return settings_module.load({name: value for name, value in stored.items() if value is not None})

    def _unless_locked(self, changes: Mapping[str, Any]) -> Settings:
        """Return the current settings, provided that these changes would take effect.

        :raises BadSetting: a setting of the environment or of the file wins over the stored one.
        """
        after = self._with_changes(changes)
        for name, value in changes.items():
            if value is not None and getattr(after, name) != (tuple(value) if isinstance(value, list) else value):
                raise BadSetting(
                    f"{name} is set by environment or file, and ANAMNESIS_LOCK_ENV lets these win; change it there"
                )
        return effective_settings(self._store)

    def _started(self, started: reembedding.Started) -> StartedOut:
        self._cancel(started.stopped_backfill)
        backfill_id = started.backfill_id
        return {
            "space": started.space.key,
            "model_id": started.space.model_id,
            "total": started.total,
            "missing": started.missing,
            "active": started.space.status == "active",
            "backfill_id": backfill_id,
            "link": self._link(backfill_id) if backfill_id else None,
            "stopped": started.stopped,
        }

    def _reembed_body(self, status: reembedding.ReembedStatus) -> ReembedOut:
        body = asdict(status)
        backfill_id = body.pop("backfill_id")
        body["started_at"] = utc_text(status.started_at) if status.started_at else None
        if status.checkpoint:
            body["checkpoint"]["at"] = utc_text(status.checkpoint.at)
        body["backfill"] = None
        if backfill_id:
            state = None
            if self._dagster is not None:
                with suppress(ServiceUnreachable):
                    state = self._dagster.backfill_state(backfill_id)
            backfill: BackfillOut = {
                "backfill_id": backfill_id,
                "link": self._link(backfill_id),
                "status": state.status if state else None,
                "sources": state.targeted if state else None,
                "sources_done": state.materialized if state else None,
                "sources_failed": state.failed if state else None,
            }
            body["backfill"] = backfill
        return cast(ReembedOut, body)

    def _link(self, backfill_id: str) -> str:
        return (self._dagster or open_dagster(settings_in_use(effective_settings(self._store)))).link(backfill_id)


def _files(store: Store, settings: Settings, model_id: str) -> ModelFiles:
    return model_files(settings, named(model_id), store)


def coverage(store: Store) -> CoverageOut:
    """Return how many passages are embedded in the active space."""
    space = store.spaces.active()
    if space is None:
        return {"space": None, "model_id": None, "embedded": 0, "stored": store.overview.counts().passages}
    now = store.vectors.progress(space.key)
    return {"space": space.key, "model_id": space.model_id, "embedded": now.passages_done, "stored": now.passages}
