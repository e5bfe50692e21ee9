"""Sessions, and what copies of them look like."""

import json
from collections.abc import Callable

from anamnesis_tests.support.ingested import OTHER
from anamnesis_tests.support.log_lines import SESSION, Log

TRUNK = f"{SESSION}.jsonl"


def session() -> Log:
    """Six messages of two exchanges."""
    log = Log()
    log.user("Why do webhook retries double-charge?")
    log.assistant({"type": "text", "text": "I look at the retry path."}, message_id="msg_01AA")
    log.tool("Grep", "toolu_01Qx", "billing.py:13: pay(order)", pattern="charge")
    log.user("and refunds?")
    log.say("Refunds are issued in one place only.")
    return log


def changed(lines: list[str], **fields: object) -> list[str]:
    return [json.dumps(json.loads(line) | fields) for line in lines]


def with_new_uuids(lines: list[str]) -> list[str]:
    return [json.dumps(json.loads(line) | {"uuid": f"rewritten-{n}"}) for n, line in enumerate(lines)]


def with_new_uuids_of_replies(lines: list[str]) -> list[str]:
    return [new if '"type": "assistant"' in new else old for old, new in zip(lines, with_new_uuids(lines), strict=True)]


def fork_of(lines: list[str], own: str, **mark: object) -> list[str]:
    """A copy under another session's name, which went on by itself."""
    log = Log(session=OTHER)
    log.minute, log._count = 60, 500
    log.user(own)
    return [*changed(lines, sessionId=OTHER, **mark), *log.lines]


COPIES: dict[str, Callable[[list[str]], list[str]]] = {
    "resumed into a new file": lambda lines: changed(lines, sessionId=OTHER),
    "fork": lambda lines: changed(lines, sessionId=OTHER, forkedFrom={"sessionId": SESSION}),
    "branch that writes every message twice": lambda lines: [
        twin for line in changed(lines, sessionId=OTHER) for twin in (line, *changed([line], forkedFrom={"x": 1}))
    ],
    "moved to the background": lambda lines: changed(lines, sessionId=OTHER, sessionKind="bg"),
    "rewritten by an upgrade": lambda lines: changed(lines, version="2.1.299", gitBranch="x", slug="quiet-otter"),
    "rewritten with new uuids": with_new_uuids,
    "replies with new uuids": with_new_uuids_of_replies,
}
