"""`find`, `getMore`, `killCursors`, `count`, `distinct`, `aggregate` and `explain`.

https://www.mongodb.com/docs/manual/reference/command/nav-crud/
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from anamnesis_tests.mongo_server import pipeline, planning
from anamnesis_tests.mongo_server.paths import leaves
from anamnesis_tests.mongo_server.pipeline import Context, Search
from anamnesis_tests.mongo_server.projection import find_projection
from anamnesis_tests.mongo_server.refusals import Refusal
from anamnesis_tests.mongo_server.requests import FIRST_BATCH, Request
from anamnesis_tests.mongo_server.values import MISSING, Document, is_true, key_of

_FIND = ("filter", "projection", "sort", "skip", "limit", "batchSize", "singleBatch", "hint", "noCursorTimeout",
         "allowPartialResults", "allowDiskUse", "let")  # fmt: skip


def _context(request: Request, search: Search, collection: str | None) -> Context:
    variables = request.command.get("let") or {}
    return Context(
        request.engine, request.database, collection, request.reader(), search, variables, request.command.get("hint")
    )


def _answered(request: Request, cursor: Document) -> Document:
    if request.moment is not None:
        cursor["atClusterTime"] = request.moment
    return {"cursor": cursor}


def _count(command: Mapping[str, Any], name: str) -> int:
    value = command.get(name) or 0
    if value < 0:
        raise Refusal(51024, f"BSON field '{name}' value must be >= 0, actual value '{value}'")
    return int(value)


def find(request: Request, search: Search) -> Document:
    """Documents that match."""
    request.allow(*_FIND)
    command = request.command
    skip, limit = _count(command, "skip"), _count(command, "limit")
    order = list((command.get("sort") or {}).items())
    context = _context(request, search, request.target)
    shape = find_projection(command.get("projection"))
    found = pipeline.find(context, command.get("filter") or {}, order, skip + limit if limit else 0)
    chosen = list(islice(found, skip, skip + limit if limit else None))
    size = int(command.get("batchSize", FIRST_BATCH))
    namespace = f"{request.database}.{request.target}"
    shaped = (shape(document) for document in chosen)
    return _answered(
        request, request.cursors.first(namespace, shaped, size, single=is_true(command.get("singleBatch")))
    )


def get_more(request: Request, _: Search) -> Document:
    """The next batch of a cursor."""
    request.allow("collection", "batchSize")
    namespace = f"{request.database}.{request.command['collection']}"
    size = int(request.command.get("batchSize") or 2**31)
    return {"cursor": request.cursors.more(int(request.command["getMore"]), namespace, size)}


def kill_cursors(request: Request, _: Search) -> Document:
    """Close cursors."""
    request.allow("cursors")
    return request.cursors.kill([int(number) for number in request.command["cursors"]])


def count(request: Request, search: Search) -> Document:
    """How many match, or how many there are."""
    request.allow("query", "limit", "skip", "hint")
    context = _context(request, search, request.target)
    found = pipeline.find(context, request.command.get("query") or {})
    skip, limit = _count(request.command, "skip"), _count(request.command, "limit")
    return {"n": sum(1 for _ in islice(found, skip, skip + limit if limit else None))}


def distinct(request: Request, search: Search) -> Document:
    """The values of a field, those within arrays one by one."""
    request.allow("key", "query", "hint")
    context = _context(request, search, request.target)
    parts = request.command["key"].split(".")
    values: dict[Any, Any] = {}
    for document in pipeline.find(context, request.command.get("query") or {}):
        for value in leaves(document, parts):
            for each in value if isinstance(value, list) else [value]:
                if each is not MISSING:
                    values.setdefault(key_of(each), each)
    result: Document = {"values": [value for _, value in sorted(values.items())]}
    return result | ({"atClusterTime": request.moment} if request.moment is not None else {})


def aggregate(request: Request, search: Search) -> Document:
    """What a pipeline yields."""
    request.allow("pipeline", "cursor", "allowDiskUse", "hint", "let", "bypassDocumentValidation")
    command = request.command
    if "cursor" not in command:
        raise Refusal(9, "The 'cursor' option is required, except for aggregate with the explain argument")
    collection = None if command["aggregate"] == 1 else request.target
    context = _context(request, search, collection)
    documents: Iterator[Document] = iter(list(pipeline.run(context, command.get("pipeline"))))
    size = int((command["cursor"] or {}).get("batchSize", FIRST_BATCH))
    namespace = f"{request.database}.{collection or '$cmd.aggregate'}"
    return _answered(request, request.cursors.first(namespace, documents, size))


def explain(request: Request, search: Search) -> Document:
    """Through which index a `find`, `count` or `distinct` goes, and how much it looks at."""
    request.allow("verbosity")
    inner: Mapping[str, Any] = request.command["explain"]
    name = next(iter(inner))
    where = inner.get("filter") or inner.get("query") or inner.get("q") or {}
    order = list((inner.get("sort") or {}).items())
    collection = request.engine.collection(request.database, inner[name])
    if collection is None:
        return {"queryPlanner": {"winningPlan": {"stage": "EOF"}}}
    limit = int(inner.get("limit") or 0)
    plan = planning.chosen(collection, where, order, limit, inner.get("hint"))
    met, is_sorted = planning.candidates(collection, where, request.reader(), order, limit, inner.get("hint"))
    context = _context(request, search, inner[name])
    returned = sum(1 for _ in pipeline.find(context, where, order, limit))
    winning: Document = {"stage": "COLLSCAN"}
    if plan is not None:
        index = {"stage": "IXSCAN", "indexName": plan.index.name, "keyPattern": dict(plan.index.spec["key"])}
        winning = {"stage": "FETCH", "inputStage": index}
    if order and not is_sorted:
        winning = {"stage": "SORT", "sortPattern": dict(order), "inputStage": winning}
    return {
        "queryPlanner": {"namespace": collection.namespace, "winningPlan": winning, "rejectedPlans": []},
        "executionStats": {"nReturned": returned, "totalDocsExamined": sum(1 for _ in met)},
    }
