"""Which parts an LLM summarizes, and what stands in where it cannot; the store is real, the LLM in this process."""

import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.errors import BadSetting, LlmAnswerInvalid, LlmBusy, LlmRefused, LlmUnavailable
from anamnesis_pipeline.model import Part, Where
from anamnesis_pipeline.steps import summaries as step
from anamnesis_pipeline.steps.episodes import publish_source
from anamnesis_pipeline.steps.llm_breaker import breakers
from anamnesis_pipeline.steps.llm_calls import BEING_MADE
from anamnesis_pipeline.steps.llm_choice import LlmRules, is_private
from anamnesis_pipeline.steps.summaries import UNSUMMARIZED, Llm, SummaryReport, summarize_source
from anamnesis_pipeline.store.base import PROJECT_ALIASES, Store
from anamnesis_pipeline.summaries import extractive
from anamnesis_pipeline.summary_model import LlmBudget, LlmUse, RecordType, Summary, TypedRecord
from anamnesis_tests.steps.llms import EXPECTED, REPLY, SOURCE, USED, Clock, LlmHere, parsed, part

DAY = "2026-11-22"
EXAMPLES = itertools.count()


class Run:
    """Summarizes the source again and again with one LLM and one clock."""

    def __init__(self, store: Store, backend: LlmHere, **rules: object) -> None:
        self.store, self.backend, self.clock = store, backend, Clock()
        rules = {"requests_per_minute": 10_000, **rules}
        self.llm = Llm(lambda: self.backend, LlmRules(**rules), self.clock, self.clock.sleep)

    def __call__(self, **how: object) -> SummaryReport:
        return summarize_source(self.store, SOURCE, self.llm, **how)

    def summary(self, of: Part) -> Summary:
        found = self.store.ingest.summary(of.part_id)
        assert found is not None
        return found


@pytest.fixture
def start(store: Store) -> Callable[..., Run]:
    return lambda backend=None, **rules: Run(store, backend or LlmHere(), **rules)


# --- what is asked ---------------------------------------------------------------------------------------


def test_an_llm_summarizes_closed_parts_once_and_again_when_they_changed(store: Store, start):
    run = start()
    parsed(store, part(1), part(2, closed=False))
    assert run().written == 1
    assert run().written == 0
    assert len(run.backend.asked) == 1, "an open part waits"
    parsed(store, part(1, "Why does retry 1 charge twice?", "An error: it failed.", "The bug is fixed."))
    assert run().written == 1
    assert len(run.backend.asked) == 2


def test_a_summary_has_the_tags_and_records_of_the_reply_with_the_messages_they_came_from(store: Store, start):
    run, one = start(), part(1)
    parsed(store, one)
    report = run()
    records = (TypedRecord(RecordType.ERROR, "Retries charged twice.", "No key was sent.", ("u1-1",)),)
    text = "The retry double-charged. It now sends an idempotency key."
    assert run.summary(one) == Summary(one.part_id, one.content_hash, text, "tiny", ("webhooks", "payments"), records)
    assert (report.model, report.used, report.problem) == ("tiny", replace(USED, dollars=0), "")
    assert run.backend.closed == 1


def test_without_an_llm_every_part_gets_an_extractive_summary_that_is_no_problem(store: Store):
    parsed(store, part(1), part(2, "hi", "hello"))
    assert summarize_source(store, SOURCE, Llm()).counts == {"written": 2}
    assert store.ingest.summary_counts() == {extractive.MODEL: 2}


def test_the_backend_is_not_even_opened_when_there_is_nothing_to_ask(store: Store):
    def fail() -> LlmHere:
        raise AssertionError

    parsed(store, part(1, closed=False))
    assert summarize_source(store, SOURCE, Llm(fail)).counts == {}


def test_routine_is_not_sent_to_an_llm_and_its_summary_stands_for_good(store: Store, start):
    run, routine = start(), part(1, "hi", "Hello! What can I do for you?")
    parsed(store, routine)
    assert run().counts == {"low value": 1, "written": 1}
    assert run.backend.asked == []
    assert (run.summary(routine).model, run.summary(routine).problem) == (extractive.MODEL, "")


