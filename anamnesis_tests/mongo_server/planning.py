"""Which documents a filter can match at all: through an index where one fits, else all of them.

Every candidate is asked again by the filter, so a plan only ever saves time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from bson import Regex

from anamnesis_tests.mongo_server.indexes import Bound, Index
from anamnesis_tests.mongo_server.matching import is_operators
from anamnesis_tests.mongo_server.matching_operators import TESTS
from anamnesis_tests.mongo_server.ordering import Order
from anamnesis_tests.mongo_server.refusals import bad_value
from anamnesis_tests.mongo_server.storage import Collection, Reader, Record
from anamnesis_tests.mongo_server.values import NULL_RANK, Document, Key, key_of

MAX_POINTS = 20_000
SORT_IS_WORTH = 10
"""An index in the order that is asked for is taken though it meets so many times more entries."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An index and the parts of it that are looked at."""

    index: Index
    prefixes: tuple[tuple[Key, ...], ...]
    low: Bound = None
    high: Bound = None
    entries: int = 0
    backwards: bool | None = None
    """Whether the index gives the order asked for, and from which end; None: it does not."""


@dataclass(slots=True)
class Limits:
    """What a filter demands of one field."""

    points: list[Key] | None = None
    lows: list[tuple[Key, bool]] = field(default_factory=list)
    highs: list[tuple[Key, bool]] = field(default_factory=list)
    operators: dict[str, Any] = field(default_factory=dict)
    """As given, for the question whether a partial index holds all that matches."""


def limits_of(where: Mapping[str, Any]) -> dict[str, Limits]:
    """What each field must satisfy for the whole filter to match."""
    found: dict[str, Limits] = {}
    for name, condition in where.items():
        if name == "$and":
            for clause in condition:
                for inner, limits in limits_of(clause).items():
                    _merge(found.setdefault(inner, Limits()), limits)
        elif not name.startswith("$"):
            _limit(found.setdefault(name, Limits()), condition)
    return found


def _merge(into: Limits, other: Limits) -> None:
    into.points = other.points if into.points is None else into.points
    into.lows += other.lows
    into.highs += other.highs
    into.operators = other.operators | into.operators


def _limit(limits: Limits, condition: Any) -> None:
    if isinstance(condition, Regex):
        return
    for operator, operand in (condition if is_operators(condition) else {"$eq": condition}).items():
        limits.operators.setdefault(operator, operand)
        if operator == "$eq" and _is_point(operand):
            limits.points = [key_of(operand)]
        elif operator == "$in" and all(_is_point(each) for each in operand) and limits.points is None:
            limits.points = sorted({key_of(each) for each in operand})
        elif operator in ("$gt", "$gte") and _is_point(operand) and operand is not None:
            limits.lows.append((key_of(operand), operator == "$gte"))
        elif operator in ("$lt", "$lte") and _is_point(operand) and operand is not None:
            limits.highs.append((key_of(operand), operator == "$lte"))


def _is_point(value: Any) -> bool:
    return not isinstance(value, list | Regex)


def implied(partial: Mapping[str, Any], limits: Mapping[str, Limits]) -> bool:
    """Whether all that a filter matches is in a partial index; no, when in doubt."""
    for name, condition in partial.items():
        if name.startswith("$") or name not in limits:
            return False
        wanted = condition if is_operators(condition) else {"$eq": condition}
        if not all(_implies(limits[name], operator, operand) for operator, operand in wanted.items()):
            return False
    return True


def _implies(limits: Limits, operator: str, operand: Any) -> bool:
    asked = limits.operators
    if operator in asked and key_of(asked[operator]) == key_of(operand):
        return True
    values = [asked["$eq"]] if "$eq" in asked else asked.get("$in")
    if values is not None and operator == "$exists":
        return all(value is not None for value in values)
    if values is not None and operator in TESTS:
        test = TESTS[operator](operand)
        return all(_is_point(value) and test(value) for value in values)
    if operator in ("$gt", "$gte", "$type", "$exists"):
        return any(_beyond(key, operator, operand) for key, _ in limits.lows)
    return False


def _beyond(low: Key, operator: str, operand: Any) -> bool:
    """Whether everything above a bound satisfies a condition; comparisons stay within one type."""
    if operator == "$exists":
        return bool(operand)
    if operator == "$type":
        return (low[0], operand) in ((15, "string"), (10, "number"))
    return low[0] == key_of(operand)[0] and low >= key_of(operand) and (operator == "$gte" or low > key_of(operand))


def plans(collection: Collection, where: Mapping[str, Any], order: Order = ()) -> list[Plan]:
    """Every index that could serve."""
    limits = limits_of(where)
    found = [_plan(index, limits, order) for index in collection.indexes.values()]
    return [plan for plan in found if plan is not None]


