"""Problems of the models, the LLM and the re-embed, with advice, for `status` and `doctor`."""

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anamnesis_pipeline.embeddings.api_models import api_model
from anamnesis_pipeline.embeddings.models import find_model
from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.index import is_of_model
from anamnesis_pipeline.runtime.api_wiring import api_refusal
from anamnesis_pipeline.runtime.llm_wiring import open_llm
from anamnesis_pipeline.services.embedding_control import ReembedOut
from anamnesis_pipeline.services.log_ingest import LlmOut, llm_state
from anamnesis_pipeline.services.wiring import effective_settings, what_is_private
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and the advice for it."""

    text: str
    advice: str


def model_problems(store: Store) -> list[Problem]:
    """Return active or building spaces whose model is not on this disk, has other weights now, or belongs to a service
    that is not allowed.
    """
    used = (space for space in store.spaces.all() if space.status in ("active", "building"))
    return [problem for space in used if (problem := _model_problem(store, space)) is not None]


def _model_problem(store: Store, space: Space) -> Problem | None:
    role = "which answers the searches" if space.status == "active" else "which is being embedded"
    again = "embed with another model: anamnesis model use <model>"
    if known := api_model(space.model_id):
        refusal = api_refusal(effective_settings(store), known, what_is_private(store).keys)
        return Problem(f"space {space.key}, {role}, cannot be used: {refusal}", again) if refusal else None
    try:
        files = find_model(space.model_id, local_only=True)
    except AnamnesisError as exc:
        text = f"the model of space {space.key}, {role}, is gone: {exc}"
        return Problem(text, f"put its files back, or connect once so that a start downloads them, or {again}")
    if not is_of_model(space, files):
        text = f"{files.path} holds other weights than those that made space {space.key}, {role}"
        return Problem(text, f"put the old files back, or {again}")
    return None


def reembed_notes(state: ReembedOut) -> list[str]:
    """Return notes on a complete space that waits for confirmation (setting `switch`): not a problem. Pure."""
    return [f"{state['space']}: {text}" for text in reembed_advice(state)] if state["waiting_for_use"] else []


def reembed_problems(state: ReembedOut) -> list[Problem]:
    """Return problems: a paused or failing re-embed. Pure."""
    found = reembed_advice(state)
    if not found or state["waiting_for_use"]:
        return []
    how_far = (
        f"the re-embed with {state['model_id']} is {state['state']} at {state['done']:,} of "
        f"{counted(state['total'], 'passage')}"
    )
    error = f"; the last error: {state['last_error']}" if state["state"] == "failed" else ""
    return [Problem(how_far + error, "; or ".join(found))]


def reembed_advice(state: Mapping[str, Any]) -> list[str]:
    """Return what the user can do; empty when nothing is needed. Pure."""
    match state["state"]:
        case "paused":
            return ["go on with: anamnesis reembed resume"]
        case "failed":
            return [
                "mend what the last error names; it is retried automatically, at once with: anamnesis reembed resume",
                f"give it up with: anamnesis model use {state['active_space']}",
            ]
        case "running" if state["errors"]:
            return ["it is retried automatically, at growing intervals; at once with: anamnesis reembed resume"]
    if state["waiting_for_use"]:
        return [f"it is complete; let it answer searches with: anamnesis model use {state['space']}"]
    return []


# --- llm health ------------------------------------------------------------------------------------------

# Problems of the summary LLM, with advice, for `doctor`.

PROBE_STEP_S = 5.0
PROBE_S = 10.0
"""Limit for a whole probe, in seconds."""
_MEND = (
    "mend what it names, then try at once with: anamnesis summarize; or go without an LLM: "
    "anamnesis config set summarizer none"
)
_TRY_AGAIN = "they are retried automatically; at once with: anamnesis summarize"


def llm_problems(store: Store) -> list[Problem]:
    """Return why LLM summaries are missing or will be. The LLM is probed, not prompted: nothing is spent."""
    settings = effective_settings(store)
    state = llm_state(store, settings, datetime.now(UTC))
    problem = state["problem"] or _not_there(settings, state)
    problems = [Problem(problem, _MEND)] if problem else []
    flagged = store.summaries.summary_counts().get("problem", 0)
    if flagged:
        stand_ins = counted(flagged, "extractive summary stands", "extractive summaries stand")
        why = store.summaries.last_summary_problem()
        mend = f"when that is mended, {_TRY_AGAIN}" if problem else _TRY_AGAIN
        problems.append(Problem(f"{stand_ins} in for an LLM's ({why})", mend))
    return problems


def llm_text(store: Store) -> str:
    """Describe the summarizer."""
    state = llm_state(store, effective_settings(store), datetime.now(UTC))
    if state["model"] is None:
        return "made without an LLM"
    return f"by {state['model']} ({state['summarizer']}), {counted(state['used_today']['calls'], 'call')} today"


def _not_there(settings: Settings, state: LlmOut) -> str:
    """Return why an LLM without a known problem would not answer; empty: it would, or none is configured."""
    opening = open_llm(settings).open
    if opening is None:
        return ""
    said = [f"{state['summarizer']} did not answer within {PROBE_S:.0f} s"]

    def probe() -> None:
        try:
            with closing(opening()) as backend:
                backend.probe(PROBE_STEP_S)
            said.append("")
        except AnamnesisError as exc:
            said.append(str(exc))

    thread = threading.Thread(target=probe, name="llm probe", daemon=True)  # a hung probe ends with this process
    thread.start()
    thread.join(PROBE_S)
    return said[-1]
