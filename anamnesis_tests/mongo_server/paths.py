"""Dotted paths into documents: reading with MongoDB's way through arrays, and writing to copies.

Documents are never changed in place, since readers of older moments still hold them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.values import MISSING, Document, type_name


def split(path: str) -> list[str]:
    """The names of a path.

    :raises Refusal: one of them is empty.
    """
    parts = path.split(".")
    if not all(parts):
        raise Refusal(56, f"The path '{path}' has an empty field name, which is not allowed.")
    return parts


def leaves(value: Any, parts: Sequence[str], at: int = 0) -> list[Any]:
    """The values at the end of a path, one for each element of arrays on the way; MISSING where the path breaks off.
    An array at its end is one value.
    """
    if at == len(parts):
        return [value]
    if isinstance(value, dict):
        return leaves(value.get(parts[at], MISSING), parts, at + 1)
    if not isinstance(value, list):
        return [MISSING]
    found: list[Any] = []
    if parts[at].isdigit() and int(parts[at]) < len(value):
        found += leaves(value[int(parts[at])], parts, at + 1)
    for element in value:
        if isinstance(element, dict):
            found += leaves(element, parts, at)
    return found


def fetch(value: Any, parts: Sequence[str], at: int = 0) -> Any:
    """The value of a field path in an expression: through an array it is the array of what its elements have."""
    while at < len(parts):
        if isinstance(value, dict):
            value = value.get(parts[at], MISSING)
            at += 1
        elif isinstance(value, list):
            found = (fetch(element, parts, at) for element in value if isinstance(element, dict | list))
            return [each for each in found if each is not MISSING]
        else:
            return MISSING
    return value


def exact(value: Any, parts: Sequence[str]) -> Any:
    """The value that an update would change: a name steps into an object, a number into an array."""
    for name in parts:
        if isinstance(value, dict):
            value = value.get(name, MISSING)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return MISSING
    return value


def changed(value: Any, parts: Sequence[str], change: Callable[[Any], Any], at: int = 0) -> Any:
    """A copy in which the value at a path is what `change` makes of it; MISSING removes it.

    :raises Refusal: the path goes through something that has no fields.
    """
    if at == len(parts):
        return change(value)
    name = parts[at]
    if isinstance(value, list):
        return _changed_array(value, parts, change, at)
    if value is MISSING:
        inner = changed(MISSING, parts, change, at + 1)
        return MISSING if inner is MISSING else {name: inner}
    if not isinstance(value, dict):
        before = ".".join(parts[:at])
        raise Refusal(28, f"Cannot create field '{name}' in element {{{before}: {type_name(value)}}}")
    old = value.get(name, MISSING)
    new = changed(old, parts, change, at + 1)
    if new is old:
        return value
    if new is MISSING:
        return {field: inner for field, inner in value.items() if field != name}
    return {**value, name: new}


def _changed_array(value: list[Any], parts: Sequence[str], change: Callable[[Any], Any], at: int) -> list[Any]:
    name = parts[at]
    if not name.isdigit():
        raise Refusal(28, f"Cannot create field '{name}' in element {{{'.'.join(parts[:at])}: array}}")
    place = int(name)
    old = value[place] if place < len(value) else MISSING
    new = changed(old, parts, change, at + 1)
    if new is old:
        return value
    copy = value + [None] * (place + 1 - len(value))
    copy[place] = None if new is MISSING else new  # an element that is unset leaves null behind
    return copy


def set_value(document: Document, path: str, new: Any) -> Document:
    """A copy in which the field has this value."""
    return changed(document, path.split("."), lambda _: new)
