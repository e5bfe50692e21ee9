"""How many rows go into one transaction."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from anamnesis_pipeline.store.gateway import MAX_ROWS_PER_WRITE, Gateway, Tables

T = TypeVar("T")


def batches(rows: Sequence[T], size: int = MAX_ROWS_PER_WRITE) -> Iterator[Sequence[T]]:
    """`rows` in runs of at most `size`."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def by_rows(items: Sequence[T], rows_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Runs of items whose rows fit one transaction; an item is never divided."""
    batch: list[T] = []
    rows = 0
    for item in items:
        if batch and rows + rows_of(item) > MAX_ROWS_PER_WRITE:
            yield batch
            batch, rows = [], 0
        batch.append(item)
        rows += rows_of(item)
    if batch:
        yield batch


def until_done(gateway: Gateway, work: Callable[[Tables], int]) -> int:
    """Call `work` in one transaction after the other, until it does less than `MAX_ROWS_PER_WRITE`. Return how much it
    did in all.
    """
    done, last = 0, MAX_ROWS_PER_WRITE
    while last == MAX_ROWS_PER_WRITE:
        last = gateway.write(work)
        done += last
    return done
