"""Bulk writes to MongoDB through pymongo: how fast episodes and vectors go in, and where the time goes.

    python benchmarks/mongo_write.py [--episodes 10000] [--uri mongodb://... --database bench_write]

Episodes, vectors and batches are those of `backup.py`; they are made beforehand. Without `--uri` the server is that of
the tests, in a process of its own: then the seconds in which commands are under way say nothing about MongoDB, and
what counts is this process's CPU and the number of commands. The database is dropped at the end.
"""

import argparse
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from backup import BATCH, SPACE, made_episode
from pymongo import MongoClient, monitoring
from service import SHARED
from store_speed import Corpus, words_of_logs

from anamnesis_pipeline.model import Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.opening import open_mongo

TOKENS_A_PASSAGE = 120


class Commands(monitoring.CommandListener):
    """How many commands of each name were sent, and how long each name's were under way."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.seconds = defaultdict[str, float](float)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Of no interest."""

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Count it."""
        self.counts[event.command_name] += 1
        self.seconds[event.command_name] += event.duration_micros / 1e6

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Count it, too."""
        self.counts[f"{event.command_name} (failed)"] += 1
        self.seconds[f"{event.command_name} (failed)"] += event.duration_micros / 1e6


@contextmanager
def measured(name: str, documents: int, commands: Commands) -> Iterator[None]:
    """Print what the block cost for so many documents."""
    commands.counts.clear()
    commands.seconds.clear()
    started, cpu = time.perf_counter(), time.process_time()
    yield
    wall, own = time.perf_counter() - started, time.process_time() - cpu
    away = sum(commands.seconds.values())
    print(
        f"{name:10} {documents:,} documents in {wall:.1f} s: {documents / wall:,.0f} a second; "
        f"commands under way {away:.1f} s, this process's CPU {own:.1f} s ({documents / own:,.0f} a CPU second)"
    )
    for command, count in commands.counts.most_common():
        print(f"           {command:24} {count:6,}  {commands.seconds[command]:7.1f} s")


def write(store: Store, episodes: int, commands: Commands) -> None:
    """Episodes, then their vectors and token vectors."""
    corpus, rng = Corpus(words_of_logs(SHARED), seed=3), np.random.default_rng(1)
    batches = [
        [made_episode(number, corpus.text()) for number in range(first, min(first + BATCH, episodes))]
        for first in range(0, episodes, BATCH)
    ]
    store.spaces.put(SPACE)
    with measured("episodes", 2 * episodes, commands):  # each and its passage
        for batch in batches:
            store.episodes.put(batch)
    made: list[Any] = []
    for first in range(0, episodes, BATCH):
        ids = list(range(first + 1, min(first + BATCH, episodes) + 1))
        text, context = (_units(rng, len(ids)) for _ in range(2))
        tokens = [
            rng.integers(-127, 128, (TOKENS_A_PASSAGE, SPACE.token_dims or 0)).astype(np.int8) for _ in range(len(ids))
        ]
        made.append((ids, {Variant.TEXT: text, Variant.CONTEXT: context}, tokens))
    with measured("vectors", 2 * episodes, commands):  # both variants in one document, and the token vectors in another
        for ids, vectors, tokens in made:
            store.vectors.put_all(SPACE.key, ids, vectors, tokens)


def _units(rng: np.random.Generator, count: int) -> Any:
    matrix = rng.standard_normal((count, SPACE.dim)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


@contextmanager
def server(uri: str | None) -> Iterator[str]:
    """The given server, or one of the tests while the block runs."""
    if uri:
        yield uri
        return
    command = [sys.executable, "-u", "-m", "anamnesis_tests.support.mongo_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main() -> None:
    """Write, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--uri")
    parser.add_argument("--database", default="bench_write")
    options = parser.parse_args()
    commands = Commands()
    monitoring.register(commands)
    with server(options.uri) as uri, MongoClient[dict[str, Any]](uri) as client:
        store = open_mongo(uri, options.database)
        try:
            write(store, options.episodes, commands)
        finally:
            store.close()
            client.drop_database(options.database)


if __name__ == "__main__":
    main()
