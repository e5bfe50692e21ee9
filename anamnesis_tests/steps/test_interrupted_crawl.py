"""A crawl that others overtake, that dies, and whose files change in any way: real crashes, on the real store."""

import dataclasses
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.steps import crawl as crawl_module
from anamnesis_tests.steps.crawled_logs import Memory, line, lines_of


@pytest.fixture
def memory(tmp_path):
    memory = Memory(tmp_path)
    yield memory
    memory.store.close()


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
from anamnesis_tests.steps.crawled_logs import Memory
from anamnesis_pipeline.steps import crawl
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