def test_a_part_that_is_not_worth_remembering_keeps_an_extractive_text_and_no_records(store: Store, start):
    run, one = start(LlmHere(reply='{"skip": true}')), part(1)
    parsed(store, one)
    assert run().counts["skipped"] == 1
    expected = Summary(one.part_id, one.content_hash, extractive.summarize(one), "tiny", skip=True)
    assert run.summary(one) == expected


@pytest.mark.parametrize("rules", [{"local_only": True}, {"private_projects": ("api",)}])
def test_text_that_stays_on_this_machine_is_shown_to_no_remote_llm(store: Store, start, rules):
    one = part(1)
    parsed(store, one)
    remote = start(LlmHere(is_local=False), **rules)
    assert remote().counts == {"private": 1, "written": 1}
    assert remote.backend.asked == []
    assert remote.summary(one).problem == ""
    store.ingest.want_summaries("tiny")
    start(LlmHere(is_local=True), **rules)()
    assert remote.summary(one).model == "tiny"


@pytest.mark.parametrize("cwd", ["/home/ann/secret", "/home/ann/secret/deep/er", "C:\\Users\\ann\\secret\\sub"])
def test_what_was_said_in_a_folder_of_a_private_project_stays_here_wherever_its_session_began(
    store: Store, start, cwd: str
):
    parsed(store, replace(part(1), cwd=cwd), replace(part(2), cwd="/home/ann/secrets"))
    run = start(LlmHere(is_local=False), private_projects=("secret",))
    assert run().counts["private"] == 1
    assert "retry 2" in run.backend.asked[0].text
    assert len(run.backend.asked) == 1


def test_a_private_project_is_known_by_the_repository_and_the_alias_of_a_folder(store: Store, start, tmp_path: Path):
    (tmp_path / "work" / ".git").mkdir(parents=True)
    (tmp_path / "work" / ".git" / "config").write_text('[remote "origin"]\nurl = git@host.org:acme/hush.git\n')
    parsed(store, replace(part(1), cwd=str(tmp_path / "work")))
    store.settings.set(PROJECT_ALIASES, {"acme/hush": "acme/quiet"})
    for name in ("hush", "acme/quiet"):
        run = start(LlmHere(is_local=False), private_projects=(name,))
        assert run(by_hand=True).counts["private"] == 1
        assert run.backend.asked == []
        store.ingest.want_summaries("tiny")


@pytest.mark.parametrize(
    ("project", "expected"),
    [("acme/api", True), ("api", True), ("API", True), ("acme/my-api", False), ("api/web", False), ("", False)],
)
def test_a_private_project_is_known_by_its_label_or_its_bare_name(project: str, expected: bool):
    assert is_private(project, ("api", "secret/stuff")) is expected


# --- cache -----------------------------------------------------------------------------------------------


def test_materializing_again_costs_nothing(store: Store, start):
    run = start()
    parsed(store, part(1), part(2))
    run()
    store.ingest.want_summaries("nobody")
    report = run()
    assert (report.counts["cached"], report.used) == (2, LlmUse())
    assert len(run.backend.asked) == 2


def test_another_model_is_asked_anew(store: Store, start):
    run = start()
    parsed(store, part(1))
    run()
    run.backend.model = "large"
    store.ingest.want_summaries("large")
    run()
    assert run.backend.asked[0].key != run.backend.asked[1].key


def test_a_reply_that_is_no_json_is_asked_for_once_more_and_both_are_paid(store: Store, start):
    run, one = start(LlmHere(is_paid=True, script=["Here you are!"]), budget=LlmBudget(dollars=1.0)), part(1)
    parsed(store, one)
    assert run().counts["flagged"] == 0
    assert run.summary(one).tags == ("webhooks", "payments")
    assert store.llm.used(DAY).dollars == pytest.approx(2 * USED.dollars)


