"""Progress of the first ingest for `anamnesis up`: read, embedded, rate, time left."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from anamnesis_pipeline.errors import GiveUp, RetryLater
from anamnesis_pipeline.parsing.text.wording import counted, duration
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.overview import SourceCounts

_SAMPLE_EVERY_S = 2.0
_PLAIN_LINE_EVERY_S = 10.0
_RATE_WINDOW_S = 60.0
_CALM_S = 6.0
"""Seconds without a change before the memory counts as up to date: another stage may be about to start."""
_NOTHING_NEW = " (nothing new for "
_STUCK_S = 60.0
"""Longer than the pauses between stages: then the display says where to look."""
_SETTLED_S = 180.0
"""Seconds without a change after which missing files, e.g. unreadable ones, are no longer awaited."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counts of the store at one moment; `at` is in seconds of a monotonic clock. `is_seen`: the sources were scanned
    since the start.
    """

    at: float
    counts: SourceCounts
    embedded: int
    is_seen: bool = True


def take_snapshot(store: Store, is_seen: bool = True) -> Snapshot:
    """Read the counts. Vectors are those of the active space, or of the newest without one."""
    spaces = store.spaces.all()
    space = next((s for s in spaces if s.status == "active"), spaces[-1] if spaces else None)
    embedded = store.vectors.count(space.key) if space else 0
    return Snapshot(time.monotonic(), store.overview.counts(), embedded, is_seen)


def rate(history: Sequence[Snapshot]) -> float:
    """Return passages embedded per second over the last minute of `history` (oldest first); 0 without progress.

    Starts just before the first passage, so that the time to load the model does not count.
    """
    if not history:
        return 0.0
    latest = history[-1]
    window = [s for s in history if latest.at - s.at <= _RATE_WINDOW_S]
    first = next(s for s in reversed(window) if s.embedded == window[0].embedded)
    elapsed, done = latest.at - first.at, latest.embedded - first.embedded
    return done / elapsed if elapsed > 0 and done > 0 else 0.0


def is_up_to_date(history: Sequence[Snapshot], files: int) -> bool:
    """Return whether all content of the log roots (`files` logs) is searchable and no stage is running."""
    if not history:
        return False
    latest = history[-1]
    counts = latest.counts
    missing = counts.unparsed_lines > 0 or latest.embedded < counts.passages
    calm = _calm_s(history)
    if missing or calm < _CALM_S or not latest.is_seen:
        return False
    arrived = counts.files >= files and counts.episodes >= counts.parts - counts.open_parts - counts.kept_away
    return arrived or (counts.files > 0 and calm >= _SETTLED_S)


def _calm_s(history: Sequence[Snapshot]) -> float:
    latest = history[-1]
    since = latest.at
    for snapshot in reversed(history):
        if (snapshot.counts, snapshot.embedded, snapshot.is_seen) != (latest.counts, latest.embedded, latest.is_seen):
            break
        since = snapshot.at
    return latest.at - since


def progress_text(history: Sequence[Snapshot], files: int) -> str:
    """Describe the ingest in one line. `files` is the number of logs in the roots; documents and files of other
    machines come on top, and their number is unknown before they are listed.
    """
    if not history:
        return "Waiting for the first look at the logs"
    latest, speed = history[-1], rate(history)
    counts, left = latest.counts, latest.counts.passages - latest.embedded
    pieces = [
        f"{counts.files:,} of at least {counted(files, 'file')}"
        if counts.files < files
        else counted(counts.files, "file"),
        counted(counts.episodes, "episode"),
        f"{min(latest.embedded, counts.passages):,} of {counted(counts.passages, 'passage')} embedded",
    ]
    if speed:
        pieces.append(f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")
    if speed and left > 0:
        pieces.append(f"about {duration(left / speed)} left")
    if not latest.is_seen and latest.embedded >= counts.passages:
        return f"Waiting for the first look at the sources since the start; so far {', '.join(pieces)}"
    stuck = _calm_s(history)
    hint = f"{_NOTHING_NEW}{duration(stuck)}: `anamnesis doctor` says why)" if stuck >= _STUCK_S else ""
    return "Reading: " + ", ".join(pieces) + hint


def done_text(latest: Snapshot) -> str:
    """Return the last line of the display."""
    counts = latest.counts
    return (
        f"Memory is up to date: {counted(counts.files, 'file')}, "
        f"{counted(counts.episodes, 'episode')}, {counted(counts.passages, 'passage')}, all embedded."
    )


def show_progress(
    read: Callable[[], Snapshot],
    files: int,
    console: Console,
    stop: threading.Event,
    sample_every_s: float = _SAMPLE_EVERY_S,
) -> None:
    """Print until everything is searchable or `stop` is set: one live line on a terminal, else occasional lines.

    :param read: `take_snapshot` of an open store.
    """
    history: list[Snapshot] = []
    printed_at, printed = -_PLAIN_LINE_EVERY_S, ""
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    if live:
        live.start()
    try:
        while not stop.is_set() and not is_up_to_date(history, files):
            with suppress(RetryLater):
                history.append(read())
                oldest = history[-1].at - max(_RATE_WINDOW_S, _SETTLED_S) - 2 * _SAMPLE_EVERY_S
                while history[0].at < oldest:
                    history.pop(0)
            text = progress_text(history, files)
            if live:
                live.update(Text(text), refresh=True)
            elif time.monotonic() - printed_at >= _PLAIN_LINE_EVERY_S and history and _news(text) != _news(printed):
                printed_at, printed = time.monotonic(), text
                console.print(Text(text), soft_wrap=True)
            stop.wait(sample_every_s)
    except GiveUp as exc:
        console.print(Text(f"Progress cannot be read: {exc}"), soft_wrap=True)
    finally:
        if live:
            live.stop()
    if is_up_to_date(history, files):
        console.print(Text(done_text(history[-1])), soft_wrap=True)


def _news(text: str) -> str:
    """Return the part of a line whose change is printed: not the time without news."""
    return text.partition(_NOTHING_NEW)[0] + (_NOTHING_NEW if _NOTHING_NEW in text else "")
