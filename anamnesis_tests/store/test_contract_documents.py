"""What every backend promises about documents: where each text of a section was seen, and which is current."""

from dataclasses import replace

from anamnesis_pipeline.model import FileCursor, Part, SectionFacts, Segment, SegmentKind, Source
from anamnesis_pipeline.parsing.claude_logs.message_keys import section_key, section_part_id
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE
from anamnesis_pipeline.store.records.documents import ParsedDocument, SectionOccurrence, Settled, Unsettled, Verdict
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_tests.support.samples import DAY, episode

Seen = tuple[Part, SectionOccurrence]


def section(
    anchor: str, text: str, *, source: str = "notes", path: str = "a.md", since: int = 1, line: int = 1
) -> Seen:
    """A text of a section of the one document there is, as it stands in a copy of that."""
    part_id = section_part_id("place", anchor, [text])
    made = Part(
        part_id,
        source,
        path,
        "",
        "document",
        line,
        "document",
        "acme/shop",
        f"/{source}",
        anchor,
        (Segment(section_key(text), "", SegmentKind.DOCUMENT, 0, text, DAY),),
        True,
        section=SectionFacts(("a.md", anchor), line, line + 1, "markdown", tags=("document",), seen=DAY),
    )
    return made, SectionOccurrence(
        source, path, part_id, "place", anchor, line, line, line + 1, since, 0, text, text, cwd=f"/{source}"
    )


def cursor(store: Store, source: str = "notes", path: str = "a.md") -> FileCursor:
    """The file's, which is crawled if it was not."""
    if store.files.cursor(source, path) is None:
        store.files.put_sources([Source(source, source, f"/{source}", "", "documents")])
        store.files.commit_crawl(None, FileCursor(source, path, lines=9, version=1), None)
    found = store.files.cursor(source, path)
    assert found is not None
    return found


def commit(store: Store, *sections: Seen, source: str = "notes", path: str = "a.md") -> int | None:
    before = cursor(store, source, path)
    (done,) = store.documents.commit([ParsedDocument(before, replace(before, parsed_lines=9), sections)])
    return done


def publish(store: Store, *parts: Part) -> None:
    made = [
        Publication(stored, None, [(episode(stored.part_id, source=stored.source), [])])
        for part in parts
        for stored in store.forgetting.parts([part.part_id])
    ]
    store.episodes.publish(made)


def status(store: Store, seen: Seen) -> tuple[str, str | None]:
    found = store.episodes.get([seen[0].part_id])[seen[0].part_id]
    return found.status, found.superseded_by


def test_what_a_file_holds_is_written_with_its_cursor(store: Store):
    one, two = section("One", "first"), section("Two", "second", line=5)
    assert commit(store, one, two) == 2
    assert store.documents.sightings_of("notes", "a.md") == [one[1], two[1]]
    assert store.forgetting.parts_of_files([("notes", "a.md")]) == [one[0], two[0]]
    assert cursor(store).parsed_lines == 9


def test_nothing_is_written_over_a_cursor_that_moved_on(store: Store):
    before = cursor(store)
    assert store.files.commit_crawl(before, replace(before, size=7), None)
    assert store.documents.commit([ParsedDocument(before, before, [section("One", "first")])]) == [None]
    assert store.documents.sightings_of("notes", "a.md") == []


def test_the_same_sections_once_more_write_no_part(store: Store):
    one = section("One", "first")
    commit(store, one)
    publish(store, one[0])
    assert commit(store, one) == 0
    assert store.parts.parts_to_publish("notes", 9) == []
    assert store.documents.unsettled("notes", 9) == []


def test_a_section_with_more_rows_than_a_transaction_takes_is_whole(store: Store):
    many = [section(f"S{n}", f"text {n}", line=n) for n in range(MAX_ROWS_PER_WRITE + 5)]
    assert commit(store, *many) == len(many)


def test_a_text_that_stays_keeps_the_time_since_when_and_follows_its_lines(store: Store):
    commit(store, section("One", "first", since=1))
    commit(store, section("One", "first", since=9, line=7))
    (sighting,) = store.documents.sightings_of("notes", "a.md")
    assert (sighting.since_ns, sighting.first_line) == (1, 7)
    (part,) = store.forgetting.parts_of_files([("notes", "a.md")])
    assert part.section is not None
    assert part.section.first_line == 7


def test_a_text_that_went_is_noted_and_one_that_is_the_first_of_its_section_is_not(store: Store):
    commit(store, section("One", "first"))
    assert store.documents.unsettled("notes", 9) == []
    commit(store, section("One", "changed", since=2))
    assert store.documents.unsettled("notes", 9) == [Unsettled("place", "One", 1)]
    assert store.parts.unfinished_sources(DAY) == {"notes"}
    present = {s.text: s.present for s in store.documents.sightings_at([("place", "One")])}
    assert present == {"first": False, "changed": True}


def test_a_body_under_another_heading_is_known_to_follow(store: Store):
    old, new = section("One", "same"), section("Other", "same")
    commit(store, old)
    commit(store, new)
    (gone,) = store.documents.sightings_at([("place", "One")])
    assert (gone.present, gone.became) == (False, new[0].part_id)


