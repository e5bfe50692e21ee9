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
from anamnesis_tests.steps.llms import DAY, LlmHere, parsed, part

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
    run = start(choosy(PARTS))
    parsed(store, *(part(n) for n in range(1, PARTS + 1)))
    report = run()
    assert (len(run.backend.asked), report.counts["flagged"]) == (PARTS, 1)
    assert store.summaries.summary_counts() == {"tiny": PARTS - 1, "problem": 1}
    assert breakers(store.settings) == []


def test_a_refused_prompt_is_tried_ever_more_rarely_and_then_its_part_stays_extractive(store: Store, start):
    run, one = start(choosy(1)), part(1)
    parsed(store, one)
    a_day(run)
    assert len(run.backend.asked) == MOST_ATTEMPTS
    a_day(run)
    run.clock.now += timedelta(days=1_000)
    run()
    assert len(run.backend.asked) == MOST_ATTEMPTS
    found = run.summary(one)
    assert (found.model, found.problem) == (extractive.MODEL, "it does not take this prompt")
    run.backend.refused = frozenset()
    run(by_hand=True)
    assert run.summary(one).model == "tiny", "who starts it by hand tries once more"


def test_a_service_that_finds_nobody_is_tried_for_as_long_as_it_takes(store: Store, start):
    run, one = start(choosy(1, problem=lambda: LlmUnavailable("no connection"))), part(1)
    parsed(store, one)
    for _ in range(MOST_ATTEMPTS + 2):
        run()
        run.clock.now += timedelta(days=8)
    run.backend.refused = frozenset()
    run()
    assert run.summary(one).model == "tiny"


def test_refused_prompts_cost_nothing(store: Store, start):
    run = start(choosy(1, is_paid=True), budget=LlmBudget(dollars=1.0))
    parsed(store, part(1))
    run()
    assert (len(run.backend.asked), store.llm.used(DAY)) == (1, LlmUse())


def test_many_different_prompts_refused_in_a_row_open_the_breaker(store: Store, start):
    run = start(choosy(*range(PARTS)))
    parsed(store, *(part(n) for n in range(PARTS)))
    run()
    assert len(run.backend.asked) == REFUSALS_TO_OPEN
    (breaker,) = breakers(store.settings)
    assert breaker.is_open(run.clock.now)
    run.clock.now += timedelta(hours=1)
    run.backend.refused = frozenset({PARTS - 1})
    assert run().counts["flagged"] == 1, "one more refusal after the pause does not open it again"


def test_the_same_prompt_refused_again_and_again_opens_nothing(store: Store, start):
    run = start(choosy(1))
    parsed(store, part(1))
    a_day(run)
    assert not any(breaker.is_open(run.clock.now) for breaker in breakers(store.settings))
    assert len(run.backend.asked) == MOST_ATTEMPTS > REFUSALS_TO_OPEN


def test_an_answer_between_them_ends_a_row_of_refusals(store: Store, start):
    run = start(choosy(*range(0, PARTS, 2)))
    parsed(store, *(part(n) for n in range(PARTS)))
    assert run().counts["flagged"] == PARTS // 2
    assert len(run.backend.asked) == PARTS


@pytest.mark.parametrize("problem", [LlmRefused("wrong key"), LlmRefused("no credit")])
def test_a_refused_account_still_opens_at_once(store: Store, start, problem: LlmRefused):
    run = start(choosy(PARTS, problem=lambda: problem))
    parsed(store, *(part(n) for n in range(1, PARTS + 1)))
    run()
    assert len(run.backend.asked) == 1


def test_an_answer_that_is_never_what_was_asked_for_is_given_up_too(store: Store, start):
    run = start(choosy(1, problem=lambda: LlmAnswerInvalid("it refused to answer")))
    parsed(store, part(1))
    a_day(run)
    a_day(run)
    assert len(run.backend.asked) == MOST_ATTEMPTS
