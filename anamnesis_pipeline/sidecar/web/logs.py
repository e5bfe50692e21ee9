"""Logs page: state of the ingest, start and stop, its schedule and LLM, and this service's log.

Dagster's state loads after the page, so that a slow or missing Dagster delays nothing.
"""

from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anamnesis_pipeline.errors import AnamnesisError, BadSetting
from anamnesis_pipeline.llm.extractive import is_extractive
from anamnesis_pipeline.llm.factory import LABELS
from anamnesis_pipeline.llm.prices import DEFAULT_MODELS
from anamnesis_pipeline.model import SummarizerName
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.summarize import NO_BUDGET
from anamnesis_pipeline.runtime.dagster_home import dagster_link
from anamnesis_pipeline.services.log_ingest import JsonlChanges, JsonlControl, StatusOut, known_llm_models, llm_state
from anamnesis_pipeline.services.wiring import effective_settings
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.log_tail import LogTail
from anamnesis_pipeline.sidecar.routes.log import line_body
from anamnesis_pipeline.sidecar.services import Services, Uses
from anamnesis_pipeline.sidecar.web.html import fragment, live, page, page_router, told
from anamnesis_pipeline.sidecar.web.settings_form import (
    changed_in,
    changes_of,
    field_of,
    problems_of,
    rows_of,
    sent_form,
)
from anamnesis_pipeline.store.base import Store

PATH = "/dashboard/logs"
LETTERS_SHOWN = 20
RUNS_SHOWN = 20
LINES_SHOWN = 200

FIELDS = (
    field_of(
        "ingest_schedule",
        choices={
            "nightly": "Once a day",
            "6h": "Every 6 hours",
            "2h": "Every 2 hours",
            "1h": "Every hour",
            "30min": "Every 30 minutes",
            "disabled": "Never: only new data",
        },
    ),
    field_of("ingest_hour", unit="o'clock"),
    field_of("timezone"),
    field_of(
        "summarizer",
        choices={
            "none": "No LLM: sentences are selected",
            **LABELS,
        },
        note_at=PATH + "/llm-note",
        note_of="summary_model",
    ),
    field_of("summary_model", offered=tuple(dict.fromkeys(each["model"] for each in known_llm_models()))),
    field_of("summary_min_value", unit="points"),
    field_of("max_exchanges_per_run", unit="chunks"),
    field_of("llm_daily_tokens"),
    field_of("llm_daily_dollars", unit="US$"),
    field_of("llm_requests_per_minute"),
    field_of("llm_batch_min", unit="chunks"),
    field_of("private_projects"),
)
_NAMES = frozenset(each.name for each in FIELDS)
_CHANGES: TypeAdapter[JsonlChanges] = TypeAdapter(JsonlChanges)

router = page_router()


@router.get(PATH)
def logs_page(request: Request, services: Uses) -> Response:
    """Show the page, without Dagster's state."""
    tail: LogTail = request.app.state.log_tail
    private = services.engine.private()
    letters = [
        (private.file_shown(each.source, f"{each.source}/{each.path}"), each.line + 1, each.reason)
        for each in services.store.messages.dead_letters(limit=LETTERS_SHOWN)
    ]
    lines = [line_body(line) for line in tail.latest(LINES_SHOWN)]
    return page(
        request,
        "logs.html",
        "Logs",
        **_doing(services, asks=False),
        **_form(services.store),
        letters=letters,
        lines=lines,
        last=lines[-1]["number"] if lines else 0,
        logs_dir=services.settings.logs_dir,
    )


@router.get(PATH + "/doing")
def doing(services: Uses, seen: str = "") -> Response:
    """Show the current activity, with Dagster's part."""
    return live("logs_doing.html", seen, **_doing(services))


@router.post(PATH + "/run")
def run(services: Uses) -> Response:
    """Ingest all logs now, as `POST /api/jsonl/ingest`."""
    try:
        started = _control(services).start()
    except AnamnesisError as exc:
        return told(f"Not started: {exc}", bad=True)
    if started["run_id"]:
        return told(f"Reading {counted(len(started['sources']), 'source')}.", link=started["link"])
    if started["running_already"]:
        return told("Everything is being read already.")
    return told("There is no log to read yet: add a folder of logs on the page Sources.", bad=True)


@router.post(PATH + "/stop")
def stop(services: Uses) -> Response:
    """Stop the running ingests, as `POST /api/jsonl/stop`."""
    try:
        stopped = _control(services).stop()["stopped"]
    except AnamnesisError as exc:
        return told(f"Not stopped: {exc}", bad=True)
    return told(
        f"{counted(len(stopped), 'run')} stopped; what they wrote stays."
        if stopped
        else "No run was under way; what was in line is not begun."
    )


@router.post(PATH + "/settings")
async def save(request: Request, services: Uses) -> Response:
    """Store changes, as `PUT /api/jsonl/settings`; show errors beside their fields."""
    return await run_in_threadpool(_save, services, await sent_form(request))


