"""Durations of search stages, summed up for monitoring."""

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Seconds. A search should take 0.04, so the resolution of a stage is finer than that."""


@dataclass(slots=True)
class StageTime:
    """`counts[i]`: times above `BOUNDS[i - 1]` and up to `BOUNDS[i]`, the last one above all bounds; `total_s`: their
    sum.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total_s: float = 0.0


class StageTimes:
    """Adds up times by stage. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[str, StageTime] = {}

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Time the block, even if it fails."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - started)

    def add(self, stage: str, seconds: float) -> None:
        """Add a time to a stage."""
        with self._lock:
            known = self._stages.setdefault(stage, StageTime())
            known.counts[bisect_left(BOUNDS, seconds)] += 1
            known.total_s += seconds

    def all(self) -> Mapping[str, StageTime]:
        """Return a copy of every stage that ran."""
        with self._lock:
            return {stage: StageTime(list(known.counts), known.total_s) for stage, known in self._stages.items()}
