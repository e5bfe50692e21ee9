"""Times at which nothing can have been said: messages take their neighbours' times, and doctor names the logs."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anamnesis_pipeline.model import said_at
from anamnesis_pipeline.parsing.claude_logs.records import beginning
from anamnesis_pipeline.pipeline.sessions import odd_times, renew_odd_times
from anamnesis_pipeline.services.store_checks import clock
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import START, Log, parse

ODD = [
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
    "1970-01-01T00:00:00Z",
    "12026-01-01T00:00:00Z",
    "yesterday",
    1_786_698_001_120,
]


def times(lines: list[str]) -> list[datetime | None]:
    return [segment.timestamp for part in parse(lines) for segment in part.segments]


@pytest.mark.parametrize("odd", ODD)
def test_message_with_an_odd_time_takes_its_neighbours(odd: Any) -> None:
    log = Log()
    log.user("first", timestamp=odd)
    log.user("second")
    log.user("third", timestamp=odd)
    log.user("fourth")
    second, fourth = START + timedelta(minutes=1), START + timedelta(minutes=2)
    assert times(log.lines) == [second, second, second, fourth]


def test_odd_times_are_no_pause_and_no_beginning() -> None:
    log = Log().talk("question")
    log.assistant({"type": "text", "text": "answer"}, timestamp="9999-12-31T23:59:59Z")
    log.say("more")
    assert len(parse(log.lines)) == 1
    lines = [json.dumps({"type": "user", "timestamp": odd}) for odd in ("0001-01-01T00:00:00Z", "2026-01-01T00:00:00Z")]
    assert beginning(lines).at == "2026-01-01T00:00:00Z"


def test_time_of_another_session_is_no_neighbour() -> None:
    one, two = Log("one", "/home/dev/open"), Log("two", "/home/dev/payroll")
    one.user("first", uuid="u1")
    two.minute = 600
    two.user("second", uuid="u2", timestamp="0001-01-01T00:00:00Z")
    two.user("third", uuid="u3")
    assert times([*one.lines, *two.lines])[1:] == [START + timedelta(minutes=601)] * 2


def test_odd_times_are_told_with_log_line_and_text(home: Ingested) -> None:
    assert clock(home.store).note == ""
    log = Log().talk("first")
    for number in range(7):
        log.user(f"odd {number}", timestamp="0001-01-01T00:00:00Z")
    home.write(log.lines)
    typed = ['{"display":"typed","timestamp":-62135596800000}', '{"display":"then","timestamp":1786698001120}']
    home.take(typed, "history.jsonl")
    assert all(episode.timestamp.year == 2026 for episode in home.episodes())
    found = odd_times(home.store.settings)
    assert (found.count, len(found.examples)) == (8, 5)
    assert ":2 '0001-01-01T00:00:00Z'" in clock(home.store).note
    assert "0001-01-01" in home.archived()[1], "the archive keeps what was written"


def test_odd_times_of_an_earlier_version_are_written_again(home: Ingested, store: Store) -> None:
    log = Log().talk("first")
    home.take(log.lines)
    (episode,) = home.episodes()
    passages = [stored.passage for stored in store.episodes.passages_of(episode.episode_id)]
    store.episodes.put([(replace(episode, timestamp=datetime.max.replace(tzinfo=UTC)), passages)])
    assert home.episodes()[0].timestamp.year == 9999
    renew_odd_times(store)
    home.publish()
    assert [each.timestamp for each in home.episodes()] == [episode.timestamp]


@pytest.mark.parametrize("when", [datetime.min, datetime.max, datetime.min.replace(tzinfo=UTC), None])
def test_time_that_cannot_be_is_none(when: datetime | None) -> None:
    assert said_at(when) is None
    assert said_at(START) == START