@router.post(PATH + "/revert/{name}")
async def revert(name: str, request: Request, services: Uses) -> Response:
    """Remove a stored value; unsaved input in other fields stays."""
    if name not in _NAMES:
        raise HTTPException(404, f"there is no setting {name!r} here")
    typed = changed_in(await sent_form(request))
    typed.pop(name, None)
    return await run_in_threadpool(_revert, services, name, typed)


@router.get(PATH + "/llm-note")
def llm_note(
    services: Uses,
    summarizer: SummarizerName,
    summary_model: str | None = None,
) -> Response:
    """Show the consequences of selecting an LLM; nothing is stored.

    :param summary_model: None: the effective one, for a disabled field, which browsers do not send.
    """
    settings = effective_settings(services.store)
    model = settings.summary_model if summary_model is None else summary_model.strip()
    chosen = settings.model_copy(update={"summarizer": summarizer, "summary_model": model})
    return fragment("logs_llm_note.html", **_llm_facts(services.store, chosen))


def _control(services: Services) -> JsonlControl:
    return JsonlControl(services.store, services.dagster)


def _save(services: Services, sent: dict[str, str]) -> Response:
    changes = changes_of(FIELDS, sent)
    if not changes:
        return fragment("logs_settings.html", toast="Nothing changed.", **_form(services.store))
    problems = problems_of(_CHANGES, changes)
    if not problems:
        try:
            reload = _control(services).change_settings(changes)
        except BadSetting as exc:
            # The field that the message names; else the backend, which may lack something outside the form, as its key.
            named = next((name for name in changes if name in str(exc)), None)
            problems = {named or ("summarizer" if "summarizer" in changes else next(iter(changes))): str(exc)}
    if problems:
        return fragment("logs_settings.html", **_form(services.store, sent, problems))
    toast = f"Saved; it counts from the next run on. {reload}".strip()
    return fragment("logs_settings.html", toast=toast, **_form(services.store))


def _revert(services: Services, name: str, typed: dict[str, str]) -> Response:
    try:
        reload = _control(services).change_settings({name: None})
    except BadSetting as exc:
        return fragment("logs_settings.html", **_form(services.store, typed, {name: str(exc)}))
    value = next(row for row in rows_of(services.store, FIELDS) if row.field.name == name)
    toast = f"{value.field.label} is {value.text or 'empty'} again ({value.told}). {reload}".strip()
    return fragment("logs_settings.html", toast=toast, **_form(services.store, typed) | {"focus": name})


def _form(store: Store, typed: dict[str, str] | None = None, problems: dict[str, str] | None = None) -> dict[str, Any]:
    warnings = JsonlControl(store).settings()["warnings"]
    return {
        "rows": rows_of(store, FIELDS, typed, problems),
        "problems": problems or {},
        "warnings": warnings,
        "focus": next(iter(problems or ()), ""),
    }


def _doing(services: Services, *, asks: bool = True) -> dict[str, Any]:
    status = JsonlControl(services.store, services.dagster if asks else None).status()
    used, budget = status["llm"]["used_today"], status["llm"]["budget"]
    tokens = used["input_tokens"] + used["output_tokens"]
    bars = [
        ("Tokens", tokens, budget["tokens"], f"{tokens:,}", f"{budget['tokens']:,}" if budget["tokens"] else "0"),
        ("Dollars", used["dollars"], budget["dollars"], f"${used['dollars']:.2f}", f"${budget['dollars'] or 0:.2f}"),
    ]
    names = ("label", "used", "most", "used_told", "most_told")
    return {
        "doing": status,
        "state": _state(status, asks=asks),
        "runs_shown": RUNS_SHOWN,
        "link": dagster_link(services.settings),
        "spent": [dict(zip(names, bar, strict=True)) for bar in bars],
        "is_extractive": is_extractive,
        "last_problem": services.store.summaries.last_summary_problem() if status["counters"]["flagged"] else "",
    }


def _state(status: StatusOut, *, asks: bool) -> str:
    """Return one of `asking`, `away`, `reading`, `idle`. Pure."""
    if status["running"] is None:
        return "away" if asks else "asking"
    return "reading" if status["running"] else "idle"


def _llm_facts(store: Store, chosen: Settings) -> dict[str, Any]:
    llm = llm_state(store, chosen, datetime.now(UTC))
    model = llm["model"] or chosen.summary_model or DEFAULT_MODELS.get(chosen.summarizer)
    of_backend = [each for each in known_llm_models() if each["backend"] == chosen.summarizer]
    known = next((each for each in of_backend if each["model"] == model), None)
    is_paid = known["paid"] if llm["paid"] is None and known else llm["paid"]
    has_budget = any(most is not None for most in llm["budget"].values())
    return {"llm": llm, "known": known, "is_paid": is_paid, "has_budget": has_budget, "no_budget": NO_BUDGET}