def test_prose_is_taken_as_it_is_when_the_second_reply_is_no_json_either(store: Store, start):
    run, one = start(LlmHere(reply="The retry charged twice.")), part(1)
    parsed(store, one)
    run()
    assert len(run.backend.asked) == 2
    assert (run.summary(one).text, run.summary(one).tags) == ("The retry charged twice.", ())


def test_a_reply_that_cannot_be_read_is_flagged_not_cached_and_asked_for_again(store: Store, start):
    run, one = start(LlmHere(script=['{"skip": false, "summary": " "}'] * 2)), part(1)
    parsed(store, one)
    assert run().counts["flagged"] == 1
    assert "empty summary" in run.summary(one).problem
    run.clock.now += timedelta(minutes=10)
    run()
    assert (run.summary(one).model, run.summary(one).problem, run.summary(one).attempts) == ("tiny", "", 0)


# --- failures --------------------------------------------------------------------------------------------


def test_a_failing_call_leaves_an_extractive_summary_and_waits_twice_as_long_each_time(store: Store, start):
    run, one = start(), part(1)
    parsed(store, one)
    waits = []
    for attempt in range(1, 4):
        run.backend.script = [LlmAnswerInvalid("it refused")]
        run()
        found = run.summary(one)
        assert (found.model, found.problem, found.attempts) == (extractive.MODEL, "it refused", attempt)
        assert run().counts == {}, "not before its time"
        assert found.retry_at is not None
        waits.append((found.retry_at - run.clock.now).total_seconds() / 60)
        run.clock.now = found.retry_at
    assert waits == [10, 20, 40]


def test_what_is_worth_much_is_tagged_while_it_waits_for_its_llm(store: Store, start):
    worth, less = part(1, "Why?", "It failed with an error. We decided to use a key rather than a lock."), part(2)
    run = start(LlmHere(script=[LlmRefused("wrong key")], concurrency=1))
    parsed(store, worth, less)
    run()
    assert (run.summary(worth).tags, run.summary(less).tags) == ((UNSUMMARIZED,), ())
    publish_source(store, SOURCE, minilm_pieces(), extractive.summarize)
    waiting = Where(tags=(UNSUMMARIZED,))
    assert [episode.episode_id for episode in store.episodes.page(waiting, 9).items] == [worth.part_id]
    run(by_hand=True)
    publish_source(store, SOURCE, minilm_pieces(), extractive.summarize)
    assert store.episodes.count(waiting) == 0
    assert store.episodes.count(Where(tags=("webhooks",), kinds=("exchange",))) == 2


def test_an_llms_summary_is_not_lost_to_a_failed_attempt_at_another(store: Store, start):
    run, one = start(), part(1)
    parsed(store, one)
    run()
    made = run.summary(one)
    run.backend.model, run.backend.script = "large", [LlmAnswerInvalid("it refused")]
    store.ingest.want_summaries("large")
    run()
    kept = run.summary(one)
    assert (kept.text, kept.records, kept.model, kept.problem) == (made.text, made.records, "tiny", "")
    assert kept.retry_at is not None
    run.clock.now = kept.retry_at
    run()
    assert run.summary(one).model == "large"


def test_a_busy_llm_is_waited_for_as_long_as_it_asks(store: Store, start):
    run = start(LlmHere(script=[LlmBusy("slow down", 7.0), LlmUnavailable("gone")]))
    parsed(store, part(1))
    assert run().counts["flagged"] == 0
    assert len(run.backend.asked) == 3
    assert [seconds for seconds in run.clock.slept if seconds >= 7] != []


def test_a_service_that_asks_for_hours_is_left_alone_until_then(store: Store, start):
    run, one = start(LlmHere(script=[LlmBusy("limit reached", 7_200.0)])), part(1)
    parsed(store, one)
    run()
    assert len(run.backend.asked) == 1
    retry_at = run.summary(one).retry_at
    assert retry_at is not None
    assert (retry_at - run.clock.now).total_seconds() == pytest.approx(7_200)
    assert run.summary(one).attempts == 0, "the part has not failed"


