"""A process that uses a store the way others do: `python -m ...process BACKEND FOLDER ROLE NUMBER SECONDS`.

A writer prints the id of every episode once its write has returned. A reader prints how often it read.
"""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from anamnesis_pipeline.model import Variant, Where
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.conftest import BACKENDS
from anamnesis_tests.store.samples import episode, passages, random_units, unit


def write(store: Store, number: int, until: float) -> None:
    """Episodes of its own, one that every writer writes, their vectors, counters and settings."""
    turn = 0
    while time.monotonic() < until:
        own = f"w{number}-{turn}"
        store.episodes.put([(episode(own, turn), passages(f"needle {own}", "second")),
                            (episode("shared"), passages("everybody writes this", f"turn {turn % 3}"))])  # fmt: skip
        keys = [stored.passage_id for stored in store.episodes.passages_of(own)]
        store.vectors.put("s", Variant.TEXT, keys, random_units(2, 4, seed=turn))
        store.episodes.track([own], datetime.now(UTC))
        store.settings.set(f"writer.{number}", turn)
        print(own, flush=True)
        turn += 1


def read(store: Store, until: float) -> None:
    """Every kind of search."""
    turns = 0
    while time.monotonic() < until:
        store.text.matching(["needle", "everybody"], 20, Where())
        store.vectors.nearest("s", Variant.TEXT, unit(1, 0, 0, 0), 20, Where())
        store.episodes.page(Where(), 20)
        store.vectors.pending_sources("s")
        turns += 1
    print(turns, flush=True)


def main(backend: str, folder: str, role: str, number: str, seconds: str) -> None:
    """Open, work for some seconds, close."""
    store = BACKENDS[backend](Path(folder))
    until = time.monotonic() + float(seconds)
    if role == "writer":
        write(store, int(number), until)
    elif role == "reader":
        read(store, until)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
