"""The stages of a pipeline, by name."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import bson
from bson import Int64

from anamnesis_tests.mongo_server import grouping, joining
from anamnesis_tests.mongo_server.expressions import compile_expression
from anamnesis_tests.mongo_server.matching import compile_filter
from anamnesis_tests.mongo_server.ordering import Order, in_order
from anamnesis_tests.mongo_server.paths import exact, set_value
from anamnesis_tests.mongo_server.projection import Shape, compile_add, compile_projection, compile_unset, replaced
from anamnesis_tests.mongo_server.refusals import Refusal, refuse_unknown
from anamnesis_tests.mongo_server.scored import carried
from anamnesis_tests.mongo_server.values import MISSING, Document, is_number

if TYPE_CHECKING:
    from anamnesis_tests.mongo_server.pipeline import Context

Documents = Iterable[Document]
Step = Callable[[Documents], Documents]


def order_of(given: Any) -> Order:
    """The argument of `$sort`."""
    if not isinstance(given, Mapping) or not given:
        raise Refusal(15976, "$sort stage must have at least one sort key")
    return list(given.items())


def positive(stage: str, given: Any, least: int = 1) -> int:
    """A count that a stage is given."""
    if not is_number(given) or given != int(given) or given < least:
        raise Refusal(5107201 if least == 1 else 5107200, f"invalid argument to {stage} stage: {given!r}")
    return int(given)


def _match(context: "Context", given: Any) -> Step:
    matches = compile_filter(given, context.variables)
    return lambda documents: (document for document in documents if matches(document))


def _sort(_: "Context", given: Any) -> Step:
    order = order_of(given)
    return lambda documents: in_order(documents, order)


def _limit(_: "Context", given: Any) -> Step:
    count = positive("$limit", given)
    return lambda documents: islice(documents, count)


def _skip(_: "Context", given: Any) -> Step:
    count = positive("$skip", given, 0)
    return lambda documents: islice(documents, count, None)


def _shaped(make: Callable[[Any], Shape]) -> Callable[["Context", Any], Step]:
    def stage(context: "Context", given: Any) -> Step:
        shape = make(given)
        return lambda documents: (shape(document, context.variables) for document in documents)

    return stage


def _root(given: Any) -> Shape:
    if not isinstance(given, Mapping) or list(given) != ["newRoot"]:
        raise Refusal(40231, "$replaceRoot takes an object with the one field newRoot")
    return replaced(given["newRoot"], "$replaceRoot")


def _count(_: "Context", given: Any) -> Step:
    if not isinstance(given, str) or not given or given.startswith("$") or "." in given:
        raise Refusal(40156, "the count field must be a non-empty string without '$' and '.'")

    def step(documents: Documents) -> Documents:
        count = sum(1 for _ in documents)
        return [{given: count}] if count else []

    return step


def _unwind(_: "Context", given: Any) -> Step:
    options = {"path": given} if isinstance(given, str) else given
    refuse_unknown(options, {"path", "includeArrayIndex", "preserveNullAndEmptyArrays"}, "$unwind", 28811)
    path = options.get("path", "")
    if not path.startswith("$"):
        raise Refusal(28818, f"path option to $unwind stage should be prefixed with a '$': {path}")
    name, place, keep = path[1:], options.get("includeArrayIndex"), options.get("preserveNullAndEmptyArrays", False)

    def step(documents: Documents) -> Iterator[Document]:
        for document in documents:
            value = exact(document, name.split("."))
            if isinstance(value, list) and value:
                for number, element in enumerate(value):
                    made = set_value(document, name, element)
                    yield carried(document, set_value(made, place, Int64(number)) if place else made)
            elif not isinstance(value, list) and value is not MISSING and value is not None:
                yield carried(document, set_value(document, place, None) if place else document)
            elif keep:
                left = set_value(document, name, MISSING) if isinstance(value, list) else document
                yield carried(document, set_value(left, place, None) if place else left)

    return step


def _sort_by_count(context: "Context", given: Any) -> Step:
    group = grouping.group(context, {"_id": given, "count": {"$sum": 1}})
    return lambda documents: in_order(group(documents), [("count", -1)])


def _sample(_: "Context", given: Any) -> Step:
    def step(documents: Documents) -> Documents:
        held = list(documents)
        return random.sample(held, min(given["size"], len(held)))

    return step


def _facet(context: "Context", given: Any) -> Step:
    from anamnesis_tests.mongo_server.pipeline import named, step_of

    parsed = {name: [named(stage) for stage in pipeline] for name, pipeline in given.items()}

    def step(documents: Documents) -> Documents:
        held = list(documents)
        result: Document = {}
        for name, inner in parsed.items():
            found: Documents = held
            for stage, argument in inner:
                found = step_of(context, stage, argument)(found)
            result[name] = list(found)
        return [result]

    return step


def _documents(context: "Context", given: Any) -> Documents:
    found = compile_expression(given)({}, context.variables)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Refusal(5858203, "an array of documents is expected in $documents")
    return found


def _coll_stats(context: "Context", given: Any) -> Documents:
    refuse_unknown(given, {"count", "storageStats"}, "$collStats", 40415)
    collection = context.engine.collection(context.database, context.collection or "")
    if collection is None:
        raise Refusal(26, f"Collection [{context.database}.{context.collection}] not found.")
    documents = [document for _, document in collection.documents(context.reader)]
    result: Document = {"ns": collection.namespace}
    if "count" in given:
        result["count"] = len(documents)
    if "storageStats" in given:
        size = sum(len(bson.encode(document)) for document in documents)
        sizes = {name: len(index) * 32 for name, index in collection.indexes.items()}
        result["storageStats"] = {
            "size": size, "count": len(documents), "storageSize": size, "nindexes": len(sizes),
            "avgObjSize": size // max(len(documents), 1), "freeStorageSize": 0,
            "totalIndexSize": sum(sizes.values()), "totalSize": size + sum(sizes.values()), "indexSizes": sizes,
        }  # fmt: skip
    return [result]


def _index_stats(context: "Context", _: Any) -> Documents:
    collection = context.engine.collection(context.database, context.collection or "")
    return (
        [{"name": index.name, "key": dict(index.spec["key"])} for index in collection.indexes.values()]
        if collection
        else []
    )


def _searched(name: str) -> Callable[["Context", Any], Documents]:
    def source(context: "Context", given: Any) -> Documents:
        return context.search(context.database, context.collection or "", {name: given}, context.variables)

    return source


SOURCES: dict[str, Callable[["Context", Any], Documents]] = {
    "$documents": _documents,
    "$collStats": _coll_stats,
    "$indexStats": _index_stats,
} | {name: _searched(name) for name in ("$search", "$searchMeta", "$vectorSearch", "$listSearchIndexes")}
"""Stages that begin a pipeline."""

ELSEWHERE = frozenset(
    {"$bucket", "$bucketAuto", "$changeStream", "$currentOp", "$densify", "$fill", "$geoNear", "$graphLookup", "$merge",
     "$out", "$planCacheStats", "$rankFusion", "$redact", "$scoreFusion", "$setWindowFields"}
)  # fmt: skip
"""Stages of MongoDB that the loopback server does not know."""

STAGES: dict[str, Callable[["Context", Any], Step]] = {
    "$match": _match,
    "$sort": _sort,
    "$limit": _limit,
    "$skip": _skip,
    "$project": _shaped(compile_projection),
    "$addFields": _shaped(compile_add),
    "$set": _shaped(compile_add),
    "$unset": _shaped(compile_unset),
    "$replaceRoot": _shaped(_root),
    "$replaceWith": _shaped(lambda given: replaced(given, "$replaceWith")),
    "$count": _count,
    "$unwind": _unwind,
    "$group": grouping.group,
    "$sortByCount": _sort_by_count,
    "$sample": _sample,
    "$facet": _facet,
    "$lookup": joining.lookup,
    "$unionWith": joining.union_with,
}
