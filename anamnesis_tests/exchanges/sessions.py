"""Sessions, and what copies of them look like."""

import json

from anamnesis_tests.exchanges.ingested import OTHER
from anamnesis_tests.exchanges.log_lines import SESSION, Log

TRUNK = f"{SESSION}.jsonl"


def session() -> Log:
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


def fork_of(lines: list[str], own: str, **mark: object) -> list[str]:
    """A copy under another session's name, which went on by itself."""
    log = Log(session=OTHER)
    log.minute, log._count = 60, 500
    log.user(own)
    return [*changed(lines, sessionId=OTHER, **mark), *log.lines]
