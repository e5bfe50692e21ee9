"""How often a search asks MongoDB, and what that costs where the server is far away.

    python benchmarks/mongo_search.py [--episodes 500] [--away-ms 0 20]

The server is that of the tests, so what it takes itself says nothing about MongoDB. What counts is the number of
commands of a search, and how many of them wait for one another: with each command held up by the milliseconds of
`--away-ms`, the time beyond that without, divided by them. Answers that count as a retrieval commit a transaction more.
"""

import argparse
import statistics
import time
from collections import Counter

from backup import EMBEDDER, SHARED, fill, settle
from mongo_write import Commands
from pymongo import monitoring
from store_speed import Corpus, words_of_logs

from anamnesis_pipeline.embeddings.base import query_vectors
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.store.mongo.opening import open_mongo
from anamnesis_tests.support.mongo_server.server import LoopbackServer

QUESTIONS = 20
HELD_UP = ("find", "aggregate", "getMore", "insert", "update", "findAndModify", "commitTransaction")


def asked(engine: Engine, words: Corpus, commands: Commands, *, track: bool) -> tuple[float, float, Counter[str]]:
    """Median commands and milliseconds of a search, and all commands by name."""
    counts, took, names = [], [], Counter[str]()
    for _ in range(QUESTIONS):
        commands.counts.clear()
        started = time.perf_counter()
        engine.search(SearchQuery(" ".join(words.text().split()[:4]), track=track, min_score=0))
        took.append((time.perf_counter() - started) * 1e3)
        counts.append(commands.counts.total())
        names += commands.counts
    return statistics.median(counts), statistics.median(took), names


def main() -> None:
    """Print one row for each distance, with and without a retrieval that counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--away-ms", type=float, nargs="+", default=[0.0, 20.0])
    options = parser.parse_args()
    commands = Commands()
    monitoring.register(commands)
    words = words_of_logs(SHARED)
    with LoopbackServer() as server:
        store = open_mongo(server.uri, "bench_search")
        fill(store, options.episodes, words)
        settle(store, "mongo")
        engine = Engine(store, lambda text, _: query_vectors(EMBEDDER.embed_with_tokens([text], "query")))
        for away_ms in options.away_ms:
            server.faults.clear()
            if away_ms:
                server.faults.add(*HELD_UP, delay_s=away_ms / 1e3, times=None)
            for track in (False, True):
                count, took, names = asked(engine, Corpus(words, seed=5), commands, track=track)
                each = ", ".join(f"{name} {number / QUESTIONS:.1f}" for name, number in names.most_common(6))
                print(f"{away_ms:.0f} ms away, track={track}: {count:.0f} commands, {took:.0f} ms ({each})")
        server.faults.clear()
        store.close()


if __name__ == "__main__":
    main()
