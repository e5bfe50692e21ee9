"""Measures of `make bench-memory`, over rows of its result files, with intervals. Pure functions.

A row is one question asked of one arm: `id`, `kind`, `ranks` (of each gold its rank from 1; null: not among the first
ten; no golds: nothing answers it), `results` (how many came), `tokens` (of the first five) and `ms`. `older` is the
rank of a reversed statement, in the set on reversals alone.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

DEPTH = 10
RESAMPLES = 2_000
SEED = 31
Row = dict[str, Any]


def first(row: Row) -> float:
    """The rank of the first hit; infinity: none."""
    return min((rank for rank in row["ranks"] if rank), default=math.inf)


def newer_first(row: Row) -> float:
    """1 if the newer statement is found and precedes the reversed one."""
    return float(first(row) < (row["older"] or math.inf))


MEASURES: dict[str, Callable[[Row], float]] = {
    "hit@1": lambda row: float(first(row) <= 1),
    "hit@5": lambda row: float(first(row) <= 5),
    "recall@10": lambda row: sum(rank is not None for rank in row["ranks"]) / len(row["ranks"]),
    "MRR": lambda row: 1 / first(row),
    "newer first": newer_first,
    "given": lambda row: float(row["results"] > 0),
}
"""Name -> value of a row that has golds, from 0 to 1. `given`: anything came; it needs no golds."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean with its 95% interval."""

    mean: float
    low: float
    high: float

    def text(self, best: bool = False) -> str:
        """Return it as a cell of a table, bold if it is the best of its column."""
        mean = f"{self.mean:.3f}"
        return f"{f'**{mean}**' if best else mean} ({self.low:.2f}–{self.high:.2f})"


def interval(values: Sequence[float], seed: int = SEED, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 2.5th and 97.5th percentile of the means of resamples with replacement; the same for the same seed."""
    draw = random.Random(seed)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(resamples))
    return percentile(means, 0.025), percentile(means, 0.975)


def measured(rows: Iterable[Row], measure: str) -> Cell | None:
    """Return the mean over the rows that have golds, with its interval; None: there are none."""
    values = [MEASURES[measure](row) for row in rows if row["ranks"] or measure == "given"]
    if not values:
        return None
    return Cell(statistics.fmean(values), *interval(values))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the ordered values do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ranks_of(results: Sequence[Any], golds: Sequence[Any], hits: Callable[[Any, Any], bool]) -> list[int | None]:
    """Return of each gold the rank, from 1, of the first result that hits it."""
    return [next((rank for rank, each in enumerate(results, 1) if hits(each, gold)), None) for gold in golds]
