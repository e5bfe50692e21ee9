"""Lines into the archive and back."""

import errno
import fcntl
import random
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.errors import GiveUp, StoreCorrupt, StoreFull
from anamnesis_pipeline.pipeline import archive as archive_module
from anamnesis_pipeline.pipeline.archive import Archive, base_text, packed, packed_against, unpacked
from anamnesis_pipeline.sources.lines import mark_of


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path)


def end_of(frame):
    return frame.archive_offset + frame.archive_bytes


def test_every_line_comes_back(archive):
    lines = [f"line {n} → \ud800" for n in range(1000)]
    frames, end = [], 0
    for first in range(0, 1000, 300):
        frames.append(archive.append("s", "a.jsonl", 0, first, lines[first : first + 300], at=end))
        end = end_of(frames[-1])
    assert list(archive.lines("s", "a.jsonl", frames)) == lines
    assert list(archive.lines("s", "a.jsonl", frames, from_line=450)) == lines[450:]
    assert list(archive.lines("s", "a.jsonl", frames[1:], from_line=300)) == lines[300:]


def test_a_rewritten_generation_keeps_its_numbering_and_the_lines_that_stay(archive):
    first = archive.append("s", "a.jsonl", 0, 0, ["one", "two"], at=0)
    second = archive.append("s", "a.jsonl", 0, 2, ["three"], at=first.archive_bytes)
    frames = archive.rewrite(
        "s", "a.jsonl", [first, second], lambda lines: [line.replace("two", "{}") for line in lines]
    )
    assert [(f.first_line, f.lines, f.revision) for f in frames] == [(0, 2, 1), (2, 1, 1)]
    assert list(archive.lines("s", "a.jsonl", frames)) == ["one", "{}", "three"]
    assert list(archive.lines("s", "a.jsonl", [first, second])) == ["one", "two", "three"]
    assert archive.remove_former("s", "a.jsonl", 0, 1) == 1
    with pytest.raises(StoreCorrupt):
        list(archive.lines("s", "a.jsonl", [first, second]))
    fourth = archive.append("s", "a.jsonl", 0, 3, ["four"], at=end_of(frames[-1]), revision=1)
    assert list(archive.lines("s", "a.jsonl", [*frames, fourth])) == ["one", "{}", "three", "four"]


def test_what_a_crash_left_of_a_rewrite_is_overwritten_and_former_revisions_go_with_the_next_append(archive, tmp_path):
    first = archive.append("s", "a.jsonl", 0, 0, ["one"], at=0)
    archive.file_of("s", "a.jsonl", 0, 1).write_bytes(b"debris " * 1000)
    (frame,) = archive.rewrite("s", "a.jsonl", [first], lambda lines: ["{}" for _ in lines])
    assert list(archive.lines("s", "a.jsonl", [frame])) == ["{}"]
    assert archive.file_of("s", "a.jsonl", 0).exists()
    archive.append("s", "a.jsonl", 0, 1, ["two"], at=frame.archive_bytes, revision=1)
    assert [file.name for file in tmp_path.rglob("*.zst")] == [archive.file_of("s", "a.jsonl", 0, 1).name]


def test_debris_of_a_crash_is_overwritten(archive):
    first = archive.append("s", "a.jsonl", 0, 0, ["kept"], at=0)
    archive.append("s", "a.jsonl", 0, 1, ["debris " * 1000], at=first.archive_bytes)
    second = archive.append("s", "a.jsonl", 0, 1, ["good"], at=first.archive_bytes)
    assert list(archive.lines("s", "a.jsonl", [first, second])) == ["kept", "good"]
    assert archive.file_of("s", "a.jsonl", 0).stat().st_size == end_of(second)


def test_an_archive_that_the_store_knows_nothing_of_is_kept_aside_not_overwritten(archive, tmp_path):
    lost = archive.append("s", "a.jsonl", 0, 0, ["of a database that was lost"], at=0)
    frame = archive.append("s", "a.jsonl", 0, 0, ["new"], at=0)
    assert list(archive.lines("s", "a.jsonl", [frame])) == ["new"]
    (kept,) = tmp_path.rglob("*.kept-1")
    kept.rename(archive.file_of("s", "b.jsonl", 0))
    assert list(archive.lines("s", "b.jsonl", [lost])) == ["of a database that was lost"]


def test_files_and_generations_are_kept_apart_and_private(archive):
    frames = {key: archive.append("s", *key, 0, [f"{key}"], at=0) for key in (("a", 0), ("a", 1), ("b", 0))}
    for (path, generation), frame in frames.items():
        assert list(archive.lines("s", path, [frame])) == [f"{(path, generation)}"]
        assert archive.file_of("s", path, generation).stat().st_mode & 0o777 == 0o600


