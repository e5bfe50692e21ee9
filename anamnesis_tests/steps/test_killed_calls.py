"""A process killed with -9 around a call of an LLM: what it booked is spent, what it cached is not asked again."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from anamnesis_pipeline.steps.llm_calls import BEING_MADE, CALL_LEASE
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.summary_model import LlmBudget
from anamnesis_tests.steps.llms import DAY, EXPECTED, USED, LlmHere, Run, parsed, part

SUMMARIZE = """
import os, signal, sys
from anamnesis_pipeline.summary_model import LlmBudget
from anamnesis_tests.conftest import BACKENDS
from anamnesis_tests.steps.llms import LlmHere, Run

backend, folder, moment = sys.argv[1:]
store = BACKENDS[backend](__import__("pathlib").Path(folder))
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
llm = LlmHere(is_paid=True, concurrency=1, on_ask=die if moment == "in the call" else lambda: None)
if moment == "before it is settled":
    store.llm.settle = die
if moment == "before the summary is written":
    store.summaries.put_summaries = lambda summaries: die() if summaries else 0
Run(store, llm, budget=LlmBudget(dollars=1.0))()
"""


def killed(place: tuple[str, Path], moment: str) -> None:
    command = [sys.executable, "-c", SUMMARIZE, place[0], str(place[1]), moment]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()


@pytest.mark.parametrize(
    ("moment", "asked_again", "spent"),
    [
        ("in the call", 1, EXPECTED.dollars + USED.dollars),
        ("before it is settled", 0, EXPECTED.dollars),
        ("before the summary is written", 0, USED.dollars),
    ],
)
def test_a_killed_call_is_spent_and_a_cached_one_not_made_again(
    store: Store, place: tuple[str, Path], moment: str, asked_again: int, spent: float
) -> None:
    parsed(store, part(1))
    killed(place, moment)
    run = Run(store, LlmHere(is_paid=True), budget=LlmBudget(dollars=1.0))
    if asked_again:
        run()
        assert run.summary(part(1)).problem == BEING_MADE, "nobody knows that its caller is dead"
        run.clock.now += CALL_LEASE
    run()
    assert len(run.backend.asked) == asked_again
    assert run.summary(part(1)).model == "tiny"
    assert store.llm.used(DAY).dollars == pytest.approx(spent)
