"""Contract: rewritten archives, the copies of messages and their owners."""

from dataclasses import replace

import pytest

from anamnesis_pipeline.model import ArchiveBase, ArchiveFrame, FileCursor, Occurrence
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.files import ArchivedFile
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_tests.support.samples import crawled, parsed

FRAMES = [ArchiveFrame(0, 0, 10, 0, 100), ArchiveFrame(0, 10, 5, 100, 50)]


def archived(store: Store, *frames: ArchiveFrame) -> FileCursor:
    cursor = crawled(store)
    for frame in frames:
        assert store.files.commit_crawl(cursor, cursor, frame)
        cursor = store.files.cursors("logs")["a.jsonl"]
    return cursor


def rewritten(frame: ArchiveFrame) -> ArchiveFrame:
    return replace(frame, archive_offset=frame.archive_offset // 2, archive_bytes=9, revision=frame.revision + 1)


def test_a_rewritten_generation_takes_the_place_of_the_former(store: Store) -> None:
    archived(store, *FRAMES, ArchiveFrame(1, 0, 3, 0, 30))
    new = [rewritten(frame) for frame in FRAMES]
    assert store.archive.replace_frames("logs", "a.jsonl", 0, 0, new)
    assert store.archive.frames("logs", "a.jsonl", 0) == new
    assert store.archive.frames("logs", "a.jsonl", 1) == [ArchiveFrame(1, 0, 3, 0, 30)]
    assert store.archive.replace_frames("logs", "a.jsonl", 0, 1, [rewritten(frame) for frame in new])


def test_frames_of_another_revision_or_with_other_lines_replace_nothing(store: Store) -> None:
    cursor = archived(store, FRAMES[0])
    new = [rewritten(FRAMES[0])]
    assert not store.archive.replace_frames("logs", "a.jsonl", 0, 1, new)
    assert not store.archive.replace_frames("logs", "a.jsonl", 0, 0, [FRAMES[0]])
    assert not store.archive.replace_frames("logs", "a.jsonl", 0, 0, [replace(new[0], lines=9)])
    assert not store.archive.replace_frames("logs", "b.jsonl", 0, 0, new)
    assert not store.archive.replace_frames("logs", "a.jsonl", 0, 0, [])
    assert store.files.commit_crawl(cursor, cursor, FRAMES[1])
    assert not store.archive.replace_frames("logs", "a.jsonl", 0, 0, new)
    assert store.archive.frames("logs", "a.jsonl", 0) == FRAMES


def test_adopted_files_are_known_with_their_frames(store: Store) -> None:
    archived(store, *FRAMES)
    leaning = ArchiveFrame(0, 0, 10, 0, 20, base=ArchiveBase("logs", "a.jsonl", 0, 0, 0, 100))
    lost = ArchivedFile(FileCursor("logs", "b.jsonl", lines=10, inode=2**63, first_mtime_ns=7), [leaning])
    (known,) = before = store.archive.files("logs")
    for _ in range(2):
        store.archive.adopt([lost, replace(known, frames=[])])
        assert store.archive.files("logs") == [*before, lost]
    assert known.frames == FRAMES


def test_what_is_crawled_after_a_rewrite_is_of_its_revision(store: Store) -> None:
    cursor = archived(store, FRAMES[0])
    new, later = rewritten(FRAMES[0]), replace(FRAMES[1], revision=1)
    assert store.archive.replace_frames("logs", "a.jsonl", 0, 0, [new])
    assert store.files.commit_crawl(cursor, cursor, later)
    assert store.archive.frames("logs", "a.jsonl", 0) == [new, later]


def known_file(store: Store, source: str, first_mtime_ns: int) -> tuple[str, str]:
    cursor = FileCursor(source, "a.jsonl", lines=10, first_mtime_ns=first_mtime_ns)
    assert store.files.commit_crawl(None, cursor, None)
    return source, "a.jsonl"


def test_what_a_younger_file_of_another_source_owns_passes_to_the_older_one(store: Store) -> None:
    young, old, younger = known_file(store, "b", 200), known_file(store, "a", 100), known_file(store, "c", 300)
    parsed(store, keys=["m1", "m2"], source="b")
    assert store.messages.known_keys(["m1"], young) == store.messages.known_keys(["m1"], younger) == {"m1"}
    assert store.messages.known_keys(["m1"], old) == set()
    with pytest.raises(AssertionError):
        parsed(store, keys=["m1"], source="c")
    parsed(store, keys=["m1"], source="a")
    assert store.messages.owners(["m1", "m2"]) == {"m1": old, "m2": young}
    assert store.messages.known_keys(["m1"], young) == {"m1"}
    assert store.files.cursors("b")["a.jsonl"].version == 3, "who parses it at this moment begins anew"


def test_copies_and_owners_of_messages_are_found(store: Store) -> None:
    parsed(store, path="a.jsonl", keys=["m1", "m2"])
    copy = crawled(store, "copy.jsonl", "other")
    found = [Occurrence("m1", "copy.jsonl", 3), Occurrence("m2", "copy.jsonl", 4), Occurrence("m1", "copy.jsonl", 9)]
    assert store.messages.commit_parsed(ParsedChunk(copy, copy, occurrences=found))
    assert store.messages.occurrences_of(["m1", "m3"]) == [("other", found[0]), ("other", found[2])]
    assert store.messages.owners(["m1", "m2", "m3"]) == {"m1": ("logs", "a.jsonl"), "m2": ("logs", "a.jsonl")}
    assert store.messages.occurrences_of([]) == []
    assert store.messages.owners([]) == {}


BASE = ArchiveBase("logs", "a.jsonl", 0, 0, 0, 150)


def copied(store: Store, *frames: ArchiveFrame, path: str = "fork.jsonl") -> FileCursor:
    cursor = crawled(store, path)
    for frame in frames:
        assert store.files.commit_crawl(cursor, cursor, frame)
        cursor = store.files.cursors("logs")[path]
    return cursor


def test_a_copy_is_told_where_the_lines_it_repeats_lie(store: Store) -> None:
    archived(store, replace(FRAMES[0], mark="m"), FRAMES[1])
    assert store.archive.archive_base("logs", "fork.jsonl", 0, "m", 0, 15) == BASE
    assert store.archive.archive_base("logs", "fork.jsonl", 0, "m", 12, 9) == replace(
        BASE, archive_offset=100, archive_bytes=50
    )
    assert store.archive.archive_base("logs", "fork.jsonl", 0, "m", 15, 9) is None
    assert store.archive.archive_base("logs", "fork.jsonl", 0, "other", 0, 15) is None
    assert store.archive.archive_base("logs", "a.jsonl", 0, "m", 0, 15) is None
    assert store.archive.archive_base("logs", "fork.jsonl", 0, "", 0, 15) is None


def test_a_copy_that_grows_is_known_by_the_mark_of_its_first_frame(store: Store) -> None:
    archived(store, replace(FRAMES[0], mark="m"), FRAMES[1])
    copied(store, ArchiveFrame(0, 0, 10, 0, 100, mark="m"))
    assert store.archive.archive_base("logs", "fork.jsonl", 0, "", 10, 1) == replace(
        BASE, archive_offset=100, archive_bytes=50
    )


def test_what_leans_is_no_base_and_what_is_a_base_does_not_lean(store: Store) -> None:
    first = archived(store, replace(FRAMES[0], mark="m"))
    fork = ArchiveFrame(0, 0, 10, 0, 7, mark="m", base=replace(BASE, archive_bytes=100))
    copied(store, fork, ArchiveFrame(0, 10, 10, 7, 80))
    assert store.archive.frames("logs", "fork.jsonl", 0)[0] == fork
    assert store.archive.archive_base("logs", "third.jsonl", 0, "m", 0, 10) == fork.base
    assert store.archive.archive_base("logs", "third.jsonl", 0, "m", 10, 10) is None
    assert store.archive.archive_base("logs", "a.jsonl", 0, "m", 10, 10) is None
    leaner = ArchiveBase("logs", "fork.jsonl", 0, 0, 7, 80)
    third = crawled(store, "third.jsonl")
    assert not store.files.commit_crawl(third, third, ArchiveFrame(0, 0, 10, 0, 7, base=leaner))
    assert not store.files.commit_crawl(first, first, ArchiveFrame(0, 10, 10, 100, 7, base=leaner))
    assert store.files.commit_crawl(third, third, ArchiveFrame(0, 0, 10, 0, 7, base=fork.base))


def test_a_generation_that_others_lean_on_is_not_replaced_under_them(store: Store) -> None:
    archived(store, *FRAMES)
    copied(store, ArchiveFrame(0, 0, 15, 0, 7, base=BASE))
    new = [rewritten(frame) for frame in FRAMES]
    assert store.archive.leaning("logs", "a.jsonl", 0) == [("logs", "fork.jsonl", 0)]
    assert not store.archive.replace_frames("logs", "a.jsonl", 0, 0, new)
    assert store.archive.replace_frames("logs", "fork.jsonl", 0, 0, [ArchiveFrame(0, 0, 15, 0, 160, revision=1)])
    assert store.archive.leaning("logs", "a.jsonl", 0) == []
    assert store.archive.replace_frames("logs", "a.jsonl", 0, 0, new)


def test_a_frame_whose_base_was_rewritten_meanwhile_does_not_count(store: Store) -> None:
    archived(store, *FRAMES)
    assert store.archive.replace_frames("logs", "a.jsonl", 0, 0, [rewritten(frame) for frame in FRAMES])
    cursor = crawled(store, "fork.jsonl")
    assert not store.files.commit_crawl(cursor, cursor, ArchiveFrame(0, 0, 15, 0, 7, base=BASE))
    assert store.archive.frames("logs", "fork.jsonl", 0) == []
