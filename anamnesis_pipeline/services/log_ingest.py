"""Log ingest and its LLM, as the API and the command line use them."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from anamnesis_pipeline import settings as settings_module
from anamnesis_pipeline.errors import BadSetting, LlmRefused, ServiceUnreachable
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS, MODELS
from anamnesis_pipeline.model import LlmBudget, LlmUse, SummarizerName
from anamnesis_pipeline.pipeline.daily import timings
from anamnesis_pipeline.pipeline.llm_choice import doubtful_private
from anamnesis_pipeline.pipeline.llm_guard import BUDGET_USED_UP, breakers, close_breakers
from anamnesis_pipeline.pipeline.summarize import NO_BUDGET
from anamnesis_pipeline.runtime.llm_wiring import open_llm
from anamnesis_pipeline.services.dagster.api import Dagster
from anamnesis_pipeline.services.dagster.runs import CUT_OFF, IngestRun
from anamnesis_pipeline.services.fields import TEXT_PATTERN, WHOLE, WORDED_PATTERN, Name
from anamnesis_pipeline.services.rendering import utc_text
from anamnesis_pipeline.services.setting_changes import settings_after, store_settings
from anamnesis_pipeline.services.wiring import discover_sources, effective_settings, stored_settings
from anamnesis_pipeline.settings import MAX_PER_RUN, Settings, limits_of, words_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.overview import SourceCounts

# --- log ingest schemas ----------------------------------------------------------------------------------

# Bodies of the routes on reading logs and on the LLM that summarizes them.

_STRICT = ConfigDict(extra="forbid", strict=True)

Schedule = Literal["disabled", "30min", "1h", "2h", "6h", "nightly"]
PerRun = Annotated[
    int,
    WHOLE,
    AfterValidator(lambda most: min(max(most, 0), MAX_PER_RUN)),
    Field(description=f"0: no limit; what is below or above {MAX_PER_RUN:,} counts as that"),
]
SourceKey = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z0-9._-]+$")]


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

    summarizer: Annotated[SummarizerName | None, words_of("summarizer")]
    summary_model: Annotated[
        Annotated[str, Field(max_length=200, pattern=TEXT_PATTERN)] | None, words_of("summary_model")
    ]
    summary_min_value: Annotated[Annotated[float, limits_of("summary_min_value")] | None, words_of("summary_min_value")]
    max_exchanges_per_run: Annotated[PerRun | None, words_of("max_exchanges_per_run")]
    ingest_schedule: Annotated[Schedule | None, words_of("ingest_schedule")]
    ingest_hour: Annotated[Annotated[int, limits_of("ingest_hour"), WHOLE] | None, words_of("ingest_hour")]
    timezone: Annotated[
        Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9_+/-]+$")] | None, words_of("timezone")
    ]
    llm_daily_tokens: Annotated[
        Annotated[int, limits_of("llm_daily_tokens"), WHOLE] | None, words_of("llm_daily_tokens")
    ]
    llm_daily_dollars: Annotated[Annotated[float, limits_of("llm_daily_dollars")] | None, words_of("llm_daily_dollars")]
    llm_requests_per_minute: Annotated[
        Annotated[int, limits_of("llm_requests_per_minute"), WHOLE] | None, words_of("llm_requests_per_minute")
    ]
    llm_batch_min: Annotated[Annotated[int, limits_of("llm_batch_min"), WHOLE] | None, words_of("llm_batch_min")]
    private_projects: Annotated[Annotated[list[Name], Field(max_length=1_000)] | None, words_of("private_projects")]


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
    """Why this backend is paused, and until when."""

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
    true once it is requested: `requested` is the number of requests that may still start runs.
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

    summarizer: SummarizerName
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


SETTING_NAMES = tuple(name for name in JsonlSettingsOut.__annotations__ if name not in ("origin", "warnings", "reload"))
OF_THE_LLM = frozenset(name for name in SETTING_NAMES if name.startswith("summar"))
"""A change of one of these closes the breaker: its cause counts as fixed."""
MIN_PRICE = 1e-6
"""Minimum cost in dollars of a call to a paid LLM."""
BACKFILL_TAG = {"anamnesis/ingest": "asked-for"}

STOP_LOOKS, STOP_PAUSE_S = 5, 1.0


class JsonlControl:
    """Works on the store; changes count from the next run."""

    def __init__(self, store: Store, dagster: Dagster | None = None) -> None:
        """:param dagster: launches runs; None: none are launched."""
        self._store = store
        self._dagster = dagster

    # --- runs ----------------------------------------------------------------------------------------------

    def status(self, counts: SourceCounts | None = None) -> StatusOut:
        """Return runs, counters and the state of the LLM; without Dagster's part while that does not answer.

        :param counts: of all sources, if the caller has them: counting a large store is slow.
        """
        settings = effective_settings(self._store)
        found, reason, requested = None, None, 0
        try:
            if self._dagster is not None:
                cut_off = self._store.settings.get(CUT_OFF)
                found, requested = self._dagster.ingest_runs(cut_off), len(self._dagster.unfinished_ingest_backfills())
        except ServiceUnreachable as exc:
            reason = str(exc)
        counts, by_model = counts or self._store.overview.counts(), self._store.summaries.summary_counts()
        tick = timings(settings)["daily_ingest"].next_tick(datetime.now(UTC))
        return {
            "running": None if found is None else bool(found.unfinished or requested),
            "requested": requested,
            "runs": [self._run(run) for run in found.unfinished] if found else [],
            "last_run": self._run(found.last) if found and found.last else None,
            "last_interrupted": self._run(found.interrupted) if found and found.interrupted else None,
            "ingested": {
                "last": found.last.ingested if found and found.last else None,
                "total": counts.episodes,
            },
            "next_run": utc_text(tick) if tick else None,
            "ingest_schedule": settings.ingest_schedule,
            "ingest_hour": settings.ingest_hour,
            "timezone": settings.timezone,
            "counters": {
                "sources": len(self._store.files.log_sources()),
                "files": counts.files,
                "files_gone": counts.files_gone,
                "bytes": counts.bytes,
                "lines": counts.lines,
                "unparsed_lines": counts.unparsed_lines,
                "dead_letters": counts.dead_letters,
                "messages": counts.messages,
                "exchanges": counts.exchanges,
                "parts": counts.parts,
                "open_parts": counts.open_parts,
                "evaluated": counts.summaries,
                "skipped": by_model.get("skip", 0),
                "flagged": by_model.get("problem", 0),
                "episodes": counts.episodes,
                "errors": counts.files_unread,
            },
            "summaries": {name: n for name, n in by_model.items() if name not in ("problem", "skip")},
            "llm": llm_state(self._store, settings, datetime.now(UTC)),
            "dagster": reason,
        }

    def start(self, sources: Sequence[str] = ()) -> StartedRunsOut:
        """Ingest sources now, all or these; skip those already being read.

        :raises BadSetting: a source does not exist.
        :raises ServiceUnreachable: Dagster does not answer.
        """
        self._store.files.put_sources(discover_sources(effective_settings(self._store)).sources)
        known = [source.key for source in self._store.files.log_sources()]
        if unknown := sorted(set(sources) - set(known)):
            raise BadSetting(f"there is no source {unknown[0]!r}; anamnesis status --json lists them")
        return self.launch(list(sources) or known, "Ingest, asked for by hand")

    def launch(self, sources: Sequence[str], title: str) -> StartedRunsOut:
        """Launch one run of `ingest` per source that is not being read.

        :raises ServiceUnreachable: Dagster does not answer.
        """
        assert self._dagster is not None
        running = {run.source for run in self._dagster.ingest_runs().unfinished}
        wanted = [key for key in sources if key not in running]
        launched = self._dagster.launch_ingest(wanted, title, BACKFILL_TAG) if wanted else None
        return {
            "run_id": launched.launch_id if launched else None,
            "link": launched.link if launched else None,
            "sources": wanted,
            "running_already": sorted(running & set(sources)),
        }

    def stop(self) -> StoppedOut:
        """Stop running and queued runs; no data is lost.

        :raises ServiceUnreachable: Dagster does not answer.
        """
        assert self._dagster is not None
        for backfill_id in self._dagster.unfinished_ingest_backfills():
            self._dagster.cancel_backfill(backfill_id)
        stopped: dict[str, None] = {}
        for _ in range(STOP_LOOKS):  # a queued run may start while it is removed
            going = [run.run_id for run in self._dagster.ingest_runs().unfinished if run.status != "CANCELING"]
            if not going:
                break
            self._dagster.stop_runs(going)
            stopped |= dict.fromkeys(going)
            time.sleep(STOP_PAUSE_S)
        return {"stopped": list(stopped)}

    # --- settings ------------------------------------------------------------------------------------------

    def settings(self, reload: str = "") -> JsonlSettingsOut:
        """Return the effective settings.

        :param reload: result of `change_settings`, after a change.
        """
        settings = effective_settings(self._store)
        origins = {row.name: row.origin for row in settings_module.origins(stored_settings(self._store))}
        values = {name: getattr(settings, name) for name in SETTING_NAMES}
        body = {**values, "private_projects": list(settings.private_projects)}
        problem = llm_state(self._store, settings, datetime.now(UTC))["problem"]
        warnings = [*([problem] if problem else []), *doubtful_private(self._store, settings.private_projects)]
        return cast(
            JsonlSettingsOut,
            {**body, "origin": {n: origins[n] for n in SETTING_NAMES}, "warnings": warnings}
            | ({"reload": reload} if reload else {}),
        )

    def change_settings(self, changes: Mapping[str, Any]) -> str:
        """Store settings; None removes one. They count from the next run; Dagster reloads definitions that use them.

        :return: the outcome of the reload; empty if none was needed.
        :raises BadSetting: a value is invalid, an LLM lacks a key or a URL, or the environment decides
            (ANAMNESIS_LOCK_ENV). Nothing has changed then.
        """
        if not changes:
            raise BadSetting(f"give at least one of: {', '.join(SETTING_NAMES)}")
        after = settings_after(self._store, changes)
        if OF_THE_LLM & changes.keys():
            opening = open_llm(after).open
            try:
                if opening is not None:
                    opening().close()
            except LlmRefused as exc:
                raise BadSetting(str(exc)) from exc
            close_breakers(self._store.settings)
        return store_settings(self._store, changes, self._dagster)

    # --- details -------------------------------------------------------------------------------------------

    def _run(self, run: IngestRun) -> RunOut:
        assert self._dagster is not None
        took_s = run.ended_at - run.started_at if run.ended_at and run.started_at else None
        return {
            "run_id": run.run_id,
            "source": run.source,
            "status": run.status,
            "link": self._dagster.run_link(run.run_id),
            "started_at": _time(run.started_at),
            "ended_at": _time(run.ended_at),
            "duration_s": round(took_s, 3) if took_s is not None else None,
        }


def llm_state(store: Store, settings: Settings, now: datetime) -> LlmOut:
    """Return the configured LLM, its use today, and its problem, if any. No LLM is called."""
    day_use = store.llm.used(f"{now.astimezone(UTC):%Y-%m-%d}")
    budget = LlmBudget(settings.llm_daily_tokens, settings.llm_daily_dollars)
    states = breakers(store.settings)
    body: LlmOut = {
        "summarizer": settings.summarizer,
        "model": None,
        "paid": None,
        "local": None,
        "used_today": cast(Any, asdict(day_use)),
        "budget": cast(Any, asdict(budget)),
        "breakers": [
            {
                "backend": state.backend,
                "until": utc_text(state.until) if state.until else None,
                "reason": state.reason,
                "failures": state.failures,
                "open": state.is_open(now),
            }
            for state in states
        ],
        "open_batches": len(store.llm.open_batches(settings.summarizer)),
        "problem": None,
    }
    opening = open_llm(settings).open
    if opening is None:
        return body
    try:
        with closing(opening()) as backend:
            body |= {"model": backend.model, "paid": backend.is_paid, "local": backend.is_local}
    except (BadSetting, LlmRefused) as exc:
        body["problem"] = str(exc)
        return body
    is_open = next((s for s in states if s.backend == settings.summarizer and s.is_open(now)), None)
    least = LlmUse(1, 1, 0, MIN_PRICE if body["paid"] else 0.0)
    if settings.local_only and not body["local"]:
        body["problem"] = f"local_only keeps all text here, so {settings.summarizer} is never asked"
    elif body["paid"] and budget == LlmBudget():
        body["problem"] = NO_BUDGET
    elif is_open is not None:
        until = utc_text(is_open.until) if is_open.until else "now"
        body["problem"] = f"{is_open.backend} is left alone until {until}: {is_open.reason}"
    elif not budget.holds(day_use + least):
        body["problem"] = BUDGET_USED_UP
    return body


def known_llm_models() -> list[LlmModelOut]:
    """Return the model registry, by backend."""
    return [
        {
            "backend": model.backend,
            "model": model.name,
            "default": DEFAULT_MODELS[model.backend] == model.name,
            "paid": bool(model.input_price or model.output_price),
            "context_tokens": model.context_tokens,
            "input_price": model.input_price,
            "output_price": model.output_price,
            "batch_factor": model.batch_factor,
        }
        for model in MODELS
    ]


def _time(seconds: float | None) -> str | None:
    return utc_text(datetime.fromtimestamp(seconds, UTC)) if seconds is not None else None
