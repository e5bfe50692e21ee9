"""Problems of the summary LLM, with advice, for `doctor`."""

import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.llm.summaries.base import SummaryBackend
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.runtime.llm_wiring import open_llm
from anamnesis_pipeline.runtime.wiring import effective_settings
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.embedding_health import Problem
from anamnesis_pipeline.sidecar.jsonl_control import llm_state
from anamnesis_pipeline.sidecar.jsonl_schemas import LlmOut
from anamnesis_pipeline.store.base import Store

PROBE_STEP_S = 5.0
PROBE_S = 10.0
"""Limit for a whole probe, in seconds."""
_MEND = (
    "mend what it names, then try at once with: anamnesis summarize; or go without an LLM: "
    "anamnesis config set summarizer none"
)
_TRY_AGAIN = "they are tried again by themselves; at once with: anamnesis summarize"


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
    return _in_time(lambda: _probed(opening), f"{state['summarizer']} did not answer within {PROBE_S:.0f} s")


def _probed(opening: Callable[[], SummaryBackend]) -> str:
    try:
        with closing(opening()) as backend:
            backend.probe(PROBE_STEP_S)
    except AnamnesisError as exc:
        return str(exc)
    return ""


def _in_time(probe: Callable[[], str], late: str) -> str:
    """Return the result of `probe`, or `late` on timeout. A hung probe ends with this process."""
    said = [late]
    thread = threading.Thread(target=lambda: said.append(probe()), name="llm probe", daemon=True)
    thread.start()
    thread.join(PROBE_S)
    return said[-1]
