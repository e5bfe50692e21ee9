"""What is given of a document: projections of `find` and `$project`, and `$addFields` and `$unset`.

https://www.mongodb.com/docs/manual/reference/operator/aggregation/project/
"""

from collections.abc import Callable, Mapping
from typing import Any

from anamnesis_tests.mongo_server.expressions import Expression, Variables, compile_expression
from anamnesis_tests.mongo_server.matching import compile_filter
from anamnesis_tests.mongo_server.paths import leaves
from anamnesis_tests.mongo_server.refusals import Refusal, not_supported
from anamnesis_tests.mongo_server.scored import carried
from anamnesis_tests.mongo_server.values import MISSING, Document, is_number, is_true

Shape = Callable[[Document, Variables], Document]
Tree = dict[str, Any]
"""Names to a subtree, or to what stands at the leaf: True, or an expression."""


def compile_projection(given: Mapping[str, Any], *, of_find: bool = False) -> Shape:
    """A document to what a projection leaves of it.

    :raises Refusal: it both includes and excludes, or names a field twice.
    """
    if not isinstance(given, Mapping):
        raise Refusal(15969, "$project specification must be an object")
    if not given and not of_find:
        raise Refusal(51272, "projection specification must have at least one field")
    flat = _flatten(given)
    if of_find:
        flat = {path: _of_find(path, value) for path, value in flat.items()}
    others = [value for path, value in flat.items() if path != "_id"]
    excludes = [value for value in others if _is_flag(value) and not is_true(value)]
    if excludes and len(excludes) < len(others):
        raise Refusal(31254, "Cannot do inclusion on a field in exclusion projection")
    if excludes or (not others and flat and not is_true(flat.get("_id"))):
        return _excluding([path for path, value in flat.items() if not is_true(value)])
    if not flat:
        return lambda document, _: document
    return _including(flat)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or is_number(value)