def test_verdicts_are_written_and_what_changed_meanwhile_stays_to_be_settled(store: Store):
    one, two = section("One", "first"), section("One", "changed", since=2)
    commit(store, one)
    publish(store, one[0])
    commit(store, two)
    publish(store, two[0])
    (noted,) = store.documents.unsettled("notes", 9)
    verdicts = {one[0].part_id: Verdict(False, two[0].part_id), two[0].part_id: Verdict(True)}
    stale = replace(noted, noted=noted.noted - 1)
    assert store.documents.settle([stale], verdicts) == Settled(superseded=1)
    assert (status(store, one), status(store, two)) == (("superseded", two[0].part_id), ("active", None))
    assert store.documents.unsettled("notes", 9) == [noted]
    assert store.documents.settle([noted], verdicts) == Settled()
    assert store.documents.unsettled("notes", 9) == []
    assert store.documents.settle([], {one[0].part_id: Verdict(True)}) == Settled(revived=1)
    assert store.documents.settle([], {one[0].part_id: Verdict(False)}) == Settled(retired=1)


def test_a_text_gives_way_to_none_as_long_as_its_successor_is_no_episode(store: Store):
    one, two = section("One", "same"), section("Other", "same", since=2)
    commit(store, one)
    publish(store, one[0])
    commit(store, two)
    verdicts = {one[0].part_id: Verdict(False, two[0].part_id)}
    assert store.documents.settle(store.documents.unsettled("notes", 9), verdicts) == Settled(retired=1)
    assert status(store, one) == ("superseded", None)
    publish(store, two[0])
    assert [(u.place, u.anchor) for u in store.documents.unsettled("notes", 9)] == [("place", "One")]
    assert store.documents.settle(store.documents.unsettled("notes", 9), verdicts) == Settled(superseded=1)
    assert status(store, one) == ("superseded", two[0].part_id)


def test_an_episode_that_is_published_late_is_settled_again(store: Store):
    one, two = section("One", "first"), section("One", "changed", since=2)
    commit(store, one)
    commit(store, two)
    store.documents.settle(store.documents.unsettled("notes", 9), {})
    publish(store, one[0], two[0])
    assert [(u.place, u.anchor) for u in store.documents.unsettled("notes", 9)] == [("place", "One")]


def test_a_part_goes_by_another_copy_when_its_own_lost_it(store: Store):
    here, there = section("One", "first"), section("One", "first", source="desk", path="b.md", line=4)
    commit(store, here)
    assert commit(store, there, source="desk", path="b.md") == 0
    assert [p.source for p in store.forgetting.parts([here[0].part_id])] == ["notes"]
    commit(store)
    (part,) = store.forgetting.parts([here[0].part_id])
    assert (part.source, part.path, part.cwd) == ("desk", "b.md", "/desk")
    assert part.section is not None
    assert part.section.first_line == 4
    assert [p.part_id for p, _ in store.parts.parts_to_publish("desk", 9)] == [here[0].part_id]


def test_gone_files_are_listed_until_their_sections_are(store: Store):
    commit(store, section("One", "first"))
    store.files.mark_gone("notes", ["a.md"])
    (gone,) = store.documents.vanished("notes")
    assert (gone.path, store.parts.unfinished_sources(DAY)) == ("a.md", {"notes"})
    commit(store)
    assert store.documents.vanished("notes") == []


def test_the_same_text_is_found_wherever_it_stands(store: Store):
    one, other = section("One", "same"), section("Two", "same", source="desk", path="b.md")
    commit(store, one)
    commit(store, other, section("Three", "else", source="desk", path="b.md"), source="desk", path="b.md")
    assert store.documents.same_text([one[0].part_id]) == {one[0].part_id, other[0].part_id}
    assert store.documents.files_of([one[0].part_id, other[0].part_id]) == {("notes", "a.md"), ("desk", "b.md")}
    assert len(store.documents.seen_in([("desk", "b.md")])) == 2


def test_what_is_removed_was_seen_nowhere_and_its_section_is_to_be_settled(store: Store):
    one, two = section("One", "first"), section("One", "changed", since=2)
    commit(store, one)
    commit(store, two)
    store.documents.settle(store.documents.unsettled("notes", 9), {})
    assert store.documents.remove([two[0].part_id]) == 1
    assert [s.text for s in store.documents.sightings_at([("place", "One")])] == ["first"]
    assert len(store.documents.unsettled("notes", 9)) == 1


def test_many_crawled_files_are_each_written_for_themselves(store: Store):
    known = cursor(store)
    new = [(None, FileCursor("notes", f"{n}.md", version=1), None) for n in range(MAX_ROWS_PER_WRITE)]
    stale = (replace(known, version=known.version + 7), replace(known, size=9), None)
    assert store.files.commit_crawls([stale, *new]) == [False, *[True] * len(new)]
    assert len(store.files.cursors("notes")) == len(new) + 1


def test_texts_that_gave_way_at_once_are_one_event(store: Store):
    one, two = section("One", "first"), section("Two", "second")
    commit(store, one, two)
    publish(store, one[0], two[0])
    before = store.events.latest(1)[-1].number
    verdicts = {seen[0].part_id: Verdict(False) for seen in (one, two)}
    assert store.documents.settle([], verdicts) == Settled(retired=2)
    assert store.documents.settle([], verdicts) == Settled()
    assert [(e.kind, e.episode_id, e.episodes) for e in store.events.since(before, 9)] == [
        (Happening.STATUS, one[0].part_id, 2)
    ]
