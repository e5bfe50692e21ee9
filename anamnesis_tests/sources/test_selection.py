"""What changed, decided from listings alone."""

import random
import time
from dataclasses import replace

import pytest

from anamnesis_pipeline.model import FileCursor, FileStat
from anamnesis_pipeline.sources.base import is_log
from anamnesis_pipeline.sources.selection import Selection, changed_files, select

FILE = FileStat("a.jsonl", size=100, mtime_ns=5, device=1, inode=9)
CURSOR = FileCursor("s", "a.jsonl", device=1, inode=9, size=100, mtime_ns=5, offset=90, lines=3)


SESSION = "4d1a88f3-459b-4809-ad4a-fb323d681e86"
LOGS = f"""
{SESSION}.jsonl {SESSION}.jsonl.orphaned-1786698001120 {SESSION}.orphaned-1786698001120-ab12.jsonl agent-a41c9d02.jsonl
{SESSION}.jsonl.superseded-1786698001120 {SESSION}.superseded-1786698001120-q1.jsonl
{SESSION}.orphaned-2026-09-02T08:00:00.000Z-ab12.jsonl {SESSION}.jsonl.superseded-2026-09-02T08-00-00-000Z
{SESSION}/subagents/agent-a41c9d02.jsonl {SESSION}/subagents/workflows/run1/agent-7.jsonl
""".split()
OTHERS = f"""
journal.jsonl history.jsonl {SESSION}.jsonl.orphaned- {SESSION}.json {SESSION}.jsonl.bak-1 {SESSION}.orphaned.jsonl
{SESSION}.jsonl.superseded agent-a41c9d02.meta.json {SESSION} x{SESSION}.jsonl memory/MEMORY.md
""".split()


@pytest.mark.parametrize("name", [*LOGS, *OTHERS])
def test_sessions_and_agents_are_logs_and_nothing_else_is(name):
    assert is_log(name) is (name in LOGS)


@pytest.mark.parametrize(
    ("fields", "cursor", "group"),
    [
        ({}, CURSOR, "unchanged"),
        ({}, None, "new"),
        ({"size": 200}, CURSOR, "grown"),
        ({"size": 95}, CURSOR, "grown"),
        ({"mtime_ns": 6}, CURSOR, "grown"),
        ({"device": 2}, CURSOR, "grown"),
        ({"size": 89}, CURSOR, "replaced"),  # shorter than what was read
        ({"inode": 10}, CURSOR, "replaced"),
        ({"inode": 10, "size": 500}, CURSOR, "replaced"),
        ({}, replace(CURSOR, gone=True), "grown"),  # it comes back
    ],
)
def test_a_file_is_compared_with_what_was_read_of_it(fields, cursor, group):
    file = replace(FILE, **fields)
    found = select([file], {FILE.path: cursor} if cursor else {})
    expected = {"unchanged": 1, "new": (file,)}.get(group, ((file, cursor),))
    assert found == replace(Selection((), (), (), (), 0), **{group: expected})
    assert changed_files([file], {FILE.path: cursor} if cursor else {}) == (group != "unchanged")


def test_a_moved_file_is_new_in_one_place_and_gone_from_the_other():
    moved = replace(FILE, path="b.jsonl")
    selection = select([moved], {"a.jsonl": CURSOR})
    assert (selection.new, selection.gone) == ((moved,), ("a.jsonl",))


def test_nothing_is_gone_when_a_folder_could_not_be_listed():
    assert select([], {"a.jsonl": CURSOR}, complete=False).gone == ()
    assert select([], {"a.jsonl": CURSOR}).gone == ("a.jsonl",)
    assert select([], {"a.jsonl": replace(CURSOR, gone=True)}).gone == ()


def test_many_unchanged_files_are_compared_in_a_blink():
    files = [FileStat(f"{n}.jsonl", n, n, 1, n) for n in range(50_000)]
    cursors = {f.path: FileCursor("s", f.path, 1, f.inode, f.size, f.mtime_ns) for f in files}
    random.Random(1).shuffle(files)
    started = time.process_time()
    assert changed_files(files, cursors) == 0
    assert time.process_time() - started < 5, "each with each would be minutes"
