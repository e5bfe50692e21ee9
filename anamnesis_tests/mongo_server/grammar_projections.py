"""The grammar of `$project`, of the projection of `find`, and of paths.

https://www.mongodb.com/docs/v8.0/reference/operator/aggregation/project/
"""

from collections.abc import Iterator, Mapping
from typing import Any

from anamnesis_tests.mongo_server.grammar_expressions import expression
from anamnesis_tests.mongo_server.grammar_shapes import MANUAL, Problems

PROJECT_PAGE = f"{MANUAL}reference/operator/aggregation/project/"
FIND_PAGE = f"{MANUAL}reference/method/db.collection.find/"
_OF_FIND = frozenset({"$elemMatch", "$slice"})


def project(value: Any, where: str, names: frozenset[str] = frozenset(), page: str = PROJECT_PAGE) -> Problems:
    """A projection: what to keep, with what is computed, or what to leave out; `_id` apart, never both."""
    if not isinstance(value, Mapping) or (not value and page == PROJECT_PAGE):
        yield f"{where} must be a document that is not empty ({page})"
        return
    leaves = list(_leaves(value, ""))
    yield from _collisions([path for path, _ in leaves], where, page)
    kept = [path for path, each in leaves if path != "_id" and _is_flag(each) and each]
    dropped = [path for path, each in leaves if path != "_id" and _is_flag(each) and not each]
    computed = [path for path, each in leaves if not _is_flag(each) and not _goes_with_both(each)]
    if dropped and (kept or computed):
        yield f"{where} must not leave out {dropped[0]!r} and keep {(kept + computed)[0]!r} ({page})"
    for path, each in leaves:
        if not all(path.split(".")) or path.startswith("$"):
            yield f"{where}: {path!r} is no path of a field ({page})"
        if not _is_flag(each) and not (page == FIND_PAGE and _is_of_find(each)):
            yield from expression(each, f"{where}.{path}", names)


def unset(value: Any, where: str) -> Problems:
    """One path of `$unset`."""
    if not isinstance(value, str) or not value or value.startswith("$") or not all(value.split(".")):
        yield f"{where} must be the path of a field, not {value!r} ({MANUAL}reference/operator/aggregation/unset/)"


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        if isinstance(each, Mapping) and each and not any(inner.startswith("$") for inner in each):
            yield from _leaves(each, f"{prefix}{name}.")
        else:
            yield prefix + name, each


def _collisions(paths: list[str], where: str, page: str) -> Problems:
    for path in paths:
        above = [other for other in paths if path.startswith(f"{other}.")]
        if above or paths.count(path) > 1:
            yield f"{where}: the path {path!r} collides with {(above or [path])[0]!r} ({page})"


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _is_of_find(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(_OF_FIND & value.keys())


def _goes_with_both(value: Any) -> bool:
    """`$meta` may stand beside fields that are kept, and beside those that are left out."""
    return isinstance(value, Mapping) and ("$meta" in value or _is_of_find(value))
