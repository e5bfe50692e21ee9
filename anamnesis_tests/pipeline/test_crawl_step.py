"""The crawl: real files, the real store; others that overtake it, real crashes, and files that are read ahead."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.parsing.text.file_names import HISTORY
from anamnesis_pipeline.pipeline import crawl as crawl_module
from anamnesis_pipeline.pipeline.crawl import AHEAD_FILES, READS_AT_ONCE, ranges_of_grown, reading_ahead
from anamnesis_pipeline.sources import lines as lines_module
from anamnesis_pipeline.sources.lines import BLOCK_BYTES, FINGERPRINT_BYTES
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_tests.support.crawled_logs import SESSION, Memory, line, lines_of


@pytest.fixture
def memory(tmp_path):
    memory = Memory(tmp_path)
    yield memory
    memory.store.close()


def test_new_lines_are_archived_once(memory):
    memory.append(lines_of(1, 2))
    report = memory.crawl()
    assert (report.files, report.new, report.lines, report.problems) == (1, 1, 2, [])
    again = memory.crawl()
    assert (again.unchanged, again.lines, again.bytes_read) == (1, 0, 0)
    assert memory.archived() == [line(1), line(2)]


def test_only_new_bytes_of_a_grown_file_are_read(memory):
    memory.append("".join(f"{line(n, 'x' * 1000)}\n" for n in range(1000)))
    memory.crawl()
    memory.append(f"{line(1000)}\n")
    report = memory.crawl()
    assert (report.grown, report.lines) == (1, 1)
    assert report.bytes_read < 40_000  # the new line, and 4 KB fingerprints
    assert memory.archived()[-1] == line(1000)


def test_a_torn_tail_then_completed_gives_exactly_one_line(memory):
    text, found = line(1), []
    for piece in (text[:5], "", text[5:], "\n", lines_of(2)):
        memory.append(piece)
        found.append(memory.crawl())
    assert [report.lines for report in found] == [0, 0, 1, 0, 1]
    assert found[1].bytes_read == 0
    assert memory.archived() == [text, line(2)]


def test_glued_and_windows_lines_are_kept_as_lines(memory):
    glued = '{"type":"pr-link","prNu{"type":"user"}'
    memory.append(f"\ufeff{line(1)}\r\n{glued}\r\n\r\n{line(2)}\r\n")
    assert memory.crawl().lines == 3
    assert memory.archived() == [line(1), glued, line(2)]


def test_a_shrunken_file_is_read_again_as_a_new_generation(memory):
    memory.append(lines_of(*range(10)))
    memory.crawl()
    memory.file.write_text(lines_of(0))
    assert memory.crawl().replaced == 1
    assert memory.cursor().generation == 1
    assert memory.archived() == [line(0)]
    assert memory.archived(generation=0) == [line(n) for n in range(10)]


def test_a_file_replaced_by_another_of_the_same_size_is_noticed(memory):
    memory.append(lines_of(1))
    memory.crawl()
    memory.file.write_text(lines_of(2))  # same inode and size
    os.utime(memory.file, ns=(1, 1))
    assert memory.crawl().replaced == 1
    memory.replace(lines_of(3))  # another inode
    assert memory.crawl().replaced == 1
    assert [memory.archived(generation) for generation in range(3)] == [[line(1)], [line(2)], [line(3)]]


def test_a_file_saved_as_a_new_one_in_its_place_is_archived_once(memory):
    for tick in range(1, 7):
        memory.replace(lines_of(*range(100 * tick)))
        report = memory.crawl()
        assert (report.replaced, report.lines) == (0, 100)
    assert memory.cursor().generation == 0
    assert memory.archived() == [line(n) for n in range(600)]


def test_a_file_that_differs_in_its_middle_is_noticed(memory):
    lines = [line(n, "x" * 100) for n in range(1_000)]
    memory.append("".join(f"{text}\n" for text in lines))
    memory.crawl()
    lines[500] = line(500, "y" * 100)
    memory.replace("".join(f"{text}\n" for text in [*lines, line(1_000)]))
    assert memory.crawl().replaced == 1
    assert memory.archived() == [*lines, line(1_000)]


def test_a_file_cut_and_grown_beyond_its_old_size_is_noticed(memory):
    memory.append(lines_of(*range(1000)))
    memory.crawl()
    lines = [*(line(n) for n in range(999)), line("other", "z" * 500), line("last")]
    memory.file.write_text("".join(f"{text}\n" for text in lines))
    assert memory.crawl().replaced == 1
    assert memory.archived() == lines


def test_a_torn_tail_cut_off_again_is_no_replacement(memory):
    memory.append(f"{line(1)}\n{line(2)[:6]}")
    memory.crawl()
    memory.file.write_text(lines_of(1))
    assert memory.crawl().replaced == 0
    assert memory.archived() == [line(1)]


def test_a_moved_file_keeps_its_archive_and_is_read_there(memory):
    memory.append(lines_of(1))
    memory.crawl()
    moved = f"{uuid.UUID(int=2)}.jsonl"
    os.rename(memory.file, memory.folder / moved)
    report = memory.crawl()
    assert (report.new, report.gone) == (1, 1)
    assert memory.archived() == memory.archived(path=moved) == [line(1)]


def test_a_vanished_file_goes_on_when_it_returns(memory):
    memory.append(lines_of(1))
    memory.crawl()
    os.rename(memory.file, memory.base / "aside")
    assert memory.crawl().gone == 1
    assert memory.crawl().gone == 0
    assert memory.archived() == [line(1)]
    os.rename(memory.base / "aside", memory.file)
    memory.append(lines_of(2))
    report = memory.crawl()
    assert (report.grown, report.lines) == (1, 1)
    assert not memory.cursor().gone
    assert memory.archived() == [line(1), line(2)]


def test_the_files_of_a_removed_folder_are_gone(memory):
    memory.append(lines_of(1))
    memory.crawl()
    os.rename(memory.folder, memory.base / "aside")
    assert memory.changed()
    report = memory.crawl()
    assert (report.gone, report.problems) == (1, [])
    assert memory.store.overview.counts(memory.source.key).files_gone == 1
    assert not memory.changed()
    os.rename(memory.base / "aside", memory.folder)
    memory.crawl()
    assert not memory.cursor().gone


@pytest.mark.parametrize("instead", ["a file", "a link that leads nowhere"])
def test_nothing_is_gone_when_the_folder_cannot_be_listed(memory, instead):
    memory.append(lines_of(1))
    memory.crawl()
    os.rename(memory.folder, memory.base / "unmounted")
    if instead == "a file":
        memory.folder.write_text("in its place")
    else:
        memory.folder.symlink_to(memory.base / "nowhere")
    report = memory.crawl()
    assert report.gone == 0
    assert len(report.problems) == 1
    assert not memory.cursor().gone


@pytest.mark.parametrize("kind", ["claude_logs", "claude_history"])
@pytest.mark.parametrize("folder", ["-home-dev-acme", "."])
def test_nothing_is_taken_for_gone_when_the_root_is_missing(memory, kind, folder):
    root = memory.folder if folder == "." else memory.folder.parent
    memory.source = dataclasses.replace(memory.source, root=os.fspath(root), folder=folder, kind=kind)
    memory.append(lines_of(1), path=HISTORY if kind == "claude_history" else SESSION)
    assert memory.crawl().new == 1
    os.rename(root, memory.base / "unmounted")
    report = memory.crawl()
    assert report.gone == 0
    assert "no such file" in report.problems[0]
    with pytest.raises(SourceUnreadable):
        memory.changed()
    assert memory.store.overview.counts().files_gone == 0


class LosesOneFile(LocalHost):
    """A host on which one file cannot be read."""

    def read(self, path, offset, length):
        return super().read(path + "-lost" if path.endswith(SESSION) else path, offset, length)


def test_an_unreadable_file_is_reported_and_the_others_are_read(memory):
    other = f"{uuid.UUID(int=2)}.jsonl"
    memory.append(lines_of(1))
    memory.append(lines_of(2), other)
    memory.host = LosesOneFile("box")
    report = memory.crawl()
    assert report.lines == 1
    assert SESSION in report.problems[0]
    assert memory.archived(path=other) == [line(2)]
    memory.host = LocalHost("box")
    assert memory.crawl().lines == 1


def test_an_unreadable_file_asks_for_no_crawl_until_it_changes(memory):
    memory.append(lines_of(1))
    assert memory.crawl().lines == 1
    memory.host = LosesOneFile("box")
    memory.append(lines_of(2))
    assert memory.changed()
    memory.crawl()
    assert SESSION in memory.cursor().unread
    assert not memory.changed(), "each tick would ask for a run"
    memory.append(lines_of(3))
    assert memory.changed()
    memory.crawl()
    memory.host = LocalHost("box")
    assert memory.crawl().lines == 2, "any crawl tries again, though nothing changed since"
    assert memory.archived() == [line(1), line(2), line(3)]
    assert not memory.cursor().unread


def test_what_is_written_while_a_file_is_read_is_seen_next_time(memory):
    memory.append(lines_of(1))

    def mask_and_write(text):
        memory.append(f"{line('later')}\n")
        return text, Counter()

    assert memory.crawl(mask_and_write).lines == 1
    assert memory.changed()
    assert memory.crawl().lines == 1
    assert not memory.changed()


def test_secrets_are_masked_before_they_reach_the_disk(memory):
    secret = "ghp" + "_" + "a1B2c3" * 6
    memory.append(f"{line(1, f'use {secret} please')}\n")
    report = memory.crawl(Redactor(b"salt").mask_line)
    assert report.masked == {"github": 1}
    assert "[REDACTED:github:" in memory.archived()[0]
    for file in memory.base.rglob("*"):
        if file.is_file() and file != memory.file:
            assert secret.encode() not in file.read_bytes()


def test_a_big_file_becomes_frames_of_bounded_size(memory, monkeypatch):
    monkeypatch.setattr(crawl_module, "FRAME_LINES", 7)
    monkeypatch.setattr(lines_module, "BATCH_CHARS", 300)
    lines = [line(n, "x" * (n % 400)) for n in range(100)]
    memory.append("".join(f"{text}\n" for text in lines))
    assert memory.crawl().lines == 100
    frames = memory.store.archive.frames(memory.source.key, SESSION, 0)
    assert all(frame.lines <= 7 for frame in frames)
    assert len(frames) > 20
    assert memory.archived() == lines


# --- a crawl that others overtake, or that dies -----------------------------------------------------------


class SlowerThanAnother:
    """Records of files on which another run commits first, once."""

    def __init__(self, files, other_run):
        self._files, self._other_run = files, other_run

    def __getattr__(self, name):
        return getattr(self._files, name)

    def commit_crawl(self, before, after, frame):
        other_run, self._other_run = self._other_run, None
        if other_run:
            other_run(before, after)
        return self._files.commit_crawl(before, after, frame)


def test_a_run_that_lost_the_race_leaves_the_file_to_the_winner(memory):
    memory.append(lines_of(1))
    memory.crawl()
    memory.append(lines_of(2))
    real = memory.store

    def parser_commits(before, after):
        assert real.files.commit_crawl(before, dataclasses.replace(before, parsed_lines=1), None)

    memory.store = dataclasses.replace(real, files=SlowerThanAnother(real.files, parser_commits))
    assert memory.crawl().lines == 0
    memory.store = real
    assert memory.crawl().lines == 1
    assert memory.cursor().parsed_lines == 1
    assert memory.archived() == [line(1), line(2)]


CRASH = """
import os, sys
sys.path.insert(0, sys.argv[2])
from anamnesis_tests.support.crawled_logs import Memory
from anamnesis_pipeline.pipeline import crawl
crawl.FRAME_LINES = 10
memory = Memory(sys.argv[1])
left = int(sys.argv[3])
append = memory.archive.append
def crash_after_append(*args, **kw):
    global left
    frame = append(*args, **kw)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
    return frame