def test_a_damaged_frame_names_the_file_and_the_frame(archive):
    first = archive.append("s", "a.jsonl", 0, 0, ["x" * 500], at=0)
    second = archive.append("s", "a.jsonl", 0, 1, [f"{n}" for n in range(500)], at=first.archive_bytes)
    file = archive.file_of("s", "a.jsonl", 0)
    data = bytearray(file.read_bytes())
    data[second.archive_offset + 40] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(StoreCorrupt, match=f"{file.name}, frame at byte {second.archive_offset}"):
        list(archive.lines("s", "a.jsonl", [first, second]))
    file.unlink()
    with pytest.raises(StoreCorrupt, match=file.name):
        list(archive.lines("s", "a.jsonl", [first]))


def test_a_full_disk_says_where_and_what_to_do(archive):
    file = archive.file_of("s", "a.jsonl", 0)
    file.parent.mkdir()
    file.symlink_to("/dev/full")
    with pytest.raises(StoreFull, match=f"no room to write {file}.*free disk space"):
        archive.append("s", "a.jsonl", 0, 0, ["x"], at=0)


def test_a_source_is_locked_for_others_while_it_is_written(archive, tmp_path):
    with archive.writing("s"), (tmp_path / "s" / ".lock").open("a") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with archive.writing("s"), archive.writing("another"):
        pass


def test_of_two_memories_the_first_that_writes_is_the_one_that_may(tmp_path):
    ours, theirs = Archive(tmp_path, "SQLite"), Archive(tmp_path, "MongoDB anamnesis")
    assert ours.writer() == ""
    with ours.writing("s"):
        frame = ours.append("s", "a.jsonl", 0, 0, ["one"], at=0)
    for held in (lambda: theirs.writing("s"), theirs.alone):
        with pytest.raises(GiveUp, match=r"written by another memory, SQLite, and this is MongoDB anamnesis"), held():
            raise AssertionError("it may not write")
    with theirs.still():
        assert list(theirs.lines("s", "a.jsonl", [frame])) == ["one"], "reading needs no leave"
    with ours.alone(), ours.writing("s"):
        ours.hand_over()
    with theirs.writing("s"):
        assert theirs.writer() == "MongoDB anamnesis"
    with pytest.raises(GiveUp, match="each would overwrite lines of the other"), ours.writing("other"):
        raise AssertionError("it may not write")
    assert [each.name for each in tmp_path.iterdir() if each.is_file() and each.name != ".lock"] == ["written-by"]


def test_a_file_system_without_links_has_a_mark_of_the_writer_too(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    archive = Archive(tmp_path)
    with archive.writing("s"):
        assert archive.writer() == "SQLite"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["written-by"]


def test_of_memories_that_begin_at_once_one_may_write(tmp_path):
    together, told = threading.Barrier(8), []

    def begin(number: int) -> None:
        together.wait(60)
        try:
            with Archive(tmp_path, f"memory {number % 2}").writing(f"s{number}"):
                told.append(number % 2)
        except GiveUp:
            told.append(None)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(told, key=str) in ([0] * 4 + [None] * 4, [1] * 4 + [None] * 4)


NOISE = random.Random(3).randbytes(3 << 20).hex()


@given(st.lists(st.text(st.characters(blacklist_characters="\n", blacklist_categories=())), min_size=1), st.binary())
def test_any_lines_come_back_with_any_base(lines, base):
    assert unpacked(packed(lines)) == lines
    if base:
        assert unpacked(packed_against(base, lines), base) == lines


def test_all_of_a_base_of_megabytes_is_used_wherever_its_text_is_repeated():
    pieces = [NOISE[at : at + 1000] for at in range(0, len(NOISE), 1000)]
    again = [f"{n} {piece}" for n, piece in enumerate(reversed(pieces))]
    frame = packed_against(NOISE.encode(), again)
    assert len(frame) < len(packed(again)) / 20
    assert unpacked(frame, NOISE.encode()) == again


def test_a_frame_is_not_read_with_another_base():
    frame = packed_against(NOISE.encode(), [NOISE])
    with pytest.raises(zstandard.ZstdError):
        unpacked(frame, NOISE[::-1].encode())


def test_a_row_of_frames_is_one_base_unless_it_is_too_long(monkeypatch):
    row = packed(["one", "two"]) + packed(["three"])
    assert base_text(row) == b"one\ntwothree"
    monkeypatch.setattr(archive_module, "TEXT_BYTES", 11)
    assert base_text(row) == b""
    assert packed_against(b"", ["one"]) is None
    assert packed_against(b"one", ["a line that is too long"]) is None


def test_copies_that_keep_uuids_have_the_mark_of_their_original():
    first = '{"type":"summary","summary":"x"}'
    original = [first, '{"uuid":"0e828762-4b61-4628-acea-98e7713717ee","sessionId":"a"}']
    fork = ['{"sessionId": "b", "uuid": "0e828762-4b61-4628-acea-98e7713717ee"}', "{}"]
    assert mark_of(original) == mark_of(fork)
    assert mark_of([first]) == mark_of([first, "{}"]) != mark_of(original)
    assert mark_of(['{"text":"\\"uuid\\":\\"0e828762-4b61-4628-acea-98e7713717ee\\""}']) != mark_of(original)
