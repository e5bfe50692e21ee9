"""The grammar of aggregation pipelines: https://www.mongodb.com/docs/v8.0/reference/operator/aggregation-pipeline/."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anamnesis_tests.mongo_server.grammar_expressions import ACCUMULATORS, expression
from anamnesis_tests.mongo_server.grammar_projections import project, unset
from anamnesis_tests.mongo_server.grammar_queries import predicate
from anamnesis_tests.mongo_server.grammar_search import VECTOR_PAGE, search, search_meta, vector_search
from anamnesis_tests.mongo_server.grammar_shapes import (
    ATLAS_SEARCH,
    MANUAL,
    Problems,
    Shape,
    a_document,
    array_of,
    boolean,
    document,
    integer,
    number,
    on_page,
    one_of,
    one_or_array_of,
    text,
)

STAGES_PAGE = f"{MANUAL}reference/operator/aggregation/"
TRANSACTION_PAGE = f"{MANUAL}reference/command/aggregate/"
UPDATE_PAGE = f"{MANUAL}reference/command/update/"
RANK_PAGE = f"{STAGES_PAGE}rankFusion/"
READ_CONCERN_PAGE = "https://github.com/mongodb/mongo/blob/master/src/mongo/db/pipeline/search/lite_parsed_search.h"

SEARCH_STAGES = frozenset({"$search", "$searchMeta", "$vectorSearch"})
_FIRST = SEARCH_STAGES | {
    "$listSearchIndexes", "$rankFusion", "$collStats", "$indexStats", "$geoNear", "$documents", "$planCacheStats",
}  # fmt: skip
_LAST = frozenset({"$out", "$merge"})
_NOT_IN_TRANSACTIONS = SEARCH_STAGES | _LAST | {
    "$collStats", "$indexStats", "$listSearchIndexes", "$planCacheStats", "$unionWith", "$rankFusion",
}  # fmt: skip
_IN_UPDATES = frozenset({"$addFields", "$set", "$project", "$unset", "$replaceRoot", "$replaceWith"})
_NOT_IN_FACETS = SEARCH_STAGES | _LAST | {"$collStats", "$facet", "$geoNear", "$indexStats", "$planCacheStats"}
_NOT_IN_LOOKUPS = _LAST | {"$vectorSearch", "$rankFusion"}
_IN_RANKED = frozenset({"$match", "$search", "$vectorSearch", "$sample", "$geoNear", "$sort", "$skip", "$limit"})
_SCORES = {
    "searchScore": {"$search"},
    "searchScoreDetails": {"$search"},
    "searchHighlights": {"$search"},
    "searchSequenceToken": {"$search"},
    "vectorSearchScore": {"$vectorSearch"},
    "score": {"$rankFusion"},
    "scoreDetails": {"$rankFusion"},
}
"""After which stage `$meta` has something to say."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline stands. `names`: variables that its expressions may use."""

    in_transaction: bool = False
    within: str = ""
    read_concern: str = ""
    names: frozenset[str] = frozenset()


def pipeline(value: Any, where: str, place: Place = Place()) -> Problems:
    """A pipeline: each stage by itself, and what may stand where."""
    yield from array_of(_one_stage)(value, where)
    if not isinstance(value, list | tuple):
        return
    names = [next(iter(stage)) for stage in value if isinstance(stage, Mapping) and len(stage) == 1]
    if len(names) != len(value):
        return
    for number_, (name, stage) in enumerate(zip(names, value, strict=True)):
        at = f"{where}[{number_}].{name}"
        if name not in _STAGES:
            yield f"{at} is no stage of a pipeline ({STAGES_PAGE})"
            continue
        yield from _placed(name, at, number_, len(names), place)
        yield from on_page(f"{STAGES_PAGE}{name[1:]}/", _STAGES[name](stage[name], at, place))
        yield from _meta(stage[name], at, set(names[:number_]))


def _one_stage(value: Any, where: str) -> Problems:
    if not isinstance(value, Mapping) or len(value) != 1:
        yield f"{where} must be a document of exactly one stage, not {value!r:.60} ({STAGES_PAGE})"


def _placed(name: str, at: str, number_: int, count: int, place: Place) -> Problems:
    if name in _FIRST and number_ > 0:
        yield f"{at} must be the first stage of its pipeline ({_page_of_search(name)})"
    if name in _LAST and number_ < count - 1:
        yield f"{at} must be the last stage of its pipeline ({STAGES_PAGE}{name[1:]}/)"
    if place.in_transaction and name in _NOT_IN_TRANSACTIONS:
        yield f"{at} must not stand in a transaction ({TRANSACTION_PAGE})"
    if place.read_concern not in ("", "local") and name in SEARCH_STAGES | {"$listSearchIndexes", "$rankFusion"}:
        yield f"{at} runs with read concern local alone, not {place.read_concern} ({READ_CONCERN_PAGE})"
    forbidden, page = _FORBIDDEN.get(place.within, (frozenset(), ""))
    if name in forbidden:
        yield f"{at} must not stand in a pipeline of {place.within} ({page})"
    if place.within == "an update" and name not in _IN_UPDATES:
        yield f"{at} must not stand in a pipeline of an update ({UPDATE_PAGE})"
    if place.within == "$rankFusion" and name not in _IN_RANKED:
        yield f"{at} must not stand in an input pipeline of $rankFusion ({RANK_PAGE})"


