"""Sessions are consolidated: what the newest says in full is hidden behind it, and nothing else is."""

import numpy as np
import pytest

from anamnesis_pipeline.model import Source, Space, Where
from anamnesis_pipeline.steps import consolidation
from anamnesis_pipeline.steps.consolidation import (
    LAST_RUN,
    ConsolidationReport,
    Spoken,
    consolidate_sessions,
    newest_of_equals,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.conftest import OpenStore
from anamnesis_tests.steps.spaces import DIM, embed_all
from anamnesis_tests.store.samples import put, random_units, unit

SPACE = Space("hashing", f"hashing-{DIM}", DIM)
LOGS = Source("mac--api--00000000", "mac", "/logs", "api")
FIRST = "user: why does the webhook charge twice?"
GROWN = f"{FIRST} claude: the retry sends no key."
WHOLE = f"{GROWN} claude: fixed in billing/retry.py, 14 tests pass."
OTHER = "user: and write a release note for the billing team, please"


@pytest.fixture
def logs(store: Store) -> Store:
    store.spaces.put(SPACE)
    store.spaces.activate(SPACE.key)
    store.files.put_sources([LOGS])
    return store


def say(store: Store, *texts: str, session: str = "s", source: str = LOGS.key, first: int = 0) -> list[str]:
    """Episodes of a session, one passage for each sentence of a speaker; embedded."""
    names = [f"{session}-{source}-{first + n}" for n in range(len(texts))]
    for minute, (name, text) in enumerate(zip(names, texts, strict=True), first):
        said = text.replace(" claude:", "|claude:").split("|")
        put(store, name, *said, minute=minute, source=source, session_id=session, raw_exchange=text)
    embed_all(store, SPACE, [source])
    return names


def run(store: Store) -> ConsolidationReport:
    return consolidate_sessions(store, 0.95)


def visible(store: Store) -> set[str]:
    return {episode.episode_id for episode in store.episodes.page(Where(), 100).items}


def test_snapshots_of_one_exchange_collapse_to_the_newest(logs: Store) -> None:
    first, grown, other, whole = say(logs, FIRST, GROWN, OTHER, WHOLE)
    report = run(logs)
    assert (report.sessions, report.episodes, report.superseded, report.waiting) == (1, 4, 2, 0)
    assert visible(logs) == {other, whole}
    hidden = logs.episodes.get([first, grown])
    assert {episode.superseded_by for episode in hidden.values()} == {whole}
    assert all(episode.superseded_at for episode in hidden.values())
    assert logs.settings.get(LAST_RUN)["superseded"] == 2


def test_the_same_in_another_session_or_by_a_client_stays(logs: Store) -> None:
    say(logs, FIRST)
    say(logs, FIRST, session="another")
    say(logs, FIRST, FIRST, source="direct")
    assert run(logs).superseded == 0


def test_a_run_costs_what_changed_and_a_second_one_nothing(logs: Store, open_store: OpenStore) -> None:
    say(logs, FIRST, GROWN)
    say(logs, OTHER, session="another")
    assert run(logs).sessions == 2
    assert (run(open_store()).sessions, run(logs).episodes) == (0, 0)
    anew = consolidate_sessions(logs, 0.9)
    assert (anew.sessions, anew.superseded, anew.revived) == (2, 0, 0), "another threshold looks at all"
    (new,) = say(logs, WHOLE, first=5)
    again = consolidate_sessions(logs, 0.9)
    assert (again.sessions, again.superseded) == (1, 2)  # the one behind GROWN is behind the new one, too
    assert new in visible(logs)


def test_what_says_something_of_its_own_again_comes_back(logs: Store) -> None:
    first, _ = say(logs, FIRST, WHOLE)
    run(logs)
    put(logs, first, FIRST, "a thought of its own", source=LOGS.key, session_id="s", raw_exchange=f"{FIRST} a thought")
    assert first not in visible(logs)  # until it is looked at
    embed_all(logs, SPACE, [LOGS.key])
    assert run(logs).revived == 1
    assert first in visible(logs)


def test_without_a_space_nothing_is_done_and_it_says_so(store: Store) -> None:
    put(store, "a", "text", source=LOGS.key, session_id="s")
    report = run(store)
    assert (report.waiting, report.superseded) == (1, 0)
    assert "no space" in report.problem


def test_a_run_that_dies_leaves_the_rest_to_the_next(
    logs: Store, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session in "abc":
        say(logs, FIRST, WHOLE, session=session)
    settle, calls = logs.consolidation.settle, []

    def dying(session: object, canonical_of: object) -> object:
        calls.append(session)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return settle(session, canonical_of)  # type: ignore[arg-type]

    monkeypatch.setattr(logs.consolidation, "settle", dying)
    with pytest.raises(KeyboardInterrupt):
        run(logs)
    report = run(open_store())
    assert (report.sessions, report.superseded) == (2, 2)


def test_a_long_session_is_compared_in_groups(logs: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consolidation, "GROUP_MOST", 2)
    names = say(logs, FIRST, WHOLE, FIRST, WHOLE)
    assert run(logs).superseded == 2
    assert visible(logs) == {names[1], names[3]}


# --- the rule --------------------------------------------------------------------------------------------


def spoken(name: str, words: str, *vectors: np.ndarray, kind: str = "exchange") -> Spoken:
    return Spoken(name, kind, frozenset(words.split()), np.stack(vectors))


NEAR, FAR = unit(1, 0.1, 0), unit(1, 1, 0)
X, Y = unit(1, 0, 0), unit(0, 0, 1)


@pytest.mark.parametrize(
    ("newer", "same"),
    [
        (spoken("b", "retries 3 now", X), True),
        (spoken("b", "retries 3 now", NEAR, Y), True),
        (spoken("b", "retries 3 now", FAR), False),
        (spoken("b", "retries 5 now", X), False),
        (spoken("b", "retries 3", X, kind="record"), False),
    ],
    ids=["the same", "more", "far away", "another number", "another kind"],
)
def test_an_episode_is_the_same_as_a_later_one_that_says_it_all(newer: Spoken, same: bool) -> None:
    found = newest_of_equals([spoken("a", "retries 3", X), newer], 0.95)
    assert found == {"a": "b" if same else None, "b": None}
    assert newest_of_equals([spoken("a", "retries 3", X, Y), spoken("b", "retries 3", X)], 0.95)["a"] is None


def test_the_newest_stands_for_all_of_a_chain() -> None:
    chain = [spoken(name, "w", X) for name in "abcd"]
    assert newest_of_equals(chain, 0.95) == {"a": "d", "b": "d", "c": "d", "d": None}


def test_five_hundred_episodes_that_differ_all_stay() -> None:
    vectors = random_units(500, 64)
    episodes = [Spoken(str(n), "exchange", frozenset({"w"}), vectors[n : n + 1]) for n in range(500)]
    assert set(newest_of_equals(episodes, 0.95).values()) == {None}
