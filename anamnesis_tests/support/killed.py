"""Processes of `anamnesis` that are killed on the way: for each line `[NUMBER, COMMAND, ...]` of its input, this
program starts one that ends with SIGKILL before its change NUMBER, and writes the exit status.

Changes are counted as they are made: a transaction begins, is about to be committed, and a file is written, put in
place, or removed.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from anamnesis_pipeline.cli.app import app
from anamnesis_pipeline.store.mongo.engine import MongoGateway
from anamnesis_pipeline.store.sqlite.engine import SqliteGateway


class Changes:
    """Counts the changes of this process, and kills it before one."""

    def __init__(self, until: int) -> None:
        self._left = until

    def next(self) -> None:
        """Kill this process if enough was changed."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is a change."""

        def call(*args: Any, **named: Any) -> Any:
            self.next()
            return function(*args, **named)

        return call

    def counted_writes(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method `write` of a gateway, of which the beginning and the end are changes."""

        def call(gateway: Any, work: Callable[[Any], Any], **named: Any) -> Any:
            def then(tables: Any) -> Any:
                done = work(tables)
                self.next()
                return done

            self.next()
            return write(gateway, then, **named)

        return call


def run(number: int, command: list[str]) -> None:
    """Run a command in this process."""
    changes = Changes(number)
    for gateway in (SqliteGateway, MongoGateway):
        gateway.write = changes.counted_writes(gateway.write)  # type: ignore[method-assign]
    for name in ("fsync", "link", "replace", "unlink"):
        setattr(os, name, changes.counted(getattr(os, name)))
    app(command)


def main() -> None:
    """Run each command in a separate process: all is imported already, which takes seconds."""
    for line in sys.stdin:
        number, *command = json.loads(line)
        child = os.fork()
        if child == 0:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
            run(number, command)
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