memory.archive.append = crash_after_append
memory.crawl()
"""


@pytest.mark.parametrize("frames_before_the_crash", [1, 3])
def test_a_crash_before_the_commit_loses_and_repeats_nothing(memory, monkeypatch, frames_before_the_crash):
    lines = [line(n) for n in range(55)]
    memory.append("".join(f"{text}\n" for text in lines))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", CRASH, os.fspath(memory.base), os.fspath(root), str(frames_before_the_crash)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    committed = memory.store.files.cursors(memory.source.key)
    assert sum(cursor.lines for cursor in committed.values()) == 10 * (frames_before_the_crash - 1)
    monkeypatch.setattr(crawl_module, "FRAME_LINES", 13)
    memory.crawl()
    assert memory.archived() == lines
    assert memory.crawl().bytes_read == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("append tear cut replace crawl".split()), st.integers(0, 6)), max_size=14))
def test_any_history_leaves_the_whole_lines_of_each_generation(history):
    with tempfile.TemporaryDirectory() as base:
        memory = Memory(base)
        try:
            _live(memory, history)
        finally:
            memory.store.close()


def _live(memory, history):
    """Play a history on a real file, and beside it on a list of lines; compare at each crawl."""
    written, torn, count, generations = [], "", 0, {}
    for what, size in [*history, ("crawl", 0)]:
        count += size
        fresh = [line(count - n, "y" * size) for n in range(size)]
        if what == "append":
            memory.append("".join(f"{text}\n" for text in fresh))
            if fresh:
                written, torn = [*written, torn + fresh[0], *fresh[1:]], ""
        elif what == "tear":
            memory.append(line("torn")[: 3 + size])
            torn += line("torn")[: 3 + size]
        elif what == "cut" and memory.file.exists():
            written, torn = written[: max(0, len(written) - size)], ""
            os.truncate(memory.file, sum(len(text) + 1 for text in written))
        elif what == "replace":
            written, torn = fresh, ""
            memory.replace("".join(f"{text}\n" for text in fresh))
        elif what == "crawl":
            assert memory.crawl().problems == []
            if memory.file.exists():
                generations[memory.cursor().generation] = list(written)
            assert {number: memory.archived(number) for number in generations} == generations


# --- files that are read ahead ----------------------------------------------------------------------------


CONTENTS = {f"/{number}": bytes([number]) * 50 + bytes(range(100)) for number in range(2 * AHEAD_FILES)}
RANGES = st.lists(st.tuples(st.integers(0, 160), st.integers(0, 160)), max_size=3)


def read(path: str, offset: int, length: int) -> bytes:
    return CONTENTS[path][offset : offset + length]


@given(st.data())
def test_whatever_is_read_is_the_same_as_without_reading_ahead(data):
    files = [(path, data.draw(RANGES)) for path in data.draw(st.permutations(sorted(CONTENTS)))]
    asked = data.draw(st.lists(st.tuples(st.sampled_from(files), st.integers(0, 160), st.integers(0, 160)), max_size=8))
    with reading_ahead(read, files[: data.draw(st.integers(0, len(files)))]) as ahead:
        for (path, _), offset, length in asked:
            assert ahead(path, offset, length) == read(path, offset, length)


@given(st.integers(0, 3 * BLOCK_BYTES), st.integers(0, 3 * BLOCK_BYTES))
def test_ranges_of_a_grown_log_hold_fingerprints_and_new_block(offset, more):
    ranges = ranges_of_grown(offset, offset + more)
    length = min(FINGERPRINT_BYTES, offset)
    for start, count in ((0, length), (offset - length, length), (offset, min(more, BLOCK_BYTES))):
        assert any(low <= start and start + count <= low + held for low, held in ranges)
    assert sum(count for _, count in ranges) <= BLOCK_BYTES + 2 * FINGERPRINT_BYTES


def test_no_more_files_are_held_than_a_few_ahead_of_the_reader():
    begun: set[str] = set()

    def noted(path: str, offset: int, length: int) -> bytes:
        begun.add(path)
        return read(path, offset, length)

    with reading_ahead(noted, [(path, [(0, 10)]) for path in CONTENTS]) as ahead:
        ahead("/3", 0, 10)
    assert begun <= {f"/{number}" for number in range(3, 3 + AHEAD_FILES)}


def test_an_unreadable_file_is_a_problem_of_no_other():
    def lost(path: str, offset: int, length: int) -> bytes:
        if path == "/1":
            raise SourceUnreadable(path)
        return read(path, offset, length)

    with reading_ahead(lost, [(path, [(0, 10)]) for path in CONTENTS]) as ahead:
        assert ahead("/0", 0, 10) == read("/0", 0, 10)
        with pytest.raises(SourceUnreadable):
            ahead("/1", 0, 10)
        assert ahead("/2", 0, 10) == read("/2", 0, 10)


class MeetsOthers(LocalHost):
    """A host whose first reads wait until so many are under way."""

    def __init__(self) -> None:
        super().__init__("box")
        self.meeting: threading.Barrier | None = None
        self._met = threading.local()

    def read(self, path: str, offset: int, length: int) -> bytes:
        if self.meeting is not None and not getattr(self._met, "done", False):
            self._met.done = True
            self.meeting.wait(60)
        return super().read(path, offset, length)


def test_logs_that_grew_are_read_several_at_once(tmp_path):
    memory = Memory(tmp_path)
    memory.host = MeetsOthers()
    names = [f"{uuid.UUID(int=number)}.jsonl" for number in range(3 * READS_AT_ONCE)]
    for name in names:
        memory.append(lines_of(1), name)
    assert memory.crawl().new == len(names)
    for name in names:
        memory.append(lines_of(2), name)
    memory.host.meeting = threading.Barrier(READS_AT_ONCE)
    report = memory.crawl()
    assert (report.grown, report.lines, report.problems) == (len(names), len(names), [])
    assert all(memory.archived(path=name) == [line(1), line(2)] for name in names)
    assert memory.crawl().grown == 0
