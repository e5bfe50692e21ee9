"""Indexes: sorted entries of keys and record numbers, unique and partial ones included.

An index holds entries of every version of a record that a reader may still see, so what is found in it is asked again.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from sortedcontainers import SortedList

from anamnesis_tests.mongo_server.matching import compile_filter
from anamnesis_tests.mongo_server.paths import leaves
from anamnesis_tests.mongo_server.refusals import Refusal, refuse_unknown
from anamnesis_tests.mongo_server.values import EMPTY_ARRAY, HIGHEST, MISSING, NULL, Document, Key, is_number, key_of

Keys = tuple[Key, ...]
"""One document's entries: mostly one, more where a field is an array; each a key per field."""

_OPTIONS = frozenset(
    {"key", "name", "unique", "sparse", "partialFilterExpression", "v", "hidden", "background", "expireAfterSeconds",
     "collation", "ns", "dropDups"}
)  # fmt: skip
_PARTIAL = frozenset({"$eq", "$exists", "$gt", "$gte", "$lt", "$lte", "$type", "$in", "$and", "$or"})
"""https://www.mongodb.com/docs/manual/core/index-partial/"""


class Index:
    """One index of a collection."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        _check(spec)
        self.spec = dict(spec)
        self.name: str = spec["name"]
        self.fields = tuple(spec["key"])
        self.directions = tuple(spec["key"].values())
        self.unique = bool(spec.get("unique")) or self.name == "_id_"
        self.sparse = bool(spec.get("sparse"))
        self.partial: dict[str, Any] = dict(spec.get("partialFilterExpression") or {})
        self.multikey: set[int] = set()
        """Places of fields that were an array in some document."""
        self._holds = compile_filter(self.partial) if self.partial else None
        self._paths = tuple(field.split(".") for field in self.fields)
        self._simple = all(len(parts) == 1 for parts in self._paths)
        self._entries: SortedList[tuple[Any, ...]] = SortedList()

    def __len__(self) -> int:
        return len(self._entries)

    def described(self) -> Document:
        """As `listIndexes` gives it."""
        options = {name: value for name, value in self.spec.items() if name not in ("key", "name", "v", "ns")}
        return {"v": 2, "key": dict(self.spec["key"]), "name": self.name} | options

    def keys(self, document: Document) -> Keys:
        """The entries of a document.

        :raises Refusal: two fields are arrays.
        """
        if self._holds is not None and not self._holds(document):
            return ()
        if self._simple:
            values = [document.get(field, MISSING) for field in self.fields]
            if not any(type(value) is list for value in values):
                if self.sparse and all(value is MISSING for value in values):
                    return ()
                return (tuple([key_of(value) for value in values]),)
        return self._several(document)

    def _several(self, document: Document) -> Keys:
        parts: list[list[Key]] = []
        arrays = [place for place, path in enumerate(self._paths) if _meets_array(document, path)]
        if len(arrays) > 1:
            names = " ".join(f"[{self.fields[place]}]" for place in arrays[:2])
            raise Refusal(171, f"cannot index parallel arrays {names}")
        self.multikey.update(arrays)
        found = [leaves(document, path) for path in self._paths]
        if self.sparse and all(value is MISSING for values in found for value in values):
            return ()
        for values in found:
            keys: dict[Key, None] = {}
            for value in values:
                inner = value if isinstance(value, list) else [value]
                keys.update(dict.fromkeys([key_of(each) for each in inner] or [EMPTY_ARRAY]))
            parts.append(list(keys) or [NULL])
        return tuple(product(*parts))

    def add(self, keys: Keys, number: int) -> None:
        """Entries of a record."""
        for key in keys:
            self._entries.add((*key, number))

    def load(self, entries: list[tuple[Any, ...]]) -> None:
        """Entries of all records at once."""
        self._entries.update(entries)

    def remove(self, keys: Keys, number: int) -> None:
        """Entries of a record."""
        for key in keys:
            self._entries.discard((*key, number))

    def holders(self, key: Key) -> Iterator[int]:
        """Records that have an entry of this whole key."""
        for entry in self._entries.irange(key, (*key, float("inf"))):
            yield entry[-1]

    def _edge(self, prefix: tuple[Any, ...]) -> tuple[Any, ...]:
        """What sorts behind every entry that begins with a prefix."""
        return (*prefix, float("inf") if len(prefix) == len(self.fields) else HIGHEST)

    def _span(self, prefix: tuple[Any, ...], low: "Bound", high: "Bound") -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        start = prefix if low is None else (*prefix, low[0])
        if low is not None and not low[1]:
            start = self._edge(start)
        if high is None:
            return start, self._edge(prefix)
        return start, self._edge((*prefix, high[0])) if high[1] else (*prefix, high[0])

    def scan(
        self, prefix: tuple[Any, ...], low: "Bound" = None, high: "Bound" = None, *, backwards: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Entries that begin with a prefix, the field behind it within bounds."""
        start, end = self._span(prefix, low, high)
        return self._entries.irange(start, end, reverse=backwards)

    def count(self, prefix: tuple[Any, ...], low: "Bound" = None, high: "Bound" = None) -> int:
        """How many entries a scan would meet."""
        start, end = self._span(prefix, low, high)
        return max(self._entries.bisect_right(end) - self._entries.bisect_left(start), 0)

    def duplicate(self, namespace: str, key: Key, document: Document) -> Refusal:
        """The answer to a second document with one key."""
        values = {field: _at(document, path) for field, path in zip(self.fields, self._paths, strict=True)}
        shown = ", ".join(f"{field}: {_shown(value)}" for field, value in values.items())
        return Refusal(
            11000,
            f"E11000 duplicate key error collection: {namespace} index: {self.name} dup key: {{ {shown} }}",
            keyPattern=dict(self.spec["key"]),
            keyValue=values,
        )


