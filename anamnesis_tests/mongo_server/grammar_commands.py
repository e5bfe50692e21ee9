"""The grammar of commands: https://www.mongodb.com/docs/v8.0/reference/command/."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anamnesis_tests.mongo_server.grammar_projections import FIND_PAGE, project
from anamnesis_tests.mongo_server.grammar_queries import partial_filter, predicate
from anamnesis_tests.mongo_server.grammar_search_indexes import any_definition, search_index
from anamnesis_tests.mongo_server.grammar_shapes import (
    MANUAL,
    Problems,
    Shape,
    a_document,
    an_array,
    anything,
    array_of,
    boolean,
    document,
    either,
    flag,
    integer,
    one_of,
    string,
    text,
)
from anamnesis_tests.mongo_server.grammar_stages import Place, pipeline
from anamnesis_tests.mongo_server.grammar_updates import update

Check = Callable[[Mapping[str, Any], bool], Iterable[str]]
"""Given a command and whether it is in a transaction, what is wrong with it."""

PAGES = f"{MANUAL}reference/command/"

HANDSHAKE = frozenset(
    {
        "hello", "isMaster", "ismaster", "ping", "buildInfo", "buildinfo", "endSessions", "killSessions",
        "refreshSessions", "startSession", "saslStart", "saslContinue", "authenticate", "logout", "connectionStatus",
        "getParameter", "setParameter", "serverStatus", "hostInfo", "whatsmyuri", "getLog", "getCmdLineOpts", "top",
        "replSetGetStatus", "currentOp", "killOp", "configureFailPoint", "validate", "fsync",
    }
)  # fmt: skip
"""Of connections, sessions and administration; they carry no documents, and are not looked at."""

IN_TRANSACTIONS = frozenset(
    {
        "aggregate", "find", "distinct", "insert", "update", "delete", "findAndModify", "getMore", "killCursors",
        "create", "createIndexes", "commitTransaction", "abortTransaction", "bulkWrite",
    }
)  # fmt: skip
"""https://www.mongodb.com/docs/v8.0/core/transactions-operations/; `count` is not among them."""

_GENERIC: dict[str, Shape] = {
    "$db": text,
    "lsid": a_document,
    "$clusterTime": a_document,
    "$readPreference": a_document,
    "txnNumber": integer(0),
    "autocommit": one_of(False),
    "startTransaction": one_of(True),
    "readConcern": document(
        f"{MANUAL}reference/read-concern/",
        optional={"level": string, "afterClusterTime": anything, "atClusterTime": anything},
    ),
    "writeConcern": document(
        f"{MANUAL}reference/write-concern/", optional={"w": anything, "j": boolean, "wtimeout": integer(0)}
    ),
    "comment": anything,
    "maxTimeMS": integer(0),
    "stmtId": integer(0),
    "stmtIds": array_of(integer(0)),
    "apiVersion": string,
    "apiStrict": boolean,
    "apiDeprecationErrors": boolean,
}
_hint = either(text, a_document)
_collation = document(
    f"{MANUAL}reference/collation/",
    {"locale": text},
    {
        "caseLevel": boolean, "caseFirst": string, "strength": integer(1, 5), "numericOrdering": boolean,
        "alternate": string, "maxVariable": string, "backwards": boolean, "normalization": boolean, "version": string,
    },
)  # fmt: skip


def _sort(value: Any, where: str) -> Problems:
    if not isinstance(value, Mapping):
        yield f"{where} must be a document, not {value!r:.60}"
        return
    for name, each in value.items():
        if not isinstance(each, Mapping):
            yield from one_of(1, -1)(each, f"{where}.{name}")


def _projection(value: Any, where: str) -> Problems:
    yield from project(value, where, page=FIND_PAGE)


