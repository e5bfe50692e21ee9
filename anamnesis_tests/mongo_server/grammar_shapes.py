"""Small words for writing down a grammar: what a value may be, and the page of MongoDB's documentation that says so."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bson import Int64

Problems = Iterator[str]
Shape = Callable[[Any, str], Problems]
"""Given a value and where it stands, what is wrong with it."""

MANUAL = "https://www.mongodb.com/docs/v8.0/"
ATLAS_SEARCH = "https://www.mongodb.com/docs/atlas/atlas-search/"
VECTOR_SEARCH = "https://www.mongodb.com/docs/atlas/atlas-vector-search/"


def anything(_value: Any, _where: str) -> Problems:
    """Every value will do."""
    yield from ()


def of_type(name: str, *types: type) -> Shape:
    """A value of one of these types. A boolean is no number."""

    def check(value: Any, where: str) -> Problems:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            yield f"{where} must be {name}, not {value!r:.60}"

    return check


string = of_type("a string", str)
boolean = of_type("a boolean", bool)
number = of_type("a number", int, float, Int64)
a_document = of_type("a document", Mapping)
an_array = of_type("an array", list, tuple)


def flag(value: Any, where: str) -> Problems:
    """A boolean, or a number that is taken as one."""
    if not isinstance(value, bool | int | float):
        yield f"{where} must be a boolean, not {value!r:.60}"


def text(value: Any, where: str) -> Problems:
    """A string with something in it."""
    if not isinstance(value, str) or not value:
        yield f"{where} must be a string that is not empty, not {value!r:.60}"


def integer(low: int | None = None, high: int | None = None) -> Shape:
    """A whole number within bounds, also where it comes as a floating point number."""

    def check(value: Any, where: str) -> Problems:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            yield f"{where} must be a whole number, not {value!r:.60}"
        elif (low is not None and value < low) or (high is not None and value > high):
            yield f"{where} must be within {low} and {high}, not {value}"

    return check


def one_of(*values: Any) -> Shape:
    """One of these values."""

    def check(value: Any, where: str) -> Problems:
        if not any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in values):
            yield f"{where} must be one of {', '.join(map(repr, values))}, not {value!r:.60}"

    return check


def array_of(shape: Shape, *, least: int = 0, most: int | None = None) -> Shape:
    """An array of so many elements."""

    def check(value: Any, where: str) -> Problems:
        if not isinstance(value, list | tuple):
            yield f"{where} must be an array, not {value!r:.60}"
            return
        if len(value) < least or (most is not None and len(value) > most):
            yield f"{where} must have at least {least} and at most {most} elements, not {len(value)}"
        for place, element in enumerate(value):
            yield from shape(element, f"{where}[{place}]")

    return check


def one_or_array_of(shape: Shape) -> Shape:
    """A value, or an array of them that is not empty."""
    several = array_of(shape, least=1)
    return lambda value, where: several(value, where) if isinstance(value, list | tuple) else shape(value, where)


def map_of(shape: Shape, *, least: int = 0) -> Shape:
    """A document whose names are free."""

    def check(value: Any, where: str) -> Problems:
        if not isinstance(value, Mapping):
            yield f"{where} must be a document, not {value!r:.60}"
            return
        if len(value) < least:
            yield f"{where} must not be empty"
        for name, each in value.items():
            yield from shape(each, f"{where}.{name}")

    return check


def document(
    page: str, required: Mapping[str, Shape] | None = None, optional: Mapping[str, Shape] | None = None
) -> Shape:
    """A document of these fields and no other, as `page` says."""
    needed = dict(required or {})
    known = {**needed, **(optional or {})}

    def check(value: Any, where: str) -> Problems:
        if not isinstance(value, Mapping):
            yield f"{where} must be a document, not {value!r:.60} ({page})"
            return
        for name in needed.keys() - value.keys():
            yield f"{where}.{name} is required ({page})"
        for name, each in value.items():
            if name not in known:
                yield f"{where} has no field {name!r} ({page})"
            else:
                yield from on_page(page, known[name](each, f"{where}.{name}"))

    return check


def on_page(page: str, problems: Problems) -> Problems:
    """Problems with their page, where they do not name one already."""
    for problem in problems:
        yield problem if "https://" in problem else f"{problem} ({page})"


def both(*shapes: Shape) -> Shape:
    """All of these at once."""

    def check(value: Any, where: str) -> Problems:
        for shape in shapes:
            yield from shape(value, where)

    return check


def either(*shapes: Shape) -> Shape:
    """Any of these; what is wrong is told by the last."""

    def check(value: Any, where: str) -> Problems:
        for shape in shapes:
            problems = list(shape(value, where))
            if not problems:
                return
        yield from problems

    return check