def _plan(index: Index, limits: Mapping[str, Limits], order: Order) -> Plan | None:
    if index.partial and not implied(index.partial, limits):
        return None
    if index.sparse and index.fields[0] not in limits:
        return None
    points: list[list[Key]] = []
    total = 1
    for name in index.fields:
        held = limits.get(name)
        if held is None or held.points is None or total * len(held.points) > MAX_POINTS:
            break
        if index.sparse and any(point[0] == NULL_RANK for point in held.points):
            return None
        points.append(held.points)
        total *= max(len(held.points), 1)
    low, high = _range(index, len(points), limits)
    backwards = _direction(index, points, order)
    if not points and low is None and high is None and backwards is None:
        return None
    prefixes = tuple(product(*points))
    entries = sum(index.count(prefix, low, high) for prefix in prefixes)
    return Plan(index, prefixes, low, high, entries, backwards)


def _range(index: Index, place: int, limits: Mapping[str, Limits]) -> tuple[Bound, Bound]:
    """Bounds of the field behind the points. Where it is an array, two bounds may be met by two elements."""
    held = limits.get(index.fields[place]) if place < len(index.fields) else None
    if held is None or not (held.lows or held.highs):
        return None, None
    low = max(held.lows, key=lambda bound: (bound[0], not bound[1]), default=None)
    high = min(held.highs, key=lambda bound: (bound[0], bound[1]), default=None)
    if place in index.multikey:
        return (low, _end_of_type(low)) if low is not None else (_start_of_type(high), high)
    return low or _start_of_type(high), high or _end_of_type(low)


def _start_of_type(bound: Bound) -> Bound:
    return None if bound is None else ((bound[0][0],), True)


def _end_of_type(bound: Bound) -> Bound:
    return None if bound is None else ((bound[0][0] + 0.5,), True)


def _direction(index: Index, points: list[list[Key]], order: Order) -> bool | None:
    """Whether the entries behind one point each come in the order asked for, and from which end."""
    if not order or index.multikey or any(len(held) != 1 for held in points):
        return None
    fixed = set(index.fields[: len(points)])
    wanted = [(name, direction) for name, direction in order if name not in fixed]
    rest = index.fields[len(points) : len(points) + len(wanted)]
    if tuple(name for name, _ in wanted) != rest or len({direction for _, direction in wanted}) > 1:
        return None
    return bool(wanted) and wanted[0][1] == -1


def chosen(collection: Collection, where: Mapping[str, Any], order: Order, limit: int, hint: Any) -> Plan | None:
    """The plan that meets the fewest entries, or one that saves sorting; None: look at everything."""
    candidates = plans(collection, where, order)
    if hint:
        name = _hinted(collection, hint)
        candidates = [plan for plan in candidates if plan.index.name == name]
    bounded = [plan for plan in candidates if plan.prefixes != ((),) or plan.low or plan.high]
    best = min(bounded, key=lambda plan: plan.entries, default=None)
    if limit:
        met = best.entries if best else len(collection.records)
        sorted_ones = [plan for plan in candidates if plan.backwards is not None]
        ordered = min(sorted_ones, key=lambda plan: plan.entries, default=None)
        if ordered is not None and met > limit and ordered.entries <= met * SORT_IS_WORTH:
            return ordered
    return best


def _hinted(collection: Collection, hint: Any) -> str:
    for index in collection.indexes.values():
        if hint == index.name or (isinstance(hint, Mapping) and list(hint.items()) == list(index.spec["key"].items())):
            return index.name
    raise bad_value("error processing query: planner returned error :: caused by :: hint provided does not correspond "
                    "to an existing index")  # fmt: skip


def candidates(
    collection: Collection,
    where: Mapping[str, Any],
    reader: Reader,
    order: Order = (),
    limit: int = 0,
    hint: Any = None,
) -> tuple[Iterator[tuple[Record, Document]], bool]:
    """Records and documents that may match, and whether they come in the order asked for."""
    plan = chosen(collection, where, order, limit, hint)
    if plan is not None:
        return _through(collection, plan, reader), plan.backwards is not None
    clauses = where.get("$or")
    if isinstance(clauses, list) and clauses:
        parts = [chosen(collection, clause, (), 0, None) for clause in clauses]
        if all(part is not None for part in parts):
            return _union(collection, [part for part in parts if part is not None], reader), False
    return collection.documents(reader), False


def _union(collection: Collection, parts: list[Plan], reader: Reader) -> Iterator[tuple[Record, Document]]:
    seen: set[int] = set()
    for plan in parts:
        for record, document in _through(collection, plan, reader):
            if record.number not in seen:
                seen.add(record.number)
                yield record, document


def _through(collection: Collection, plan: Plan, reader: Reader) -> Iterator[tuple[Record, Document]]:
    """Each record once, under the key that the reader's version of it has."""
    several = bool(plan.index.multikey)
    seen: set[int] = set()
    for prefix in reversed(plan.prefixes) if plan.backwards else plan.prefixes:
        for entry in plan.index.scan(prefix, plan.low, plan.high, backwards=bool(plan.backwards)):
            number = entry[-1]
            record = collection.records[number]
            version = record.seen_by(reader)
            if version is None or version.document is None:
                continue
            if several:
                if number in seen:
                    continue
                seen.add(number)
            elif len(record.versions) > 1 and entry[:-1] not in version.keys.get(plan.index.name, ()):
                continue
            yield record, version.document
