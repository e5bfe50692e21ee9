"""What the documentation allows of search stages and definitions, as far as the store uses them.

A stand-in that takes what a real server refuses would prove nothing, so all else is refused. Pages:
https://www.mongodb.com/docs/atlas/atlas-search/ and, for vectors,
https://www.mongodb.com/docs/atlas/atlas-vector-search/vector-search-stage/.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bson.binary import VECTOR_SUBTYPE, Binary

from anamnesis_tests.support.mongo_server.search_errors import FAILED_TO_PARSE, IN_TRANSACTION, SearchRefused
from anamnesis_tests.support.mongo_server.search_values import typed

MAX_CANDIDATES = 10_000
MAX_DIMENSIONS = 8192

_OPERATORS: dict[str, tuple[set[str], set[str]]] = {
    "compound": (set(), {"must", "mustNot", "should", "filter", "minimumShouldMatch"}),
    "phrase": ({"query", "path"}, set()),
    "equals": ({"path", "value"}, set()),
    "in": ({"path", "value"}, set()),
    "range": ({"path"}, {"gt", "gte", "lt", "lte"}),
    "exists": ({"path"}, set()),
}
"""Operator -> the fields it must have, and those it may have."""
_STAGES: dict[str, tuple[set[str], set[str]]] = {
    "$search": (set(), {"index", *_OPERATORS}),
    "$searchMeta": (set(), {"index", "count", *_OPERATORS}),
    "$vectorSearch": ({"index", "path", "queryVector", "limit"}, {"exact", "numCandidates", "filter"}),
    "$listSearchIndexes": (set(), {"name", "id"}),
}
_COMMON = {"numPartitions", "storedSource"}
_VECTOR_FIELDS = {"vector": {"path", "numDimensions", "similarity"}, "filter": {"path"}}
_FILTERS = {"$gt", "$gte", "$lt", "$lte", "$in", "$nin"}
_TOGETHER = {"$and", "$or", "$nor"}
_STRING = {"analyzer", "indexOptions", "store", "norms"}
_MAPPED: dict[str, set[str]] = {"string": _STRING, "number": {"representation"}, "token": set()}

Problems = Iterator[str]


def must_fit(name: str, command: Mapping[str, Any]) -> None:
    """Pass what is allowed.

    :raises SearchRefused: a field is missing, unknown or has a value it may not have.
    """
    if "autocommit" in command:
        raise SearchRefused(IN_TRANSACTION, f"{name} with a search stage cannot run in a transaction")
    if (command.get("readConcern") or {}).get("level", "local") != "local":
        raise SearchRefused(FAILED_TO_PARSE, "search stages take no read concern but local")
    if problems := list(_problems(name, command)):
        raise SearchRefused(FAILED_TO_PARSE, "; ".join(problems))


def _problems(name: str, command: Mapping[str, Any]) -> Problems:
    match name:
        case "aggregate":
            yield from _pipeline(command["pipeline"])
        case "createSearchIndexes":
            for model in command["indexes"]:
                yield from _fields(model, "index", {"definition"}, {"name", "type"})
                is_vector = model.get("type", "search") == "vectorSearch"
                yield from (_vectors if is_vector else _mappings)(model["definition"])


def _fields(value: Any, where: str, needed: set[str], known: set[str]) -> Problems:
    if not isinstance(value, Mapping):
        yield f"{where} must be a document"
        return
    if missing := needed - value.keys():
        yield f"{where} must have {', '.join(sorted(missing))}"
    if unknown := value.keys() - needed - known:
        yield f"{where} has no field {', '.join(sorted(unknown))}"


def _pipeline(pipeline: Sequence[Mapping[str, Any]]) -> Problems:
    for place, stage in enumerate(pipeline):
        ((name, body),) = stage.items()
        if (name in _STAGES) != (place == 0):
            yield f"{name} cannot be stage {place} of a pipeline that searches"
        elif name in _STAGES:
            yield from _fields(body, name, *_STAGES[name])
            yield from _vector_search(body) if name == "$vectorSearch" else _operator(body, name)
        elif name == "$unionWith":
            yield from _pipeline(body["pipeline"])


def _operator(body: Mapping[str, Any], where: str) -> Problems:
    """One operator by its name, beside options of the stage."""
    names = body.keys() & _OPERATORS.keys()
    if len(names) != 1 and where != "$listSearchIndexes":
        yield f"{where} must have one operator, not {len(names)}"
    for name in names:
        value, inside = body[name], f"{where}.{name}"
        yield from _fields(value, inside, *_OPERATORS[name])
        if name == "compound":
            yield from _compound(value, inside)
        if name == "range":
            yield from _range(value, inside)
        if name == "in":
            kinds = {(typed(each) or ("", None))[0] for each in _listed(value["value"])}
            if len(kinds) != 1 or kinds & {""}:
                yield f"{inside}.value must hold values of one type"
        if name == "phrase" and not all(isinstance(each, str) and each for each in _listed(value["query"])):
            yield f"{inside}.query must be a text that is not empty"


def _compound(value: Mapping[str, Any], where: str) -> Problems:
    clauses = {name: _listed(each) for name, each in value.items() if name != "minimumShouldMatch"}
    if not any(clauses.values()):
        yield f"{where} must have at least one clause"
    if value.get("minimumShouldMatch", 0) > len(clauses.get("should", ())):
        yield f"{where}.minimumShouldMatch cannot be greater than the number of should clauses"
    for name, each in clauses.items():
        for clause in each:
            yield from _fields(clause, f"{where}.{name}", set(), set(_OPERATORS))
            yield from _operator(clause, f"{where}.{name}")


def _range(value: Mapping[str, Any], where: str) -> Problems:
    bounds = value.keys() - {"path"}
    if not bounds or {"gt", "gte"} <= bounds or {"lt", "lte"} <= bounds:
        yield f"{where} must have one or two of gt or gte, and lt or lte"
    kinds = {(typed(value[bound]) or ("", None))[0] for bound in bounds}
    if len(kinds) > 1 or kinds & {""}:
        yield f"{where} must have bounds of one type: number or string"


def _vector_search(body: Mapping[str, Any]) -> Problems:
    candidates, limit = body.get("numCandidates"), body["limit"]
    if body.get("exact", False) != (candidates is None):
        yield "$vectorSearch must have either numCandidates or exact"
    if limit < 1 or (candidates is not None and not limit <= candidates <= MAX_CANDIDATES):
        yield f"$vectorSearch: limit {limit} and numCandidates {candidates} do not fit"
    vector = body["queryVector"]
    if not (isinstance(vector, Binary) and vector.subtype == VECTOR_SUBTYPE):
        yield "$vectorSearch.queryVector must be a vector"
    yield from _filter(body.get("filter", {}))


def _filter(where: Mapping[str, Any]) -> Problems:
    for name, value in where.items():
        if name in _TOGETHER:
            for each in value:
                yield from _filter(each)
        elif name.startswith("$"):
            yield f"filter does not know {name}"
        elif isinstance(value, Mapping):
            yield from (f"filter.{name} does not know {each}" for each in value.keys() - _FILTERS)


def _vectors(definition: Mapping[str, Any]) -> Problems:
    yield from _fields(definition, "definition", {"fields"}, _COMMON)
    fields = definition["fields"]
    if len({field["path"] for field in fields}) != len(fields) or all(field["type"] == "filter" for field in fields):
        yield "definition.fields must have a vector, and distinct paths"
    for field in fields:
        if field["type"] not in _VECTOR_FIELDS:
            yield f"definition.fields knows no type {field['type']}"
            continue
        optional = {"type", "quantization"} if field["type"] == "vector" else {"type"}
        yield from _fields(field, "definition.fields", _VECTOR_FIELDS[field["type"]], optional)
        if field["type"] == "vector":
            width = field["numDimensions"]
            if not 1 <= width <= MAX_DIMENSIONS or field["similarity"] != "dotProduct":
                yield f"definition: a vector of {width} dimensions by {field['similarity']}"
            if field.get("quantization") == "binary" and width % 8:
                yield "definition: numDimensions must be a multiple of 8 for binary quantization"


def _mappings(definition: Mapping[str, Any]) -> Problems:
    yield from _fields(definition, "definition", {"mappings"}, {"analyzers", *_COMMON})
    mappings = definition["mappings"]
    yield from _fields(mappings, "definition.mappings", set(), {"dynamic", "fields"})
    if not mappings.get("dynamic") and not mappings.get("fields"):
        yield "definition.mappings must be dynamic or have fields"
    own = [analyzer["name"] for analyzer in definition.get("analyzers", ())]
    for name, field in mappings.get("fields", {}).items():
        yield from _fields(field, f"definition.{name}", {"type"}, _MAPPED.get(field["type"], set()))
        analyzer = field.get("analyzer", "lucene.standard")
        if analyzer not in own and not analyzer.startswith("lucene."):
            yield f"definition.{name} uses the analyzer {analyzer!r}, which is not defined"


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
