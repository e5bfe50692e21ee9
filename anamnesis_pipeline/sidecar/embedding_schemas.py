"""Bodies of the routes on models, spaces, cores and the re-embed."""

from typing import Annotated, Literal, NotRequired, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from anamnesis_pipeline.sidecar.fields import WHOLE, WORDED_PATTERN

_STRICT = ConfigDict(extra="forbid", strict=True)
MAX_CORES = 1024

ModelId = Annotated[
    str, Field(max_length=500, pattern=WORDED_PATTERN, description="Name of a known model, a hub id or a path")
]
CpuPct = Annotated[int, Field(ge=1, le=100, description="Share of the cores, in percent"), WHOLE]
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
