"""What asking an LLM may cost and how fast it goes, by hand or not; prompts that are refused, calls that are killed."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import LlmAnswerInvalid, LlmPromptRefused, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.llm.prompts import Request
from anamnesis_pipeline.llm.provider import Reply
from anamnesis_pipeline.model import SUMMARIZER_MARK, LlmBudget, LlmUse, Part
from anamnesis_pipeline.pipeline import llm_calls
from anamnesis_pipeline.pipeline import summarize as step
from anamnesis_pipeline.pipeline.llm_calls import BEING_MADE
from anamnesis_pipeline.pipeline.llm_guard import CALL_LEASE, REFUSALS_TO_OPEN, Breaker, breakers
from anamnesis_pipeline.pipeline.summarize import MAX_ATTEMPTS
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.llms import DAY, EXPECTED, ONE, REPLY, USED, LlmHere, Run, parsed, part

EXAMPLES = itertools.count()


# --- money and pace --------------------------------------------------------------------------------------


def test_a_paid_llm_without_a_budget_runs_only_by_hand(store: Store, start):
    run = start(LlmHere(is_paid=True), ONE)
    assert run().counts["flagged"] == 1
    assert "budget" in run.summary(ONE).problem
    assert run.backend.asked == []
    assert run(by_hand=True).counts["flagged"] == 0
    assert store.llm.used(DAY) == USED


@pytest.mark.parametrize("script", [[], ["no JSON"], ["no JSON", "{}"], [LlmAnswerInvalid("no reply")]])
def test_the_report_names_what_is_booked_answered_or_not(store: Store, start, script):
    run = start(LlmHere(is_paid=True, concurrency=1, script=script), part(1), part(2), budget=LlmBudget(dollars=1000.0))
    report = run()
    assert report.used == store.llm.used(DAY)
    assert report.used.calls == len(run.backend.asked)


def test_calls_stop_where_the_budget_of_the_day_ends(start):
    budget = LlmBudget(dollars=EXPECTED.dollars + USED.dollars)
    run = start(LlmHere(is_paid=True, concurrency=1), ONE, part(2), part(3), budget=budget)
    assert (run().counts["flagged"], len(run.backend.asked)) == (1, 2)
    waiting = run.summary(ONE)
    assert "budget of this day" in waiting.problem
    assert waiting.retry_at.isoformat() == "2026-11-23T00:00:00+00:00"
    run.clock.now = waiting.retry_at
    assert run().counts["flagged"] == 0


def test_nobody_waits_for_a_turn_when_the_budget_is_used_up(store: Store, start):
    parts, budget = [part(n) for n in range(20)], LlmBudget(dollars=0.001)
    run = start(LlmHere(is_paid=True), *parts, budget=budget, requests_per_minute=1)
    assert run().counts["flagged"] == 20
    assert (run.backend.asked, run.clock.slept) == ([], [])
    assert store.llm.used(DAY) == LlmUse()


def test_what_ends_the_asking_ends_it_for_the_rest_of_the_run(store: Store, start, monkeypatch):
    monkeypatch.setattr(step, "PAGE", 5)
    run, reserve, booked = start(LlmHere(is_paid=True), budget=LlmBudget(dollars=0.001)), store.llm.reserve, []
    monkeypatch.setattr(store.llm, "reserve", lambda *given: booked.append(given) or reserve(*given))
    parsed(store, *(part(n) for n in range(20)))
    assert run().counts["flagged"] == 20
    assert 1 <= len(booked) <= 5, "some of the first page, none of the others"


def test_while_the_breaker_is_open_nobody_waits_for_a_turn(store: Store, start):
    run = start(LlmHere(script=[LlmRefused("wrong key")], concurrency=1), part(1), requests_per_minute=1)
    run()
    parsed(store, *(part(n) for n in range(2, 20)))
    assert run().counts["flagged"] == 18
    assert (len(run.backend.asked), run.clock.slept) == (1, [])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dollars=st.floats(0, 0.2), concurrency=st.integers(1, 8))
def test_no_concurrency_spends_more_than_the_budget(store: Store, dollars: float, concurrency: int):
    number = next(EXAMPLES)  # not drawn: examples share the store, and each needs its own day and its own parts
    run = Run(store, LlmHere(is_paid=True, concurrency=concurrency), budget=LlmBudget(dollars=dollars))
    run.clock.now += timedelta(days=number)
    parsed(store, *(part(number * 10 + n) for n in range(10)))
    run()
    assert store.llm.used(f"{run.clock.now:%Y-%m-%d}").dollars <= dollars + 1e-9


def test_calls_keep_the_pace(start):
    run = start(LlmHere(concurrency=1), part(1), part(2), part(3), requests_per_minute=30)
    run()
    assert sum(run.clock.slept) == pytest.approx(4)


def test_as_many_calls_run_at_once_as_make_sense(start):
    both = threading.Barrier(2, timeout=10)
    run = start(LlmHere(concurrency=2, on_ask=both.wait), part(1), part(2), part(3), part(4))
    assert run().counts["flagged"] == 0


def test_two_runs_at_once_pay_once_for_each_part(store: Store, open_store: Callable[[], Store], start):
    run = start(LlmHere(concurrency=1), *(part(n) for n in range(6)))
    other = Run(open_store(), LlmHere(concurrency=1))

    def once() -> None:
        run.backend.on_ask = lambda: None
        report = other()
        assert (report.counts["flagged"], report.problem) == (1, BEING_MADE)

    run.backend.on_ask = once
    assert run().counts["flagged"] == 0
    assert len(run.backend.asked) + len(other.backend.asked) == 6
    assert store.summaries.summary_counts() == {"tiny": 6}
    run.clock.now += timedelta(minutes=1)
    assert run().counts == {}


def test_a_call_that_takes_longer_than_its_lease_is_made_once(store: Store, open_store, start, monkeypatch):
    monkeypatch.setattr(llm_calls, "RENEWED_EVERY_S", 0.01)
    run, renewed = (start(LlmHere(concurrency=1), part(1)), threading.Semaphore(0))
    other, renew = Run(open_store(), LlmHere()), store.llm.renew
    other.clock = run.clock
    other.llm = replace(other.llm, clock=run.clock)

    def renew_and_tell(*given: object) -> None:
        renew(*given)
        renewed.release()

    def take_long() -> None:
        run.backend.on_ask = lambda: None
        for _ in range(3):
            run.clock.now += CALL_LEASE - timedelta(minutes=1)
            assert renewed.acquire(timeout=60)
            assert renewed.acquire(timeout=60), "begun after the clock was moved"
        assert other().problem == BEING_MADE

    store.llm.renew, run.backend.on_ask = renew_and_tell, take_long
    assert run().counts["flagged"] == 0
    assert (len(run.backend.asked), other.backend.asked) == (1, [])


def test_a_useless_answer_shows_that_the_service_is_there(store: Store, start):
    run = start(LlmHere(script=[LlmAnswerInvalid("cut off")], concurrency=1), part(1))
    breaker = Breaker(store.settings, "ollama", run.clock)
    breaker.was_told_to_wait("slow down", 60.0)
    run.clock.now += timedelta(minutes=2)
    assert run().problem == "cut off"
    assert breaker.state().until is None


def test_a_reply_that_came_meanwhile_is_taken(store: Store, start):
    run, reserve = (start(part(1)), store.llm.reserve)

    def reserve_late(*given: object) -> bool:
        (key,) = given[-1].keys
        store.llm.put_reply(key, REPLY, "ollama", "tiny")
        return reserve(*given)

    store.llm.reserve = reserve_late
    assert run().counts["cached"] == 1
    assert (run.backend.asked, store.llm.used(DAY)) == ([], LlmUse())


# --- by hand ---------------------------------------------------------------------------------------------


def test_by_hand_what_failed_before_is_tried_at_once(start):
    run = start(LlmHere(script=[LlmRefused("wrong key")]), ONE)
    run()
    assert run().counts == {}
    assert run(by_hand=True).counts["flagged"] == 0
    assert run.summary(ONE).model == "tiny"


def test_by_hand_a_refusal_since_then_is_not_tried_again(start):
    run = start(LlmHere(script=[LlmRefused("wrong key")] * 9), part(1))
    run()
    asked_at = run.clock.now = run.clock.now + timedelta(seconds=1)
    for _ in range(5):
        run.clock.now += timedelta(seconds=1)
        run(by_hand=True, asked_at=asked_at)
    assert len(run.backend.asked) == 2
    run(by_hand=True)
    assert len(run.backend.asked) == 3


def test_by_hand_one_project_and_so_many_parts_can_be_chosen(store: Store, start):
    run = start(*(part(n, project="acme/web") for n in range(3)), part(4))
    assert run(by_hand=True, project="acme/web", limit=2).written == 2
    assert store.summaries.summary(part(4).part_id) is None
    assert store.summaries.summary(part(0, project="acme/web").part_id) is None, "newest first"


def test_parts_that_always_fail_end_a_run_by_hand(store: Store, start, monkeypatch):
    monkeypatch.setattr(step, "PAGE", 2)
    run = start(LlmHere(reply='{"skip": false, "summary": ""}'), *(part(n) for n in range(7)))
    listed: list[Part] = []
    listing = store.summaries.parts_to_summarize
    monkeypatch.setattr(
        store.summaries, "parts_to_summarize", lambda *g, **k: listed.extend(found := listing(*g, **k)) or found
    )
    assert run(by_hand=True).counts["flagged"] == 7
    assert len(run.backend.asked) == 2 * 7
    assert len(listed) == 7 + 1, "each is read once, and one to see whether there is any"


def test_a_run_that_is_ended_waits_for_the_calls_under_way_only(store: Store, start):
    run = start(LlmHere(concurrency=1), *(part(n) for n in range(20)))

    def end() -> None:
        raise KeyboardInterrupt

    run.backend.on_ask = end
    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(run.backend.asked) < 20
    assert store.llm.used(DAY).calls == len(run.backend.asked), "a call cut off counts as spent"


def test_the_prompt_is_the_parts_and_names_itself(start):
    run = start(part(1))
    run()
    assert SUMMARIZER_MARK in run.backend.asked[0].text
    assert "Why does retry 1 charge twice?" in run.backend.asked[0].text
    assert json.loads(REPLY)["summary"] not in run.backend.asked[0].text


# --- prompts that are refused -----------------------------------------------------------------------------


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
    assert len(run.backend.asked) == MAX_ATTEMPTS
    a_day(run)
    run.clock.now += timedelta(days=1_000)
    run()
    assert len(run.backend.asked) == MAX_ATTEMPTS
    found = run.summary(ONE)
    assert (found.model, found.problem) == (extractive.MODEL, "it does not take this prompt")
    run.backend.refused = frozenset()
    run(by_hand=True)
    assert run.summary(ONE).model == "tiny", "who starts it by hand tries once more"


def test_a_service_that_finds_nobody_is_tried_without_end(start):
    run = start(choosy(1, problem=lambda: LlmUnavailable("no connection")), ONE)
    for _ in range(MAX_ATTEMPTS + 2):
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
    assert len(run.backend.asked) == MAX_ATTEMPTS > REFUSALS_TO_OPEN


# --- calls around which the process is killed -------------------------------------------------------------


SUMMARIZE = """
import os, signal, sys
from anamnesis_pipeline.model import LlmBudget
from anamnesis_tests.conftest import BACKENDS
from anamnesis_tests.support.llms import LlmHere, Run

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
