"""`insert`, `update`, `delete` and `findAndModify`.

https://www.mongodb.com/docs/manual/reference/command/nav-crud/
"""

from collections.abc import Callable, Mapping
from typing import Any

from anamnesis_tests.mongo_server.matching import compile_filter
from anamnesis_tests.mongo_server.ordering import Order, sort_key
from anamnesis_tests.mongo_server.planning import candidates
from anamnesis_tests.mongo_server.projection import find_projection
from anamnesis_tests.mongo_server.refusals import TRANSIENT, Refusal, refuse_unknown
from anamnesis_tests.mongo_server.requests import Request
from anamnesis_tests.mongo_server.storage import Collection, Record, Writer
from anamnesis_tests.mongo_server.updating import Change, compile_update, is_replacement, upserted, with_id
from anamnesis_tests.mongo_server.values import Document, is_true, key_of

MAX_BATCH = 100_000
_WHOLE = frozenset({50, 24, 13, 14031}) | TRANSIENT
"""These fail a command as a whole; others are the error of one statement."""
_UPDATE = frozenset({"q", "u", "upsert", "multi", "hint", "arrayFilters", "collation", "c", "sort"})


def insert(request: Request) -> Document:
    """Documents, each a statement of its own."""
    request.allow("documents", "ordered", "bypassDocumentValidation")
    unchecked = is_true(request.command.get("bypassDocumentValidation"))
    name, done = request.target, 0

    def one(number: int, document: Any) -> None:
        nonlocal done

        def work(writer: Writer) -> Document:
            collection = request.engine.made(request.database, name)
            collection.insert(writer, with_id(document), unchecked=unchecked)
            return {"n": 1}

        request.write(number, work)
        done += 1

    errors = _each(request, request.command.get("documents"), one)
    return {"n": done} | errors


def update(request: Request) -> Document:
    """Updates and replacements, each a statement of its own."""
    request.allow("updates", "ordered", "bypassDocumentValidation", "let")
    matched, modified = 0, 0
    upserts: list[Document] = []

    def one(number: int, statement: Any) -> None:
        nonlocal matched, modified
        refuse_unknown(statement, _UPDATE, "update.updates", 40415)
        _refuse_options(statement)
        result = request.write(number, _updating(request, statement))
        matched, modified = matched + result["n"], modified + result["nModified"]
        if "upserted" in result:
            upserts.append({"index": number, "_id": result["upserted"]})

    errors = _each(request, request.command.get("updates"), one)
    return {"n": matched, "nModified": modified} | ({"upserted": upserts} if upserts else {}) | errors


def delete(request: Request) -> Document:
    """Removals, each a statement of its own."""
    request.allow("deletes", "ordered", "let")
    removed = 0

    def one(number: int, statement: Any) -> None:
        nonlocal removed
        refuse_unknown(statement, {"q", "limit", "hint", "collation"}, "delete.deletes", 40415)
        _refuse_options(statement)

        def work(writer: Writer) -> Document:
            collection = request.engine.collection(request.database, request.target)
            limit = statement.get("limit", 0)
            found = _found(collection, statement["q"], writer, first=limit == 1, hint=statement.get("hint"))
            for record, _ in found:
                collection.replace(writer, record, None)  # type: ignore[union-attr]
            return {"n": len(found)}

        removed += request.write(number, work)["n"]

    errors = _each(request, request.command.get("deletes"), one)
    return {"n": removed} | errors


def _each(request: Request, statements: Any, one: Callable[[int, Any], None]) -> Document:
    """Run statements in order, or all of them although some fail."""
    if not isinstance(statements, list) or not statements or len(statements) > MAX_BATCH:
        raise Refusal(16, f"Write batch sizes must be between 1 and {MAX_BATCH}.")
    request.concern()
    errors: list[Document] = []
    for number, statement in enumerate(statements):
        try:
            one(number, statement)
        except Refusal as refusal:
            if refusal.code in _WHOLE:
                raise
            errors.append(refusal.write_error(number))
            if request.transaction is not None or request.command.get("ordered", True):
                break
    return {"writeErrors": errors} if errors else {}


def _refuse_options(statement: Mapping[str, Any]) -> None:
    for name in ("arrayFilters", "collation", "c"):
        if statement.get(name):
            raise Refusal(238, f"{name} is not known to the loopback server")


