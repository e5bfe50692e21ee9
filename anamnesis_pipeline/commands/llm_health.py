"""What is wrong with the LLM that writes summaries, and what to do, as `doctor` says it."""

from datetime import UTC, datetime

from anamnesis_pipeline.commands.embedding_health import Problem
from anamnesis_pipeline.sidecar.jsonl_control import llm_state
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.wiring import effective_settings

_MEND = (
    "mend what it names, then try at once with: anamnesis summarize; or go without an LLM: "
    "anamnesis config set summarizer none"
)
_TRY_AGAIN = "they are tried again by themselves; at once with: anamnesis summarize"


def llm_problems(store: Store) -> list[Problem]:
    """Why summaries by an LLM are missing."""
    state = llm_state(store, effective_settings(store), datetime.now(UTC))
    problems = [Problem(state["problem"], _MEND)] if state["problem"] else []
    flagged = store.ingest.summary_counts().get("problem", 0)
    if flagged:
        problems.append(Problem(f"{flagged:,} extractive summaries stand in for an LLM's", _TRY_AGAIN))
    return problems


def llm_text(store: Store) -> str:
    """What writes the summaries, in words."""
    state = llm_state(store, effective_settings(store), datetime.now(UTC))
    if state["model"] is None:
        return "made without an LLM"
    return f"by {state['model']} ({state['summarizer']}), {state['used_today']['calls']:,} calls today"
