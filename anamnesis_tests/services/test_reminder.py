"""Proposals that wait are said at a session's start: once a day per machine, and nothing of what is private."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import MEMORY_BEGINS, Status
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.search.token_budget import count_tokens
from anamnesis_pipeline.services.context import ContextMaker, ContextRequest
from anamnesis_pipeline.services.proposals import LAST_RUN, waiting_of
from anamnesis_pipeline.services.reminder import MAX_MACHINES, REMINDED, Reminder, knowledge_body, waiting_text
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.knowledge_model import Change, Evidence, Kind, Proposal, State, StatusEdit
from anamnesis_tests.support.samples import at_once, put
from anamnesis_tests.support.topics import put_pinned

MADE = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PAGE = "http://127.0.0.1:3010/dashboard/review"


def propose(store: Store, name: str, project: str = "shop", at: datetime = MADE) -> Proposal:
    put(store, name, "we deploy", raw_exchange="we deploy", project=project)
    change = Change(statuses=(StatusEdit(name, Status.CHALLENGED),))
    made = Proposal(Kind.DOUBT, project, name, "deploys", change, (Evidence(name, "we deploy"),), 0.9, "test", at)
    store.proposals.propose(made)
    return made


def reminder(store: Store, private: Private = NOTHING_PRIVATE) -> Reminder:
    return Reminder(store, private, PAGE)


def test_reminder_waits_a_day(store: Store) -> None:
    propose(store, "a")
    propose(store, "b", at=MADE + DAY / 2)
    assert reminder(store).due("box", MADE + DAY - timedelta(seconds=1)) == ""
    assert reminder(store).due("box", MADE + DAY) == f"2 proposals wait for the user: {PAGE}, or anamnesis dream list"


def test_reminder_comes_once_a_day_per_machine(store: Store) -> None:
    made = propose(store, "a")
    now = MADE + 2 * DAY
    assert "1 proposal waits" in reminder(store).due("box", now)
    assert reminder(store).due("box", now + DAY - timedelta(seconds=1)) == ""
    assert reminder(store).due("laptop", now)
    assert reminder(store).due("box", now + DAY)
    store.proposals.close(made.proposal_id, State.REJECTED, "ann", now, "")
    assert reminder(store).due("box", now + 3 * DAY) == ""


def test_reminder_of_two_starts_at_once_comes_once(store: Store) -> None:
    propose(store, "a")
    told = at_once([lambda: reminder(store).due("box", MADE + 2 * DAY)] * 4)
    assert sum(map(bool, told)) == 1


def test_reminder_remembers_a_bounded_number_of_machines(store: Store) -> None:
    propose(store, "a")
    for number in range(MAX_MACHINES + 5):
        assert reminder(store).due(f"box{number}", MADE + 2 * DAY + timedelta(seconds=number))
    assert len(store.settings.get(REMINDED)) == MAX_MACHINES


def test_reminder_counts_nothing_private(store: Store) -> None:
    propose(store, "a", "secret")
    private = Private(projects=("secret",))
    assert reminder(store, private).due("box", MADE + 2 * DAY) == ""
    propose(store, "b")
    assert "1 proposal waits" in reminder(store, private).due("box", MADE + 2 * DAY)
    assert waiting_of(store, NOTHING_PRIVATE).open == 2


def test_start_says_what_waits_within_its_budget(store: Store) -> None:
    propose(store, "a")
    maker = ContextMaker(store, Engine(store, None), minilm_pieces(), "box", reminder=reminder(store))
    start, now = ContextRequest(project="other", session_id="s1"), MADE + 2 * DAY
    small = maker.make(replace(start, max_tokens=150), now)
    assert small.text == ""
    alone = maker.make(start, now)
    assert alone.text.startswith(MEMORY_BEGINS)
    assert (PAGE in alone.text, alone.episodes) == (True, ())
    assert alone.tokens == count_tokens(alone.text, minilm_pieces())
    assert maker.make(start, now).text == ""
    for number in range(20):
        put_pinned(store, f"p{number}", f"Preference {number} is {'ab' * number} of many words. " * 9, project="shop")
    beside = maker.make(ContextRequest(project="shop", session_id="s2", max_tokens=300), now + DAY)
    assert beside.text.splitlines()[-2].startswith("1 proposal waits")
    assert "Preference" in beside.text
    assert beside.tokens <= 300


def test_prompt_is_not_told_what_waits(store: Store) -> None:
    propose(store, "a")
    maker = ContextMaker(store, Engine(store, None), minilm_pieces(), "box", reminder=reminder(store))
    assert maker.make(ContextRequest(query="why did we deploy twice", session_id="s"), MADE + 2 * DAY).text == ""
    assert store.settings.get(REMINDED) is None


def test_status_says_what_waits_in_days(store: Store) -> None:
    now = MADE + 2.5 * DAY
    assert (
        waiting_text(knowledge_body(waiting_of(store, NOTHING_PRIVATE), now)) == "0 proposals wait; detectors never ran"
    )
    propose(store, "a")
    store.settings.set(LAST_RUN, {"started_at": (MADE + 2 * DAY).isoformat()})
    body = knowledge_body(waiting_of(store, NOTHING_PRIVATE), now)
    assert (body["waiting"], body["oldest_days"], body["dream_days"]) == (1, 2.5, 0.5)
    assert waiting_text(body) == "1 proposal waits, the oldest for 2 days; detectors ran less than a day ago"
