"""The contract of an engine: tables inside a transaction. It knows nothing of memory.

A `Match` is a small closed language, a subset of MongoDB's, that SQLite's engine compiles:

- `{"field": value}`: equal; None: the field has no value
- `{"field": {"$in": [...]}}`, and `$eq`, `$gt`, `$gte`, `$lt`, `$lte`, `$ne`; several in one mapping must all hold
- `{"field": {"$contains": text}}`: the text occurs, in any case
- `{"field": {"$has": text}}`, of a field of texts: one of them is this
- `{"flag": 1}`, of a `tables.Flag`: it is set; 0: it is not
- `{"$or": [match, ...]}`, `{"$and": [match, ...]}`
- `{"$beyond": {name: value, ...}}`: the rows that follow one with these values, in the order of the names (`beyond`)
- all entries of a mapping must hold; an empty one matches every row

An order is a sequence of field names, `-` before a name: descending.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class Field:
    """In a change: the value that another field of the row has."""

    name: str


Row = dict[str, Any]
"""Field -> value."""
Match = Mapping[str, Any]
Order = Sequence[str]
T = TypeVar("T")
R = TypeVar("R")

MAX_ROWS_PER_WRITE = 500
"""More rows are split into several transactions, so that others wait for none for long."""


class Rows(Protocol):
    """The rows of one table within the current transaction. Every call is one statement, or a few for many values."""

    def find(
        self, match: Match, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> list[Row]:
        """Return the rows that match, with all their fields or some. A limit below 1 finds none."""
        return list(self.each(match, fields, order=order, limit=limit, skip=skip))

    def each(
        self, match: Match, fields: Sequence[str] = (), *, order: Order = (), limit: int | None = None, skip: int = 0
    ) -> Iterator[Row]:
        """Yield what `find` returns, without holding all of it in memory."""

    def among(self, field: str, values: Iterable[Any], fields: Sequence[str] = (), **match: Any) -> Iterator[Row]:
        """Yield the rows with one of these values in a field, however many values there are. Values that no row can
        have, such as lone surrogates, are left out.

        :param match: further terms, by field.
        """

    def one(self, match: Match, fields: Sequence[str] = (), *, order: Order = ()) -> Row | None:
        """Return the first row that matches."""
        return next(iter(self.find(match, fields, order=order, limit=1)), None)

    def has(self, match: Match) -> bool:
        """Tell whether any row matches."""

    def count(self, match: Match, *, by: Sequence[str] = ()) -> int:
        """Count the rows that match, or the combinations of the values that they have in the fields `by`."""

    def sums(self, match: Match, fields: Sequence[str] = (), *, by: Sequence[str] = ()) -> list[Row]:
        """Return, for each combination of the values of `by`, those values, `rows` (their number) and the sum of each
        of `fields`. Without `by`: one row, of zeros where nothing matches.
        """

    def firsts(self, match: Match, *, by: Sequence[str], fields: Sequence[str], order: Order) -> list[Row]:
        """Return, for each combination of the values of `by`, those values and `fields` of the first row."""

    def insert(self, rows: Sequence[Row]) -> int:
        """Write new rows. Return the number given to the first; the others' follow (0: the table has no serial)."""

    def add(self, rows: Sequence[Row]) -> int:
        """Write those rows whose key is new, and leave the others as stored. Return how many were written."""

    def put(self, rows: Sequence[Row], keep: Sequence[str] = ()) -> None:
        """Write rows by their keys, new or not. The fields `keep` of a stored row stay as they are, and so do fields
        that `rows` do not have. Those that lack fields which must have a value change stored rows only.
        """

    def update(self, match: Match, change: Row, *, add: Mapping[str, int] | None = None) -> int:
        """Set the fields `change` of the rows that match, each to a value or a `Field`, and add to the fields `add`.
        Return how many matched.
        """

    def delete(self, match: Match) -> int:
        """Delete the rows that match. Return how many."""


class Tables(Protocol):
    """The tables of a store by name, within one transaction."""

    def __getitem__(self, name: str) -> Rows:
        """Return the table of this name."""


class Gateway(Protocol):
    """An engine. Safe to share between threads."""

    def read(self) -> AbstractContextManager[Tables]:
        """Open a transaction that reads committed rows. MongoDB may answer its statements of several moments."""

    def snapshot(self) -> AbstractContextManager[Tables]:
        """As `read`, where every statement sees the same moment."""

    def write(self, work: Callable[[Tables], T], *, within_s: float | None = None) -> T:
        """Return what `work` returns, once all that it wrote is committed; nothing of it is when it raises.

        One transaction writes at a time, so `work` may read before it writes. It may run again after a conflict, so it
        must keep nothing outside of the tables.

        :param within_s: most seconds to wait for the write lock; None: the engine's default.
        :raises StoreBusy: others wrote for that long.
        """


def beyond(order: Order, last: Sequence[Any]) -> Match:
    """Return the match of the rows that follow `last`, the values of the fields of `order`, in that order."""
    return {"$beyond": dict(zip(order, last, strict=True))}


def spelled_out(last: Mapping[str, Any]) -> Match:
    """Return the match of `beyond` without its operator."""
    terms: list[Match] = []
    same: dict[str, Any] = {}
    for name, value in last.items():
        field, operator = name.removeprefix("-"), "$lt" if name.startswith("-") else "$gt"
        terms.append({**same, field: {operator: value}})
        same[field] = value
    return {"$or": terms}


def can_be_stored(value: Any) -> bool:
    """Tell whether any row may have a value: an integer of 64 bits, a text without lone surrogates."""
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return False
    return True


# --- how many rows go into one transaction ---------------------------------------------------------------


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


def write_all(
    gateway: Gateway, rows: Sequence[T], work: Callable[[Tables, Sequence[T]], R], size: int = MAX_ROWS_PER_WRITE
) -> list[R]:
    """Do `work` with `rows`, at most `size` of them in one transaction. Return what each returned."""

    def write(batch: Sequence[T]) -> R:
        return gateway.write(lambda tables: work(tables, batch))

    return list(map(write, batches(rows, size)))


def until_done(gateway: Gateway, work: Callable[[Tables], int], size: int = MAX_ROWS_PER_WRITE) -> int:
    """Do `work` in one transaction after the other, until it does less than `size`. Return how much it did in all."""
    done, last = 0, size
    while last == size:
        last = gateway.write(work)
        done += last
    return done
