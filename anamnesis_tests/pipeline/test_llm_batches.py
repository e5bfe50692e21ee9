"""Batches: handed in once, collected by a later run, found again after a crash."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from anamnesis_pipeline.errors import LlmPromptRefused, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.prompts import Request
from anamnesis_pipeline.llm.provider import Reply
from anamnesis_pipeline.model import LlmBudget, LlmUse
from anamnesis_pipeline.pipeline.llm_calls import LOOK_AGAIN, BatchDesk, LlmCaller, Pace
from anamnesis_pipeline.pipeline.llm_guard import Breaker
from anamnesis_pipeline.pipeline.summarize import IN_A_BATCH
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.llm import Lease, OpenBatch
from anamnesis_tests.support.archived_logs import unmasked
from anamnesis_tests.support.llms import DAY, EXPECTED, REPLY, USED, BatchLlmHere, Clock, Run, parsed, part

PARTS = 4


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def start(store: Store) -> Callable[..., Run]:
    """Begins with as many parts as make a batch, and with a service that works on batches."""

    def start(backend: BatchLlmHere | None = None, **rules: object) -> Run:
        parsed(store, *(part(n) for n in range(PARTS)))
        rules = {"batch_min": PARTS, "budget": LlmBudget(dollars=1.0), **rules}
        return Run(store, backend or BatchLlmHere(done=False), **rules)

    return start


def caller(store: Store, llm: BatchLlmHere, clock: Clock | None = None) -> LlmCaller:
    return LlmCaller(store, llm, Pace(LlmBudget(), 10_000), unmasked, clock=clock or Clock())


def later(run: Run) -> None:
    run.clock.now += LOOK_AGAIN + timedelta(seconds=1)


def test_a_backlog_is_one_batch_that_a_later_run_collects(store: Store, start):
    run = start()
    assert run().counts == {"in a batch": PARTS, "written": PARTS}
    assert run.summary(part(1)).problem == IN_A_BATCH
    assert store.llm.used(DAY).dollars == pytest.approx(PARTS * EXPECTED.dollars)
    later(run)
    assert run().counts["in a batch"] == PARTS, "it is still being worked on"
    run.backend.done = True
    later(run)
    assert run().counts == {"cached": PARTS, "written": PARTS, "skipped": 0}
    assert (len(run.backend.batches), run.backend.asked) == (1, [])
    assert store.llm.used(DAY).dollars == pytest.approx(PARTS * USED.dollars)
    assert store.llm.open_batches("anthropic") == {}
    assert store.summaries.summary_counts() == {"tiny": PARTS}


@pytest.mark.parametrize(
    ("rules", "asked"),
    [({"batch_min": PARTS + 1}, {PARTS}), ({"budget": LlmBudget(dollars=1.5 * EXPECTED.dollars)}, {1, 2, 3})],
    ids=["few parts", "little money"],
)
def test_a_batch_that_is_too_small_or_too_dear_is_not_handed_in(start, rules: dict[str, object], asked: set[int]):
    run = start(BatchLlmHere(concurrency=1), **rules)
    run()
    assert run.backend.batches == {}
    assert len(run.backend.asked) in asked


def test_a_batch_is_as_large_as_the_budget_holds(store: Store, start):
    budget = LlmBudget(dollars=1.6 * EXPECTED.dollars)
    run = start(BatchLlmHere(done=False, batch_factor=0.5), batch_min=3, budget=budget)
    report = run()
    assert (report.counts["in a batch"], report.counts["flagged"]) == (3, PARTS - 3)
    assert "budget" in report.problem
    assert (len(run.backend.batches["batch1"]), run.backend.asked) == (3, [])
    assert store.llm.used(DAY).dollars == pytest.approx(3 * 0.5 * EXPECTED.dollars)


def test_what_another_run_asks_for_is_left_out_of_a_batch(store: Store, start):
    probe = start()
    probe()
    taken, known = (request.key for request in probe.backend.batches["batch1"][:2])
    (batch_id,) = store.llm.open_batches("anthropic")
    store.llm.settle(store.llm.open_batches("anthropic")[batch_id].call_id, LlmUse())
    store.llm.close_batch(batch_id)
    now = probe.clock.now
    lease = Lease((taken,), now, now + timedelta(hours=1))
    assert store.llm.reserve("other", DAY, "anthropic", "tiny", EXPECTED, LlmBudget(), lease)
    desk = BatchDesk(store, probe.backend, caller(store, probe.backend, probe.clock), lambda reply: None, probe.clock)
    store.llm.put_reply(known, REPLY, "anthropic", "tiny")
    requests = probe.backend.batches["batch1"]
    assert desk.submit(requests, PARTS - 1) == frozenset()
    assert desk.submit(requests, PARTS - 2) == {r.key for r in requests} - {taken, known}
    assert len(probe.backend.batches["batch2"]) == PARTS - 2


def test_a_lost_batch_shows_that_the_service_is_there(store: Store, start):
    run = start()
    run()
    breaker = Breaker(store.settings, "anthropic", run.clock)
    breaker.was_told_to_wait("slow down", 60.0)
    run.backend.batches.clear()
    run.backend.failing = [KeyboardInterrupt()]  # before the new batch could show it
    later(run)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert breaker.state().until is None


def test_what_a_batch_could_not_answer_is_asked_for_by_itself(store: Store, start):
    run = start(BatchLlmHere())
    run()
    first = run.backend.batches["batch1"][0]
    run.backend.errors[first.key] = Reply("", LlmUse(), "expired")
    later(run)
    assert run().counts["flagged"] == 1
    (failed,) = (each for n in range(PARTS) if (each := run.summary(part(n))).problem)
    assert (failed.problem, failed.attempts) == ("expired", 1)
    assert run.backend.asked == []
    later(run)
    run()
    assert [request.key for request in run.backend.asked] == [first.key]
    assert store.summaries.summary_counts() == {"tiny": PARTS}


@pytest.mark.parametrize(
    "bad", [Reply("", USED, "it refused"), Reply('{"skip": false, "summary": ""}', USED)], ids=["refused", "unreadable"]
)
def test_useless_replies_of_a_batch_go_into_no_other_batch(store: Store, start, bad: Reply):
    run = start(BatchLlmHere(reply='{"skip": false, "summary": ""}'))
    run()
    run.backend.errors = {request.key: bad for request in run.backend.batches["batch1"]}
    for tick in range(1, 7):
        later(run)
        run()
        assert len(run.backend.batches) == 1
        assert store.llm.used(DAY).dollars == pytest.approx((PARTS + len(run.backend.asked)) * USED.dollars)
        assert all(run.summary(part(n)).attempts for n in range(PARTS)), tick
    assert len(run.backend.asked) == 2 * 2 * PARTS, "after 10 and 20 minutes, each time once more; then after 40"


def test_a_batch_is_settled_at_the_prices_of_its_own_model(store: Store, start):
    run = start(BatchLlmHere(done=False, prices={"tiny": LlmUse(1, 1, 1, 0.002), "large": LlmUse(1, 1, 1, 0.2)}))
    run()
    run.backend.model, run.backend.done = "large", True
    later(run)
    run()
    collected = PARTS * 0.002
    assert store.llm.used(DAY).dollars == pytest.approx(collected + PARTS * EXPECTED.dollars), "and one of the other"
    assert store.llm.open_batches("anthropic")["batch2"].model == "large"


def test_when_all_text_stays_here_no_batch_is_even_looked_for(store: Store, start):
    run = start()
    run()
    later(run)
    looked = run.backend.looks
    kept = Run(store, run.backend, local_only=True, budget=LlmBudget(dollars=1.0))
    kept.clock.now = run.clock.now
    assert kept().counts["private"] == PARTS
    assert (run.backend.looks, run.backend.asked) == (looked, [])


def test_batches_that_others_hand_in_meanwhile_are_waited_for(store: Store, open_store: Callable[[], Store]):
    llm = BatchLlmHere(done=False)
    desk = BatchDesk(store, llm, caller(store, llm), lambda reply: None)
    desk.collect()
    assert desk.waiting() == frozenset()
    open_store().llm.put_batch("b9", llm.name, OpenBatch("c9", "tiny", ("k1", "k2")))
    assert desk.waiting() == {"k1", "k2"}


def test_two_runs_at_once_hand_in_one_batch(store: Store, open_store: Callable[[], Store], start):
    run = start()
    other = Run(open_store(), BatchLlmHere(), batch_min=PARTS, budget=LlmBudget(dollars=1.0))
    submit = run.backend.submit

    def submit_while_another_runs(requests):
        other()
        return submit(requests)

    run.backend.submit = submit_while_another_runs
    assert run().counts["in a batch"] == PARTS
    assert (other.backend.batches, other.backend.asked) == ({}, [])


def test_a_batch_whose_id_was_lost_in_a_crash_is_found(store: Store, start):
    run = start(BatchLlmHere(failing=[Killed()]))
    with pytest.raises(Killed):
        run()
    run()
    assert len(run.backend.batches) == 1, "it may still be on its way"
    later(run)
    run()
    assert len(run.backend.batches) == 1
    assert run.backend.asked == []
    assert store.summaries.summary_counts() == {"tiny": PARTS}


def test_a_lost_batch_is_not_taken_for_another(store: Store, start):
    run = start()
    run()
    parsed(store, *(part(n) for n in range(PARTS, 2 * PARTS)))
    run.backend.failing, run.backend.arrives = [LlmUnavailable("broke off")], False
    run()
    run.backend.batches["of others"] = [Request(f"other{n}", "", "", 1) for n in range(PARTS)]
    later(run)
    run()
    assert len(run.backend.batches) == 2, "somebody else's is as large, and nobody knows yet"
    run.backend.done, run.backend.arrives = True, True
    for _ in range(3):
        later(run)
        run()
    assert store.summaries.summary_counts() == {"tiny": 2 * PARTS}
    assert sorted(run.backend.batches) == ["batch1", "batch3", "of others"], "the lost one was handed in anew"
    assert store.llm.replies([f"other{n}" for n in range(PARTS)]) == {}


def test_a_batch_that_proves_to_be_somebody_elses_is_not_ours(store: Store, start):
    run = start(BatchLlmHere(failing=[LlmUnavailable("broke off")], arrives=False))
    run()
    run.backend.batches["of others"] = [Request(f"other{n}", "", "", 1) for n in range(PARTS)]
    run.backend.find = lambda keys, known: "of others"
    later(run)
    assert run().counts["in a batch"] == PARTS
    assert store.llm.replies([f"other{n}" for n in range(PARTS)]) == {}


@pytest.mark.parametrize("arrives", [True, False])
def test_a_batch_whose_reply_broke_off_is_made_once(store: Store, start, arrives: bool):
    run = start(BatchLlmHere(failing=[LlmUnavailable("broke off")], arrives=arrives))
    assert run().counts["flagged"] == PARTS
    run.backend.arrives = True
    for _ in range(2):
        later(run)
        run()
    assert (len(run.backend.batches), run.backend.asked) == (1, [])
    assert store.summaries.summary_counts() == {"tiny": PARTS}


def test_a_refused_batch_costs_nothing_and_stops_all_calls(store: Store, start):
    run = start(BatchLlmHere(failing=[LlmRefused("no credit")], arrives=False))
    assert run().counts["flagged"] == PARTS
    assert run.backend.asked == []
    assert store.llm.used(DAY) == LlmUse()
    assert store.llm.open_batches("anthropic") == {}


def test_parts_of_a_refused_batch_are_asked_for_singly(store: Store, start):
    run = start(BatchLlmHere(failing=[LlmPromptRefused("one of them")], arrives=False))
    assert run().counts["flagged"] == 0
    assert len(run.backend.asked) == PARTS
    assert store.llm.used(DAY).calls == PARTS, "the batch cost nothing"
    assert store.llm.open_batches("anthropic") == {}


def test_a_batch_that_may_not_be_looked_at_is_not_taken_for_lost(store: Store, start):
    run = start()
    run()
    run.backend.unseen = [LlmPromptRefused("400")]
    later(run)
    assert run().counts["flagged"] == 0
    assert list(store.llm.open_batches("anthropic")) == ["batch1"]
    run.backend.done = True
    later(run)
    assert run().counts["cached"] == PARTS


def test_a_batch_that_is_gone_is_forgotten_and_stays_paid(store: Store, start):
    run = start()
    run()
    run.backend.batches.clear()
    later(run)
    run()
    assert store.llm.used(DAY).dollars == pytest.approx(2 * PARTS * EXPECTED.dollars)
    assert list(store.llm.open_batches("anthropic")) == ["batch1"], "handed in anew"
