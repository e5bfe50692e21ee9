"""A prompt that the service will not take, among others that it takes."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from anamnesis_pipeline.errors import LlmAnswerInvalid, LlmPromptRefused, LlmRefused, LlmUnavailable
from anamnesis_pipeline.steps.llm_breaker import REFUSALS_TO_OPEN, breakers
from anamnesis_pipeline.steps.summaries import MOST_ATTEMPTS
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.summaries import extractive
from anamnesis_pipeline.summaries.base import Reply, Request
from anamnesis_pipeline.summary_model import LlmBudget, LlmUse
from anamnesis_tests.steps.llms import DAY, ONE, LlmHere, part

PARTS = 40


@dataclass
class Choosy(LlmHere):
    """Raises `problem` for prompts about the retries of these numbers."""

    refused: frozenset[int] = frozenset()
    problem: Callable[[], Exception] = lambda: LlmPromptRefused("it does not take this prompt")

    def ask(self, request: Request) -> Reply:
        if any(f"retry {number} charge" in request.text for number in self.refused):
            self.script = [self.problem()]
        return super().ask(request)


def choosy(*refused: int, **given: object) -> Choosy:
    return Choosy(concurrency=1, refused=frozenset(refused), **given)  # type: ignore[arg-type]


def a_day(run) -> None:
    for _ in range(24 * 6):
        run()
        run.clock.now += timedelta(minutes=10)


def test_the_newest_parts_refused_prompt_stops_no_other_summary(store: Store, start):
    run = start(choosy(PARTS), *(part(n) for n in range(1, PARTS + 1)))
    report = run()
    assert (len(run.backend.asked), report.counts["flagged"]) == (PARTS, 1)
    assert store.summaries.summary_counts() == {"tiny": PARTS - 1, "problem": 1}
    assert breakers(store.settings) == []


def test_a_refused_prompt_is_tried_rarely_and_then_given_up(start):
    run = start(choosy(1), ONE)
    a_day(run)
    assert len(run.backend.asked) == MOST_ATTEMPTS
    a_day(run)
    run.clock.now += timedelta(days=1_000)
    run()
    assert len(run.backend.asked) == MOST_ATTEMPTS
    found = run.summary(ONE)
    assert (found.model, found.problem) == (extractive.MODEL, "it does not take this prompt")
    run.backend.refused = frozenset()
    run(by_hand=True)
    assert run.summary(ONE).model == "tiny", "who starts it by hand tries once more"


def test_a_service_that_finds_nobody_is_tried_without_end(start):
    run = start(choosy(1, problem=lambda: LlmUnavailable("no connection")), ONE)
    for _ in range(MOST_ATTEMPTS + 2):
        run()
        run.clock.now += timedelta(days=8)
    run.backend.refused = frozenset()
    run()
    assert run.summary(ONE).model == "tiny"


def test_refused_prompts_cost_nothing(store: Store, start):
    run = start(choosy(1, is_paid=True), part(1), budget=LlmBudget(dollars=1.0))
    run()
    assert (len(run.backend.asked), store.llm.used(DAY)) == (1, LlmUse())


def test_many_prompts_refused_in_a_row_open_the_breaker(store: Store, start):
    run = start(choosy(*range(PARTS)), *(part(n) for n in range(PARTS)))
    run()
    assert len(run.backend.asked) == REFUSALS_TO_OPEN
    (breaker,) = breakers(store.settings)
    assert breaker.is_open(run.clock.now)
    run.clock.now += timedelta(hours=1)
    run.backend.refused = frozenset({PARTS - 1})
    assert run().counts["flagged"] == 1, "one more refusal after the pause does not open it again"


def test_an_answer_between_them_ends_a_row_of_refusals(start):
    run = start(choosy(*range(0, PARTS, 2)), *(part(n) for n in range(PARTS)))
    assert run().counts["flagged"] == PARTS // 2
    assert len(run.backend.asked) == PARTS


def test_a_refused_account_still_opens_at_once(start):
    run = start(choosy(PARTS, problem=lambda: LlmRefused("wrong key")), *(part(n) for n in range(1, PARTS + 1)))
    run()
    assert len(run.backend.asked) == 1


@pytest.mark.parametrize("problem", [LlmAnswerInvalid("it refused to answer"), LlmPromptRefused("not this prompt")])
def test_a_prompt_that_always_fails_opens_nothing(store: Store, start, problem: Exception):
    run = start(choosy(1, problem=lambda: problem), ONE)
    a_day(run)
    assert not any(breaker.is_open(run.clock.now) for breaker in breakers(store.settings))
    a_day(run)
    assert len(run.backend.asked) == MOST_ATTEMPTS > REFUSALS_TO_OPEN
