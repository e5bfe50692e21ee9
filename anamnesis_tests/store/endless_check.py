"""The check of a large store, which says that it has its copy, and then takes for ever."""

import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anamnesis_pipeline.store.sqlite import connection
from anamnesis_pipeline.store.sqlite.connection import Database


class Endless(Database):
    """See above."""

    @contextmanager
    def copied(self) -> Iterator[sqlite3.Connection]:
        with super().copied() as connection:
            (place,) = [row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main"]
            (Path(place).parent / "copied").write_text(str(os.getpid()))
            time.sleep(600)
            yield connection


if __name__ == "__main__":
    connection.Database = Endless  # type: ignore[misc]
    connection.main(Path(sys.argv[1]))
