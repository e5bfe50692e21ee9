"""From parts to summaries and episodes, each step on a real store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.model import FileCursor, Part, Segment, SegmentKind, Source, Where, part_id_of
from anamnesis_pipeline.steps.episodes import episode_of, publish_source
from anamnesis_pipeline.steps.summaries import summarize_source
from anamnesis_pipeline.store.base import ParsedChunk, Store

SOURCE = Source("mac--acme--00000000", "mac", "/logs", "acme")
START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
PIECES = minilm_pieces()


def part(number: int, *texts: str, closed: bool = True) -> Part:
    segments = tuple(
        Segment(f"k{number}-{n}", f"u{number}-{n}", (SegmentKind.PROMPT, SegmentKind.STATEMENT)[n > 0], 0, text,
                START + timedelta(hours=number, minutes=n))
        for n, text in enumerate(texts)
    )  # fmt: skip
    return Part(
        part_id_of(segments[0]), SOURCE.key, "a.jsonl", "s1", f"x{number}", number, "exchange", "acme/api", "/w/api",
        texts[0][:80], segments, closed,
    )  # fmt: skip


def parsed(store: Store, *parts: Part) -> None:
    """Write parts as the parser does."""
    store.ingest.put_sources([SOURCE])
    before = store.ingest.cursors(SOURCE.key).get("a.jsonl")
    if before is None:
        store.ingest.commit_crawl(None, FileCursor(SOURCE.key, "a.jsonl", lines=1), None)
        before = store.ingest.cursors(SOURCE.key)["a.jsonl"]
    assert store.ingest.commit_parsed(ParsedChunk(before, replace(before, parsed_lines=1), (), (), parts))


def publish(store: Store) -> tuple[int, int, int]:
    put = publish_source(store, SOURCE, PIECES, lambda part: f"so far: {part.prompt}").put
    return put.created, put.updated, put.unchanged


def test_closed_parts_are_summarized_once_and_again_when_they_change(store: Store) -> None:
    parsed(store, part(1, "one"), part(2, "two", closed=False))
    calls = []

    def summarize(part: Part) -> str:
        calls.append(part.ordinal)
        return f"summary of {part.ordinal}"

    assert summarize_source(store, SOURCE, "m", summarize).written == 1
    assert summarize_source(store, SOURCE, "m", summarize).written == 0
    assert calls == [1], "an open part waits"
    parsed(store, part(1, "one", "and more"))
    assert summarize_source(store, SOURCE, "m", summarize).written == 1


def test_an_open_part_is_searchable_and_becomes_its_summary_when_it_closes(store: Store) -> None:
    parsed(store, part(1, "Why is the zeppelin late?", closed=False))
    assert publish(store) == (1, 0, 0)
    (episode,) = store.episodes.page(Where(), 5).items
    assert episode.summary == "so far: Why is the zeppelin late?"
    parsed(store, part(1, "Why is the zeppelin late?", "Because of the wind."))
    summarize_source(store, SOURCE, "m", lambda part: "The wind made it late.")
    assert publish(store) == (0, 1, 0)
    (grown,) = store.episodes.page(Where(), 5).items
    assert (grown.episode_id, grown.summary) == (episode.episode_id, "The wind made it late.")
    assert publish(store) == (0, 0, 0), "a second run has nothing to do"


def test_an_episode_points_to_its_records_and_holds_its_text_with_speakers(store: Store) -> None:
    made = episode_of(part(1, "why?", "because"), SOURCE, "s")
    assert (made.episode_id, made.timestamp, made.instance) == (
        part(1, "why?").part_id,
        START + timedelta(hours=1),
        "mac",
    )
    assert (made.message_ids, made.message_keys) == (("u1-0", "u1-1"), ("k1-0", "k1-1"))
    assert made.path.endswith("acme/a.jsonl")
    assert made.raw_exchange == "[User]\nwhy?\n\n[Claude]\nbecause"
    assert made.metadata["ordinal"] == 1
    assert "agent_id" not in made.metadata


def test_a_message_that_goes_on_in_the_next_part_says_so_and_a_part_without_time_is_old(store: Store) -> None:
    whole = part(1, "why?")
    (segment,) = whole.segments
    later = replace(whole, segments=(replace(segment, start=500, timestamp=None, uuid=""),))
    made = episode_of(later, SOURCE, "s")
    assert made.raw_exchange == "[User, continued]\nwhy?"
    assert (made.timestamp.year, made.message_ids) == (1970, ())
