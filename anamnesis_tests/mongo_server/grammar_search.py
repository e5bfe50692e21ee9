"""The grammar of `$search`, `$searchMeta` and `$vectorSearch`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from bson import ObjectId
from bson.binary import VECTOR_SUBTYPE, Binary, BinaryVectorDtype

from anamnesis_tests.mongo_server.grammar_shapes import (
    ATLAS_SEARCH,
    VECTOR_SEARCH,
    Problems,
    Shape,
    a_document,
    anything,
    array_of,
    boolean,
    document,
    either,
    integer,
    map_of,
    number,
    on_page,
    one_of,
    one_or_array_of,
    string,
    text,
)

STAGE_PAGE = f"{ATLAS_SEARCH}aggregation-stages/search/"
VECTOR_PAGE = f"{VECTOR_SEARCH}vector-search-stage/"
_OPERATORS_PAGE = f"{ATLAS_SEARCH}operators-and-collectors/"
_SCORE_PAGE = f"{ATLAS_SEARCH}score/modify-score/"
_PATH_PAGE = f"{ATLAS_SEARCH}path-construction/"

_TYPES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("boolean", (bool,)), ("number", (int, float)), ("string", (str,)), ("date", (datetime,)),
    ("objectId", (ObjectId,)), ("uuid", (UUID, Binary)),
)  # fmt: skip
MOST_CANDIDATES = 10_000


def type_of(value: Any) -> str | None:
    """The type that search indexes see in a value, None for one that they do not know."""
    if value is None:
        return "null"
    return next((name for name, types in _TYPES if isinstance(value, types)), None)


# -- $search ---------------------------------------------------------------------------------------------------------

_score = document(
    _SCORE_PAGE,
    optional={
        "boost": document(_SCORE_PAGE, optional={"value": number, "path": text, "undefined": number}),
        "constant": document(_SCORE_PAGE, {"value": number}),
        "embedded": a_document,
        "function": a_document,
    },
)
_text_path = one_or_array_of(
    either(text, document(_PATH_PAGE, {"value": text}, {"multi": text}), document(_PATH_PAGE, {"wildcard": text}))
)
_fuzzy = document(
    f"{ATLAS_SEARCH}text/",
    optional={"maxEdits": one_of(1, 2), "prefixLength": integer(0), "maxExpansions": integer(1)},
)


def _value(value: Any, where: str) -> Problems:
    if type_of(value) is None:
        yield f"{where} must be a boolean, objectId, number, string, date, UUID or null, not {value!r:.60}"


def _values_of_one_type(value: Any, where: str) -> Problems:
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        yield f"{where} must not be empty"
    kinds = {type_of(each) for each in values}
    if None in kinds or "null" in kinds:
        yield f"{where} must be booleans, objectIds, numbers, strings, dates or UUIDs"
    elif len(kinds) > 1:
        yield f"{where} must have elements of the same type"


def _range(value: Any, where: str) -> Problems:
    page = f"{ATLAS_SEARCH}range/"
    bounds = {"gt": _value, "gte": _value, "lt": _value, "lte": _value}
    yield from document(page, {"path": one_or_array_of(text)}, {**bounds, "score": _score})(value, where)
    if not isinstance(value, Mapping):
        return
    given = [name for name in bounds if name in value]
    if not given:
        yield f"{where} must have at least one of gt, gte, lt and lte ({page})"
    for pair in ({"gt", "gte"}, {"lt", "lte"}):
        if pair <= value.keys():
            yield f"{where} must not have both of {' and '.join(sorted(pair))} ({page})"
    kinds = {type_of(value[name]) for name in given}
    if len(kinds) > 1 or kinds & {"boolean", "null"}:
        yield f"{where} must have bounds of one type: number, date, string, objectId or UUID ({page})"


def _compound(value: Any, where: str) -> Problems:
    page = f"{ATLAS_SEARCH}compound/"
    clauses = dict.fromkeys(("must", "mustNot", "should", "filter"), one_or_array_of(operator))
    empty = {name for name in clauses if isinstance(value, Mapping) and value.get(name) in ([], ())}
    given = {name: each for name, each in value.items() if name not in empty} if isinstance(value, Mapping) else value
    options = {**clauses, "minimumShouldMatch": integer(0), "score": _score}
    yield from document(page, optional=options)(given, where)
    if not isinstance(given, Mapping):
        return
    if not any(name in given for name in clauses):
        yield f"{where} must have at least one clause ({page})"
    should = given.get("should", ())
    count = len(should) if isinstance(should, list | tuple) else 1
    if isinstance(given.get("minimumShouldMatch"), int) and given["minimumShouldMatch"] > count:
        yield f"{where}.minimumShouldMatch cannot be greater than the number of should clauses ({page})"


_OPERATORS: dict[str, Shape] = {
    "compound": _compound,
    "text": document(
        f"{ATLAS_SEARCH}text/",
        {"query": one_or_array_of(text), "path": _text_path},
        {"fuzzy": _fuzzy, "matchCriteria": one_of("any", "all"), "score": _score, "synonyms": text},
    ),
    "phrase": document(
        f"{ATLAS_SEARCH}phrase/",
        {"query": one_or_array_of(text), "path": _text_path},
        {"slop": integer(0), "score": _score, "synonyms": text},
    ),
    "equals": document(f"{ATLAS_SEARCH}equals/", {"path": text, "value": _value}, {"score": _score}),
    "in": document(
        f"{ATLAS_SEARCH}in/", {"path": one_or_array_of(text), "value": _values_of_one_type}, {"score": _score}
    ),
    "range": _range,
    "exists": document(f"{ATLAS_SEARCH}exists/", {"path": text}, {"score": _score}),
    "queryString": document(
        f"{ATLAS_SEARCH}queryString/", {"defaultPath": text, "query": text}, {"score": _score}
    ),
    "near": document(
        f"{ATLAS_SEARCH}near/",
        {"path": one_or_array_of(text), "origin": anything, "pivot": number},
        {"score": _score},
    ),
    "wildcard": document(
        f"{ATLAS_SEARCH}wildcard/",
        {"query": one_or_array_of(text), "path": _text_path},
        {"allowAnalyzedField": boolean, "score": _score},
    ),
    "regex": document(
        f"{ATLAS_SEARCH}regex/",
        {"query": one_or_array_of(text), "path": _text_path},
        {"allowAnalyzedField": boolean, "score": _score},
    ),
    "autocomplete": document(
        f"{ATLAS_SEARCH}autocomplete/",
        {"query": one_or_array_of(text), "path": text},
        {"tokenOrder": one_of("any", "sequential"), "fuzzy": _fuzzy, "score": _score},
    ),
}  # fmt: skip


def operator(value: Any, where: str) -> Problems:
    """Exactly one operator by its name."""
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in _OPERATORS:
        yield f"{where} must be one operator of {', '.join(_OPERATORS)}, not {value!r:.60} ({_OPERATORS_PAGE})"
        return
    name = next(iter(value))
    yield from _OPERATORS[name](value[name], f"{where}.{name}")


_direction = either(
    one_of(1, -1),
    document(f"{ATLAS_SEARCH}sort/", {"order": one_of(1, -1)}, {"noData": one_of("lowest", "highest")}),
    document(f"{ATLAS_SEARCH}sort/", {"$meta": one_of("searchScore")}, {"order": one_of(1, -1)}),
)
_count = document(f"{ATLAS_SEARCH}counting/", optional={"type": one_of("lowerBound", "total"), "threshold": integer(0)})
_OPTIONS: dict[str, Shape] = {
    "index": text,
    "highlight": a_document,
    "concurrent": boolean,
    "count": _count,
    "searchAfter": string,
    "searchBefore": string,
    "scoreDetails": boolean,
    "sort": map_of(_direction, least=1),
    "returnScope": document(STAGE_PAGE, {"path": text}),
    "returnStoredSource": boolean,
    "tracking": a_document,
    "searchNodePreference": a_document,
}
_ONLY_META = {"index", "count", "facet", "searchNodePreference"}


def search(value: Any, where: str) -> Problems:
    """The body of `$search`: one operator, or the collector `facet`, and options."""
    if not isinstance(value, Mapping):
        yield f"{where} must be a document, not {value!r:.60} ({STAGE_PAGE})"
        return
    named = [name for name in value if name in _OPERATORS or name == "facet"]
    if len(named) != 1:
        yield f"{where} must have exactly one operator or collector, not {', '.join(named) or 'none'} ({STAGE_PAGE})"
    operators = {name: _OPERATORS.get(name, a_document) for name in named}
    yield from document(STAGE_PAGE, optional={**_OPTIONS, **operators})(value, where)
    if {"searchAfter", "searchBefore"} <= value.keys():
        yield f"{where} must not have both searchAfter and searchBefore ({STAGE_PAGE})"


def search_meta(value: Any, where: str) -> Problems:
    """The body of `$searchMeta`."""
    yield from search(value, where)
    if isinstance(value, Mapping):
        for name in value.keys() - _ONLY_META - _OPERATORS.keys():
            yield f"{where} has no use for {name!r} ({ATLAS_SEARCH}aggregation-stages/searchMeta/)"


# -- $vectorSearch ---------------------------------------------------------------------------------------------------


def _query_vector(value: Any, where: str) -> Problems:
    if isinstance(value, Binary) and value.subtype == VECTOR_SUBTYPE:
        if value.as_vector().dtype not in set(BinaryVectorDtype):
            yield f"{where} must be a vector of float32, int8 or int1"
        return
    yield from array_of(number, least=1)(value, where)


def _same_types(value: Any, where: str) -> Problems:
    if not isinstance(value, list | tuple):
        yield f"{where} must be an array, not {value!r:.60}"
        return
    yield from _values_of_one_type(value, where)


def _bound(value: Any, where: str) -> Problems:
    if type_of(value) in (None, "null"):
        yield f"{where} must be a boolean, date, number, objectId, string or UUID, not {value!r:.60}"


def _conditions(value: Any, where: str) -> Problems:
    if not isinstance(value, Mapping) or not value:
        yield f"{where} must be a document of operators, not {value!r:.60}"
        return
    for name, each in value.items():
        shape = _FILTER_OPERATORS.get(name)
        if shape is None:
            yield f"{where} has an operator that filters do not know: {name!r}"
        else:
            yield from shape(each, f"{where}.{name}")


_FILTER_OPERATORS: dict[str, Shape] = {
    "$eq": _value,
    "$ne": _value,
    "$gt": _bound,
    "$gte": _bound,
    "$lt": _bound,
    "$lte": _bound,
    "$in": _same_types,
    "$nin": _same_types,
    "$exists": boolean,
    "$not": _conditions,
}


def _filter(value: Any, where: str) -> Problems:
    """MQL, but only the operators of the table on the page; a value alone means `$eq`."""
    if not isinstance(value, Mapping):
        yield f"{where} must be a document, not {value!r:.60}"
        return
    for name, each in value.items():
        if name in ("$and", "$or", "$nor"):
            yield from array_of(_filter, least=1)(each, f"{where}.{name}")
        elif name.startswith("$"):
            yield f"{where} has an operator that filters do not know: {name!r}"
        elif isinstance(each, Mapping):
            yield from _conditions(each, f"{where}.{name}")
        else:
            yield from _value(each, f"{where}.{name}")


_vector_search = document(
    VECTOR_PAGE,
    {"index": text, "path": text, "queryVector": _query_vector, "limit": integer(1, 2**31 - 1)},
    {
        "exact": boolean,
        "numCandidates": integer(1, MOST_CANDIDATES),
        "filter": lambda value, where: on_page(VECTOR_PAGE, _filter(value, where)),
        "explainOptions": a_document,
        "searchNodePreference": a_document,
    },
)


def vector_search(value: Any, where: str) -> Problems:
    """The body of `$vectorSearch`."""
    problems = list(_vector_search(value, where))
    yield from problems
    if problems:
        return
    exact, candidates = value.get("exact", False), value.get("numCandidates")
    if exact and candidates is not None:
        yield f"{where}.numCandidates must be omitted when exact is true ({VECTOR_PAGE})"
    if not exact and candidates is None:
        yield f"{where}.numCandidates is required unless exact is true ({VECTOR_PAGE})"
    if candidates is not None and value["limit"] > candidates:
        yield f"{where}.limit must not exceed numCandidates: {value['limit']} of {candidates} ({VECTOR_PAGE})"
