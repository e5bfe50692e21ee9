"""What summaries of real sessions by an LLM will probably cost; nobody is asked.

    python benchmarks/summary_cost.py

The shared logs are ingested into an empty home. An LLM would be asked about the parts that are worth it by default
(`summary_min_value`, `summary_min_chars`); `summaries/estimate.py` says how tokens are guessed. A turn is a typed
prompt with all that follows it.
"""

import os
import tempfile
from collections import defaultdict
from contextlib import closing

from service import SHARED

from anamnesis_pipeline import settings
from anamnesis_pipeline.llm.prices import expected_use, price_list
from anamnesis_pipeline.model import LlmUse, Part
from anamnesis_pipeline.pipeline.llm_choice import LlmChoice
from anamnesis_pipeline.runtime import llm_wiring
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.store.base import Store

SHOWN = ("claude-haiku-5-5", "claude-haiku-4-5", "claude-sonnet-5")
PER = 50
"""Turns of a session that the last figures are for."""


def parts_by_session(store: Store) -> dict[str, list[Part]]:
    """Closed parts of what was said, by the session that said it."""
    found: dict[str, list[Part]] = defaultdict(list)
    last = ""
    while batch := store.forgetting.parts_after(last, 500):
        last = batch[-1].part_id
        for part in batch:
            if part.section is None and part.closed:
                found[part.session_id].append(part)
    return found


def main() -> None:
    """Print a row for each session, and for all."""
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"ANAMNESIS_HOME": home, "ANAMNESIS_LOG_ROOTS": str(SHARED / "data" / "claude_logs")}
        held = settings.load()
        with closing(wiring.open_store(held)) as store:
            ingest_all(wiring.open_pipeline(held, store), wiring.discover_sources(held).sources)
            opened = llm_wiring.open_llm(held)
            choice = LlmChoice(store, opened.rules, is_local=True, private_sources=frozenset())
            rows = [row(parts, choice) for parts in parts_by_session(store).values()]
    print(f"| turns | parts | asked about | tokens in | tokens out | {' | '.join(SHOWN)} |")
    print("|---" * (5 + len(SHOWN)) + "|")
    for turns, parts, used in sorted(rows, key=lambda each: -each[0]):
        print(line(turns, parts, used))
    turns, parts = sum(each[0] for each in rows), sum(each[1] for each in rows)
    used = sum((each[2] for each in rows), LlmUse())
    print("all", line(turns, parts, used))
    prices = dict(price_list(used))
    for what, count in (("turns", turns), ("calls", used.calls)):
        told = ", ".join(f"{name} ${prices[name] * PER / count:.3f}" for name in SHOWN)
        print(f"per {PER} {what}: {told}")


def row(parts: list[Part], choice: LlmChoice) -> tuple[int, int, LlmUse]:
    """Turns, parts, and what an LLM would use."""
    asked = [part for part in parts if not choice.against(part)]
    return len({part.exchange_id for part in parts}), len(parts), expected_use(asked)


def line(turns: int, parts: int, used: LlmUse) -> str:
    """A row of the table."""
    prices = dict(price_list(used))
    cells = [turns, parts, used.calls, f"{used.input_tokens:,}", f"{used.output_tokens:,}"]
    return f"| {' | '.join(map(str, [*cells, *(f'${prices[name]:.4f}' for name in SHOWN)]))} |"


if __name__ == "__main__":
    main()