_FORBIDDEN: dict[str, tuple[frozenset[str], str]] = {
    "$facet": (_NOT_IN_FACETS, f"{STAGES_PAGE}facet/"),
    "$lookup": (_NOT_IN_LOOKUPS, VECTOR_PAGE),
    "$unionWith": (_LAST, f"{STAGES_PAGE}unionWith/"),
}


def _page_of_search(name: str) -> str:
    pages = {"$vectorSearch": VECTOR_PAGE, "$search": f"{ATLAS_SEARCH}aggregation-stages/search/"}
    return pages.get(name, f"{STAGES_PAGE}{name[1:]}/")


def _meta(value: Any, where: str, before: set[str]) -> Problems:
    """Each `$meta` that asks for what no stage before it gives."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _meta(each, where, before)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            needed = _SCORES.get(str(each)) if name == "$meta" else None
            if needed and not needed & before and where.rpartition(".")[2] not in _FIRST:
                yield f"{where}: {each} is there only after {' or '.join(needed)} ({STAGES_PAGE}meta/)"
            if name not in ("pipeline", "$literal"):
                yield from _meta(each, where, before)


# -- the stages ------------------------------------------------------------------------------------------------------

Stage = Callable[[Any, str, Place], Problems]


def _plain(shape: Shape) -> Stage:
    return lambda value, where, _place: shape(value, where)


def _match(value: Any, where: str, place: Place) -> Problems:
    yield from predicate(value, where, place.names)


def _project(value: Any, where: str, place: Place) -> Problems:
    yield from project(value, where, place.names)


def _add_fields(value: Any, where: str, place: Place) -> Problems:
    yield from a_document(value, where)
    for name, each in value.items() if isinstance(value, Mapping) else ():
        if name.startswith("$") or not all(name.split(".")):
            yield f"{where}: {name!r} is no name of a field"
        yield from expression(each, f"{where}.{name}", place.names)


def _group(value: Any, where: str, place: Place) -> Problems:
    if not isinstance(value, Mapping) or "_id" not in value:
        yield f"{where} must be a document with an _id"
        return
    for name, each in value.items():
        at = f"{where}.{name}"
        if name == "_id":
            yield from expression(each, at, place.names)
        elif "." in name or name.startswith("$"):
            yield f"{where}: no dot or dollar may be in the name {name!r}"
        else:
            yield from _accumulator(each, at, place)


def _accumulator(value: Any, where: str, place: Place) -> Problems:
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in ACCUMULATORS:
        yield f"{where} must be exactly one accumulator, not {value!r:.60}"
        return
    [(name, each)] = value.items()
    if name == "$count":
        if each != {}:
            yield f"{where}.$count takes an empty document"
    elif name.endswith("N") or name in ("$top", "$bottom", "$median", "$percentile"):
        parts = each.items() if isinstance(each, Mapping) else [("", each)]
        for part, inner in parts:
            if part not in ("sortBy", "method"):
                yield from expression(inner, f"{where}.{name}.{part}", place.names)
    elif isinstance(each, list | tuple) and name not in ("$push", "$addToSet", "$first", "$last"):
        yield f"{where}.{name} takes one expression in $group, not an array"
    else:
        yield from expression(each, f"{where}.{name}", place.names)


def _sort(value: Any, where: str, _place: Place) -> Problems:
    if not isinstance(value, Mapping) or not value:
        yield f"{where} must be a document of at least one field"
        return
    for name, each in value.items():
        if isinstance(each, Mapping) and "$meta" in each:
            yield from one_of("textScore", "searchScore", "vectorSearchScore", "score")(
                each["$meta"], f"{where}.{name}"
            )
        else:
            yield from one_of(1, -1)(each, f"{where}.{name}")


def _lookup(value: Any, where: str, place: Place) -> Problems:
    fields = {"localField": text, "foreignField": text, "let": a_document, "pipeline": array_of(a_document)}
    yield from document(f"{STAGES_PAGE}lookup/", {"as": text}, {"from": text, **fields})(value, where)
    if not isinstance(value, Mapping):
        return
    if ("localField" in value) != ("foreignField" in value):
        yield f"{where} must have both of localField and foreignField, or neither"
    if "pipeline" not in value and "localField" not in value:
        yield f"{where} must have pipeline, or localField and foreignField"
    given = value.get("let") or {}
    for name, each in given.items():
        yield from expression(each, f"{where}.let.{name}", place.names)
    inner = replace(place, within="$lookup", names=place.names | set(given))
    yield from pipeline(value.get("pipeline", []), f"{where}.pipeline", inner)


def _union_with(value: Any, where: str, place: Place) -> Problems:
    if isinstance(value, str):
        return
    fields = {"coll": text, "pipeline": array_of(a_document)}
    yield from document(f"{STAGES_PAGE}unionWith/", optional=fields)(value, where)
    if isinstance(value, Mapping):
        if not value.keys() & {"coll", "pipeline"}:
            yield f"{where} must have coll or pipeline"
        yield from pipeline(value.get("pipeline", []), f"{where}.pipeline", replace(place, within="$unionWith"))


def _facet(value: Any, where: str, place: Place) -> Problems:
    yield from a_document(value, where)
    for name, each in value.items() if isinstance(value, Mapping) else ():
        yield from pipeline(each, f"{where}.{name}", replace(place, within="$facet"))


def _rank_fusion(value: Any, where: str, place: Place) -> Problems:
    weights = document(RANK_PAGE, optional={"weights": a_document})
    inputs = document(RANK_PAGE, {"pipelines": a_document})
    problems = list(
        document(RANK_PAGE, {"input": inputs}, {"combination": weights, "scoreDetails": boolean})(value, where)
    )
    yield from problems
    if problems:
        return
    pipelines = value["input"]["pipelines"]
    if not pipelines:
        yield f"{where}.input.pipelines must have at least one pipeline"
    for name, stages in pipelines.items():
        at = f"{where}.input.pipelines.{name}"
        if not name or name.startswith("$") or "." in name or "\0" in name:
            yield f"{at}: the name must not be empty, begin with $, or have a dot or null character"
        yield from pipeline(stages, at, replace(place, within="$rankFusion"))
        if not _is_ranked(stages):
            yield f"{at} must begin with $search or $vectorSearch, or have a $sort"
    for name, weight in value.get("combination", {}).get("weights", {}).items():
        if name not in pipelines or isinstance(weight, bool) or not isinstance(weight, int | float) or weight < 0:
            yield f"{where}.combination.weights.{name} must be a number of at least 0, of an input pipeline"


def _is_ranked(stages: Sequence[Mapping[str, Any]]) -> bool:
    names = [name for stage in stages for name in stage]
    return bool(names) and (names[0] in ("$search", "$vectorSearch", "$geoNear") or "$sort" in names)


def _expression(value: Any, where: str, place: Place) -> Problems:
    yield from expression(value, where, place.names)


def _replace_root(value: Any, where: str, place: Place) -> Problems:
    yield from document(f"{STAGES_PAGE}replaceRoot/", {"newRoot": lambda _value, _where: iter(())})(value, where)
    yield from expression(value, where, place.names)


def _unwind(value: Any, where: str, _place: Place) -> Problems:
    path = value.get("path") if isinstance(value, Mapping) else value
    fields = {"includeArrayIndex": text, "preserveNullAndEmptyArrays": boolean}
    if isinstance(value, Mapping):
        yield from document(f"{STAGES_PAGE}unwind/", {"path": text}, fields)(value, where)
    if not isinstance(path, str) or not path.startswith("$") or len(path) < 2:
        yield f"{where}: the path must begin with a dollar, not {path!r}"


def _count(value: Any, where: str, _place: Place) -> Problems:
    if not isinstance(value, str) or not value or value.startswith("$") or "." in value:
        yield f"{where} must be a name without dot that does not begin with a dollar, not {value!r}"


def _list_search_indexes(value: Any, where: str, _place: Place) -> Problems:
    yield from document(f"{STAGES_PAGE}listSearchIndexes/", optional={"id": text, "name": text})(value, where)
    if isinstance(value, Mapping) and len(value) > 1:
        yield f"{where} must not have both id and name"


_STAGES: dict[str, Stage] = {
    "$addFields": _add_fields,
    "$set": _add_fields,
    "$count": _count,
    "$facet": _facet,
    "$group": _group,
    "$limit": _plain(integer(1)),
    "$listSearchIndexes": _list_search_indexes,
    "$lookup": _lookup,
    "$match": _match,
    "$project": _project,
    "$rankFusion": _rank_fusion,
    "$replaceRoot": _replace_root,
    "$replaceWith": _expression,
    "$sample": _plain(document(f"{STAGES_PAGE}sample/", {"size": integer(1)})),
    "$search": _plain(search),
    "$searchMeta": _plain(search_meta),
    "$skip": _plain(integer(0)),
    "$sort": _sort,
    "$sortByCount": _expression,
    "$unionWith": _union_with,
    "$unset": _plain(one_or_array_of(unset)),
    "$unwind": _unwind,
    "$vectorSearch": _plain(vector_search),
    "$bucket": _plain(
        document(
            f"{STAGES_PAGE}bucket/",
            {"groupBy": lambda _value, _where: iter(()), "boundaries": array_of(number, least=2)},
            {"default": lambda _value, _where: iter(()), "output": a_document},
        )
    ),
    "$collStats": _plain(a_document),
    "$indexStats": _plain(document(f"{STAGES_PAGE}indexStats/")),
    "$documents": _expression,
    "$out": _plain(lambda _value, _where: iter(())),
    "$merge": _plain(lambda _value, _where: iter(())),
}
"""Those that the loopback server may meet; another one is refused as if there were none of its name."""
