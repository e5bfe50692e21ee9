"""Sessions in lists, read from top to bottom, found by the beginning of an id, and what episodes say of them."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.errors import EpisodeNotFound, IdAmbiguous, InvalidEpisode
from anamnesis_pipeline.model import EpisodeFilter, SegmentKind
from anamnesis_pipeline.parsing.claude_logs.records import KNOWN_TYPES
from anamnesis_pipeline.parsing.text.wording import session_text
from anamnesis_pipeline.pipeline.sessions import MAX_UNKNOWN, continued, latest_session, unknown_records
from anamnesis_pipeline.search.context_items import Item, SourceClass, line_of
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.forget_target import ForgetRequest
from anamnesis_pipeline.services.rendering import episode_body
from anamnesis_pipeline.services.session_reading import chunk_page, find_session, row_of, session_page, timeline_page
from anamnesis_pipeline.services.short_ids import find_episode, short_ids, whole_id
from anamnesis_pipeline.services.store_checks import record_types
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SessionRecord, to_episode
from anamnesis_tests.pipeline.test_session_summaries import Sessions
from anamnesis_tests.support.archived_logs import FOLDER, Home, record, unmasked
from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import SESSION, Log
from anamnesis_tests.support.samples import DAY, parsed, part, put, segment

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


def session(number: int) -> str:
    return f"{number}{SESSION[1:]}"


def log_of(number: int, later: int | None = None, **fields: Any) -> list[str]:
    """One prompt of a session, and where the session goes on."""
    log = Log(session(number), **fields)
    log.user(f"prompt {number}", uuid=f"u{number}")
    if later is not None:
        link = {"type": "continued-in", "sessionId": session(number), "continuedInSessionId": session(later)}
        log.lines.append(json.dumps(link))
    return log.lines


def test_timeline_has_one_line_a_session_and_all_notes(store: Store) -> None:
    chunk(store, "c1", 0)
    chunk(store, "c2", 10)
    name = recorded(store)
    put(store, "note", "words of a note", minute=30)
    found = timeline_page(store, EpisodeFilter(), 10)
    assert [each.episode_id for each in found.items] == ["note", name]
    assert [each.is_open for each in session_page(store, EpisodeFilter(), 10).items] == [False]


def test_session_without_a_record_stands_first_as_open(store: Store) -> None:
    recorded(store)
    chunk(store, "c1", 0)
    asked = replace(segment("m9", "Measure the slow start", 600), kind=SegmentKind.PROMPT)
    made = part(asked, session_id=OTHER)
    parsed(store, made)
    chunk(store, made.part_id, 600, OTHER)
    (first, second) = timeline_page(store, EpisodeFilter(), 10).items
    row = row_of(first)
    assert (first.episode_id, row.session_id, row.is_open, row.revision) == (made.part_id, OTHER, True, 0)
    assert row.title == "Measure the slow start"
    assert second.session_id == FIRST


def test_session_that_goes_on_is_listed_once_as_open(store: Store) -> None:
    recorded(store)
    chunk(store, "later", 90)
    rows = session_page(store, EpisodeFilter(), 10).items
    assert [(row.session_id, row.is_open, row.revision) for row in rows] == [(FIRST, True, 1)]


def test_joined_session_is_closed_by_the_common_record(store: Store) -> None:
    recorded(store, replace(BASE, session_ids=(FIRST, SECOND)))
    chunk(store, "c1", 0)
    chunk(store, "c2", 10, SECOND)
    assert [row.is_open for row in session_page(store, EpisodeFilter(), 10).items] == [False]


def test_joined_session_is_found_by_either_id(store: Store, tmp_path: Path) -> None:
    home = Sessions(store, tmp_path)
    home.write(log_of(1, 2), f"{session(1)}.jsonl")
    home.write(log_of(2), f"{session(2)}.jsonl")
    home.run()
    rows = [find_session(store, session(number), EpisodeFilter()) for number in (1, 2)]
    assert [(row.session_id, row.session_ids) for row in rows] == [(session(1), (session(1), session(2)))] * 2


def test_session_is_found_by_a_unique_beginning(store: Store) -> None:
    recorded(store)
    chunk(store, "c2", 10, SECOND)
    assert find_session(store, FIRST[:8], EpisodeFilter()).session_id == FIRST
    assert find_session(store, SECOND[:5], EpisodeFilter()).revision == 0
    with pytest.raises(IdAmbiguous, match=FIRST):
        find_session(store, FIRST[:4], EpisodeFilter())
    for unknown in (FIRST[:3], "abcd9", "abc%", "\ud800"):
        with pytest.raises(EpisodeNotFound):
            find_session(store, unknown, EpisodeFilter())
    assert store.sessions.beginning_with("abcd", 10) == [FIRST, SECOND]
    assert store.sessions.beginning_with("abcd", 1) == [FIRST]


def test_session_is_read_from_its_beginning_in_pages(store: Store) -> None:
    record = replace(BASE, session_ids=(FIRST, SECOND))
    recorded(store, record)
    for number, session_id in enumerate((FIRST, FIRST, FIRST, SECOND, SECOND)):
        chunk(store, f"c{number}", number, session_id)
    seen, cursor = [], None
    while True:
        page = chunk_page(store, record, EpisodeFilter(), 2, cursor)
        seen.append([each.episode.episode_id for each in page.items])
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    with pytest.raises(InvalidEpisode):
        chunk_page(store, record, EpisodeFilter(), 2, "7:")


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
        IDS[0]: "48d31a139c694440",
        IDS[1]: "48d31a139c69ffff",
        IDS[2]: "48d31a",
        IDS[3]: "e52b14",
        IDS[4]: IDS[4],
    }
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


# --- what episodes say of their sessions ------------------------------------------------------------------


def said(home: Ingested) -> dict[str, Any]:
    return {episode.raw_exchange[-1]: episode.metadata.get("continued_in") for episode in home.episodes()}


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_session_names_the_one_it_goes_on_in(store: Store, tmp_path: Path, order: tuple[int, ...]) -> None:
    home = Ingested(store, tmp_path)
    for number in order:
        home.write(log_of(number, number + 1 if number < 3 else None), f"{session(number)}.jsonl")
        home.ingest()
    assert said(home) == {"1": session(3), "2": session(3), "3": None}
    first = next(episode for episode in home.episodes() if episode.session_id == session(1))
    assert session_text(episode_body(first, ())["source"]).endswith(f"continued in session {session(3)}")
    assert "continued in session" in line_of(Item(first, "x", SourceClass.USER), "x")


def test_continuation_that_comes_later_reaches_stored_episodes(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path)
    home.write(log_of(1), f"{session(1)}.jsonl")
    home.ingest()
    home.append(log_of(1, 2)[1:], f"{session(1)}.jsonl")
    home.ingest()
    assert said(home) == {"1": session(2)}


def test_links_in_a_circle_end() -> None:
    assert latest_session({"a": "b", "b": "a"}, "a") == "b"
    assert latest_session({}, "a") == "a"


def logs_missing(home: Ingested) -> list[Any]:
    return [episode.metadata.get("session_log") for episode in home.episodes() if episode.kind == "subagent"]


def test_subagent_says_that_its_session_log_is_missing(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path)
    home.write(log_of(1, isSidechain=True, agentId="a1"), f"{session(1)}/subagents/agent-a1.jsonl")
    home.ingest()
    assert logs_missing(home) == ["missing"]
    (agent,) = home.episodes()
    assert session_text(episode_body(agent, ())["source"]).endswith("whose own log is missing")
    main = Log(session(1))
    main.user("the main prompt", uuid="main")
    home.write(main.lines, f"{session(1)}.jsonl")
    home.ingest()
    assert logs_missing(home) == [None]


@pytest.mark.parametrize("name", ["continued-in", "relocated", "bridge-session", "ended-by-model", "started", "failed"])
def test_record_types_of_today_are_known(name: str) -> None:
    assert name in KNOWN_TYPES


def test_unknown_record_types_are_counted_with_their_version(store: Store, tmp_path: Path) -> None:
    home = Ingested(store, tmp_path)
    assert (record_types(store).detail, record_types(store).note) == ("every type of record is known", "")
    unknown = [json.dumps({"type": "zz-future", "payload": 1, "sessionId": SESSION}) for _ in range(3)]
    home.write([*log_of(1, version="2.1.999"), *unknown], f"{session(1)}.jsonl")
    home.ingest()
    home.write([json.dumps({"type": f"of-{n}"}) for n in range(MAX_UNKNOWN + 5)])
    home.ingest()
    found = unknown_records(store.settings)
    assert found["zz-future"] == (3, "2.1.999")
    assert len(found) == MAX_UNKNOWN
    finding = record_types(store)
    assert finding.ok
    assert "'zz-future' (3, last written by Claude Code 2.1.999)" in finding.detail
    assert finding.note
    assert len(home.archived(f"{session(1)}.jsonl")) == 4, "the archive keeps them"


def test_unknown_content_of_records_is_counted_with_its_version(store: Store, tmp_path: Path) -> None:
    home, log = Ingested(store, tmp_path), Log(session(1), version="2.1.998")
    log.user("the question")
    log.record("system", subtype="turn_duration", durationMs=1)
    log.record("attachment", attachment={"type": "hook_success"})
    home.write(log.lines, f"{session(1)}.jsonl")
    home.ingest()
    assert unknown_records(store.settings) == {}
    log.record("system", subtype="zz-note", content="x")
    log.record("attachment", attachment={"type": "zz-file"})
    log.assistant({"type": "zz-block"}, {"type": "zz-block"})
    log.user("later", version="2.1.999")
    home.write(log.lines, f"{session(1)}.jsonl")
    home.ingest()
    wrote = "2.1.998"
    expected = {"system:zz-note": (1, wrote), "attachment:zz-file": (1, wrote), "block:zz-block": (2, wrote)}
    assert unknown_records(store.settings) == expected
    assert "'block:zz-block' (2, last written by Claude Code 2.1.998)" in record_types(store).detail


def test_forgotten_session_leaves_no_id_in_the_settings(tmp_path: Path) -> None:
    home, ids = Home(tmp_path), [session(number) for number in range(4)]
    for number, one in enumerate(ids):
        link = {"type": "continued-in", "sessionId": one, "continuedInSessionId": ids[(number + 1) % 4]}
        odd = record("user", "said at no time", number, one) | {
            "timestamp": "0001-01-01T00:00:00Z",
            "uuid": f"odd-{one}",
        }
        lines = [record("user", f"prompt {number}", number, one), odd, *([link] if number < 3 else [])]
        home.write(lines, f"{FOLDER}/{one}.jsonl")
    agent = record("user", "task", 9, ids[2], isSidechain=True, agentId="a1")
    home.write([agent], f"-home-dev-other/{ids[2]}/subagents/agent-a1.jsonl")
    home.ingest(unmasked)
    forgetter = wiring.open_forgetter(home.settings, home.store)
    (first, *_) = [episode.episode_id for episode in home.episodes() if episode.session_id == ids[2]]
    forgetter.forget(ForgetRequest(ids=(first,)))
    assert latest_session(continued(home.store.settings), ids[0]) == ids[3], "some of the session stays"
    forgetter.forget(ForgetRequest(session_id=ids[2]))
    assert continued(home.store.settings) == {ids[0]: ids[1], ids[1]: ids[3]}
    forgetter.forget(ForgetRequest(session_id=ids[3]))
    assert continued(home.store.settings) == {ids[0]: ids[1]}
    left = {episode.session_id: episode.metadata.get("continued_in") for episode in home.episodes()}
    assert left == {ids[0]: ids[1], ids[1]: None}
    stored = json.dumps(home.store.settings.all())
    assert [one in stored for one in ids] == [True, True, False, False]
    home.close()