def _command(name: str, required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Check:
    """A command whose first field is its name, with the collection or whatever it is about."""
    shape = document(f"{PAGES}{name}/", required, {**_GENERIC, **(optional or {})})
    return lambda body, _in_transaction: shape(body, name)


def _aggregate(body: Mapping[str, Any], in_transaction: bool) -> Problems:
    optional = {
        "cursor": document(f"{PAGES}aggregate/", optional={"batchSize": integer(0)}), "allowDiskUse": boolean,
        "explain": boolean, "bypassDocumentValidation": boolean, "collation": _collation, "hint": _hint,
        "let": a_document,
    }  # fmt: skip
    required = {"aggregate": either(text, one_of(1)), "pipeline": an_array}
    yield from document(f"{PAGES}aggregate/", required, {**_GENERIC, **optional})(body, "aggregate")
    if "cursor" not in body and not body.get("explain"):
        yield f"aggregate.cursor is required unless explain is true ({PAGES}aggregate/)"
    concern = body.get("readConcern")
    level = str(concern.get("level", "")) if isinstance(concern, Mapping) else ""
    names = frozenset(body.get("let") or ())
    place = Place(in_transaction=in_transaction, read_concern=level, names=names)
    yield from pipeline(body.get("pipeline", []), "aggregate.pipeline", place)


def _updates(body: Mapping[str, Any], _in_transaction: bool) -> Problems:
    page = f"{PAGES}update/"
    statement = document(
        page,
        {"q": predicate, "u": anything},
        {
            "c": a_document, "upsert": boolean, "multi": boolean, "collation": _collation, "arrayFilters": an_array,
            "hint": _hint, "sort": _sort,
        },
    )  # fmt: skip
    optional = {"ordered": boolean, "bypassDocumentValidation": boolean, "let": a_document}
    required = {"update": text, "updates": array_of(statement, least=1)}
    yield from document(page, required, {**_GENERIC, **optional})(body, "update")
    for place, each in enumerate(body.get("updates", ())):
        if isinstance(each, Mapping) and "u" in each:
            where, multi = f"update.updates[{place}]", bool(each.get("multi"))
            yield from update(each["u"], f"{where}.u", multi=multi)
            if multi and "sort" in each:
                yield f"{where}: sort must not go with multi ({page})"
            if isinstance(each["u"], list | tuple) and "arrayFilters" in each:
                yield f"{where}: arrayFilters must not go with a pipeline ({page})"


def _find_and_modify(body: Mapping[str, Any], _in_transaction: bool) -> Problems:
    page = f"{PAGES}findAndModify/"
    optional = {
        "query": predicate, "sort": _sort, "remove": boolean, "update": update, "new": boolean, "fields": _projection,
        "upsert": boolean, "bypassDocumentValidation": boolean, "collation": _collation, "arrayFilters": an_array,
        "hint": _hint, "let": a_document,
    }  # fmt: skip
    yield from document(page, {"findAndModify": text}, {**_GENERIC, **optional})(body, "findAndModify")
    if bool(body.get("remove")) == ("update" in body):
        yield f"findAndModify must have exactly one of remove and update ({page})"
    if body.get("remove") and (body.get("upsert") or body.get("new")):
        yield f"findAndModify: neither upsert nor new goes with remove ({page})"


def _directions(value: Any, where: str) -> Problems:
    if not isinstance(value, Mapping) or not value:
        yield f"{where} must be a document of at least one field"
        return
    if len(value) > 32:
        yield f"{where} must have at most 32 fields ({MANUAL}core/indexes/index-types/index-compound/)"
    for name, each in value.items():
        if not name or (name != "$**" and (name.startswith("$") or not all(name.split(".")))):
            yield f"{where}: {name!r} is no path of a field"
        yield from one_of(1, -1, "text", "hashed", "2d", "2dsphere")(each, f"{where}.{name}")


def _index(value: Any, where: str) -> Problems:
    page = f"{PAGES}createIndexes/"
    optional = {
        "unique": flag, "partialFilterExpression": partial_filter, "sparse": flag,
        "expireAfterSeconds": integer(0, 2**31 - 1), "hidden": boolean, "storageEngine": a_document,
        "weights": a_document, "default_language": string, "language_override": string, "collation": _collation,
        "wildcardProjection": a_document, "background": flag, "v": one_of(1, 2),
    }  # fmt: skip
    yield from document(page, {"key": _directions, "name": text}, optional)(value, where)
    if not isinstance(value, Mapping):
        return
    if value.get("sparse") and "partialFilterExpression" in value:
        yield f"{where} must not have both of sparse and partialFilterExpression ({MANUAL}core/index-partial/)"
    key = value.get("key")
    if isinstance(key, Mapping):
        if list(key) == ["_id"] and value.keys() & {"partialFilterExpression", "sparse", "unique", "hidden"}:
            yield f"{where}: the index of _id takes no such options ({page})"
        if value.get("unique") and "hashed" in key.values():
            yield f"{where}: no hashed index is unique ({page})"


def _unset_fields(value: Any, where: str) -> Problems:
    yield from array_of(text)(value, where)


_QUERY = {"collation": _collation, "hint": _hint}

COMMANDS: dict[str, Check] = {
    "aggregate": _aggregate,
    "find": _command(
        "find",
        {"find": text},
        {
            **_QUERY, "filter": predicate, "sort": _sort, "projection": _projection, "skip": integer(0),
            "limit": integer(0), "batchSize": integer(0), "singleBatch": boolean, "max": a_document, "min": a_document,
            "returnKey": boolean, "showRecordId": boolean, "tailable": boolean, "awaitData": boolean,
            "noCursorTimeout": boolean, "allowPartialResults": boolean, "allowDiskUse": boolean, "let": a_document,
        },
    ),
    "count": _command("count", {"count": text}, {**_QUERY, "query": predicate, "limit": integer(), "skip": integer(0)}),
    "distinct": _command("distinct", {"distinct": text, "key": text}, {**_QUERY, "query": predicate}),
    "insert": _command(
        "insert",
        {"insert": text, "documents": array_of(a_document, least=1)},
        {"ordered": boolean, "bypassDocumentValidation": boolean},
    ),
    "update": _updates,
    "delete": _command(
        "delete",
        {
            "delete": text,
            "deletes": array_of(
                document(f"{PAGES}delete/", {"q": predicate, "limit": one_of(0, 1)}, {**_QUERY}), least=1
            ),
        },
        {"ordered": boolean, "let": a_document},
    ),
    "findAndModify": _find_and_modify,
    "getMore": _command("getMore", {"getMore": integer(), "collection": text}, {"batchSize": integer(0)}),
    "killCursors": _command("killCursors", {"killCursors": text, "cursors": an_array}),
    "commitTransaction": _command("commitTransaction", {"commitTransaction": one_of(1)}, {"recoveryToken": a_document}),
    "abortTransaction": _command("abortTransaction", {"abortTransaction": one_of(1)}, {"recoveryToken": a_document}),
    "create": _command(
        "create",
        {"create": text},
        {
            "capped": boolean, "size": integer(1), "max": integer(1), "validator": predicate,
            "validationLevel": one_of("off", "strict", "moderate"),
            "validationAction": one_of("error", "warn", "errorAndLog"), "collation": _collation,
            "storageEngine": a_document, "indexOptionDefaults": a_document, "changeStreamPreAndPostImages": a_document,
            "expireAfterSeconds": integer(0), "clusteredIndex": a_document, "timeseries": a_document,
            "viewOn": text, "pipeline": an_array,
        },
    ),
    "collMod": _command(
        "collMod",
        {"collMod": text},
        {
            "index": a_document, "validator": predicate, "validationLevel": one_of("off", "strict", "moderate"),
            "validationAction": one_of("error", "warn", "errorAndLog"), "changeStreamPreAndPostImages": a_document,
        },
    ),
    "createIndexes": _command(
        "createIndexes",
        {"createIndexes": text, "indexes": array_of(_index, least=1)},
        {"commitQuorum": anything},
    ),
    "drop": _command("drop", {"drop": text}),
    "dropDatabase": _command("dropDatabase", {"dropDatabase": one_of(1)}),
    "dropIndexes": _command(
        "dropIndexes", {"dropIndexes": text, "index": either(text, a_document, _unset_fields)}
    ),
    "listCollections": _command(
        "listCollections",
        {"listCollections": one_of(1)},
        {"filter": predicate, "nameOnly": boolean, "authorizedCollections": boolean, "cursor": a_document},
    ),
    "listDatabases": _command(
        "listDatabases",
        {"listDatabases": one_of(1)},
        {"filter": predicate, "nameOnly": boolean, "authorizedDatabases": boolean},
    ),
    "listIndexes": _command("listIndexes", {"listIndexes": text}, {"cursor": a_document}),
    "renameCollection": _command("renameCollection", {"renameCollection": text, "to": text}, {"dropTarget": boolean}),
    "collStats": _command("collStats", {"collStats": text}, {"scale": integer(1)}),
    "dbStats": _command("dbStats", {"dbStats": one_of(1)}, {"scale": integer(1), "freeStorage": one_of(0, 1)}),
    "dbstats": _command("dbStats", {"dbstats": one_of(1)}, {"scale": integer(1), "freeStorage": one_of(0, 1)}),
    "explain": _command("explain", {"explain": a_document}, {"verbosity": string}),
    "createSearchIndexes": _command(
        "createSearchIndexes", {"createSearchIndexes": text, "indexes": array_of(search_index, least=1)}
    ),
    "updateSearchIndex": _command(
        "updateSearchIndex", {"updateSearchIndex": text, "definition": any_definition}, {"name": text, "id": text}
    ),
    "dropSearchIndex": _command("dropSearchIndex", {"dropSearchIndex": text}, {"name": text, "id": text}),
}  # fmt: skip
