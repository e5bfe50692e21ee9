"""From parts to summaries and episodes, each step on a real store."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import RECORD_KIND, Episode, EpisodeFilter, Part, RecordType, Summary, TypedRecord
from anamnesis_pipeline.pipeline.publish import episode_of, publish_source, record_id
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.llms import SOURCE, START, parsed, part
from anamnesis_tests.support.tampering import make_of_nothing

PIECES = minilm_pieces()
IN_SHORT = Summary("p", "h", "s", "m")


def publish(store: Store) -> tuple[int, int, int]:
    put = publish_source(store, SOURCE, PIECES, lambda part: f"so far: {part.prompt}").put
    return put.created, put.updated, put.unchanged


def test_an_open_part_is_searchable_and_gets_its_summary(store: Store) -> None:
    parsed(store, part(1, "Why is the zeppelin late?", closed=False))
    assert publish(store) == (1, 0, 0)
    (episode,) = store.episodes.page(EpisodeFilter(), 5).items
    assert episode.summary == "so far: Why is the zeppelin late?"
    parsed(store, part(1, "Why is the zeppelin late?", "Because of the wind."))
    whole = part(1, "Why is the zeppelin late?", "Because of the wind.")
    store.summaries.put_summaries([Summary(whole.part_id, whole.content_hash, "The wind made it late.", "m")])
    assert publish(store) == (0, 1, 0)
    (grown,) = store.episodes.page(EpisodeFilter(), 5).items
    assert (grown.episode_id, grown.summary) == (episode.episode_id, "The wind made it late.")
    assert publish(store) == (0, 0, 0), "a second run has nothing to do"


def test_an_episode_holds_its_text_with_speakers_and_its_worth() -> None:
    made = episode_of(part(1, "why?", "because"), SOURCE, IN_SHORT)
    assert (made.episode_id, made.instance) == (part(1, "why?").part_id, "mac")
    assert made.timestamp == START + timedelta(minutes=10)
    assert (made.message_ids, made.message_keys) == (("u1-0", "u1-1"), ("k1-0", "k1-1"))
    assert made.path.endswith("acme/a.jsonl")
    assert made.raw_exchange == "[User]\nwhy?\n\n[Claude]\nbecause"
    assert made.metadata["ordinal"] == 1
    assert "agent_id" not in made.metadata
    assert made.tags == ()
    failed = episode_of(part(1, "why?", "An error: it failed."), SOURCE, IN_SHORT)
    assert (failed.metadata["value"], failed.metadata["value_signals"]) == (2.0, {"errors": 2.0})
    corrected = replace(part(1, "No, that is not what I asked for.", "Done again."), lead="I have added the page.")
    assert episode_of(corrected, SOURCE, replace(IN_SHORT, tags=("pages",))).tags == ("correction", "pages")


def test_a_continued_message_says_so_and_no_time_is_old(store: Store) -> None:
    whole = part(1, "why?")
    (segment,) = whole.segments
    later = replace(whole, segments=(replace(segment, start=500, timestamp=None, uuid=""),))
    made = episode_of(later, SOURCE, IN_SHORT)
    assert made.raw_exchange == "[User, continued]\nwhy?"
    assert (made.timestamp.year, made.message_ids) == (1970, ())


def records(store: Store) -> list[Episode]:
    return sorted(store.episodes.page(EpisodeFilter(kinds=(RECORD_KIND,)), 10).items, key=lambda e: e.summary)


def summarized(store: Store, of: Part, *found: TypedRecord, **fields: Any) -> None:
    """Write a summary with these records, and publish."""
    store.summaries.put_summaries([Summary(of.part_id, of.content_hash, "s", "m", ("wal",), found, **fields)])
    publish(store)


def test_typed_records_become_episodes_of_their_own_messages(store: Store) -> None:
    whole = part(1, "Which journal?", "WAL, since readers then go on.")
    parsed(store, whole)
    summarized(store, whole, TypedRecord(RecordType.DECISION, "The journal is WAL.", "Readers go on.", ("u1-1",)))
    (record,) = records(store)
    assert (record.episode_id, record.summary) == (record_id(whole.part_id, 0), "The journal is WAL.")
    assert record.raw_exchange == "The journal is WAL.\n\nWhy: Readers go on."
    assert (record.tags, record.message_ids, record.message_keys) == (("decision", "wal"), ("u1-1",), ())
    assert record.timestamp == START + timedelta(minutes=11), "when it was said"
    assert record.metadata == {"type": "decision", "why": "Readers go on.", "part_id": whole.part_id}
    (passage,) = store.episodes.passages_of(record.episode_id)
    assert passage.passage.text == "The journal is WAL. Why: Readers go on."
    assert passage.passage.message_ids == ("u1-1",)
    exchange = store.episodes.get([whole.part_id])[whole.part_id]
    assert exchange.tags == ("wal",)


def test_records_go_and_come_with_newer_summaries(store: Store) -> None:
    whole = part(1, "Which journal?", "WAL.")
    parsed(store, whole)
    one, two = TypedRecord(RecordType.FACT, "One."), TypedRecord(RecordType.FACT, "Two.")
    summarized(store, whole, one, two)
    summarized(store, whole, one)
    assert [record.summary for record in records(store)] == ["One."]
    summarized(store, whole, one, two)
    assert [record.summary for record in records(store)] == ["One.", "Two."]
    summarized(store, whole, skip=True)
    assert records(store) == []
    assert store.episodes.get([whole.part_id])[whole.part_id].metadata["skip"] is True


def test_a_deleted_record_stays_away_and_takes_nothing_with_it(store: Store) -> None:
    whole = part(1, "Which journal?", "WAL.")
    parsed(store, whole)
    summarized(store, whole, TypedRecord(RecordType.FACT, "One.", "", ("u1-1",)))
    store.episodes.delete(record_id(whole.part_id, 0))
    summarized(store, whole, TypedRecord(RecordType.FACT, "One again.", "", ("u1-1",)))
    assert records(store) == []
    grown = part(1, "Which journal?", "WAL.", "And DELETE for others.")
    parsed(store, grown)
    assert publish(store) == (0, 1, 0)


def test_a_part_that_cannot_be_published_holds_nothing_up(store: Store, place: tuple[str, Path]) -> None:
    odd = part(2, "Which journal?", closed=False)
    parsed(store, odd, part(1, "Why is the zeppelin late?", closed=False))
    make_of_nothing(place, odd.part_id)
    asked: list[Part] = []

    def headline(of: Part) -> str:
        asked.append(of)
        assert len(asked) < 10, "it goes round and round"
        return of.prompt

    report = publish_source(store, SOURCE, PIECES, headline)
    assert (report.put.created, odd.part_id in report.problem, "doctor" in report.problem) == (1, True, True)
    assert [e.summary for e in store.episodes.page(EpisodeFilter(), 5).items] == ["Why is the zeppelin late?"]
    parsed(store, replace(odd, lead="Before: a talk of journals."))
    assert publish_source(store, SOURCE, PIECES, headline).problem == "", "written anew it fits"


def test_a_part_written_meanwhile_is_published_as_it_is_then(store: Store) -> None:
    first = part(1, "Why is the zeppelin late?", closed=False)
    parsed(store, first)
    versions = [replace(first, lead=f"Before: {n}.") for n in range(3)]

    def headline(of: Part) -> str:
        if versions:
            parsed(store, versions.pop())
        return of.prompt

    report = publish_source(store, SOURCE, PIECES, headline)
    assert (report.put.created, report.problem) == (1, "")