def test_a_refused_key_stops_all_calls_at_once(store: Store, start):
    run = start(LlmHere(concurrency=1, script=[LlmRefused("wrong key")]))
    parsed(store, *(part(n) for n in range(5)))
    report = run()
    assert (len(run.backend.asked), report.counts["flagged"]) == (1, 5)
    assert "wrong key" in report.problem
    (breaker,) = breakers(store.settings)
    assert (breaker.backend, breaker.reason) == ("ollama", "wrong key")
    assert breaker.is_open(run.clock.now)
    assert store.llm.used(DAY) == LlmUse()


def test_after_three_calls_that_find_nobody_the_others_wait(store: Store, start):
    run = start(LlmHere(concurrency=1, script=[LlmUnavailable("no connection")] * 3))
    parsed(store, part(1), part(2))
    run()
    assert len(run.backend.asked) == 3
    assert store.ingest.summary_counts() == {"problem": 2}


def test_when_its_time_is_over_one_call_tries_whether_the_service_is_back(store: Store, start):
    run = start(LlmHere(concurrency=1, script=[LlmRefused("wrong key")]))
    parsed(store, part(1), part(2), part(3))
    run()
    run.clock.now += timedelta(hours=1)
    run.backend.script = [LlmRefused("wrong key")]
    run()
    assert len(run.backend.asked) == 2, "one trial"
    run.clock.now += timedelta(hours=1)
    assert run().counts["flagged"] == 0
    assert breakers(store.settings) == []


def test_a_key_that_is_missing_leaves_flagged_summaries(store: Store):
    def no_key() -> LlmHere:
        raise BadSetting("anthropic_api_key must be set")

    parsed(store, part(1))
    report = summarize_source(store, SOURCE, Llm(no_key))
    assert (report.counts["flagged"], report.problem) == (1, "anthropic_api_key must be set")


# --- money and pace --------------------------------------------------------------------------------------


def test_a_paid_llm_without_a_budget_runs_only_by_hand(store: Store, start):
    run, one = start(LlmHere(is_paid=True)), part(1)
    parsed(store, one)
    assert run().counts["flagged"] == 1
    assert "budget" in run.summary(one).problem
    assert run.backend.asked == []
    assert run(by_hand=True).counts["flagged"] == 0
    assert store.llm.used(DAY) == USED


def test_calls_stop_where_the_days_budget_ends_and_go_on_the_next_day(store: Store, start):
    run = start(LlmHere(is_paid=True, concurrency=1), budget=LlmBudget(dollars=EXPECTED.dollars + USED.dollars))
    parsed(store, part(1), part(2), part(3))
    assert run().counts["flagged"] == 1
    assert len(run.backend.asked) == 2
    waiting = run.summary(part(1))
    assert "budget of this day" in waiting.problem
    assert waiting.retry_at is not None
    assert waiting.retry_at.isoformat() == "2026-11-23T00:00:00+00:00"
    run.clock.now = waiting.retry_at
    assert run().counts["flagged"] == 0


def test_when_the_days_budget_is_used_up_nobody_waits_for_a_turn(store: Store, start):
    run = start(LlmHere(is_paid=True), budget=LlmBudget(dollars=0.001), requests_per_minute=1)
    parsed(store, *(part(n) for n in range(20)))
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
    run = start(LlmHere(script=[LlmRefused("wrong key")], concurrency=1), requests_per_minute=1)
    parsed(store, part(1))
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


def test_calls_keep_the_pace(store: Store, start):
    run = start(LlmHere(concurrency=1), requests_per_minute=30)
    parsed(store, part(1), part(2), part(3))
    run()
    assert sum(run.clock.slept) == pytest.approx(4)


def test_as_many_calls_run_at_once_as_make_sense(store: Store, start):
    both = threading.Barrier(2, timeout=10)
    run = start(LlmHere(concurrency=2, on_ask=both.wait))
    parsed(store, part(1), part(2), part(3), part(4))
    assert run().counts["flagged"] == 0


