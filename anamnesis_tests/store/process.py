"""A process that uses a store the way others do: `python -m ...process BACKEND FOLDER ROLE NUMBER SECONDS`.

A writer prints the id of every episode once its write has returned. A reader prints how often it read. An embedder
prints the last episode of every checkpoint once that is written. A starter waits for a line, then starts space
`s<NUMBER>` and prints whether it won. An opener prints the secret of the store.
"""

import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from anamnesis_pipeline.errors import SpaceConflict, StoreBusy
from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.conftest import BACKENDS
from anamnesis_tests.support.samples import episode, passages, random_units, unit


def write(store: Store, number: int, until: float) -> None:
    """Episodes of its own, one that every writer writes, their vectors, counters and settings."""
    turn = 0
    while time.monotonic() < until:
        own = f"w{number}-{turn}"
        store.episodes.put(
            [
                (episode(own, turn), passages(f"needle {own}", "second")),
                (episode("shared"), passages("everybody writes this", f"turn {turn % 3}")),
            ]
        )
        keys = [stored.passage_id for stored in store.episodes.passages_of(own)]
        store.vectors.put("s", Variant.TEXT, keys, random_units(2, 4, seed=turn))
        count_retrieval(store, own)
        store.settings.set(f"writer.{number}", turn)
        print(own, flush=True)
        turn += 1


def count_retrieval(store: Store, episode_id: str) -> None:
    """Once, however often others write for longer than an answer waits to be counted."""
    while not store.episodes.get([episode_id])[episode_id].retrieval_count:
        with suppress(StoreBusy):
            store.episodes.track([episode_id], datetime.now(UTC))


def read(store: Store, until: float) -> None:
    """Every kind of search."""
    turns = 0
    while time.monotonic() < until:
        store.text.matching(["needle", "everybody"], 20, EpisodeFilter())
        store.vectors.nearest("s", Variant.TEXT, unit(1, 0, 0, 0), 20, EpisodeFilter())
        store.episodes.page(EpisodeFilter(), 20)
        store.vectors.pending_sources("s")
        turns += 1
    print(turns, flush=True)


def embed(store: Store, until: float) -> None:
    """Vectors for what lacks them, two episodes at a time."""
    while time.monotonic() < until and (left := store.vectors.pending("s", ["direct", "logs"], 2)):
        keys = [stored.passage_id for episode in left for stored in episode.passages]
        vectors = random_units(len(keys), 4)
        store.vectors.put_all("s", keys, {Variant.TEXT: vectors, Variant.CONTEXT: vectors})
        print(left[-1].episode_id, flush=True)


def start(store: Store, number: int) -> None:
    """Be the one that builds, or not."""
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        store.spaces.start(f"s{number}")
    except SpaceConflict:
        print("lost", flush=True)
    else:
        print("won", flush=True)


def main(backend: str, folder: str, role: str, number: str, seconds: str) -> None:
    """Open, work for some seconds, close."""
    store = BACKENDS[backend](Path(folder))
    until = time.monotonic() + float(seconds)
    if role == "writer":
        write(store, int(number), until)
    elif role == "reader":
        read(store, until)
    elif role == "embedder":
        embed(store, until)
    elif role == "starter":
        start(store, int(number))
    elif role == "opener":
        print(store.exclusion.secret().hex())
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