def _updating(request: Request, statement: Mapping[str, Any]) -> Callable[[Writer], Document]:
    multi, upsert = is_true(statement.get("multi")), is_true(statement.get("upsert"))
    where, unchecked = statement["q"], is_true(request.command.get("bypassDocumentValidation"))
    change = compile_update(statement["u"], multi=multi)
    name = request.target

    def work(writer: Writer) -> Document:
        collection = request.engine.collection(request.database, name)
        order = list((statement.get("sort") or {}).items())
        found = _found(collection, where, writer, first=not multi, order=order, hint=statement.get("hint"))
        modified = 0
        for record, document in found:
            new = change(document, False)
            if new is not document and key_of(new) != key_of(document):
                collection.replace(writer, record, new, unchecked=unchecked)  # type: ignore[union-attr]
                modified += 1
        if found or not upsert:
            return {"n": len(found), "nModified": modified}
        new = upserted(where, change, is_replacement(statement["u"]))
        request.engine.made(request.database, name).insert(writer, new, unchecked=unchecked)
        return {"n": 1, "nModified": 0, "upserted": new["_id"]}

    return work


def _found(
    collection: Collection | None,
    where: Mapping[str, Any],
    writer: Writer,
    *,
    first: bool,
    order: Order = (),
    hint: Any = None,
) -> list[tuple[Record, Document]]:
    """What a statement is about; all found before anything changes, so that nothing is met twice."""
    matches = compile_filter(where)
    if collection is None:
        return []
    met, is_sorted = candidates(collection, where, writer, order, 1 if first and order else 0, hint)
    found = ((record, document) for record, document in met if matches(document))
    if order and not is_sorted:
        key = sort_key(order)
        found = iter(sorted(found, key=lambda pair: key(pair[1])))
    return next(([one] for one in found), []) if first else list(found)


def find_and_modify(request: Request) -> Document:
    """Change or remove the first document that matches, and return it."""
    request.allow("query", "sort", "remove", "update", "new", "fields", "upsert", "bypassDocumentValidation", "hint",
                  "arrayFilters", "collation", "let")  # fmt: skip
    command = request.command
    _refuse_options(command)
    request.concern()
    remove, has_update = is_true(command.get("remove")), command.get("update") is not None
    if remove == has_update:
        raise Refusal(9, "Either an update or remove=true must be specified, and not both")
    work = _removing(request) if remove else _modifying(request, compile_update(command["update"]))
    return request.write(0, work)


def _first(request: Request, writer: Writer) -> tuple[Collection | None, list[tuple[Record, Document]]]:
    collection = request.engine.collection(request.database, request.target)
    order = list((request.command.get("sort") or {}).items())
    where, hint = request.command.get("query") or {}, request.command.get("hint")
    return collection, _found(collection, where, writer, first=True, order=order, hint=hint)


def _removing(request: Request) -> Callable[[Writer], Document]:
    shape = find_projection(request.command.get("fields"))

    def work(writer: Writer) -> Document:
        collection, found = _first(request, writer)
        if collection is None or not found:
            return {"lastErrorObject": {"n": 0}, "value": None}
        collection.replace(writer, found[0][0], None)
        return {"lastErrorObject": {"n": 1}, "value": shape(found[0][1])}

    return work


def _modifying(request: Request, change: Change) -> Callable[[Writer], Document]:
    command = request.command
    shape, give_new = find_projection(command.get("fields")), is_true(command.get("new"))

    def work(writer: Writer) -> Document:
        collection, found = _first(request, writer)
        if collection is not None and found:
            record, document = found[0]
            new = change(document, False)
            if new is not document and key_of(new) != key_of(document):
                collection.replace(writer, record, new)
            value = shape(new if give_new else document)
            return {"lastErrorObject": {"n": 1, "updatedExisting": True}, "value": value}
        if not is_true(command.get("upsert")):
            return {"lastErrorObject": {"n": 0, "updatedExisting": False}, "value": None}
        new = upserted(command.get("query") or {}, change, is_replacement(command["update"]))
        request.engine.made(request.database, request.target).insert(writer, new)
        last = {"n": 1, "updatedExisting": False, "upserted": new["_id"]}
        return {"lastErrorObject": last, "value": shape(new) if give_new else None}

    return work
