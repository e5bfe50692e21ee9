"""What it costs to ingest many sessions at once: time, memory, threads; then a second pass over files that stayed.

    python benchmarks/many_sessions.py [LOGS] [--sessions 200] [--megabytes 1000] [--files 10000]

LOGS is a folder of Claude project folders (default: ../shared/data/claude_logs/projects). Their records are written
again and again with fresh ids and dates, spread over so many session files in 20 project folders. Everything runs that
`anamnesis ingest` runs, up to episodes; embedding is not part of it. The second pass is over as many files.
"""

import argparse
import itertools
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from parse_speed import replicas
from proc import cpu_ticks, resident_mib
from service import SHARED

from anamnesis_pipeline.services.ingest import Pipeline, ingest_all
from anamnesis_pipeline.services.wiring import discover_sources, open_pipeline, open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.support.crawled_logs import source_changed

PROJECTS = 20
SAMPLE_S = 0.05


class Peak:
    """The most memory (MiB) and threads that this process had while it was watched."""

    def __init__(self) -> None:
        self.mib, self.threads = 0.0, 0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Peak":
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            self.mib = max(self.mib, resident_mib())
            self.threads = max(self.threads, len(cpu_ticks()) - 1)  # without this one


def write_tree(logs: Path, root: Path, sessions: int, megabytes: float) -> int:
    """Session files that together have so many bytes; returns how many they have."""
    lines = (line for _, of_file in replicas(logs, megabytes) for line in of_file)
    each = megabytes * 1e6 / sessions
    for number in range(sessions):
        folder = root / f"-home-dev-project-{number % PROJECTS}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{uuid.UUID(int=number)}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _up_to(lines, each))
    return sum(path.stat().st_size for path in root.rglob("*.jsonl"))


def _up_to(lines: Iterator[str], size: float) -> Iterator[str]:
    made = 0
    for line in lines:
        yield line
        made += len(line.encode()) + 1
        if made >= size:
            return


def add_small_files(root: Path, files: int) -> None:
    """Sessions of one record each, until there are so many files."""
    for number in itertools.islice(itertools.count(10**6), files - sum(1 for _ in root.rglob("*.jsonl"))):
        folder = root / f"-home-dev-project-{number % PROJECTS}"
        (folder / f"{uuid.UUID(int=number)}.jsonl").write_text('{"type":"progress"}\n')


def ingest(settings: Settings, store: Store) -> int:
    """Every source once, as `anamnesis ingest` does; returns new lines."""
    pipeline = open_pipeline(settings, store)
    return sum(report.crawl.lines for report in ingest_all(pipeline, discover_sources(settings).sources))


def timed(work: Callable[[], int]) -> tuple[int, float, float]:
    """What it returned, seconds, seconds of CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def changed_sources(pipeline: Pipeline, settings: Settings) -> int:
    """What a sensor's tick asks."""
    found = discover_sources(settings).sources
    return sum(source_changed(pipeline.store, pipeline.hosts.of_source(source), source) for source in found)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("logs", nargs="?", type=Path, default=SHARED / "data/claude_logs/projects")
    arguments.add_argument("--sessions", type=int, default=200)
    arguments.add_argument("--megabytes", type=float, default=1_000)
    arguments.add_argument("--files", type=int, default=10_000)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as base:
        root = Path(base, "projects")
        size = write_tree(given.logs, root, given.sessions, given.megabytes)
        settings = Settings(home=Path(base, "home"), log_roots=(root,), machine="box")
        with closing(open_store(settings)) as store:
            measure(settings, store, size, given.sessions, given.files)


def measure(settings: Settings, store: Store, size: int, sessions: int, files: int) -> None:
    """Ingest the tree and look at it again; prints a table."""
    before = resident_mib()
    with Peak() as peak:
        lines, wall, cpu = timed(lambda: ingest(settings, store))
    counts = store.overview.counts()
    rows = [
        (
            f"ingest of {sessions} sessions, {size / 1e6:,.0f} MB, {lines:,} lines",
            f"{wall:,.0f} s, {cpu:,.0f} s of CPU: {size / 1e6 / wall:.1f} MB/s",
        ),
        ("what it made", f"{counts.messages:,} messages, {counts.episodes:,} episodes, {counts.passages:,} passages"),
        ("peak memory", f"{peak.mib:.0f} MiB ({before:.0f} before)"),
        ("threads", str(peak.threads)),
    ]
    add_small_files(settings.log_roots[0], files)
    ingest(settings, store)
    again, wall, cpu = timed(lambda: ingest(settings, store))
    pipeline = open_pipeline(settings, store)
    changed, _, tick_cpu = timed(lambda: changed_sources(pipeline, settings))
    if again or changed:
        sys.exit(f"the second pass read {again} lines anew, {changed} sources look changed")
    rows += [
        (f"ingest of {files:,} unchanged files", f"{cpu:.2f} s of CPU, {wall:.2f} s; nothing new"),
        (f"tick over {files:,} unchanged files", f"{tick_cpu:.2f} s of CPU"),
    ]
    print("| what | measured |\n|---|---|")
    for row in rows:
        print(f"| {row[0]} | {row[1]} |", flush=True)


if __name__ == "__main__":
    main()
