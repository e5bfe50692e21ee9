"""Which parts an LLM summarizes, and what stands in where it cannot; the store is real, the LLM in this process."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.errors import BadSetting, HostUnreachable, LlmAnswerInvalid, LlmBusy, LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm import extractive
from anamnesis_pipeline.model import EpisodeFilter, LlmBudget, LlmUse, Part, RecordType, Summary, TypedRecord
from anamnesis_pipeline.pipeline.llm_choice import Llm
from anamnesis_pipeline.pipeline.llm_guard import breakers
from anamnesis_pipeline.pipeline.projects import machine_labels, right_guesses
from anamnesis_pipeline.pipeline.publish import publish_source
from anamnesis_pipeline.pipeline.summarize import UNSUMMARIZED, summarize_source
from anamnesis_pipeline.search.project_labels import is_private
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_tests.support.llms import DAY, ONE, SOURCE, USED, LlmHere, parsed, part

# --- what is asked ---------------------------------------------------------------------------------------


def test_an_llm_summarizes_closed_parts_once_and_changed_again(store: Store, start):
    run = start(ONE, part(2, closed=False))
    assert (run().written, run().written, len(run.backend.asked)) == (1, 0, 1), "an open part waits"
    parsed(store, part(1, "Why does retry 1 charge twice?", "An error: it failed.", "The bug is fixed."))
    assert (run().written, len(run.backend.asked)) == (1, 2)


def test_a_summary_has_the_tags_and_records_of_the_reply(start):
    run = start(ONE)
    report = run()
    records = (TypedRecord(RecordType.ERROR, "Retries charged twice.", "No key was sent.", ("u1-1",)),)
    text = "The retry double-charged. It now sends an idempotency key."
    assert run.summary(ONE) == Summary(ONE.part_id, ONE.content_hash, text, "tiny", ("webhooks", "payments"), records)
    assert (report.model, report.used, report.problem) == ("tiny", replace(USED, dollars=0), "")
    assert run.backend.closed == 1


def test_without_an_llm_every_part_gets_an_extractive_summary(store: Store):
    parsed(store, ONE, part(2, "hi", "hello"))
    assert summarize_source(store, SOURCE, Llm()).counts == {"written": 2}
    assert store.summaries.summary_counts() == {extractive.MODEL: 2}


def test_no_backend_is_opened_when_there_is_nothing_to_ask(store: Store):
    def fail() -> LlmHere:
        raise AssertionError

    parsed(store, part(1, closed=False))
    assert summarize_source(store, SOURCE, Llm(fail)).counts == {}


def test_routine_is_not_sent_to_an_llm(start):
    routine = part(1, "hi", "Hello! What can I do for you?")
    run = start(routine)
    assert run().counts == {"low value": 1, "written": 1}
    assert run.backend.asked == []
    assert (run.summary(routine).model, run.summary(routine).problem) == (extractive.MODEL, "")


def test_a_short_text_is_its_own_summary(start):
    said = "An error: it failed, and that is a bug."
    short, long = part(1, said, "x" * (199 - len(said))), part(2, said, "x" * (200 - len(said)))
    run = start(short, long, min_chars=200)
    counts = run().counts
    assert (counts["short"], counts["written"], counts.get("low value", 0)) == (1, 2, 0)
    assert len(run.backend.asked) == 1
    assert (run.summary(short).model, run.summary(short).problem) == (extractive.MODEL, "")
    assert run.summary(long).model == "tiny"


def test_a_part_not_worth_remembering_keeps_an_extractive_text(start):
    run = start(LlmHere(reply='{"skip": true}'), ONE)
    assert run().counts["skipped"] == 1
    expected = Summary(ONE.part_id, ONE.content_hash, extractive.summarize(ONE), "tiny", skip=True)
    assert run.summary(ONE) == expected


@pytest.mark.parametrize("rules", [{"local_only": True}, {"private_projects": ("api",)}])
def test_text_that_stays_here_is_shown_to_no_remote_llm(store: Store, start, rules):
    one = part(1)
    parsed(store, one)
    remote = start(LlmHere(is_local=False), **rules)
    assert remote().counts == {"private": 1, "written": 1}
    assert remote.backend.asked == []
    assert remote.summary(one).problem == ""
    store.summaries.want_summaries("tiny")
    start(LlmHere(is_local=True), **rules)()
    assert remote.summary(one).model == "tiny"


@pytest.mark.parametrize("cwd", ["/home/ann/secret", "/home/ann/secret/deep/er", "C:\\Users\\ann\\secret\\sub"])
def test_what_was_said_in_a_private_folder_stays_here(store: Store, start, cwd: str):
    parsed(store, replace(part(1), cwd=cwd), replace(part(2), cwd="/home/ann/secrets"))
    run = start(LlmHere(is_local=False), private_projects=("secret",))
    assert run().counts["private"] == 1
    assert "retry 2" in run.backend.asked[0].text
    assert len(run.backend.asked) == 1


def subagent(cwd: str) -> Part:
    return replace(part(2), kind="subagent", agent_id="a1", project="other", cwd=cwd, path="agent-a1.jsonl")


@pytest.mark.parametrize("began_in", [{"project": "acme/api"}, {"cwd": "/home/ann/api/deep"}])
@pytest.mark.parametrize("first", ["session", "subagent"])
def test_a_subagent_of_a_private_session_is_private(store: Store, start, began_in: dict[str, str], first: str):
    session = replace(part(1), **({"project": "trunk", "cwd": "/w"} | began_in))
    for one in (session, subagent("/home/ann/other")) if first == "session" else (subagent("/w/other"), session):
        parsed(store, one)
        run = start(LlmHere(is_local=False), private_projects=("api",))
        run()
        assert run.backend.asked == []
    run = start(LlmHere(is_local=False), private_projects=("something",))
    store.summaries.want_summaries("tiny")
    run()
    assert len(run.backend.asked) == 2


def test_a_subagent_waits_until_its_session_is_known(store: Store, start):
    agent = subagent("/w/other")
    parsed(store, agent)
    run = start(LlmHere(is_local=False), private_projects=("api",))
    assert run().counts == {"private": 1, "written": 1}
    parsed(store, replace(part(1), project="acme/web", cwd="/w/web"))
    run()
    assert run.summary(agent).model == "tiny"


def test_a_private_project_is_known_by_repository_and_alias(store: Store, start, tmp_path: Path):
    (tmp_path / "work" / ".git").mkdir(parents=True)
    (tmp_path / "work" / ".git" / "config").write_text('[remote "origin"]\nurl = git@github.com:acme/hush.git\n')
    parsed(store, replace(part(1), cwd=str(tmp_path / "work")))
    store.settings.set(PROJECT_ALIASES, {"acme/hush": "acme/quiet"})
    for name in ("hush", "acme/quiet"):
        run = start(LlmHere(is_local=False), private_projects=(name,))
        assert run(by_hand=True).counts["private"] == 1
        assert run.backend.asked == []
        store.summaries.want_summaries("tiny")


def test_a_guessed_project_stays_here_until_it_is_known(store: Store, start):
    def away(cwd: str) -> str:
        raise HostUnreachable("far is away")

    project = machine_labels(store.settings, "far", away)("/srv/web")
    parsed(store, replace(part(1), project=project, cwd="/srv/web"))
    run = start(LlmHere(is_local=False), private_projects=("api",))
    assert run().counts["private"] == 1
    settled = machine_labels(store.settings, "far", lambda cwd: "acme/web", must_answer=True)
    right_guesses(store, "far", settled)
    store.summaries.want_summaries("tiny")
    run = start(LlmHere(is_local=False), private_projects=("api",))
    run()
    assert len(run.backend.asked) == 1


@pytest.mark.parametrize(
    ("project", "expected"),
    [("acme/api", True), ("api", True), ("API", True), ("acme/my-api", False), ("api/web", False), ("", False)],
)
def test_a_private_project_is_known_by_label_or_bare_name(project: str, expected: bool):
    assert is_private(project, ("api", "secret/stuff")) is expected


# --- cache -----------------------------------------------------------------------------------------------


def test_materializing_again_costs_nothing(store: Store, start):
    run = start(part(1), part(2))
    run()
    store.summaries.want_summaries("nobody")
    report = run()
    assert (report.counts["cached"], report.used) == (2, LlmUse())
    assert len(run.backend.asked) == 2


def test_another_model_is_asked_anew(store: Store, start):
    run = start(part(1))
    run()
    run.backend.model = "large"
    store.summaries.want_summaries("large")
    run()
    assert run.backend.asked[0].key != run.backend.asked[1].key


def test_a_reply_that_is_no_json_is_asked_for_once_more(store: Store, start):
    run = start(LlmHere(is_paid=True, script=["Here you are!"]), ONE, budget=LlmBudget(dollars=1.0))
    assert run().counts["flagged"] == 0
    assert run.summary(ONE).tags == ("webhooks", "payments")
    assert store.llm.used(DAY).dollars == pytest.approx(2 * USED.dollars)


def test_prose_is_taken_when_the_second_reply_is_prose_too(start):
    run = start(LlmHere(reply="The retry charged twice."), ONE)
    run()
    assert len(run.backend.asked) == 2
    assert (run.summary(ONE).text, run.summary(ONE).tags) == ("The retry charged twice.", ())


def test_an_unreadable_reply_is_flagged_and_asked_for_again(start):
    run = start(LlmHere(script=['{"skip": false, "summary": " "}'] * 2), ONE)
    assert run().counts["flagged"] == 1
    assert "empty summary" in run.summary(ONE).problem
    run.clock.now += timedelta(minutes=10)
    run()
    assert (run.summary(ONE).model, run.summary(ONE).problem, run.summary(ONE).attempts) == ("tiny", "", 0)


# --- failures --------------------------------------------------------------------------------------------


def test_a_failing_call_waits_twice_as_long_each_time(start):
    run = start(ONE)
    waits = []
    for attempt in range(1, 4):
        run.backend.script = [LlmAnswerInvalid("it refused")]
        run()
        found = run.summary(ONE)
        assert (found.model, found.problem, found.attempts) == (extractive.MODEL, "it refused", attempt)
        assert run().counts == {}, "not before its time"
        assert found.retry_at is not None
        waits.append((found.retry_at - run.clock.now).total_seconds() / 60)
        run.clock.now = found.retry_at
    assert waits == [10, 20, 40]


def test_what_is_worth_much_is_tagged_while_it_waits_for_its_llm(store: Store, start):
    worth, less = part(1, "Why?", "It failed with an error. We decided to use a key rather than a lock."), part(2)
    run = start(LlmHere(script=[LlmRefused("wrong key")], concurrency=1), worth, less)
    run()
    assert (run.summary(worth).tags, run.summary(less).tags) == ((UNSUMMARIZED,), ())
    publish_source(store, SOURCE, minilm_pieces(), extractive.summarize)
    waiting = EpisodeFilter(tags=(UNSUMMARIZED,))
    assert [episode.episode_id for episode in store.episodes.page(waiting, 9).items] == [worth.part_id]
    run(by_hand=True)
    publish_source(store, SOURCE, minilm_pieces(), extractive.summarize)
    assert store.episodes.count(waiting) == 0
    assert store.episodes.count(EpisodeFilter(tags=("webhooks",), kinds=("exchange",))) == 2


def test_a_summary_is_not_lost_to_a_failed_attempt_at_another(store: Store, start):
    run = start(ONE)
    run()
    made = run.summary(ONE)
    run.backend.model, run.backend.script = "large", [LlmAnswerInvalid("it refused")]
    store.summaries.want_summaries("large")
    run()
    kept = run.summary(ONE)
    assert (kept.text, kept.records, kept.model, kept.problem) == (made.text, made.records, "tiny", "")
    assert kept.retry_at is not None
    run.clock.now = kept.retry_at
    run()
    assert run.summary(ONE).model == "large"


def test_a_busy_llm_is_waited_for_as_long_as_it_asks(start):
    run = start(LlmHere(script=[LlmBusy("slow down", 7.0), LlmUnavailable("gone")]), part(1))
    assert run().counts["flagged"] == 0
    assert len(run.backend.asked) == 3
    assert [seconds for seconds in run.clock.slept if seconds >= 7] != []


def test_a_service_that_asks_for_hours_is_left_alone_until_then(start):
    run = start(LlmHere(script=[LlmBusy("limit reached", 7200.0)]), ONE)
    run()
    assert len(run.backend.asked) == 1
    retry_at = run.summary(ONE).retry_at
    assert (retry_at - run.clock.now).total_seconds() == pytest.approx(7_200)
    assert run.summary(ONE).attempts == 0, "the part has not failed"


def test_a_refused_key_stops_all_calls_at_once(store: Store, start):
    run = start(LlmHere(concurrency=1, script=[LlmRefused("wrong key")]), *(part(n) for n in range(5)))
    report = run()
    assert (len(run.backend.asked), report.counts["flagged"]) == (1, 5)
    assert "wrong key" in report.problem
    (breaker,) = breakers(store.settings)
    assert (breaker.backend, breaker.reason) == ("ollama", "wrong key")
    assert breaker.is_open(run.clock.now)
    assert store.llm.used(DAY) == LlmUse()


def test_after_three_calls_that_find_nobody_the_others_wait(store: Store, start):
    run = start(LlmHere(concurrency=1, script=[LlmUnavailable("no connection")] * 3), part(1), part(2))
    run()
    assert len(run.backend.asked) == 3
    assert store.summaries.summary_counts() == {"problem": 2}


def test_one_call_tries_whether_the_service_is_back(store: Store, start):
    run = start(LlmHere(concurrency=1, script=[LlmRefused("wrong key")]), part(1), part(2), part(3))
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
