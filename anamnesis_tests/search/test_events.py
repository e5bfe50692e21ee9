"""What a question names beside a time, and which of it is a compaction."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.search.events import Event, around, event_in
from anamnesis_pipeline.search.time_expressions import Relation
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.search.memory import START, Memory

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
why was it sent more than once in March
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


@pytest.mark.parametrize(
    ("words", "compaction"),
    [
        ("the compaction", True),
        ("compacting", True),
        ("the context was compacted", True),
        ("the compaction of the session on billing", True),
        ("the compaction of the index", False),
        ("we compacted the database", False),
        ("the session on compact discs", False),
    ],
)
def test_a_compaction_is_one_of_a_conversation(words: str, compaction: bool) -> None:
    assert Event(words, Relation.AFTER).is_compaction is compaction


@pytest.mark.parametrize(
    ("question", "since_min", "until_min"),
    [
        ("what did we do right after the migration?", -720, 720),
        ("what did we do right after the compaction?", 0, 10),
        ("what were we doing before the context was compacted?", -10, 0),
        ("what got lost during the compaction?", -10, 10),
    ],
)
def test_what_is_around_an_event(question: str, since_min: int, until_min: int) -> None:
    event = event_in(question)
    assert event is not None
    found = around(event, WHEN)
    assert (found.since, found.until) == (WHEN + timedelta(minutes=since_min), WHEN + timedelta(minutes=until_min))
    assert found.words == event.words


@pytest.fixture
def memory(store: Store) -> Memory:
    """Two sessions that were compacted, each a while after it began, and went on."""
    filled = Memory(store)
    for session, (hours, topic) in {"one": (1, "billing"), "two": (50, "parser")}.items():
        begun = START + timedelta(hours=hours)
        for minutes, text, kind in (
            (0, f"Started on the {topic} and its tests", "exchange"),
            (55, f"Looked for what fails in {topic}", "exchange"),
            (60, f"This session is continued from one on {topic} that ran out of room.", "compact_summary"),
            (61, f"Went on with the tests of {topic}", "exchange"),
            (120, f"All tests of {topic} are done", "exchange"),
        ):
            at = begun + timedelta(minutes=minutes)
            filled.add(text, episode_id=f"{session}-{minutes}", session_id=session, timestamp=at, kind=kind)
    return filled


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("what did we do with the tests right after the compaction?", "two-61"),
        ("what were we looking for before the compaction?", "two-55"),
        ("which tests did we work on once the session on billing was compacted?", "one-61"),
    ],
)
def test_what_is_beside_a_compaction_comes_first_and_its_summary_stays_hidden(
    memory: Memory, question: str, first: str
) -> None:
    found = memory.ids(question, top_k=10)
    assert found[0] == first
    assert not {"one-60", "two-60"} & {*found}


def test_without_a_compaction_the_question_is_answered_all_the_same(store: Store) -> None:
    memory = Memory(store)
    kept = memory.add("We looked for what fails")
    assert memory.ids("what were we looking for before the compaction?") == [kept]
    assert memory.ids("what were we looking for before the chat was compacted?") == [kept]
