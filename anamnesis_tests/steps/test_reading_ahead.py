import threading
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.errors import SourceUnreadable
from anamnesis_pipeline.sources.lines import BLOCK_BYTES, FINGERPRINT_BYTES
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.steps.reading_ahead import AHEAD_FILES, AT_ONCE, ranges_of_grown, reading_ahead
from anamnesis_tests.steps.crawled_logs import Memory, line, lines_of

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
    names = [f"{uuid.UUID(int=number)}.jsonl" for number in range(3 * AT_ONCE)]
    for name in names:
        memory.append(lines_of(1), name)
    assert memory.crawl().new == len(names)
    for name in names:
        memory.append(lines_of(2), name)
    memory.host.meeting = threading.Barrier(AT_ONCE)
    report = memory.crawl()
    assert (report.grown, report.lines, report.problems) == (len(names), len(names), [])
    assert all(memory.archived(path=name) == [line(1), line(2)] for name in names)
    assert memory.crawl().grown == 0