def test_two_runs_at_once_pay_once_for_each_part(store: Store, open_store: Callable[[], Store], start):
    run = start(LlmHere(concurrency=1))
    parsed(store, *(part(n) for n in range(6)))
    other = Run(open_store(), LlmHere(concurrency=1))

    def once() -> None:
        run.backend.on_ask = lambda: None
        report = other()
        assert (report.counts["flagged"], report.problem) == (1, BEING_MADE)

    run.backend.on_ask = once
    assert run().counts["flagged"] == 0
    assert len(run.backend.asked) + len(other.backend.asked) == 6
    assert store.ingest.summary_counts() == {"tiny": 6}
    run.clock.now += timedelta(minutes=1)
    assert run().counts == {}


def test_a_reply_that_came_while_the_same_was_about_to_be_asked_is_taken(store: Store, start):
    run, reserve = start(), store.llm.reserve
    parsed(store, part(1))

    def reserve_late(*given: object) -> bool:
        (key,) = given[-1].keys
        store.llm.put_reply(key, REPLY, "ollama", "tiny")
        return reserve(*given)

    store.llm.reserve = reserve_late
    assert run().counts["cached"] == 1
    assert (run.backend.asked, store.llm.used(DAY)) == ([], LlmUse())


# --- by hand ---------------------------------------------------------------------------------------------


def test_by_hand_what_failed_before_is_tried_at_once(store: Store, start):
    run, one = start(LlmHere(script=[LlmRefused("wrong key")])), part(1)
    parsed(store, one)
    run()
    assert run().counts == {}
    assert run(by_hand=True).counts["flagged"] == 0
    assert run.summary(one).model == "tiny"


def test_by_hand_what_was_refused_since_it_was_asked_for_is_not_tried_with_every_source(store: Store, start):
    run = start(LlmHere(script=[LlmRefused("wrong key")] * 9))
    parsed(store, part(1))
    run()
    asked_at = run.clock.now = run.clock.now + timedelta(seconds=1)
    for _ in range(5):
        run.clock.now += timedelta(seconds=1)
        run(by_hand=True, asked_at=asked_at)
    assert len(run.backend.asked) == 2
    run(by_hand=True)
    assert len(run.backend.asked) == 3


def test_by_hand_one_project_and_so_many_parts_can_be_chosen(store: Store, start):
    run = start()
    parsed(store, *(part(n, project="acme/web") for n in range(3)), part(4))
    assert run(by_hand=True, project="acme/web", limit=2).written == 2
    assert store.ingest.summary(part(4).part_id) is None
    assert store.ingest.summary(part(0, project="acme/web").part_id) is None, "newest first"


def test_parts_that_fail_all_the_time_end_a_run_by_hand_all_the_same(store: Store, start, monkeypatch):
    monkeypatch.setattr(step, "PAGE", 2)
    run = start(LlmHere(reply='{"skip": false, "summary": ""}'))
    parsed(store, *(part(n) for n in range(7)))
    listed: list[Part] = []
    listing = store.ingest.parts_to_summarize
    monkeypatch.setattr(
        store.ingest, "parts_to_summarize", lambda *g, **k: listed.extend(found := listing(*g, **k)) or found
    )
    assert run(by_hand=True).counts["flagged"] == 7
    assert len(run.backend.asked) == 2 * 7
    assert len(listed) == 7 + 1, "each is read once, and one to see whether there is any"


def test_a_run_that_is_ended_waits_for_the_calls_under_way_only(store: Store, start):
    run = start(LlmHere(concurrency=1))
    parsed(store, *(part(n) for n in range(20)))

    def end() -> None:
        raise KeyboardInterrupt

    run.backend.on_ask = end
    with pytest.raises(KeyboardInterrupt):
        run()
    assert len(run.backend.asked) < 20
    assert store.llm.used(DAY).calls == len(run.backend.asked), "a call cut off counts as spent"


def test_the_prompt_is_the_parts_and_names_itself(store: Store, start):
    from anamnesis_pipeline.model import SUMMARIZER_MARK

    run = start()
    parsed(store, part(1))
    run()
    assert SUMMARIZER_MARK in run.backend.asked[0].text
    assert "Why does retry 1 charge twice?" in run.backend.asked[0].text
    assert json.loads(REPLY)["summary"] not in run.backend.asked[0].text