def _flatten(given: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Paths to flags and expressions."""
    flat: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("$"):
            raise Refusal(16410, f"FieldPath field names may not start with '$'. Found: {name}")
        path = f"{before}{name}"
        nested = isinstance(value, Mapping) and value and not any(key.startswith("$") for key in value)
        inner = _flatten(value, f"{path}.") if nested else {path: value}
        if not inner.keys().isdisjoint(flat):
            raise Refusal(31250, f"Path collision at {path}")
        flat |= inner
    for path in flat:
        if any(other.startswith(f"{path}.") for other in flat):
            raise Refusal(31249, f"Path collision at {path}")
    return flat


def _of_find(path: str, value: Any) -> Any:
    """Operators that only a `find` knows."""
    if not isinstance(value, Mapping):
        return value
    if "$elemMatch" in value:
        return {"$loopbackElement": (path, value["$elemMatch"])}
    if "$slice" in value and (is_number(value["$slice"]) or is_number(value["$slice"][0])):
        raise not_supported("$slice in a projection")
    return value


def _leaf(value: Any) -> Expression | bool:
    if _is_flag(value):
        return bool(is_true(value))
    if isinstance(value, Mapping) and "$loopbackElement" in value:
        return _first_element(*value["$loopbackElement"])
    return compile_expression(value)


def _first_element(path: str, where: Any) -> Expression:
    matches = compile_filter(where)
    parts = path.split(".")

    def evaluate(document: Document, _: Variables) -> Any:
        arrays = [value for value in leaves(document, parts) if isinstance(value, list)]
        found = [e for values in arrays for e in values if isinstance(e, dict) and matches(e)]
        return found[:1] or MISSING

    return evaluate


def _tree(flat: Mapping[str, Any]) -> Tree:
    tree: Tree = {}
    for path, leaf in flat.items():
        *before, last = path.split(".")
        at = tree
        for name in before:
            at = at.setdefault(name, {})
        at[last] = leaf
    return tree


def _including(flat: dict[str, Any]) -> Shape:
    leafs = {path: _leaf(value) for path, value in flat.items() if path != "_id" or is_true(value)}
    if "_id" not in flat:
        leafs = {"_id": True} | leafs
    if all(leaf is True and "." not in path for path, leaf in leafs.items()):
        names = frozenset(leafs)
        return lambda document, _: carried(document, {name: value for name, value in document.items() if name in names})
    tree = _tree(leafs)
    return lambda document, variables: carried(document, _include(document, tree, document, variables))


def _include(value: Any, tree: Tree, root: Document, variables: Variables) -> Any:
    """Fields that stay keep their order; the calculated ones follow in the order of the projection."""
    if isinstance(value, list):
        found = [_include(each, tree, root, variables) for each in value if isinstance(each, dict | list)]
        return found if found or not _calculates(tree) else [_include({}, tree, root, variables)]
    kept: Document = {}
    for name, inner in value.items():
        wanted = tree.get(name)
        if wanted is True:
            kept[name] = inner
        elif isinstance(wanted, dict) and isinstance(inner, dict | list):
            kept[name] = _include(inner, wanted, root, variables)
    for name, wanted in tree.items():
        if callable(wanted):
            result = wanted(root, variables)
            if result is not MISSING:
                kept[name] = result
        elif isinstance(wanted, dict) and name not in kept and _calculates(wanted):
            kept[name] = _include({}, wanted, root, variables)
    return kept


def _calculates(tree: Tree) -> bool:
    return any(callable(leaf) or (isinstance(leaf, dict) and _calculates(leaf)) for leaf in tree.values())


def _excluding(paths: list[str]) -> Shape:
    if all("." not in path for path in paths):
        names = frozenset(paths)
        return lambda document, _: carried(
            document, {name: value for name, value in document.items() if name not in names}
        )
    tree = _tree(dict.fromkeys(paths, True))
    return lambda document, _: carried(document, _exclude(document, tree))


def _exclude(value: Any, tree: Tree) -> Any:
    if isinstance(value, list):
        return [_exclude(each, tree) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _exclude(inner, tree[name]) if isinstance(tree.get(name), dict) else inner
        for name, inner in value.items()
        if tree.get(name) is not True
    }


def compile_unset(given: Any) -> Shape:
    """`$unset`: one name or several."""
    names = given if isinstance(given, list) else [given]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise Refusal(31002, "$unset specification must be a string or an array of strings")
    return _excluding(names)


def compile_add(given: Any, stage: str = "$addFields") -> Shape:
    """`$addFields` and `$set`: fields to what expressions make of the document as it came."""
    if not isinstance(given, Mapping):
        raise Refusal(40272, f"{stage} specification stage must be an object")
    flat = _flatten(given)
    fields = [(path.split("."), compile_expression(value)) for path, value in flat.items()]

    def add(document: Document, variables: Variables) -> Document:
        found = document
        for parts, expression in fields:
            found = _put(found, parts, expression(document, variables), 0)
        return carried(document, found)

    return add


def _put(value: Any, parts: list[str], new: Any, at: int) -> Any:
    """A copy with the new value at a path, in every element of arrays on the way; what is in the way is replaced."""
    if at == len(parts):
        return new
    if isinstance(value, list):
        return [_put(each, parts, new, at) for each in value]
    base = value if isinstance(value, dict) else {}
    inner = _put(base.get(parts[at], MISSING), parts, new, at + 1)
    if inner is MISSING:
        return {name: held for name, held in base.items() if name != parts[at]}
    return {**base, parts[at]: inner}


def find_projection(given: Mapping[str, Any] | None) -> Callable[[Document], Document]:
    """The projection of a `find`; none gives documents whole."""
    if not given:
        return lambda document: document
    if any(path.endswith(".$") for path in given):
        raise not_supported("the positional projection")
    shape = compile_projection(given, of_find=True)
    return lambda document: shape(document, {})


def replaced(expression: Any, stage: str) -> Shape:
    """`$replaceRoot` and `$replaceWith`."""
    evaluate = compile_expression(expression)

    def replace(document: Document, variables: Variables) -> Document:
        new = evaluate(document, variables)
        if not isinstance(new, dict):
            raise Refusal(
                40228, f"{stage}: 'newRoot' expression must evaluate to an object, but resulting value was {new!r}"
            )
        return carried(document, dict(new))

    return replace
