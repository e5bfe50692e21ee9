"""What a question names beside a time, and which of it is a compaction."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.events import Event, around, event_in
from anamnesis_pipeline.search.levels import measure_level
from anamnesis_pipeline.search.profiles import Profile
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.time_expressions import Relation
from anamnesis_tests.support.searched_memory import SPACE, START, Memory, embed_query

WHEN = datetime(2026, 3, 4, 12, tzinfo=UTC)

EVENTS = """
what did we do right after the migration | the migration
what was agreed before we moved to Kubernetes? | we moved to Kubernetes
what did we do after the upgrade of the parser | the upgrade of the parser
what changed just before the outage, and why | the outage
which tests failed during the release | the release
After the rename of the package, what broke? | the rename of the package
After the change of licence we ported what | the change of licence
After switching to uv what did we have to change | switching to uv
who was asked prior to the rollout | the rollout
what was committed right after its first push | its first push
which checks failed once the flag was on? | the flag was on
why did all workers restart at once after the deploy | the deploy
what did it log before and after the migration | the migration
what was decided following the review of the parser | the review of the parser
what did we drop as soon as the tests passed | the tests passed
"""


NO_EVENTS = """
what does the hook do before each run
run the linter before you commit
what did we decide after all
it failed after 5 retries
what happened after 5 March
what was done before last week
what was done after March
what happens after the token expires
we stopped after a while, why
named after the fact
what did it log before and after
after that we stopped, why was it
flaky tests are retried twice before a build fails
what goes into the event that is sent after someone marked text
which jobs ran once a week
why was it sent more than once to customers
did we once decide to use Redis
we once had a bug in the parser, what was it
why did it take a while to build the index
why did the while loop hang
why was the following test skipped
when did we move the database
which hook was called before every compaction of the context
when was the session compacted
what has changed since the migration
which services were down after a reboot
what was lost after a reboot within two days
what happened after a restart of the server
"""


@pytest.mark.parametrize("line", EVENTS.strip().splitlines())
def test_a_question_around_an_event_names_it(line: str) -> None:
    question, words = (cell.strip() for cell in line.split("|"))
    event = event_in(question)
    assert event is not None
    assert event.words == words


@pytest.mark.parametrize("question", NO_EVENTS.strip().splitlines())
def test_what_always_holds_or_is_a_time_is_no_event(question: str) -> None:
    assert event_in(question) is None


@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    event_in(text)
    event_in(f"what did we do after {text}")


@pytest.mark.parametrize("text", ["after " * 60, "before and " * 5_000, "once the " * 5_000, "x" * 1_000_000])
def test_a_long_text_costs_next_to_nothing(text: str) -> None:
    started = time.process_time()
    for _ in range(5):
        event_in(text)
    assert time.process_time() - started < 2, "no rule looks at a text again and again"


COMPACTIONS = """
the compaction                              | the last
compaction                                  | the last
the last compaction                         | the last
the auto-compact                            | the last
/compact                                    | the last
the context was compacted                   | the last
the context window got compacted            | the last
this session was compacted                  | the last
you compacted the conversation              | the last
Claude compacted the conversation           | the last
the compaction of the session on billing    | one
the session on annotations was compacted    | one
the compaction of the index                 | none
we compacted the database                   | none
the session table was compacted             | none
the index compaction in the chat service    | none
the session on compact discs                | none
"""


@pytest.mark.parametrize("line", COMPACTIONS.strip().splitlines())
def test_a_compaction_is_one_of_a_conversation_and_without_a_name_the_last(line: str) -> None:
    words, which = (cell.strip() for cell in line.split("|"))
    event = Event(words, Relation.AFTER)
    assert (event.is_compaction, event.is_compaction and event.is_the_last) == (which != "none", which == "the last")


AROUND_THEM = """
what did we do right after the migration?                     | -720 | 720
what did we do right after the compaction?                    | 0    | 10
what were we doing before the context was compacted?          | -10  | 0
what did I ask for before you compacted the conversation      | -10  | 0
what got lost during the compaction?                          | -10  | 10
what were we looking at when the context got compacted        | -10  | 10
what have we done since the compaction?                       | 0    | -
what do you remember from before the compaction?              | -10  | 0
"""


@pytest.mark.parametrize("line", AROUND_THEM.strip().splitlines())
def test_what_is_around_an_event(line: str) -> None:
    question, since, until = (cell.strip() for cell in line.split("|"))
    event = event_in(question)
    assert event is not None
    found = around(event, WHEN, "s")
    assert found.since == WHEN + timedelta(minutes=int(since))
    assert found.until == (None if until == "-" else WHEN + timedelta(minutes=int(until)))
    assert (found.words, found.session_id) == (event.words, "s" if event.is_compaction else "")


@pytest.mark.parametrize("when", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_an_event_at_the_end_of_time_is_surrounded_too(when: datetime) -> None:
    found = around(Event("the move", Relation.AFTER), when)
    assert found.since is not None
    assert found.until is not None
    assert found.since < found.until


def session(filled: Memory, name: str, hours: int, topic: str, **fields: str) -> None:
    """A session that was compacted an hour after it began, and went on."""
    begun = START + timedelta(hours=hours)
    for minutes, text, kind in (
        (0, f"Started on the {topic} and its tests", "exchange"),
        (55, f"Looked for what fails in {topic}", "exchange"),
        (58, f"Your task is to sum up the session on {topic}.", "compact_summary"),
        (60, f"This session is continued from one on {topic} that ran out of room.", "compact_summary"),
        (61, f"Went on with the tests of {topic}", "exchange"),
        (120, f"All tests of {topic} are done", "exchange"),
    ):
        at = begun + timedelta(minutes=minutes)
        filled.add(text, episode_id=f"{name}-{minutes}", session_id=name, timestamp=at, kind=kind, **fields)


@pytest.fixture
def compacted(memory: Memory) -> Memory:
    """Two sessions that were compacted; beside the second one somebody works on something else."""
    session(memory, "one", 1, "billing")
    session(memory, "two", 50, "parser")
    at = START + timedelta(hours=51, minutes=2)
    memory.add("The tests of another one, right after", episode_id="other", session_id="three", timestamp=at)
    return memory


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("what did we do with the tests right after the compaction?", "two-61"),
        ("what were we looking for before the context got compacted?", "two-55"),
        ("which tests did we work on once the session on billing was compacted?", "one-61"),
    ],
)
def test_what_is_beside_a_compaction_precedes_its_summary(compacted: Memory, question: str, first: str) -> None:
    found = compacted.ids(question, top_k=10)
    assert found[0] == first
    assert not {"one-58", "one-60", "two-58", "two-60"} & {*found}


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("what did we do right after the compaction?", ["two-61"]),
        ("what were we doing before the compaction?", ["two-55"]),
        ("what have we done since the compaction?", ["two-61", "two-120"]),
        ("What happened once the session on billing had been compacted?", ["one-61"]),
        ("what did we do on 3 January 2026?", ["two-0", "two-55", "two-61", "two-120", "other"]),
        ("what did we do in March 2026?", []),
    ],
)
def test_who_asks_for_nothing_but_a_time_gets_what_is_of_it(compacted: Memory, question: str, found: list[str]) -> None:
    measure_level(compacted.store, SPACE, embed_query)
    assert sorted(compacted.ids(question, top_k=10, fold=False)) == sorted(found)


def test_the_filters_of_the_answer_are_none_of_the_compaction(compacted: Memory) -> None:
    question = "which tests did we work on right after the compaction?"
    assert compacted.ids(question, where=EpisodeFilter(kinds=("exchange",)))[0] == "two-61"
    named = EpisodeFilter(projects=("acme/web",))
    session(compacted, "web", 80, "menu", project="acme/web")
    assert compacted.ids("what did we do right after the compaction?", where=named) == ["web-61"]
    assert compacted.ids("what did we do right after the compaction?", where=EpisodeFilter(projects=("acme/api",))) == [
        "two-61"
    ]


def test_a_compaction_of_a_private_project_is_none_for_who_does_not_name_it(compacted: Memory) -> None:
    session(compacted, "secret", 80, "menu", project="acme/secret")
    compacted.engine = Engine(compacted.store, embed_query, private=lambda: Private(projects=("acme/secret",)))
    assert compacted.ids("what did we do right after the compaction?") == ["two-61"]
    named = EpisodeFilter(projects=("acme/secret",))
    assert compacted.ids("what did we do right after the compaction?", where=named) == ["secret-61"]


def test_without_a_compaction_the_question_is_answered_all_the_same(memory: Memory) -> None:
    kept = memory.add("We looked for what fails")
    assert memory.ids("what were we looking for before the compaction?") == [kept]
    assert memory.ids("what were we looking for before the chat was compacted?") == [kept]


def test_the_words_of_an_event_are_no_known_words(memory: Memory) -> None:
    for n in range(12):
        memory.add(f"The upload worker of host {n} retries five times with backoff")
    measure_level(memory.store, SPACE, embed_query)
    question = "What broke after the upload worker of a host retries five times with violin concerto?"
    asked, plain = (memory.ask(question, explain=True, profile=each) for each in (Profile(), Profile(boosts=False)))
    assert asked.explanation is not None
    assert plain.explanation is not None
    assert asked.explanation["time"] is not None
    assert asked.explanation["confidence"] == plain.explanation["confidence"]
