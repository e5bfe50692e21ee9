"""What every store does with summaries of LLMs: who wants one, cached replies, budget, turns and batches."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import LlmCallTaken
from anamnesis_pipeline.model import LlmBudget, LlmUse, RecordType, Summary, TypedRecord
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.llm import CachedReply, Lease, OpenBatch
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_tests.support.samples import DAY, at_once, parsed, part, put, segment, summary

LATER = DAY + timedelta(hours=1)
CALL = LlmUse(1, 100, 10, 0.25)


def flagged(of, problem="no answer"):
    return replace(summary(of), problem=problem, retry_at=LATER)


# --- summaries -------------------------------------------------------------------------------------------


def test_a_summary_comes_back_as_it_was_written(store: Store):
    one = part(segment("m1"))
    parsed(store, one)
    records = (
        TypedRecord(RecordType.DECISION, "Use WAL \ud800", "one writer", ("u1", "u2")),
        TypedRecord(RecordType.ERROR, "It locked"),
    )
    whole = Summary(one.part_id, one.content_hash, "in short", "claude", ("a", "b"), records, True, "why", LATER, 3)
    assert store.summaries.summary(one.part_id) is None
    assert store.summaries.put_summaries([whole]) == 1
    assert store.summaries.put_summaries([whole]) == 0
    stored = replace(records[0], text="Use WAL \ufffd")
    assert store.summaries.summary(one.part_id) == replace(whole, records=(stored, records[1]))


def test_a_flagged_summary_is_tried_again_when_its_time_has_come(store: Store):
    first, second = part(segment("m1", minute=1)), part(segment("m2", minute=2))
    parsed(store, first, second)
    store.summaries.put_summaries([flagged(first), summary(second)])
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == []
    assert store.summaries.sources_to_summarize(DAY) == set()
    assert store.summaries.parts_to_summarize("logs", LATER, 10) == [first]
    assert store.summaries.parts_to_summarize("logs", LATER, 10, "another") == []
    assert store.summaries.parts_to_summarize("logs", LATER, 10, "acme/api") == [first]
    assert store.summaries.sources_to_summarize(LATER) == {"logs"}
    store.summaries.put_summaries([summary(first)])
    assert store.summaries.parts_to_summarize("logs", LATER, 10) == []


def test_open_or_deleted_part_waits_for_no_summary(store: Store):
    still_open, deleted = part(segment("m1"), closed=False), part(segment("m2"))
    parsed(store, still_open, deleted)
    assert store.summaries.sources_to_summarize(DAY) == {"logs"}
    put(store, deleted.part_id, "text", source="logs", message_keys=("m2",))
    store.episodes.delete(deleted.part_id)
    assert store.summaries.sources_to_summarize(DAY) == set()
    assert store.summaries.want_summaries("claude") == {}


def test_summaries_asked_for_anew_stay_meanwhile(store: Store):
    first, second, third = (part(segment(f"m{n}", minute=n)) for n in (1, 2, 3))
    parsed(store, first, second, third)
    store.summaries.put_summaries([summary(first), summary(second), replace(summary(third), model="claude")])
    assert store.summaries.want_summaries("claude", dry_run=True) == {"logs": 2}
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == []
    assert store.summaries.want_summaries("claude", limit=1) == {"logs": 1}
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == [second]
    assert store.summaries.summary(second.part_id) == summary(second)
    assert store.summaries.want_summaries("claude", project="another") == {}
    assert store.summaries.want_summaries("claude", source="others") == {}
    assert store.summaries.want_summaries("claude", source="logs", dry_run=True) == {"logs": 2}
    assert store.summaries.want_summaries("claude", project="acme/api") == {"logs": 2}
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == [second, first]


@pytest.mark.parametrize("name", ["acme/api", "old/api", "older/api"])
def test_a_project_is_meant_by_any_of_its_names_and_aliases(store: Store, name: str):
    mine, merged, other = (
        part(segment(f"m{n}", minute=n), project=project) for n, project in enumerate(("acme/api", "older/api", "web"))
    )
    parsed(store, mine, merged, other)
    store.settings.set(PROJECT_ALIASES, {"older/api": "old/api", "old/api": "acme/api"})
    assert store.summaries.parts_to_summarize("logs", DAY, 10, name) == [merged, mine]
    store.summaries.put_summaries([summary(each) for each in (mine, merged, other)])
    assert store.summaries.want_summaries("claude", project=name) == {"logs": 2}
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == [merged, mine]


def test_only_what_is_accepted_is_asked_for_anew(store: Store):
    parts = [part(segment(f"m{n}", minute=n)) for n in range(5)]
    parsed(store, *parts)
    store.summaries.put_summaries([summary(each) for each in parts])
    seen = []

    def accepts(each) -> bool:
        seen.append(each)
        return each in parts[1::2]

    assert store.summaries.want_summaries("claude", accepts=accepts) == {"logs": 2}
    assert seen == parts[::-1]
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == parts[3::-2]
    assert store.summaries.want_summaries("claude", limit=1, accepts=accepts) == {"logs": 1}


def test_pages_go_on_behind_the_last_part_whatever_became_of_it(store: Store):
    parts = [part(segment(f"m{n}", minute=None if n < 2 else n // 2)) for n in range(8)]
    parsed(store, *parts)
    whole = store.summaries.parts_to_summarize("logs", DAY, 10)
    assert sorted(whole, key=lambda each: each.part_id) == sorted(parts, key=lambda each: each.part_id)
    pages, last = [], None
    while page := store.summaries.parts_to_summarize("logs", LATER, 3, after=last):
        pages.append(page)
        last = page[-1]
        store.summaries.put_summaries([flagged(page[0]), summary(last)])
    assert [len(page) for page in pages] == [3, 3, 2]
    assert [each for page in pages for each in page] == whole


def test_an_answer_that_changes_nothing_still_answers_the_wish(store: Store):
    one = part(segment("m1"))
    parsed(store, one)
    store.summaries.put_summaries([summary(one)])
    store.summaries.want_summaries("claude")
    assert store.summaries.put_summaries([summary(one)]) == 0
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == []


def test_part_with_other_tags_or_records_is_published_again(store: Store):
    one = part(segment("m1"))
    parsed(store, one)
    plain = summary(one)
    versions = [
        plain,
        replace(plain, tags=("wal",)),
        replace(plain, tags=("wal",), records=(TypedRecord(RecordType.FACT, "so"),)),
        replace(plain, skip=True),
    ]
    for version in versions:
        store.summaries.put_summaries([version])
        assert store.parts.parts_to_publish("logs", 10) == [(one, version)]
        store.episodes.publish([Publication(one, version, [])])
    store.summaries.put_summaries([replace(versions[-1], problem="busy", retry_at=LATER)])
    assert store.parts.parts_to_publish("logs", 10) == [], "why it stands in is no part of the episode"


def test_summaries_are_counted_by_model_and_stand_ins_apart(store: Store):
    parts = [part(segment(f"m{n}")) for n in range(6)]
    parsed(store, *parts)
    assert store.summaries.summary_counts() == {}
    by_claude = [replace(summary(p), model="claude") for p in parts[:3]]
    skipped = replace(summary(parts[3]), model="claude", skip=True)
    store.summaries.put_summaries([*by_claude, skipped, summary(parts[4]), flagged(parts[5])])
    assert store.summaries.summary_counts() == {"claude": 3, "skip": 1, "extractive": 1, "problem": 1}


# --- replies ---------------------------------------------------------------------------------------------


def test_the_first_reply_to_a_question_is_the_one_that_is_kept(store: Store):
    assert store.llm.replies(["k"]) == {}
    store.llm.put_reply("k", "first \ud800", "anthropic", "claude")
    store.llm.put_reply("k", "second", "anthropic", "claude")
    assert store.llm.replies(["k", "other"]) == {"k": "first \ufffd"}


def test_reply_is_rewritten_only_where_it_is_what_was_read(store: Store):
    store.llm.put_reply("k", "told", "ollama", "m")
    store.llm.put_reply("other", "told", "ollama", "m")
    assert not store.llm.rewrite_reply("k", "another", "masked")
    assert not store.llm.rewrite_reply("never asked", "told", "masked")
    assert store.llm.rewrite_reply("k", "told", "masked \ud800")
    assert store.llm.replies_after("", 9) == [
        CachedReply("k", "masked \ufffd", "ollama", "m"),
        CachedReply("other", "told", "ollama", "m"),
    ]


# --- budget ----------------------------------------------------------------------------------------------


def test_what_is_booked_counts_as_used_until_it_is_settled(store: Store):
    assert store.llm.used("2026-03-01") == LlmUse()
    assert store.llm.reserve("c1", "2026-03-01", "anthropic", "claude", CALL, LlmBudget())
    assert store.llm.used("2026-03-01") == CALL
    store.llm.settle("c1", LlmUse(1, 40, 5, 0.125))
    store.llm.settle("c1", LlmUse())
    assert store.llm.used("2026-03-01") == LlmUse(1, 40, 5, 0.125)
    assert store.llm.used("2026-03-02") == LlmUse()


def test_a_call_that_would_exceed_the_days_budget_is_not_booked(store: Store):
    day, budget = "2026-03-01", LlmBudget(tokens=220)
    assert store.llm.reserve("c1", day, "ollama", "m", CALL, budget)
    assert store.llm.reserve("c2", day, "ollama", "m", CALL, budget), "exactly used up is not exceeded"
    assert not store.llm.reserve("c3", day, "ollama", "m", CALL, budget)
    assert store.llm.used(day).calls == 2
    assert store.llm.reserve("c3", "2026-03-02", "ollama", "m", CALL, budget)
    assert not store.llm.reserve("c4", day, "ollama", "m", CALL, LlmBudget(dollars=0.7))
    assert store.llm.reserve("c4", day, "ollama", "m", CALL, LlmBudget(dollars=0.75))


def test_a_call_that_was_never_made_gives_its_budget_back(store: Store):
    day, budget = "2026-03-01", LlmBudget(tokens=110)
    assert store.llm.reserve("c1", day, "ollama", "m", CALL, budget)
    store.llm.settle("c1", LlmUse())
    assert store.llm.reserve("c2", day, "ollama", "m", CALL, budget)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12), limit=st.integers(0, 200))
def test_whatever_is_booked_and_settled_a_day_stays_in_its_budget(store: Store, sizes, limit):
    day = str(uuid4())  # not drawn: examples share the store, and one day must not be two examples'
    for n, size in enumerate(sizes):
        call = f"{day}-{n}"
        if store.llm.reserve(call, day, "b", "m", LlmUse(1, size, size), LlmBudget(tokens=limit)) and n % 2:
            store.llm.settle(call, LlmUse(1, size // 2, 0))
        used = store.llm.used(day)
        assert used.input_tokens + used.output_tokens <= limit


def test_two_processes_cannot_book_the_same_last_tokens(open_store: Callable[[], Store]):
    stores = [open_store(), open_store()]
    booked = []

    def book(store: Store, name: str):
        call, budget = LlmUse(1, 10, 0), LlmBudget(tokens=150)
        booked.extend(n for n in range(20) if store.llm.reserve(f"{name}{n}", "d", "b", "m", call, budget))

    at_once([partial(book, store, str(n)) for n, store in enumerate(stores)])
    assert len(booked) == 15
    assert stores[0].llm.used("d").input_tokens == 150


# --- turns -----------------------------------------------------------------------------------------------


def test_calls_of_all_processes_take_turns(open_store: Callable[[], Store]):
    one, other = open_store(), open_store()
    assert one.llm.take_turn("ollama", DAY, 30) == 0
    assert other.llm.take_turn("ollama", DAY, 30) == 2
    assert one.llm.take_turn("ollama", DAY + timedelta(seconds=1), 30) == 3
    assert one.llm.take_turn("anthropic", DAY, 30) == 0, "each backend has its own"
    assert one.llm.take_turn("ollama", LATER, 30) == 0, "nothing is saved up"
    assert one.llm.take_turn("ollama", LATER, 30) == 2


def test_turns_that_are_taken_at_once_lie_apart(open_store: Callable[[], Store]):
    taken: list[float] = []

    def take(store: Store) -> None:
        taken.extend(store.llm.take_turn("ollama", DAY, 30) for _ in range(5))

    at_once([partial(take, open_store()) for _ in range(3)])
    assert sorted(taken) == [2.0 * n for n in range(15)]


def test_a_clock_that_was_set_back_holds_no_call_up(store: Store):
    store.llm.take_turn("ollama", DAY + timedelta(days=300), 30)
    assert store.llm.take_turn("ollama", DAY, 30) == 0


# --- batches ---------------------------------------------------------------------------------------------


def test_a_batch_is_open_until_it_is_collected(store: Store):
    first, other = OpenBatch("c1", "claude", ("k1", "k2")), OpenBatch("c2", "m", ("k3",))
    store.llm.put_batch("b1", "anthropic", first)
    store.llm.put_batch("b1", "anthropic", first)
    store.llm.put_batch("b2", "another", other)
    assert store.llm.open_batches("anthropic") == {"b1": first}
    store.llm.close_batch("b1")
    store.llm.close_batch("b1")
    assert store.llm.open_batches("anthropic") == {}
    assert store.llm.open_batches("another") == {"b2": other}


def test_failures_of_a_batch_are_known_until_an_answer_comes(store: Store):
    store.llm.put_failures({"k1": "cut \ud800", "k2": "refused", "k3": "expired"})
    store.llm.put_failures({"k1": "again"})
    assert store.llm.failures(["k1", "k2", "k4"]) == {"k1": "cut \ufffd", "k2": "refused"}
    store.llm.put_reply("k1", "at last", "anthropic", "claude")
    assert store.llm.failures(["k1", "k2", "k3"]) == {"k2": "refused", "k3": "expired"}


# --- leases ----------------------------------------------------------------------------------------------


def lease(*keys: str, since=DAY, until=LATER) -> Lease:
    return Lease(keys, since, until)


def test_leased_question_is_asked_by_nobody_else(open_store: Callable[[], Store]):
    one, other = open_store(), open_store()
    book = ("2026-03-01", "anthropic", "claude", CALL, LlmBudget())
    assert one.llm.reserve("c1", *book, lease("k1", "k2"))
    with pytest.raises(LlmCallTaken):
        other.llm.reserve("c2", *book, lease("k2", "k3"))
    assert other.llm.used("2026-03-01") == CALL, "nothing is booked"
    assert other.llm.reserve("c3", *book, lease("k3")), "nor leased"
    one.llm.settle("c1", None)
    assert one.llm.used("2026-03-01").calls == 2, "it stays as booked"
    one.llm.settle("c1", LlmUse())
    assert one.llm.used("2026-03-01").calls == 2
    assert other.llm.reserve("c4", *book, lease("k1", "k2"))


def test_one_of_those_who_ask_at_once_gets_the_lease(open_store: Callable[[], Store]):
    stores = [open_store() for _ in range(3)]
    got: list[str] = []

    def ask(store: Store, name: str) -> None:
        for n in range(4):
            with suppress(LlmCallTaken):
                if store.llm.reserve(f"{name}-{n}", "d", "b", "m", CALL, LlmBudget(), lease(f"k{n}")):
                    got.append(f"k{n}")

    at_once([partial(ask, store, str(n)) for n, store in enumerate(stores)])
    assert sorted(got) == [f"k{n}" for n in range(4)]
    assert stores[0].llm.used("d").calls == 4


def test_lease_of_a_killed_caller_ends_and_its_booking_stays(store: Store):
    book = ("2026-03-01", "anthropic", "claude", CALL, LlmBudget())
    assert store.llm.reserve("c1", *book, lease("k"))
    with pytest.raises(LlmCallTaken):
        store.llm.reserve("c2", *book, lease("k", since=LATER - timedelta(seconds=1)))
    assert store.llm.reserve("c2", *book, lease("k", since=LATER, until=LATER + timedelta(hours=1)))
    store.llm.settle("c1", LlmUse())
    with pytest.raises(LlmCallTaken):
        store.llm.reserve("c3", *book, lease("k", since=LATER))


# --- what was forgotten ----------------------------------------------------------------------------------


def test_reply_about_a_changed_part_goes_and_none_comes_later(store: Store):
    gone, renewed, kept = (part(segment(f"m{n}")) for n in range(3))
    parsed(store, gone, renewed, kept)
    asked = {"g1": gone, "g2": gone, "r1": renewed, "k1": kept}
    assert store.llm.note_asked(asked) == asked.keys()
    assert all(store.llm.put_reply(key, key, "ollama", "m") for key in ("g1", "r1", "k1"))
    store.forgetting.remove_parts([gone.part_id])
    store.forgetting.replace_parts([replace(renewed, lead="")], resummarize=True)
    assert [store.llm.put_reply(key, key, "ollama", "m") for key in ("g1", "g2", "r1", "k1")] == [False] * 3 + [True]
    assert store.llm.replies(list(asked)).keys() == {"k1"}
    for key, of in (("g2", gone), ("r1", renewed), ("k1", kept)):
        store.summaries.put_summaries([replace(summary(of), reply_key=key)])
    assert [store.summaries.summary(of.part_id) for of in (gone, renewed)] == [None, None]
    assert store.summaries.summary(kept.part_id) == summary(kept)


def test_nobody_is_asked_about_a_forgotten_or_changed_part(store: Store):
    gone, renewed, never = (part(segment(f"m{n}"), lead="said before") for n in range(3))
    parsed(store, gone, renewed)
    store.forgetting.bury({gone.part_id: []})
    now = replace(renewed, lead="")
    store.forgetting.replace_parts([now])
    assert store.llm.note_asked({"g": gone, "old": renewed, "new": now, "posted": never}) == {"new", "posted"}
