"""What MongoDB's documentation forbids is refused, with the code that the server has for it where that is known here.

A stand-in that takes what the real server refuses would prove nothing (`grammar.py`).
"""

from collections.abc import Mapping
from typing import Any

from anamnesis_tests.mongo_server.grammar import check_command
from anamnesis_tests.mongo_server.indexes import Index
from anamnesis_tests.mongo_server.matching import compile_filter
from anamnesis_tests.mongo_server.refusals import failed_to_parse
from anamnesis_tests.mongo_server.updating import compile_update


def hold_to_documentation(name: str, command: Mapping[str, Any], size: int) -> None:
    """Pass what the documentation allows; `size`: bytes of the message.

    :raises Refusal: it does not.
    """
    problems = check_command(
        name,
        command,
        command.get("autocommit") is False,
        starts_transaction=bool(command.get("startTransaction")),
        message_bytes=size,
    )
    if problems:
        _refuse_by_code(command)
        raise failed_to_parse("; ".join(problems))


def _refuse_by_code(command: Mapping[str, Any]) -> None:
    """Compile what the command holds, which refuses what is unknown by the server's own codes.

    :raises Refusal: so it was.
    """
    for name in ("filter", "query"):
        compile_filter(command.get(name) or {})
    for statement in [*command.get("updates", ()), *command.get("deletes", ())]:
        compile_filter(statement["q"])
        if "u" in statement:
            compile_update(statement["u"], multi=bool(statement.get("multi")))
    if command.get("update") and "findAndModify" in command:
        compile_update(command["update"])
    for spec in command.get("indexes", ()) if "createIndexes" in command else ():
        Index(spec)
