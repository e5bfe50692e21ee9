"""What `up` prints about the ingest."""

import io
import itertools
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from anamnesis_pipeline.errors import StoreBusy, StoreCorrupt
from anamnesis_pipeline.runtime import progress
from anamnesis_pipeline.runtime.progress import (
    Snapshot,
    done_text,
    duration,
    is_up_to_date,
    progress_text,
    rate,
    show_progress,
)
from anamnesis_pipeline.store.records.overview import SourceCounts

WHOLE = SourceCounts(files=12, exchanges=40, parts=200, open_parts=1, episodes=199, passages=1200)


def at(seconds: float, embedded: int = 1200, counts: SourceCounts = WHOLE) -> Snapshot:
    return Snapshot(seconds, counts, embedded)


def test_line_names_files_episodes_passages_rate_and_time_left() -> None:
    begun = [at(0, 0), at(10, 300)]
    rest = "199 episodes, 300 of 1,200 passages embedded, 30/s, about 30 s left"
    assert progress_text(begun, files=14) == f"Reading: 12 of at least 14 files, {rest}"
    assert "Reading: 12 files, " in progress_text(begun, files=5), "with documents, which nobody counted"
    assert progress_text([], files=3) == "Waiting for the first look at the logs"
    assert "left" not in progress_text([at(0, 0), at(10, 0)], files=12), "while nothing is embedded"
    assert "2.5/s" in progress_text([at(0, 0), at(10, 25)], files=12)
    assert rate([at(0, 0), at(100, 500), at(150, 1000)]) == 10, "that of the last minute"
    assert [duration(s) for s in (0.2, 59, 180, 7500)] == ["1 s", "59 s", "3 min", "2 h 5 min"]


def test_up_to_date_is_what_has_not_changed_for_a_while() -> None:
    assert is_up_to_date([at(0), at(6)], files=12)
    assert not is_up_to_date([at(0), at(2)], files=12)
    assert not is_up_to_date([], files=0)
    counts = replace(WHOLE, parts=203, kept_away=3)
    assert is_up_to_date([at(0, counts=counts), at(6, counts=counts)], files=12), "what a rule holds back counts not"
    assert is_up_to_date([at(0), at(181)], files=13), "files that never arrive are not waited for for ever"


@pytest.mark.parametrize(
    "lacking",
    [
        at(6, embedded=1199),
        at(6, counts=replace(WHOLE, unparsed_lines=3)),
        at(6, counts=replace(WHOLE, files=11)),
        at(6, counts=replace(WHOLE, episodes=198)),
    ],
    ids=["a passage lacks its vector", "lines wait for the parser", "a file is missing", "an episode is missing"],
)
def test_memory_is_not_up_to_date_while_anything_is_missing(lacking: Snapshot) -> None:
    assert not is_up_to_date([replace(lacking, at=0), lacking], files=12)


def test_before_the_first_look_nothing_is_up_to_date() -> None:
    unseen = [replace(at(seconds), is_seen=False) for seconds in (0, 200)]
    assert not is_up_to_date(unseen, files=12)
    assert progress_text(unseen, files=12).startswith("Waiting for the first look at the sources since the start; so")
    assert is_up_to_date([*unseen, at(201), at(207)], files=12)
    assert not is_up_to_date([*unseen, at(201)], files=12), "what it found is read first"


def test_without_a_terminal_the_same_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    out, clock = io.StringIO(), itertools.count(0, 10)
    stop = threading.Event()

    def read() -> Snapshot:
        now = next(clock)
        if now > 150:
            stop.set()
        return at(now, embedded=1100)

    monkeypatch.setattr(progress, "_PLAIN_LINE_EVERY_S", 0.0)
    show_progress(read, 12, Console(file=out, width=40), stop, sample_every_s=0.001)
    lines = out.getvalue().splitlines()
    assert ["nothing new" in line for line in lines] == [False, True]


def test_without_a_terminal_plain_lines_end_with_the_result() -> None:
    out = io.StringIO()
    snapshots = itertools.chain([at(0, 0), at(2)], (at(10.0 + n) for n in itertools.count()))
    show_progress(lambda: next(snapshots), 12, Console(file=out, width=40), threading.Event(), sample_every_s=0.001)
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("Reading: 12 files")
    assert lines[-1] == done_text(at(0))
    assert len(lines) == 2


def test_busy_store_is_asked_again_and_a_broken_one_reported() -> None:
    out = io.StringIO()
    failures = iter([StoreBusy("busy"), StoreCorrupt("page 3 is damaged")])

    def read() -> Snapshot:
        raise next(failures)

    show_progress(read, 12, Console(file=out), threading.Event(), sample_every_s=0.001)
    assert out.getvalue() == "Progress cannot be read: page 3 is damaged\n"
