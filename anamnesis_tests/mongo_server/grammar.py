"""Every command that the loopback server receives, held to what MongoDB's documentation says it may be.

A stand-in that accepts a wrong stage proves nothing, so the server asks `check_command` about each command and refuses
what it finds, naming the page. What is written down here is what the store may send and what is near to it: a command
or stage that is not here is refused, too, and is added with the page that tells its form.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import bson

from anamnesis_tests.mongo_server.grammar_commands import COMMANDS, HANDSHAKE, IN_TRANSACTIONS
from anamnesis_tests.mongo_server.grammar_shapes import MANUAL, Problems

LIMITS_PAGE = f"{MANUAL}reference/limits/"
OPERATIONS_PAGE = f"{MANUAL}core/transactions-operations/"
TRANSACTIONS_PAGE = f"{MANUAL}core/transactions/"
SNAPSHOT_PAGE = f"{MANUAL}reference/read-concern-snapshot/"

LARGEST_DOCUMENT = 16 * 1024 * 1024
"""Bytes."""
DEEPEST = 100
LONGEST_NAME = 255
"""Bytes of a name of database and collection together."""
MOST_WRITES = 100_000

GENERIC = frozenset(
    {
        "$db", "lsid", "$clusterTime", "$readPreference", "txnNumber", "autocommit", "startTransaction", "readConcern",
        "writeConcern", "comment", "maxTimeMS", "apiVersion", "apiStrict", "apiDeprecationErrors",
    }
)  # fmt: skip
_LEVELS = frozenset({"local", "available", "majority", "linearizable", "snapshot"})
_WITH_SNAPSHOT = frozenset({"find", "aggregate", "distinct", "getMore"})
"""Outside of transactions."""


def check_command(
    name: str,
    body: Mapping[str, Any],
    in_transaction: bool = False,
    *,
    starts_transaction: bool = False,
    message_bytes: int | None = None,
) -> list[str]:
    """What is wrong with a command; each problem names its page. Empty: nothing.

    :param body: the command with its arguments, those that every command has included.
    :param starts_transaction: whether it is the first of its transaction, which alone may have a read concern.
    :param message_bytes: size of what came in, if known: a document in it is not larger.
    """
    if name in HANDSHAKE:
        return []
    if name not in COMMANDS:
        return [f"{name} is no command that is written down here ({MANUAL}reference/command/)"]
    problems = [
        *COMMANDS[name](body, in_transaction),
        *_names(name, body),
        *_concerns(name, body, in_transaction, starts_transaction),
        *(_in_transaction(name, body) if in_transaction else ()),
        *_sizes(name, body, message_bytes),
    ]
    return list(dict.fromkeys(problems))


def _names(name: str, body: Mapping[str, Any]) -> Problems:
    database, collection = str(body.get("$db", "")), body.get(name)
    if any(char in database for char in '/\\. "$\0') or len(database.encode()) > 63:
        yield f"{database!r} is no name of a database ({LIMITS_PAGE})"
    if not isinstance(collection, str):
        return
    bad = not collection or "$" in collection or "\0" in collection or collection.startswith("system.")
    if bad or ".system." in collection or len(f"{database}.{collection}".encode()) > LONGEST_NAME:
        yield f"{collection!r} is no name of a collection ({LIMITS_PAGE})"


def _concerns(name: str, body: Mapping[str, Any], in_transaction: bool, starts: bool) -> Problems:
    concern = body.get("readConcern")
    level = concern.get("level", "local") if isinstance(concern, Mapping) else "local"
    if level not in _LEVELS:
        yield f"readConcern.level must be one of {', '.join(sorted(_LEVELS))}, not {level!r} ({SNAPSHOT_PAGE})"
    if in_transaction and concern and not starts:
        yield f"{name}: only the first command of a transaction may have a read concern ({TRANSACTIONS_PAGE})"
    if in_transaction and "writeConcern" in body and name not in ("commitTransaction", "abortTransaction"):
        yield f"{name}: a command in a transaction must not have a write concern ({TRANSACTIONS_PAGE})"
    if not in_transaction and level == "snapshot" and name not in _WITH_SNAPSHOT:
        yield f"{name} does not know read concern snapshot ({SNAPSHOT_PAGE})"
    if in_transaction and level == "snapshot" and name in ("create", "createIndexes"):
        yield f"{name} in a transaction needs read concern local ({OPERATIONS_PAGE})"


def _in_transaction(name: str, body: Mapping[str, Any]) -> Problems:
    if name not in IN_TRANSACTIONS:
        yield f"{name} must not stand in a transaction ({OPERATIONS_PAGE})"
    if body.get("explain"):
        yield f"{name}: explain must not stand in a transaction ({OPERATIONS_PAGE})"
    database = body.get("$db")
    if database in ("config", "admin", "local") and name not in ("commitTransaction", "abortTransaction"):
        yield f"{name}: no transaction may read or write the database {database} ({TRANSACTIONS_PAGE})"
    if str(body.get(name, "")).startswith("system."):
        yield f"{name}: no transaction may write to a system collection ({TRANSACTIONS_PAGE})"


def _sizes(name: str, body: Mapping[str, Any], message_bytes: int | None) -> Problems:
    written = _written(name, body)
    if len(written) > MOST_WRITES:
        yield f"{name} must not have more than {MOST_WRITES} writes ({LIMITS_PAGE})"
    for place, document in enumerate(written):
        if _depth(document) > DEEPEST:
            yield f"{name}[{place}] is deeper than {DEEPEST} levels ({LIMITS_PAGE})"
        if (message_bytes is None or message_bytes > LARGEST_DOCUMENT) and _size(document) > LARGEST_DOCUMENT:
            yield f"{name}[{place}] is larger than 16 MB ({LIMITS_PAGE})"
        if isinstance(document, Mapping) and isinstance(document.get("_id"), list | tuple | bson.Regex):
            yield f"{name}[{place}]._id must be neither an array nor a regular expression ({LIMITS_PAGE})"


def _written(name: str, body: Mapping[str, Any]) -> list[Any]:
    if name == "insert":
        return list(body.get("documents", ()))
    if name == "update":
        return [statement.get("u") for statement in body.get("updates", ()) if isinstance(statement, Mapping)]
    return [body["update"]] if name == "findAndModify" and "update" in body else []


def _size(document: Any) -> int:
    return len(bson.encode(document)) if isinstance(document, Mapping) else 0


def _depth(value: Any) -> int:
    """How many documents and arrays stand within each other."""
    deepest, level = 0, [value]
    while level and deepest <= DEEPEST + 1:
        level = [inner for each in level for inner in _inside(each)]
        deepest += 1
    return deepest


def _inside(value: Any) -> Iterable[Any]:
    within = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [each for each in within if isinstance(each, Mapping | list | tuple)]
