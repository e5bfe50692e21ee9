"""Bodies of the routes on reading logs and on the LLM that summarizes them."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from anamnesis_pipeline.settings import MOST_PER_RUN, Settings
from anamnesis_pipeline.sidecar.fields import TEXT_PATTERN, WHOLE, WORDED_PATTERN, Name

_STRICT = ConfigDict(extra="forbid", strict=True)

Summarizer = Literal["none", "claude_cli", "ollama", "anthropic", "openai"]
Schedule = Literal["disabled", "30min", "1h", "2h", "6h", "nightly"]
PerRun = Annotated[
    int,
    WHOLE,
    AfterValidator(lambda most: min(max(most, 0), MOST_PER_RUN)),
    Field(description=f"0: no limit; what is below or above {MOST_PER_RUN:,} counts as that"),
]
SourceKey = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9._-]+$")]


def of_setting(name: str) -> Any:
    """Return a field with the words of a setting."""
    return Field(description=Settings.model_fields[name].description)


# --- requests --------------------------------------------------------------------------------------------


class IngestIn(BaseModel):
    """Which sources to read; without `sources` all of them."""

    model_config = _STRICT

    sources: Annotated[
        list[SourceKey], Field(default=[], min_length=1, max_length=10_000, description="Read only these partitions")
    ]


class NudgeIn(TypedDict):
    """The log of a session that has gone on, as its machine names it."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    transcript_path: Annotated[
        str, Field(max_length=4096, pattern=WORDED_PATTERN, description="Path of the log on its machine")
    ]


class NudgedOut(TypedDict):
    """`noted`: the log is read soon, if it is one of a source; else at the next look at all sources."""

    noted: bool


class JsonlChanges(TypedDict, total=False):
    """Settings to store; null lets environment, file or default count again. Names are those of the settings."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        extra="forbid", strict=True, json_schema_extra={"minProperties": 1}
    )

    summarizer: Annotated[Summarizer | None, of_setting("summarizer")]
    summary_model: Annotated[
        Annotated[str, Field(max_length=200, pattern=TEXT_PATTERN)] | None, of_setting("summary_model")
    ]
    summary_min_value: Annotated[Annotated[float, Field(ge=0, le=20)] | None, of_setting("summary_min_value")]
    max_exchanges_per_run: Annotated[PerRun | None, of_setting("max_exchanges_per_run")]
    ingest_schedule: Annotated[Schedule | None, of_setting("ingest_schedule")]
    ingest_hour: Annotated[Annotated[int, Field(ge=0, le=23), WHOLE] | None, of_setting("ingest_hour")]
    timezone: Annotated[
        Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_+/-]+$")] | None, of_setting("timezone")
    ]
    llm_daily_tokens: Annotated[Annotated[int, Field(ge=0), WHOLE] | None, of_setting("llm_daily_tokens")]
    llm_daily_dollars: Annotated[Annotated[float, Field(ge=0)] | None, of_setting("llm_daily_dollars")]
    llm_requests_per_minute: Annotated[
        Annotated[int, Field(ge=1, le=10_000), WHOLE] | None, of_setting("llm_requests_per_minute")
    ]
    llm_batch_min: Annotated[Annotated[int, Field(ge=2, le=10_000), WHOLE] | None, of_setting("llm_batch_min")]
    private_projects: Annotated[Annotated[list[Name], Field(max_length=1_000)] | None, of_setting("private_projects")]


# --- replies ---------------------------------------------------------------------------------------------


class RunOut(TypedDict):
    """A run of `ingest` for one source."""

    run_id: str
    source: str
    status: str
    link: str
    started_at: str | None
    ended_at: str | None
    duration_s: float | None


class CountersOut(TypedDict):
    """What the store holds. `evaluated` summaries are there, in `skipped` an LLM found nothing worth remembering, and
    `flagged` ones stand in for an LLM's. `errors` counts files that could not be read. `sources` are those
    of logs: one per project folder or history that was found.
    """

    sources: int
    files: int
    files_gone: int
    bytes: int
    lines: int
    unparsed_lines: int
    dead_letters: int
    messages: int
    exchanges: int
    parts: int
    open_parts: int
    evaluated: int
    skipped: int
    flagged: int
    episodes: int
    errors: int


class UseOut(TypedDict):
    """What LLM calls used, or are held to have used."""

    calls: int
    input_tokens: int
    output_tokens: int
    dollars: float


class BudgetOut(TypedDict):
    """Most that one day (UTC) may use; null: no limit."""

    tokens: int | None
    dollars: float | None


class BreakerOut(TypedDict):
    """Why nobody asks this backend, and until when."""

    backend: str
    until: str | None
    reason: str
    failures: int
    open: bool


class LlmOut(TypedDict):
    """The LLM that summarizes. `problem` says why it does not."""

    summarizer: str
    model: str | None
    paid: bool | None
    local: bool | None
    used_today: UseOut
    budget: BudgetOut
    breakers: list[BreakerOut]
    open_batches: int
    problem: str | None


class IngestedOut(TypedDict):
    """Episodes of logs and of everything else: written by the last run, null where that is not known, and in all."""

    last: int | None
    total: int


class StatusOut(TypedDict):
    """How the reading of logs is doing. `running` is null, with the reason in `dagster`, while Dagster is away, and
    true as soon as somebody asked for it: `requested` is how many requests may start runs yet.
    `last_interrupted` is the last run that was cut off by an end of the system: what it left is done by later ones.
    """

    running: bool | None
    requested: int
    runs: list[RunOut]
    last_run: RunOut | None
    last_interrupted: RunOut | None
    ingested: IngestedOut
    next_run: str | None
    ingest_schedule: Schedule
    ingest_hour: int
    timezone: str
    counters: CountersOut
    summaries: dict[str, int]
    llm: LlmOut
    dagster: str | None


class StartedRunsOut(TypedDict):
    """What was asked of Dagster: one run per source. `run_id` is the id of one of them, or of the backfill of many."""

    run_id: str | None
    link: str | None
    sources: list[str]
    running_already: list[str]


class StoppedOut(TypedDict):
    """The runs that end now; what they wrote is kept, and the next tick goes on with the rest."""

    stopped: list[str]


class JsonlSettingsOut(TypedDict):
    """The settings that count now, where each comes from, and what to know about them. `reload`: what Dagster did about
    them, where its definitions hold what this call changed.
    """

    summarizer: Summarizer
    summary_model: str
    summary_min_value: float
    max_exchanges_per_run: int
    ingest_schedule: Schedule
    ingest_hour: int
    timezone: str
    llm_daily_tokens: int | None
    llm_daily_dollars: float | None
    llm_requests_per_minute: int
    llm_batch_min: int
    private_projects: list[str]
    origin: dict[str, str]
    warnings: list[str]
    reload: NotRequired[str]


class LlmModelOut(TypedDict):
    """A model that is known; any other name works too. Prices are dollars per million tokens."""

    backend: str
    model: str
    default: bool
    paid: bool
    context_tokens: int
    input_price: float
    output_price: float
    batch_factor: float


class LlmModelsOut(TypedDict):
    """The models known by name."""

    models: list[LlmModelOut]
