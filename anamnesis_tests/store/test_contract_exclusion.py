"""Contract: what a rule holds is neither summarized nor published until it is released; tombstones can be lifted."""

from dataclasses import replace
from datetime import timedelta

from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.exclusion import BuriedSection
from anamnesis_tests.support.samples import DAY, episode, parsed, part, passages, put, segment, summary


def test_what_is_held_is_work_for_nobody_until_it_is_released(store: Store) -> None:
    one, two = part(segment("m1")), part(segment("m2"), path="b.jsonl")
    parsed(store, one, keys=["m1"])
    parsed(store, two, path="b.jsonl", keys=["m2"])
    both = sorted([one, two], key=lambda p: p.part_id)
    assert store.exclusion.waiting("logs", "", 10) == both
    assert store.exclusion.waiting("logs", both[0].part_id, 10) == both[1:]
    assert store.exclusion.hold({one.part_id: "rule-1", "none": "rule-1"}) == 1
    assert store.exclusion.hold({one.part_id: "rule-2"}) == 0
    assert store.exclusion.held() == {"rule-1": 1}
    assert store.exclusion.waiting("logs", "", 10) == [two]
    assert [p for p, _ in store.parts.parts_to_publish("logs", 10)] == [two]
    assert store.summaries.parts_to_summarize("logs", DAY, 10) == [two]
    store.summaries.put_summaries([summary(two)])
    store.episodes.publish([Publication(two, summary(two), [(episode(two.part_id), passages("text"))])])
    assert store.parts.unfinished_sources(DAY - timedelta(days=1)) == set()
    assert store.summaries.sources_to_summarize(DAY) == set()
    assert store.exclusion.release("rule-1") == 1
    assert [p for p, _ in store.parts.parts_to_publish("logs", 10)] == [one]
    assert store.parts.unfinished_sources(DAY - timedelta(days=1)) == {"logs"}
    assert store.exclusion.held() == {}


def test_tombstones_are_listed_newest_first_with_their_reason_and_without_records(store: Store) -> None:
    for name in ("a", "b", "c"):
        put(store, name, "text")
        store.episodes.delete(name)
    store.exclusion.explain("out of date", ["a", "none"], {"b": "a"})
    found = store.exclusion.tombstones(10)
    assert [(t.episode_id, t.reason) for t in found] == [("c", ""), ("a", "out of date")]
    assert store.exclusion.tombstones(1) == found[:1]
    assert store.exclusion.tombstones(10, (found[0].deleted_at, "c")) == found[1:]


def test_lifting_lets_a_part_be_published_again_and_its_messages_be_known_as_before(store: Store) -> None:
    one = part(segment("m1"))
    parsed(store, one, keys=["m1"])
    publication = Publication(one, None, [(episode(one.part_id, message_keys=("m1",)), passages("text"))])
    store.episodes.publish([publication])
    store.episodes.delete(one.part_id)
    assert store.parts.parts_to_publish("logs", 10) == []
    lifted = store.exclusion.lift([one.part_id])
    assert (lifted.tombstones, lifted.parts, lifted.files) == (1, 1, 0)
    assert [p for p, _ in store.parts.parts_to_publish("logs", 10)] == [one]
    assert not store.forgetting.has_forgotten()
    assert store.exclusion.lift([one.part_id]).tombstones == 0
    assert store.exclusion.tombstones(10) == []


def test_lifting_what_was_forgotten_lets_its_files_be_read_again_but_not_what_others_forgot(store: Store) -> None:
    one, two = part(segment("m1")), part(segment("m2"))
    parsed(store, one, two, keys=["m1", "m2"])
    store.forgetting.bury({one.part_id: ["m1"], two.part_id: ["m2", "m1"]})
    store.forgetting.remove_parts([one.part_id, two.part_id])
    assert store.exclusion.lift([one.part_id]).files == 0
    lifted = store.exclusion.lift([two.part_id])
    assert (lifted.tombstones, lifted.parts, lifted.files) == (1, 0, 1)
    cursor = store.files.cursor("logs", "a.jsonl")
    assert cursor is not None
    assert (cursor.mtime_ns, cursor.head_hash) == (0, "lifted")
    assert store.messages.known_keys(["m1", "m2"]) == set()


def test_what_was_buried_is_found_by_its_document_and_by_texts_of_the_file_that_had_it(store: Store) -> None:
    found = [BuriedSection("a", "notes", "x.md", "p", b"abc"), BuriedSection("b", "notes", "y.md", "q", b"")]
    assert not store.exclusion.has_buried()
    store.exclusion.bury_sections(found)
    store.exclusion.bury_sections([replace(found[0], kept=b"other")])
    assert store.exclusion.has_buried()
    assert store.exclusion.buried_at("notes", "p", []) == found[:1]
    assert store.exclusion.buried_at("notes", "none", ["text"]) == []
    assert len(store.exclusion.secret()) == 32
    assert store.exclusion.secret() == store.exclusion.secret()
    store.exclusion.lift(["a"])
    assert store.exclusion.buried_at("notes", "p", []) == []


def test_of_a_tombstone_it_is_known_in_which_files_its_text_stood(store: Store) -> None:
    store.forgetting.bury({"a": ["m1"], "b": ["m2"]})
    store.exclusion.bury_sections([BuriedSection("a", source, "a.md", "p", b"") for source in ("notes", "desk")])
    assert store.exclusion.stood_in(["a", "b"]) == {"a": [("desk", "a.md"), ("notes", "a.md")]}


def test_what_went_with_something_is_lifted_with_it_and_is_no_entry_of_its_own(store: Store) -> None:
    store.forgetting.bury({"a": ["m1"], "a#0": ["m1"], "b": ["m2"]})
    store.exclusion.explain("forgotten", ["a"], {"a": "rule-1", "a#0": "a"})
    assert [t.episode_id for t in store.exclusion.tombstones(10)] == ["b"]
    assert store.exclusion.entries_of(["a", "a#0", "b", "none"]) == {"a": "rule-1", "a#0": "rule-1", "b": "b"}
    assert store.exclusion.lift(["rule-1"]).tombstones == 2
    assert [t.episode_id for t in store.exclusion.tombstones(10)] == ["b"]
    assert store.forgetting.forgotten(["m1", "m2"]) == {"m2"}
