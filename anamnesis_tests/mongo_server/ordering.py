"""Sorting documents, by fields or by what a search said of them."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from anamnesis_tests.mongo_server.paths import leaves
from anamnesis_tests.mongo_server.refusals import Refusal, bad_value
from anamnesis_tests.mongo_server.scored import metadata
from anamnesis_tests.mongo_server.values import EMPTY_ARRAY, NULL, Document, Key, is_number, key_of

Order = Sequence[tuple[str, Any]]


class Backwards:
    """A key whose order is turned round."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def __lt__(self, other: "Backwards") -> bool:
        return other.key < self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backwards) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def field_key(document: Any, parts: Sequence[str], largest: bool = False) -> Key:
    """What a document is sorted by: of an array its smallest or largest element."""
    if len(parts) == 1 and isinstance(document, dict):
        value = document.get(parts[0])
        if type(value) is not list:
            return key_of(value)
    keys: list[Key] = []
    for value in leaves(document, parts):
        if isinstance(value, list):
            keys += [key_of(element) for element in value] or [EMPTY_ARRAY]
        else:
            keys.append(key_of(value))
    if not keys:
        return NULL
    return max(keys) if largest else min(keys)


def sort_key(order: Order) -> Callable[[Any], Any]:
    """The key function of a sort.

    :raises Refusal: a direction is none.
    """
    makers = [_part(path, direction) for path, direction in order]
    if len(makers) == 1:
        return makers[0]
    return lambda document: tuple(maker(document) for maker in makers)


def _part(path: str, direction: Any) -> Callable[[Any], Any]:
    if isinstance(direction, Mapping):
        return _by_meta(direction)
    if not is_number(direction) or direction not in (1, -1):
        raise Refusal(15975, f"$sort key ordering must be 1 (for ascending) or -1 (for descending): {path}")
    parts = path.split(".")
    if direction == 1:
        return lambda document: field_key(document, parts)
    return lambda document: Backwards(field_key(document, parts, largest=True))


def _by_meta(direction: Mapping[str, Any]) -> Callable[[Any], Any]:
    wanted = direction.get("$meta")
    if len(direction) != 1 or wanted not in ("searchScore", "vectorSearchScore", "score", "textScore"):
        raise bad_value(f"Illegal key in $sort specification: {dict(direction)}")
    return lambda document: Backwards(key_of(metadata(document).get(wanted)))


def in_order(documents: Iterable[Document], order: Order, first: int = 0) -> list[Document]:
    """The documents sorted, or only the first of them; equal ones stay in their order."""
    key = sort_key(order)
    return heapq.nsmallest(first, documents, key=key) if first else sorted(documents, key=key)
