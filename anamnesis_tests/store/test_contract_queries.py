"""Contract: the questions that were asked are remembered within bounds, and go with what they found."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records import queries
from anamnesis_pipeline.store.records.queries import QUERY_EXPIRES, USED_WITHIN, AskedQuery, QueryCounts
from anamnesis_tests.support.samples import DAY, put

MINUTE = timedelta(minutes=1)


def test_a_question_is_counted_with_what_it_found_and_outlives_the_process(open_store: Callable[[], Store]) -> None:
    first = open_store()
    assert first.queries.counts() == QueryCounts(0, 0, 0)
    put(first, "a", "text")
    first.queries.note("which port", {}, ["a"], DAY)
    first.queries.note("which color", {"project": "api"}, [], DAY + MINUTE)
    first.close()
    again = open_store()
    assert again.queries.counts() == QueryCounts(2, 1, 0)
    assert again.queries.unanswered(10) == [AskedQuery("which color", {"project": "api"}, DAY + MINUTE, 1)]


def test_a_reading_counts_for_the_latest_question_that_found_it_a_while_ago_and_no_longer(store: Store) -> None:
    put(store, "a", "text")
    put(store, "b", "text")
    store.queries.note("early", {}, ["a"], DAY)
    store.queries.note("late", {}, ["a", "b"], DAY + MINUTE)
    assert not store.queries.use("a", DAY - MINUTE)
    assert store.queries.use("a", DAY + MINUTE + USED_WITHIN)
    assert store.queries.use("a", DAY + MINUTE + USED_WITHIN)
    assert not store.queries.use("b", DAY + MINUTE + USED_WITHIN + MINUTE)
    assert not store.queries.use("unknown", DAY + MINUTE)
    assert store.queries.counts() == QueryCounts(2, 2, 1)
    assert store.queries.use("a", DAY)
    assert store.queries.counts() == QueryCounts(2, 2, 2)


def test_a_question_without_an_answer_is_listed_once_until_it_finds_one(store: Store) -> None:
    for minute in range(3):
        store.queries.note("which color", {"mode": "exact"}, [], DAY + minute * MINUTE)
    store.queries.note("which color", {}, [], DAY + 3 * MINUTE)
    assert [(asked.asked, asked.times) for asked in store.queries.unanswered(10)] == [({}, 1), ({"mode": "exact"}, 3)]
    assert len(store.queries.unanswered(1)) == 1
    put(store, "a", "text")
    store.queries.note("which color", {}, ["a"], DAY + 4 * MINUTE)
    assert [asked.asked for asked in store.queries.unanswered(10)] == [{"mode": "exact"}]


def test_the_latest_questions_of_a_project_are_listed_once_each(store: Store) -> None:
    for minute, (query, project) in enumerate([("port", "api"), ("color", "web"), ("who", "me/api"), ("port", "api")]):
        store.queries.note(query, {"project": project}, [], DAY + minute * MINUTE)
    store.queries.note("everywhere", {}, [], DAY)
    latest = store.queries.latest(["api", "web"], 10)
    assert [(asked.query, asked.times) for asked in latest] == [("port", 2), ("color", 1)]
    assert latest[0].asked_at == DAY + 3 * MINUTE
    assert [asked.query for asked in store.queries.latest(["api", "me/api"], 1)] == ["port"]
    assert store.queries.latest([], 10) == []


def test_the_questions_that_found_an_episode_go_with_it(store: Store) -> None:
    put(store, "a", "text")
    put(store, "b", "text")
    store.queries.note("of both", {}, ["a", "b"], DAY)
    store.queries.note("of one", {}, ["b"], DAY)
    store.episodes.delete("a")
    assert store.queries.counts() == QueryCounts(1, 1, 0)
    store.queries.note("of one that is gone", {}, ["a", "b"], DAY)
    assert store.queries.counts() == QueryCounts(1, 1, 0)
    store.queries.clear()
    assert store.queries.counts() == QueryCounts(0, 0, 0)
    assert not store.queries.use("b", DAY)


def test_what_is_remembered_is_bounded_in_number_and_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "QUERIES_KEPT", 3)
    for number in range(5):
        store.queries.note(f"q{number}", {}, [], DAY + number * MINUTE)
    assert [asked.query for asked in store.queries.unanswered(10)] == ["q4", "q3", "q2"]
    store.queries.note("later", {}, [], DAY + 3 * MINUTE + QUERY_EXPIRES)
    assert [asked.query for asked in store.queries.unanswered(10)] == ["later", "q4", "q3"]
    store.queries.note("much later", {}, [], DAY + 3 * QUERY_EXPIRES)
    assert [asked.query for asked in store.queries.unanswered(10)] == ["much later"]


def test_questions_are_listed_and_removed_by_number(store: Store) -> None:
    for minute, query in enumerate(["one", "two", "one"]):
        store.queries.note(query, {"project": "api"}, [], DAY + minute * MINUTE)
    every = store.queries.every()
    assert [asked.query for asked in every.values()] == ["one", "two", "one"]
    assert next(iter(every.values())) == AskedQuery("one", {"project": "api"}, DAY, 1)
    store.queries.remove([number for number, asked in every.items() if asked.query == "one"])
    assert [asked.query for asked in store.queries.every().values()] == ["two"]
    store.queries.remove([])
    assert store.queries.counts().queries == 1