Bound = tuple[Key, bool] | None
"""A key and whether it is within the bounds; none: open."""


def _at(document: Document, path: Sequence[str]) -> Any:
    found = leaves(document, path)
    return None if not found or found[0] is MISSING else found[0]


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else repr(value)


def _meets_array(value: Any, path: Sequence[str]) -> bool:
    for name in path:
        if isinstance(value, list):
            return True
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    return isinstance(value, list)


def _check(spec: Mapping[str, Any]) -> None:
    refuse_unknown(spec, _OPTIONS, "createIndexes", 197)
    if not isinstance(spec.get("key"), Mapping) or not spec["key"]:
        raise Refusal(67, "Index keys cannot be an empty object.")
    if not isinstance(spec.get("name"), str):
        raise Refusal(9, "The 'name' field is a required property of an index specification")
    for field, direction in spec["key"].items():
        if not is_number(direction) or direction == 0:
            raise Refusal(
                67, f"Values in v:2 index key pattern must be 1 or -1; the loopback server knows no others: {field}"
            )
    if "expireAfterSeconds" in spec or "collation" in spec:
        raise Refusal(238, "TTL indexes and collations are not known to the loopback server")
    if spec.get("partialFilterExpression"):
        _check_partial(spec["partialFilterExpression"])
        if spec.get("sparse"):
            raise Refusal(67, 'cannot mix "partialFilterExpression" and "sparse" options')


def _check_partial(where: Any) -> None:
    """Only some operators may stand in the filter of a partial index."""
    if not isinstance(where, Mapping):
        raise Refusal(67, "'partialFilterExpression' for an index has to be a document")
    for name, condition in where.items():
        if name in ("$and", "$or"):
            for clause in condition:
                _check_partial(clause)
        elif name.startswith("$"):
            raise Refusal(67, f"Expression not supported in partial index: {name}")
        elif isinstance(condition, Mapping):
            for operator, operand in condition.items():
                if (operator.startswith("$") and operator not in _PARTIAL) or (operator == "$exists" and not operand):
                    raise Refusal(67, f"Expression not supported in partial index: {operator}: {operand!r}")
    compile_filter(where)
