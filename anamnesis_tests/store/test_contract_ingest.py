"""What every backend promises about sources, cursors, frames, message keys, parts and summaries."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from anamnesis_pipeline.model import (
    EXCLUDED,
    RESERVED_SOURCES,
    ArchiveFrame,
    FileCursor,
    Occurrence,
    SegmentKind,
    Source,
    content_id,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_pipeline.store.records.overview import SourceCounts
from anamnesis_tests.support.samples import DAY, crawled, episode, parsed, part, put, segment, summary


def test_reserved_sources_exist_after_opening(store: Store):
    assert [s.key for s in store.files.sources()] == sorted(RESERVED_SOURCES)
    assert {s.kind for s in store.files.sources()} == {"reserved"}


def test_put_sources_counts_new_ones_and_updates_the_others(store: Store):
    one = Source("logs", "laptop", "/root", "-home-x", spec="work")
    assert store.files.put_sources([one]) == 1
    assert store.files.put_sources([replace(one, machine="desk"), Source("b")]) == 1
    assert [s for s in store.files.sources() if s.key == "logs"] == [replace(one, machine="desk")]


def test_a_crawl_is_written_only_over_the_cursor_it_read(store: Store):
    first = crawled(store)
    assert first.version == 1
    assert not store.files.commit_crawl(None, first, None)
    assert store.files.commit_crawl(first, replace(first, offset=200, lines=20), None)
    assert not store.files.commit_crawl(first, replace(first, offset=300), ArchiveFrame(0, 20, 5, 0, 9))
    assert store.files.cursors("logs")["a.jsonl"] == replace(first, offset=200, lines=20, version=2)
    assert store.archive.frames("logs", "a.jsonl", 0) == []


def test_a_cursor_reads_back_as_written(store: Store):
    cursor = FileCursor(
        "logs",
        "sub/ü.jsonl",
        device=2**64 - 1,
        inode=2**63 + 5,
        size=10,
        mtime_ns=1_700_000_000_000_000_001,
        head_hash="ab",
        head_bytes=64,
        offset=9,
        generation=3,
        lines=7,
        parsed_lines=5,
        parser_state='{"open": 1}',
        gone=False,
        version=1,
    )
    assert store.files.commit_crawl(None, cursor, None)
    assert store.files.cursors("logs") == {"sub/ü.jsonl": cursor}
    assert store.files.cursor("logs", "sub/ü.jsonl") == cursor
    assert store.files.cursor("logs", "a.jsonl") is None
    assert store.files.cursors("other") == {}


def test_files_not_read_to_their_end_are_listed(store: Store):
    whole = FileCursor("logs", "whole.jsonl", size=12, offset=10)
    torn = replace(whole, path="torn.jsonl", offset=9)
    unread = replace(whole, source="docs", path="unread.md", unread="unread.md: permission denied")
    kept_away = replace(torn, path="kept.jsonl", unread=f"{EXCLUDED} (a rule)")
    gone = replace(torn, path="gone.jsonl")
    store.files.commit_crawls([(None, each, None) for each in (whole, torn, unread, kept_away, gone)])
    store.files.mark_gone("logs", ["gone.jsonl"])
    assert [(each.source, each.path) for each in store.files.incomplete_files()] == [
        ("docs", "unread.md"),
        ("logs", "torn.jsonl"),
    ]
    assert store.files.incomplete_files()[1] == store.files.cursor("logs", "torn.jsonl")
    held = store.files.cursor("docs", "unread.md")
    assert held is not None
    store.files.commit_crawl(held, replace(held, unread=""), None)
    assert [each.path for each in store.files.incomplete_files()] == ["torn.jsonl"]


def test_frames_are_found_by_the_first_line_wanted(store: Store):
    cursor = crawled(store)
    frames = [ArchiveFrame(0, 0, 10, 0, 100), ArchiveFrame(0, 10, 5, 100, 50), ArchiveFrame(1, 0, 3, 150, 30)]
    for frame in frames:
        assert store.files.commit_crawl(cursor, cursor, frame)
        cursor = store.files.cursors("logs")["a.jsonl"]
    assert store.archive.frames("logs", "a.jsonl", 0) == frames[:2]
    assert store.archive.frames("logs", "a.jsonl", 0, from_line=9) == frames[:2]
    assert store.archive.frames("logs", "a.jsonl", 0, from_line=10) == frames[1:2]
    assert store.archive.frames("logs", "a.jsonl", 0, from_line=15) == []
    assert store.archive.frames("logs", "a.jsonl", 1) == frames[2:]


def test_vanished_files_are_flagged_once_and_can_return(store: Store):
    cursor = crawled(store)
    assert store.files.mark_gone("logs", ["a.jsonl", "never seen"]) == 1
    assert store.files.mark_gone("logs", ["a.jsonl"]) == 0
    gone = store.files.cursors("logs")["a.jsonl"]
    assert gone.gone
    assert not store.files.commit_crawl(cursor, cursor, None)
    assert store.files.commit_crawl(gone, replace(gone, gone=False), None)
    assert not store.files.cursors("logs")["a.jsonl"].gone


def test_a_chunk_is_written_whole_or_not_at_all(store: Store):
    before = crawled(store)
    chunk = ParsedChunk(
        before,
        replace(before, parsed_lines=10, version=77),
        ["m1"],
        [Occurrence("m0", "a.jsonl", 3)],
        [part(segment("m1"))],
    )
    assert store.messages.commit_parsed(chunk)
    stored = store.files.cursors("logs")["a.jsonl"]
    assert (stored.parsed_lines, stored.version) == (10, before.version + 1)
    assert not store.messages.commit_parsed(replace(chunk, keys=["m2"], parts=[part(segment("m2"))]))
    assert store.messages.known_keys(["m1", "m2"]) == {"m1"}
    assert store.overview.counts("logs").parts == 1


def test_chunk_of_more_keys_than_a_write_has_rows_is_whole(store: Store):
    numbers = range(MAX_ROWS_PER_WRITE + 1)
    store.files.put_sources([Source("logs"), Source("history", kind="claude_history")])
    typed = [part(segment(f"y{n}"), source="history", exchange_id=content_id("exchange", f"y{n}")) for n in numbers]
    parsed(store, *typed, source="history", keys=[f"y{n}" for n in numbers])
    before, keys = crawled(store), [f"k{n}" for n in numbers]
    aliases = {f"h{n}": f"k{n}" for n in numbers}
    claims = {f"y{n}": f"k{n}" for n in numbers}
    chunk = ParsedChunk(before, before, [*keys, *aliases], parts=[part(segment("k0"))], aliases=aliases, claims=claims)
    assert store.messages.commit_parsed(chunk)
    assert set(store.messages.owners([*keys, *aliases, *claims]).values()) == {("logs", "a.jsonl")}
    assert store.forgetting.aliases_of(keys) == aliases | claims
    assert (store.overview.counts("history").parts, store.overview.counts("logs").messages) == (0, len(keys))
    assert {o.message_key for _, o in store.messages.occurrences_of(keys)} == set(keys)


def test_subagent_of_more_parts_than_a_write_has_rows_is_named(store: Store):
    numbers = range(MAX_ROWS_PER_WRITE + 1)
    parsed(store, *(part(segment(f"m{n}")) for n in numbers))
    parsed(store, part(segment("other"), path="b.jsonl"), path="b.jsonl")
    assert store.parts.name_agent("logs", "a.jsonl", "Explore", "toolu_1") == len(numbers)
    assert store.parts.name_agent("logs", "a.jsonl", "Explore", "toolu_1") == 0
    named = [found.agent_type for found in store.forgetting.parts_after("", 5_000)]
    assert (named.count("Explore"), named.count("")) == (len(numbers), 1)


def test_message_that_another_file_owns_is_not_written_again(store: Store):
    ours = crawled(store, "a.jsonl")
    parsed(store, part(segment("m1"), path="b.jsonl"), path="b.jsonl", keys=["m1"])
    assert not store.messages.commit_parsed(ParsedChunk(ours, ours, ["m1"], parts=[part(segment("m1"))]))
    assert store.overview.counts("logs").messages == 1


def test_a_part_reads_back_as_written(store: Store):
    long = "line\n" * 5_000 + "lone \ud83d surrogate, \0 and ünïcode"
    written = part(
        segment("m1", long, 1.5),
        segment("m2", minute=None, start=40),
        closed=False,
        agent_id="a1",
        agent_type="explore",
        lead="before",
    )
    parsed(store, written)
    assert store.parts.part(written.part_id) == written
    assert store.parts.part("no such part") is None


def test_a_grown_part_replaces_its_row(store: Store):
    parsed(store, part(segment("m1"), closed=False))
    grown = part(segment("m1"), segment("m2"))
    parsed(store, grown)
    assert store.parts.part(grown.part_id) == grown
    assert store.overview.counts("logs").parts == 1


def test_sender_of_a_segment_reads_back_as_written(store: Store):
    sent = replace(segment("k1"), kind=SegmentKind.CHANNEL, sender="mira")
    written = part(sent, segment("k2"))
    parsed(store, written)
    assert store.parts.part(written.part_id) == written


def test_idle_parts_close_when_their_last_segment_is_older(store: Store):
    parsed(
        store,
        part(segment("old", minute=0), closed=False),
        part(segment("grew", minute=0), segment("late", minute=9), closed=False),
        part(segment("no time", minute=None), closed=False),
        part(segment("closed", minute=0)),
    )
    limit = DAY + timedelta(minutes=5)
    assert store.parts.close_idle_parts("logs", limit) == 2
    assert store.parts.close_idle_parts("logs", limit) == 0
    assert store.overview.counts("logs").open_parts == 1


def test_source_is_unfinished_while_lines_or_parts_are_left(store: Store):
    limit = DAY + timedelta(minutes=5)
    one = part(segment("m1", minute=0), closed=False)
    assert store.parts.unfinished_sources(limit) == set()
    crawled(store)
    assert store.parts.unfinished_sources(limit) == {"logs"}
    parsed(store, one)
    store.episodes.publish([Publication(one, None, [])])
    assert store.parts.unfinished_sources(limit) == {"logs"}
    assert store.parts.unfinished_sources(DAY) == set()
    store.parts.close_idle_parts("logs", limit)
    assert store.parts.unfinished_sources(limit) == set()
    store.summaries.put_summaries([summary(one)])
    assert store.parts.unfinished_sources(limit) == {"logs"}


def test_a_deleted_episode_leaves_its_source_finished(store: Store):
    one = part(segment("m1"))
    parsed(store, one, keys=["m1"])
    put(store, one.part_id, "text", source="logs", message_keys=("m1",))
    store.episodes.delete(one.part_id)
    parsed(store, part(segment("m1", start=5)))
    assert store.parts.unfinished_sources(DAY) == set()


def test_closed_parts_without_a_summary_come_newest_first(store: Store):
    first, second = part(segment("m1", minute=1)), part(segment("m2", minute=2))
    parsed(store, first, second, part(segment("m3", minute=3), closed=False))
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == [second, first]
    assert store.summaries.parts_to_summarize("logs", DAY, 1) == [second]
    assert store.summaries.put_summaries([summary(first), summary(second)]) == 2
    assert store.summaries.put_summaries([summary(first)]) == 0
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == []
    grown = part(*second.segments, segment("m4", minute=4))
    parsed(store, grown)
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == [grown]


def test_changed_part_or_summary_is_published_again(store: Store):
    one = part(segment("m1"), closed=False)
    parsed(store, one)
    assert store.parts.parts_to_publish("logs", 10) == [(one, None)]
    store.episodes.publish([Publication(one, None, [])])
    assert store.parts.parts_to_publish("logs", 10) == []
    store.summaries.put_summaries([summary(one)])
    assert store.parts.parts_to_publish("logs", 10) == [(one, summary(one))]
    store.episodes.publish([Publication(one, summary(one), [])])
    grown = part(segment("m1"), segment("m2"))
    parsed(store, grown)
    assert store.parts.parts_to_publish("logs", 10) == [(grown, None)]


def test_publishing_an_older_version_leaves_the_newer_one(store: Store):
    one = part(segment("m1"), closed=False)
    parsed(store, one)
    grown = part(segment("m1"), segment("m2"))
    parsed(store, grown)
    store.episodes.publish([Publication(one, None, [])])
    assert store.parts.parts_to_publish("logs", 10) == [(grown, None)]


def test_parts_to_publish_come_newest_first_up_to_the_limit(store: Store):
    parts = [part(segment(f"m{i}", minute=i)) for i in range(5)]
    parsed(store, *parts)
    assert [p for p, _ in store.parts.parts_to_publish("logs", 3)] == parts[:1:-1]


def test_part_of_a_deleted_episode_is_not_published_again(store: Store):
    one, other = part(segment("m1", minute=1)), part(segment("m2", minute=2))
    parsed(store, one, other, keys=["m1", "m2"])
    put(store, one.part_id, "text", source="logs", message_keys=("m1",))
    store.episodes.publish([Publication(one, None, [])])
    assert store.episodes.delete(one.part_id)
    assert store.parts.part(one.part_id) is None, "what follows begins a new part"
    cursor = store.files.cursors("logs")["a.jsonl"]
    grown = part(segment("m1", minute=1), segment("m1", "more", minute=3, start=9))
    assert not store.messages.commit_parsed(ParsedChunk(cursor, cursor, parts=[grown])), "it was deleted meanwhile"
    copy = part(segment("m1", minute=1, start=5))
    parsed(store, copy)
    assert store.parts.parts_to_publish("logs", 10) == [(other, None)]
    assert [p.part_id for p in store.summaries.parts_to_summarize("logs", DAY, 10)].count(one.part_id) == 0


def test_source_is_unread_until_its_episodes_are_written(store: Store):
    store.files.put_sources([Source("logs"), Source("direct", kind="reserved")])
    assert store.parts.unread_sources() == {"logs"}
    one = part(segment("m1"))
    parsed(store, one, keys=["m1"])
    assert store.parts.unread_sources() == {"logs"}
    store.episodes.publish([Publication(one, None, [])])
    assert store.parts.unread_sources() == set()


def test_part_deleted_without_tombstone_is_published_again(store: Store):
    one = part(segment("m1"))
    parsed(store, one, keys=["m1"])
    put(store, one.part_id, "text", source="logs", message_keys=("m1",))
    store.episodes.publish([Publication(one, None, [])])
    assert store.episodes.delete(one.part_id, tombstone=False)
    assert store.parts.parts_to_publish("logs", 10) == [(one, None)]


def test_tombstoned_message_keys_are_known(store: Store):
    put(store, "e", "text", message_keys=("m1", "m2"))
    assert store.messages.known_keys(["m1", "m2", "m3"]) == set()
    store.episodes.delete("e")
    assert store.messages.known_keys(["m1", "m2", "m3"]) == {"m1", "m2"}


def test_counts_tell_what_a_source_holds(store: Store):
    before = crawled(store)
    crawled(store, "gone.jsonl")
    store.files.mark_gone("logs", ["gone.jsonl"])
    one, two = part(segment("m1")), part(segment("m2"), closed=False)
    assert store.messages.commit_parsed(
        ParsedChunk(before, replace(before, parsed_lines=4), ["m1", "m2"], [Occurrence("m0", "a.jsonl", 1)], [one, two])
    )
    store.summaries.put_summaries([summary(one)])
    put(store, "of logs", "a", "b", source="logs")
    put(store, "direct", "c")
    logs = SourceCounts(
        files=2,
        files_gone=1,
        bytes=200,
        lines=20,
        unparsed_lines=16,
        messages=2,
        occurrences=1,
        exchanges=1,
        parts=2,
        open_parts=1,
        summaries=1,
        episodes=1,
        passages=2,
    )
    assert store.overview.counts("logs") == logs
    assert store.overview.counts() == replace(logs, episodes=2, passages=3)
    assert store.overview.counts("nothing here") == SourceCounts()


def test_more_rows_than_one_transaction_takes_are_written(store: Store):
    many = MAX_ROWS_PER_WRITE + 5
    assert store.files.put_sources([Source(f"s{i:04d}") for i in range(many)]) == many
    assert store.episodes.put([(episode(f"e{i}"), []) for i in range(many)]).created == many


def test_a_second_handle_sees_each_write_at_once(open_store: Callable[[], Store]):
    one, other = open_store(), open_store()
    crawled(one)
    assert "a.jsonl" in other.files.cursors("logs")
    other.settings.set("x", 1)
    assert one.settings.get("x") == 1
