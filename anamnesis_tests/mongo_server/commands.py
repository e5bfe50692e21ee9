"""From a command to its reply: who may ask, inside which transaction, through which faults."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bson import Binary

from anamnesis_tests.mongo_server import admin_commands, read_commands, write_commands
from anamnesis_tests.mongo_server.documented import hold_to_documentation
from anamnesis_tests.mongo_server.members import Member
from anamnesis_tests.mongo_server.refusals import RETRYABLE, TRANSIENT, Refusal
from anamnesis_tests.mongo_server.requests import Request
from anamnesis_tests.mongo_server.scram import MECHANISM, Conversation
from anamnesis_tests.mongo_server.search_errors import NotEmulated, SearchRefused
from anamnesis_tests.mongo_server.transactions import Session, Transaction
from anamnesis_tests.mongo_server.values import Document
from anamnesis_tests.mongo_server.wire import Message

if TYPE_CHECKING:
    from anamnesis_tests.mongo_server.server import LoopbackServer

VERSION = "8.0.4"

log = logging.getLogger(__name__)

WRITES: dict[str, Callable[[Request], Document]] = {
    "insert": write_commands.insert,
    "update": write_commands.update,
    "delete": write_commands.delete,
    "findAndModify": write_commands.find_and_modify,
    "findandmodify": write_commands.find_and_modify,
}
READS: dict[str, Callable[[Request, Any], Document]] = {
    "find": read_commands.find,
    "getMore": read_commands.get_more,
    "killCursors": read_commands.kill_cursors,
    "count": read_commands.count,
    "distinct": read_commands.distinct,
    "aggregate": read_commands.aggregate,
    "explain": read_commands.explain,
}
LISTS: dict[str, Callable[[Request, Any], Document]] = {
    "listCollections": admin_commands.list_collections,
    "listIndexes": admin_commands.list_indexes,
    "listDatabases": admin_commands.list_databases,
    "dbStats": admin_commands.db_stats,
}
CHANGES: dict[str, Callable[[Request, Any], Document]] = {
    "create": admin_commands.create,
    "collMod": admin_commands.coll_mod,
    "drop": admin_commands.drop,
    "dropDatabase": admin_commands.drop_database,
    "createIndexes": admin_commands.create_indexes,
    "dropIndexes": admin_commands.drop_indexes,
    "renameCollection": admin_commands.rename_collection,
    "createSearchIndexes": admin_commands.create_search_indexes,
    "updateSearchIndex": admin_commands.update_search_index,
    "dropSearchIndex": admin_commands.drop_search_index,
}
IN_TRANSACTIONS = frozenset(WRITES) | {"find", "getMore", "killCursors", "distinct", "aggregate"}
WITHOUT_USER = frozenset(
    {"hello", "ismaster", "isMaster", "ping", "buildInfo", "buildinfo", "saslStart", "saslContinue"}
)


@dataclass
class Client:
    """What the server knows of a connection."""

    number: int
    authenticated: bool = False
    conversation: Conversation | None = None


def execute(
    server: "LoopbackServer", member: Member, client: Client, message: Message, fault: Refusal | None = None
) -> Document:
    """The reply to a command; errors are replies too. `fault`: what to answer instead of running it."""
    command = message.command
    name = next(iter(command))
    try:
        reply = {"ok": 1.0} | _execute(server, member, client, message, fault)
    except Refusal as refusal:
        reply = refusal.answer()
        label(reply, refusal.code, name, command)
    except SearchRefused as refusal:
        reply = Refusal(refusal.code, refusal.message).answer() | {"codeName": refusal.code_name}
    except NotEmulated as refusal:
        reply = Refusal(238, str(refusal)).answer()
    except Exception as exc:
        log.exception("%s failed within the loopback server", name)
        reply = Refusal(1, f"{type(exc).__name__} within the loopback server: {exc}").answer()
    if server.replica_set.name:
        now = server.engine.timestamp()
        signature = {"hash": Binary(bytes(20)), "keyId": 0}
        reply |= {"operationTime": now, "$clusterTime": {"clusterTime": now, "signature": signature}}
    return reply


def label(reply: Document, code: int, name: str, command: Document) -> None:
    """Say whether the write, or the whole transaction, may be tried again."""
    labels = list(reply.get("errorLabels", []))
    ends = name in ("commitTransaction", "abortTransaction")
    if "txnNumber" in command and code in RETRYABLE and (ends or command.get("autocommit") is None):
        labels.append("RetryableWriteError")
    elif command.get("autocommit") is False and code in TRANSIENT and name != "abortTransaction":
        labels.append("TransientTransactionError")
    if labels:
        reply["errorLabels"] = labels


def _execute(
    server: "LoopbackServer", member: Member, client: Client, message: Message, fault: Refusal | None
) -> Document:
    command = message.command
    name = next(iter(command))
    _must_be_user(server, client, name)
    if name in SIMPLE:
        if fault is not None:
            raise fault
        return SIMPLE[name](server, member, client, command)
    if name not in WRITES | READS | LISTS | CHANGES and name not in ("commitTransaction", "abortTransaction"):
        raise Refusal(59, f"no such command: '{name}'")
    if name not in READS:
        hold_to_documentation(name, command, message.size)
    with server.engine.lock:
        _must_be_member(server, member, name, command)
        server.sessions.abort_expired()
        session = _session(server, name, command)
        if name in ("commitTransaction", "abortTransaction"):
            if fault is not None:
                raise fault
            return _end(server, session, name, command)
        transaction = _transaction(server, session, name, command)
        request = Request(name, command, server.engine, member.cursors, session, transaction)
        reply = _run(server, request, fault)
    if name in READS:  # these have changed nothing, and may have been refused by a code of their own
        hold_to_documentation(name, command, message.size)
    return reply


def _session(server: "LoopbackServer", name: str, command: Document) -> Session | None:
    """The session of a command. One that reads no snapshot any more needs the old moment no longer."""
    if "lsid" not in command:
        return None
    lsid = bytes(command["lsid"]["id"])
    reads_snapshot = (command.get("readConcern") or {}).get("level") == "snapshot"
    if not reads_snapshot and name not in ("getMore", "killCursors"):
        server.engine.unpin(lsid)
    return server.sessions.of(lsid)


def _must_be_user(server: "LoopbackServer", client: Client, name: str) -> None:
    if server.account is not None and not client.authenticated and name not in WITHOUT_USER:
        raise Refusal(13, f"Command {name} requires authentication")


def _must_be_member(server: "LoopbackServer", member: Member, name: str, command: Document) -> None:
    if name in READS | LISTS:
        mode = (command.get("$readPreference") or {}).get("mode", "primary")
        if member is not server.replica_set.primary and mode == "primary" and name not in ("getMore", "killCursors"):
            raise Refusal(13435, "not primary and secondaryOk=false")
        return
    server.replica_set.must_be_primary(member)
    if server.faults.disk_is_full and (name in WRITES or name in ("create", "createIndexes")):
        raise Refusal(14031, "available disk space of 0 bytes is less than required minimum of 524288000")


def _transaction(server: "LoopbackServer", session: Session | None, name: str, command: Document) -> Transaction | None:
    """The transaction that a command belongs to."""
    number = command.get("txnNumber")
    if number is None:
        return None
    if session is None:
        raise Refusal(72, "Transaction number requires a session ID to also be specified")
    if not server.replica_set.name:
        raise Refusal(20, "Transaction numbers are only allowed on a replica set member or mongos")
    if command.get("autocommit") is None:
        server.sessions.retryable(session, number)
        return None
    if name not in IN_TRANSACTIONS:
        raise Refusal(263, f"Cannot run '{name}' in a multi-document transaction.")
    if command.get("startTransaction"):
        return server.sessions.begin(session, number)
    transaction = server.sessions.current(session, number)
    if transaction.state == "committed":
        raise Refusal(256, f"Transaction with {{ txnNumber: {number} }} has been committed.")
    return transaction


def _run(server: "LoopbackServer", request: Request, fault: Refusal | None) -> Document:
    """Run it; a transaction does not survive an error of one of its commands."""
    try:
        reply = _dispatch(server, request, fault)
    except Exception:
        if request.transaction is not None:
            server.sessions.abort(request.transaction)
        raise
    if request.transaction is not None and "writeErrors" in reply:
        server.sessions.abort(request.transaction)
    return reply


def _dispatch(server: "LoopbackServer", request: Request, fault: Refusal | None) -> Document:
    if fault is not None:
        raise fault
    if request.name in WRITES:
        return WRITES[request.name](request)
    if request.name in READS:
        return READS[request.name](request, server.search)
    return (LISTS | CHANGES)[request.name](request, server.catalog)


def _end(server: "LoopbackServer", session: Session | None, name: str, command: Document) -> Document:
    if session is None:
        raise Refusal(251, "Transaction isn't in progress")
    transaction = server.sessions.current(session, command["txnNumber"])
    if name == "commitTransaction":
        server.sessions.commit(transaction)
        return {}
    if transaction.state == "committed":
        raise Refusal(256, "Transaction has been committed.")
    server.sessions.abort(transaction)
    return {}


def _hello(server: "LoopbackServer", member: Member, client: Client, command: Document) -> Document:
    reply = server.replica_set.hello(member, command) | {"connectionId": client.number}
    if server.account is not None and "saslSupportedMechs" in command:
        reply["saslSupportedMechs"] = [MECHANISM]
    return reply


def _build_info(*_: Any) -> Document:
    version = [int(part) for part in VERSION.split(".")]
    return {"version": VERSION, "versionArray": [*version, 0], "bits": 64, "debug": False, "modules": [],
            "maxBsonObjectSize": 16 * 1024 * 1024, "storageEngines": ["loopback"]}  # fmt: skip


def _nothing(*_: Any) -> Document:
    return {}


def _sasl_start(server: "LoopbackServer", _: Member, client: Client, command: Document) -> Document:
    if server.account is None or command["mechanism"] != MECHANISM:
        raise Refusal(334, f"Unsupported mechanism: {command['mechanism']}")
    client.conversation = Conversation(server.account, bytes(command["payload"]))
    return {"conversationId": 1, "done": False, "payload": Binary(client.conversation.offer())}


def _sasl_continue(_: "LoopbackServer", __: Member, client: Client, command: Document) -> Document:
    if client.authenticated:
        return {"conversationId": 1, "done": True, "payload": Binary(b"")}
    if client.conversation is None:
        raise Refusal(17, "No SASL session state found")
    conversation, client.conversation = client.conversation, None
    payload = conversation.verdict(bytes(command["payload"]))
    client.authenticated = True
    return {"conversationId": 1, "done": True, "payload": Binary(payload)}


def _end_sessions(server: "LoopbackServer", _: Member, __: Client, command: Document) -> Document:
    with server.engine.lock:
        server.sessions.end(command[next(iter(command))])
    return {}


def _fail_point(server: "LoopbackServer", _: Member, __: Client, command: Document) -> Document:
    return {"count": server.faults.configure(command)}


def _step_down(server: "LoopbackServer", member: Member, _: Client, __: Document) -> Document:
    server.replica_set.must_be_primary(member)
    server.step_down()
    return {}


def _loopback(server: "LoopbackServer", _: Member, __: Client, command: Document) -> Document:
    server.steer(command)
    return {}


def _parameter(_: "LoopbackServer", __: Member, ___: Client, command: Document) -> Document:
    if not command.get("featureCompatibilityVersion"):
        raise Refusal(72, "no option found to get")
    return {"featureCompatibilityVersion": {"version": "8.0"}}


SIMPLE: dict[str, Callable[["LoopbackServer", Member, Client, Document], Document]] = {
    "hello": _hello,
    "ismaster": _hello,
    "isMaster": _hello,
    "ping": _nothing,
    "buildInfo": _build_info,
    "buildinfo": _build_info,
    "saslStart": _sasl_start,
    "saslContinue": _sasl_continue,
    "endSessions": _end_sessions,
    "killSessions": _end_sessions,
    "logout": _nothing,
    "getParameter": _parameter,
    "configureFailPoint": _fail_point,
    "replSetStepDown": _step_down,
    "loopback": _loopback,
}
"""Commands that need no data."""
