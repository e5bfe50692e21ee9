"""The crawl: real files, the real store, real crashes."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.exchanges.redaction import Redactor
from anamnesis_pipeline.model import Source
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.sources.base import HISTORY
from anamnesis_pipeline.sources.discovery import source_key
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.steps import crawl as crawl_module
from anamnesis_pipeline.steps.crawl import crawl_source, source_changed
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

SESSION = f"{uuid.UUID(int=1)}.jsonl"


def unmasked(line):
    return line, Counter()


class Memory:
    """A log folder, a store and an archive in one temporary place."""

    def __init__(self, base):
        self.base = Path(base)
        self.folder = self.base / "projects" / "-home-dev-acme"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / SESSION
        root = os.fspath(self.folder.parent)
        self.source = Source(source_key("box", root, self.folder.name), "box", root, self.folder.name)
        self.store = open_sqlite(self.base / "memory.db", self.base / "index")
        self.store.ingest.put_sources([self.source])
        self.archive = Archive(self.base / "archive")
        self.host = LocalHost("box")

    def crawl(self, mask=unmasked):
        return crawl_source(self.store, self.host, self.archive, self.source, mask)

    def cursor(self, path=SESSION):
        return self.store.ingest.cursors(self.source.key)[path]

    def archived(self, generation=None, path=SESSION):
        generation = self.cursor(path).generation if generation is None else generation
        frames = self.store.ingest.frames(self.source.key, path, generation)
        return list(self.archive.lines(self.source.key, path, frames))

    def append(self, text, path=SESSION):
        with open(self.folder / path, "ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def memory(tmp_path):
    memory = Memory(tmp_path)
    yield memory
    memory.store.close()


def line(number, text="hello"):
    return json.dumps({"n": number, "text": text})


def test_new_lines_are_archived_once(memory):
    memory.append(f"{line(1)}\n{line(2)}\n")
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
    text = line(1)
    memory.append(text[:5])
    assert memory.crawl().lines == 0
    assert memory.crawl().bytes_read == 0
    memory.append(text[5:])
    assert memory.crawl().lines == 1
    memory.append("\n")
    assert memory.crawl().lines == 0
    memory.append(f"{line(2)}\n")
    memory.crawl()
    assert memory.archived() == [text, line(2)]


def test_glued_and_windows_lines_are_kept_as_lines(memory):
    glued = '{"type":"pr-link","prNu{"type":"user"}'
    memory.append(f"\ufeff{line(1)}\r\n{glued}\r\n\r\n{line(2)}\r\n")
    assert memory.crawl().lines == 3
    assert memory.archived() == [line(1), glued, line(2)]


def test_a_shrunken_file_is_read_again_as_a_new_generation(memory):
    memory.append("".join(f"{line(n)}\n" for n in range(10)))
    memory.crawl()
    memory.file.write_text(f"{line(0)}\n")
    assert memory.crawl().replaced == 1
    assert memory.cursor().generation == 1
    assert memory.archived() == [line(0)]
    assert memory.archived(generation=0) == [line(n) for n in range(10)]


def test_a_file_replaced_by_another_of_the_same_size_is_noticed(memory):
    memory.append(f"{line(1)}\n")
    memory.crawl()
    memory.file.write_text(f"{line(2)}\n")  # same inode and size
    os.utime(memory.file, ns=(1, 1))
    assert memory.crawl().replaced == 1
    other = memory.folder / "draft"
    other.write_text(f"{line(3)}\n")
    os.replace(other, memory.file)  # another inode
    assert memory.crawl().replaced == 1
    assert [memory.archived(generation) for generation in range(3)] == [[line(1)], [line(2)], [line(3)]]


def test_a_file_that_is_saved_as_a_new_one_in_its_place_is_archived_once(memory):
    written = ""
    for tick in range(6):
        written += "".join(f"{line(100 * tick + n)}\n" for n in range(100))
        (memory.folder / "draft").write_text(written)
        os.replace(memory.folder / "draft", memory.file)
        report = memory.crawl()
        assert (report.replaced, report.lines) == (0, 100)
    assert memory.cursor().generation == 0
    assert memory.archived() == written.splitlines()


def test_a_file_in_another_ones_place_that_differs_in_its_middle_is_noticed(memory):
    lines = [line(n, "x" * 100) for n in range(1_000)]
    memory.append("".join(f"{text}\n" for text in lines))
    memory.crawl()
    lines[500] = line(500, "y" * 100)
    (memory.folder / "draft").write_text("".join(f"{text}\n" for text in [*lines, line(1_000)]))
    os.replace(memory.folder / "draft", memory.file)
    assert memory.crawl().replaced == 1
    assert memory.archived() == [*lines, line(1_000)]


def test_a_file_cut_in_place_and_grown_beyond_its_old_size_is_noticed(memory):
    memory.append("".join(f"{line(n)}\n" for n in range(1000)))
    memory.crawl()
    kept = [line(n) for n in range(999)]
    memory.file.write_text("".join(f"{text}\n" for text in [*kept, line("other", "z" * 500), line("last")]))
    assert memory.crawl().replaced == 1
    assert memory.archived() == [*kept, line("other", "z" * 500), line("last")]


def test_a_torn_tail_cut_off_again_is_no_replacement(memory):
    memory.append(f"{line(1)}\n{line(2)[:6]}")
    memory.crawl()
    memory.file.write_text(f"{line(1)}\n")
    assert memory.crawl().replaced == 0
    assert memory.archived() == [line(1)]


def test_a_moved_file_keeps_its_archive_and_is_read_in_its_new_place(memory):
    memory.append(f"{line(1)}\n")
    memory.crawl()
    moved = f"{uuid.UUID(int=2)}.jsonl"
    os.rename(memory.file, memory.folder / moved)
    report = memory.crawl()
    assert (report.new, report.gone) == (1, 1)
    assert memory.archived() == memory.archived(path=moved) == [line(1)]


def test_a_vanished_file_keeps_its_archive_and_goes_on_when_it_returns(memory):
    memory.append(f"{line(1)}\n")
    memory.crawl()
    os.rename(memory.file, memory.base / "aside")
    assert memory.crawl().gone == 1
    assert memory.crawl().gone == 0
    assert memory.archived() == [line(1)]
    os.rename(memory.base / "aside", memory.file)
    memory.append(f"{line(2)}\n")
    report = memory.crawl()
    assert (report.grown, report.lines) == (1, 1)
    assert not memory.cursor().gone
    assert memory.archived() == [line(1), line(2)]


def test_the_files_of_a_folder_that_was_removed_are_gone_and_that_is_no_problem(memory):
    memory.append(f"{line(1)}\n")
    memory.crawl()
    os.rename(memory.folder, memory.base / "aside")
    assert source_changed(memory.store, memory.host, memory.source)
    report = memory.crawl()
    assert (report.gone, report.problems) == (1, [])
    assert memory.store.ingest.counts(memory.source.key).files_gone == 1
    assert not source_changed(memory.store, memory.host, memory.source)
    os.rename(memory.base / "aside", memory.folder)
    memory.crawl()
    assert not memory.cursor().gone


@pytest.mark.parametrize("place", ["a file", "a link that leads nowhere"])
def test_nothing_is_taken_for_gone_when_the_folder_cannot_be_listed(memory, place):
    memory.append(f"{line(1)}\n")
    memory.crawl()
    os.rename(memory.folder, memory.base / "unmounted")
    if place == "a file":
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
    memory.append(f"{line(1)}\n", path=HISTORY if kind == "claude_history" else SESSION)
    assert memory.crawl().new == 1
    os.rename(root, memory.base / "unmounted")
    report = memory.crawl()
    assert report.gone == 0
    assert "no such file" in report.problems[0]
    with pytest.raises(SourceUnreadable):
        source_changed(memory.store, memory.host, memory.source)
    assert memory.store.ingest.counts().files_gone == 0


class LosesOneFile(LocalHost):
    """A host on which one file cannot be read."""

    def read(self, path, offset, length):
        return super().read(path + "-lost" if path.endswith(SESSION) else path, offset, length)


def test_an_unreadable_file_is_reported_and_the_others_are_read(memory):
    other = f"{uuid.UUID(int=2)}.jsonl"
    memory.append(f"{line(1)}\n")
    memory.append(f"{line(2)}\n", other)
    memory.host = LosesOneFile("box")
    report = memory.crawl()
    assert report.lines == 1
    assert SESSION in report.problems[0]
    assert memory.archived(path=other) == [line(2)]
    memory.host = LocalHost("box")
    assert memory.crawl().lines == 1


def test_a_file_that_cannot_be_read_asks_for_no_crawl_until_it_changes_and_loses_nothing(memory):
    memory.append(f"{line(1)}\n")
    assert memory.crawl().lines == 1
    memory.host = LosesOneFile("box")
    memory.append(f"{line(2)}\n")
    assert source_changed(memory.store, memory.host, memory.source)
    memory.crawl()
    assert SESSION in memory.cursor().unread
    assert not source_changed(memory.store, memory.host, memory.source), "each tick would ask for a run"
    memory.append(f"{line(3)}\n")
    assert source_changed(memory.store, memory.host, memory.source)
    memory.crawl()
    memory.host = LocalHost("box")
    assert memory.crawl().lines == 2, "any crawl tries again, though nothing changed since"
    assert memory.archived() == [line(1), line(2), line(3)]
    assert not memory.cursor().unread


def test_what_is_written_while_a_file_is_read_is_seen_next_time(memory):
    memory.append(f"{line(1)}\n")

    def mask_and_write(text):
        memory.append(f"{line('later')}\n")
        return text, Counter()

    assert memory.crawl(mask_and_write).lines == 1
    assert source_changed(memory.store, memory.host, memory.source)
    assert memory.crawl().lines == 1
    assert not source_changed(memory.store, memory.host, memory.source)


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
    monkeypatch.setattr(crawl_module, "FRAME_BYTES", 300)
    lines = [line(n, "x" * (n % 400)) for n in range(100)]
    memory.append("".join(f"{text}\n" for text in lines))
    assert memory.crawl().lines == 100
    frames = memory.store.ingest.frames(memory.source.key, SESSION, 0)
    assert all(frame.lines <= 7 for frame in frames)
    assert len(frames) > 20
    assert memory.archived() == lines


class SlowerThanAnother:
    """Ingest records on which another run commits first, once."""

    def __init__(self, ingest, other_run):
        self._ingest, self._other_run = ingest, other_run

    def __getattr__(self, name):
        return getattr(self._ingest, name)

    def commit_crawl(self, before, after, frame):
        other_run, self._other_run = self._other_run, None
        if other_run:
            other_run(before, after)
        return self._ingest.commit_crawl(before, after, frame)


def test_a_run_that_lost_the_race_leaves_the_file_to_the_winner(memory):
    memory.append(f"{line(1)}\n")
    memory.crawl()
    memory.append(f"{line(2)}\n")
    real = memory.store

    def parser_commits(before, after):
        assert real.ingest.commit_crawl(before, dataclasses.replace(before, parsed_lines=1), None)

    memory.store = dataclasses.replace(real, ingest=SlowerThanAnother(real.ingest, parser_commits))
    assert memory.crawl().lines == 0
    memory.store = real
    assert memory.crawl().lines == 1
    assert memory.cursor().parsed_lines == 1
    assert memory.archived() == [line(1), line(2)]


CRASH = """
import os, sys
sys.path.insert(0, sys.argv[2])
from anamnesis_tests.steps import test_crawl_step as t
from anamnesis_pipeline.steps import crawl
crawl.FRAME_LINES = 10
memory = t.Memory(sys.argv[1])
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
def test_a_crash_between_append_and_commit_loses_and_repeats_nothing(memory, monkeypatch, frames_before_the_crash):
    lines = [line(n) for n in range(55)]
    memory.append("".join(f"{text}\n" for text in lines))
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", CRASH, os.fspath(memory.base), os.fspath(root), str(frames_before_the_crash)]
    assert subprocess.run(command, timeout=60, check=False).returncode == -9
    committed = memory.store.ingest.cursors(memory.source.key)
    assert sum(cursor.lines for cursor in committed.values()) == 10 * (frames_before_the_crash - 1)
    monkeypatch.setattr(crawl_module, "FRAME_LINES", 13)
    memory.crawl()
    assert memory.archived() == lines
    assert memory.crawl().bytes_read == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(["append", "tear", "cut", "replace", "crawl"]), st.integers(0, 6)), max_size=14)
)
def test_any_history_leaves_exactly_the_complete_lines_of_each_generation(history):
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
            (memory.folder / "draft").write_text("".join(f"{text}\n" for text in fresh))
            os.replace(memory.folder / "draft", memory.file)
        elif what == "crawl":
            assert memory.crawl().problems == []
            if memory.file.exists():
                generations[memory.cursor().generation] = list(written)
            assert {number: memory.archived(number) for number in generations} == generations


def test_unchanged_files_read_no_byte(memory):
    for number in range(200):
        memory.append(f"{line(number)}\n", f"{uuid.UUID(int=number)}.jsonl")
    assert memory.crawl().new == 200
    report = memory.crawl()
    assert (report.unchanged, report.bytes_read, report.problems) == (200, 0, [])
