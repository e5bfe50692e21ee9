"""What changed, decided from listings alone."""

import random
import time

from anamnesis_pipeline.model import FileCursor, FileStat
from anamnesis_pipeline.sources.base import is_log
from anamnesis_pipeline.sources.selection import changed_files, select

FILE = FileStat("a.jsonl", size=100, mtime_ns=5, device=1, inode=9)
CURSOR = FileCursor("s", "a.jsonl", device=1, inode=9, size=100, mtime_ns=5, offset=90, lines=3)


def changed(**fields):
    values = {"path": FILE.path, "size": 100, "mtime_ns": 5, "device": 1, "inode": 9} | fields
    return FileStat(**values)


def test_sessions_and_agents_are_logs_and_nothing_else_is():
    session = "4d1a88f3-459b-4809-ad4a-fb323d681e86"
    assert is_log(f"{session}.jsonl")
    assert is_log(f"{session}.jsonl.orphaned-1786698001120")
    assert is_log(f"{session}.orphaned-1786698001120-ab12.jsonl")
    assert is_log(f"{session}.jsonl.superseded-1786698001120")
    assert is_log(f"{session}.superseded-1786698001120-q1.jsonl")
    assert is_log(f"{session}.orphaned-2026-09-02T08:00:00.000Z-ab12.jsonl")
    assert is_log(f"{session}.jsonl.superseded-2026-09-02T08-00-00-000Z")
    assert is_log("agent-a41c9d02.jsonl")
    assert is_log(f"{session}/subagents/agent-a41c9d02.jsonl")
    assert is_log(f"{session}/subagents/workflows/run1/agent-7.jsonl")
    for other in ("journal.jsonl", "history.jsonl", f"{session}.jsonl.orphaned-", f"{session}.json",
                  f"{session}.jsonl.bak-1", f"{session}.orphaned.jsonl", f"{session}.jsonl.superseded",
                  "agent-a41c9d02.meta.json", f"{session}", f"x{session}.jsonl", "memory/MEMORY.md"):  # fmt: skip
        assert not is_log(other), other


def test_the_same_size_time_and_identity_mean_unchanged():
    assert select([FILE], {"a.jsonl": CURSOR}).unchanged == 1
    assert changed_files([FILE], {"a.jsonl": CURSOR}) == 0


def test_an_unknown_path_is_new():
    assert select([FILE], {}).new == (FILE,)


def test_a_longer_or_touched_file_has_grown():
    for file in (changed(size=200), changed(mtime_ns=6), changed(size=95), changed(device=2)):
        assert select([file], {"a.jsonl": CURSOR}).grown == ((file, CURSOR),)


def test_a_file_shorter_than_what_was_read_or_with_another_inode_is_replaced():
    for file in (changed(size=89), changed(inode=10), changed(inode=10, size=500)):
        assert select([file], {"a.jsonl": CURSOR}).replaced == ((file, CURSOR),)


def test_a_moved_file_is_new_in_one_place_and_gone_from_the_other():
    moved = changed(path="b.jsonl")
    selection = select([moved], {"a.jsonl": CURSOR})
    assert (selection.new, selection.gone) == ((moved,), ("a.jsonl",))


def test_nothing_is_gone_when_a_folder_could_not_be_listed():
    assert select([], {"a.jsonl": CURSOR}, complete=False).gone == ()
    assert select([], {"a.jsonl": CURSOR}).gone == ("a.jsonl",)


def test_a_file_that_comes_back_unchanged_is_looked_at_again():
    gone = FileCursor("s", "a.jsonl", device=1, inode=9, size=100, mtime_ns=5, offset=90, gone=True)
    assert select([FILE], {"a.jsonl": gone}).grown == ((FILE, gone),)
    assert select([], {"a.jsonl": gone}).gone == ()


def test_many_unchanged_files_are_compared_in_a_blink():
    files = [FileStat(f"{n}.jsonl", n, n, 1, n) for n in range(50_000)]
    cursors = {f.path: FileCursor("s", f.path, 1, f.inode, f.size, f.mtime_ns) for f in files}
    random.Random(1).shuffle(files)
    started = time.process_time()
    assert changed_files(files, cursors) == 0
    assert time.process_time() - started < 5, "each with each would be minutes"
