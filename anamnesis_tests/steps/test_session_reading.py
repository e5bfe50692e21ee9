"""Sessions in lists, read from top to bottom, and found like episodes by the beginning of an id."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.errors import EpisodeNotFound, IdAmbiguous, InvalidEpisode
from anamnesis_pipeline.model import SegmentKind, Where
from anamnesis_pipeline.session_model import SessionRecord, to_episode
from anamnesis_pipeline.steps.session_reading import chunk_page, find_session, row_of, session_page, timeline_page
from anamnesis_pipeline.steps.short_ids import find_episode, short_ids, whole_id
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.steps.test_session_summaries import Sessions
from anamnesis_tests.steps.test_sessions import log_of, session
from anamnesis_tests.store.samples import DAY, parsed, part, put, segment

FIRST, SECOND, OTHER = (f"{start}-0000-4000-8000-00000000c0de" for start in ("abcd1111", "abcd2222", "ffff1111"))


BASE = SessionRecord(
    session_id=FIRST,
    session_ids=(FIRST,),
    machine="laptop",
    project="acme/api",
    branch="main",
    title="Why is the build red?",
    prompt="Why is the build red?",
    outcome="A test waited too short.",
    started=DAY,
    ended=DAY + timedelta(hours=1),
    messages=3,
    errors=0,
)


def chunk(store: Store, name: str, minute: float, session_id: str = FIRST, **fields: Any) -> None:
    put(store, name, f"words of {name}", minute=minute, session_id=session_id, kind="exchange", **fields)


def recorded(store: Store, record: SessionRecord = BASE) -> str:
    episode = to_episode(record, "logs")
    store.episodes.put([(episode, [])])
    return episode.episode_id


def test_timeline_has_one_line_a_session_and_all_notes(store: Store) -> None:
    chunk(store, "c1", 0)
    chunk(store, "c2", 10)
    name = recorded(store)
    put(store, "note", "words of a note", minute=30)
    found = timeline_page(store, Where(), 10)
    assert [each.episode_id for each in found.items] == ["note", name]
    assert [each.is_open for each in session_page(store, Where(), 10).items] == [False]


def test_session_without_a_record_stands_first_as_open(store: Store) -> None:
    recorded(store)
    chunk(store, "c1", 0)
    asked = replace(segment("m9", "Measure the slow start", 600), kind=SegmentKind.PROMPT)
    made = part(asked, session_id=OTHER)
    parsed(store, made)
    chunk(store, made.part_id, 600, OTHER)
    (first, second) = timeline_page(store, Where(), 10).items
    row = row_of(first)
    assert row is not None
    assert (first.episode_id, row.session_id, row.is_open, row.revision) == (made.part_id, OTHER, True, 0)
    assert row.title == "Measure the slow start"
    assert second.session_id == FIRST


def test_session_that_goes_on_is_listed_once_as_open(store: Store) -> None:
    recorded(store)
    chunk(store, "later", 90)
    rows = session_page(store, Where(), 10).items
    assert [(row.session_id, row.is_open, row.revision) for row in rows] == [(FIRST, True, 1)]


def test_joined_session_is_closed_by_the_common_record(store: Store) -> None:
    recorded(store, replace(BASE, session_ids=(FIRST, SECOND)))
    chunk(store, "c1", 0)
    chunk(store, "c2", 10, SECOND)
    assert [row.is_open for row in session_page(store, Where(), 10).items] == [False]


def test_joined_session_is_found_by_either_id(store: Store, tmp_path: Path) -> None:
    home = Sessions(store, tmp_path)
    home.write(log_of(1, 2), f"{session(1)}.jsonl")
    home.write(log_of(2), f"{session(2)}.jsonl")
    home.run()
    rows = [find_session(store, session(number), Where()) for number in (1, 2)]
    assert [(row.session_id, row.session_ids) for row in rows] == [(session(1), (session(1), session(2)))] * 2


def test_session_is_found_by_a_unique_beginning(store: Store) -> None:
    recorded(store)
    chunk(store, "c2", 10, SECOND)
    assert find_session(store, FIRST[:8], Where()).session_id == FIRST
    assert find_session(store, SECOND[:5], Where()).revision == 0
    with pytest.raises(IdAmbiguous, match=FIRST):
        find_session(store, FIRST[:4], Where())
    for unknown in (FIRST[:3], "abcd9", "abc%", "\ud800"):
        with pytest.raises(EpisodeNotFound):
            find_session(store, unknown, Where())
    assert store.sessions.beginning_with("abcd", 10) == [FIRST, SECOND]
    assert store.sessions.beginning_with("abcd", 1) == [FIRST]


def test_session_is_read_from_its_beginning_in_pages(store: Store) -> None:
    record = replace(BASE, session_ids=(FIRST, SECOND))
    recorded(store, record)
    for number, session_id in enumerate((FIRST, FIRST, FIRST, SECOND, SECOND)):
        chunk(store, f"c{number}", number, session_id)
    seen, cursor = [], None
    while True:
        page = chunk_page(store, record, Where(), 2, cursor)
        seen.append([each.episode.episode_id for each in page.items])
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    with pytest.raises(InvalidEpisode):
        chunk_page(store, record, Where(), 2, "7:")


# --- short forms of ids ----------------------------------------------------------------------------------

IDS = (
    "48d31a139c6944405ee948d31a139c69",
    "48d31a139c69ffff000048d31a139c69",
    "48d31a",
    "e52b14176ce8990dd6dfe52b14176ce8",
    "ep_20260211_e52b14176ce8",
)


@pytest.fixture
def known(store: Store) -> Store:
    for name in IDS:
        put(store, name, "text")
    return store


def test_short_ids_are_as_short_as_is_unique(known: Store) -> None:
    short = short_ids(known, IDS)
    assert short == {
        IDS[0]: "48d31a139c694440", IDS[1]: "48d31a139c69ffff", IDS[2]: "48d31a", IDS[3]: "e52b14", IDS[4]: IDS[4],
    }  # fmt: skip
    assert [find_episode(known, name).episode_id for name in short.values()] == list(IDS)


def test_an_exact_id_wins_over_longer_ones(known: Store) -> None:
    assert whole_id(known, "48d31a") == "48d31a"


def test_an_ambiguous_beginning_names_two_of_its_ids(known: Store) -> None:
    with pytest.raises(IdAmbiguous, match=f"'48d31a1'.*{IDS[0]} and {IDS[1]}"):
        find_episode(known, "48d31a1")


@pytest.mark.parametrize("text", ["e52", "", "unknown", f"{IDS[3]}0"])
def test_what_begins_no_id_or_is_too_short_is_not_found(known: Store, text: str) -> None:
    assert whole_id(known, text) == text
    with pytest.raises(EpisodeNotFound):
        find_episode(known, text)
