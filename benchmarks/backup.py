"""A backup of a memory, and a memory made of it: how long both take, how large the file is, and whether answers stay.

    python benchmarks/backup.py [--episodes 100000] [--backend sqlite|mongo] [--questions 200] [--keep FOLDER]

Texts are words of the logs, as in `store_speed.py`; each episode has one passage of 100 words, with vectors of 384
dimensions for both variants, and token vectors, made by hashing. Each question is three words of an episode. Neither
memory has index files, so that all vectors are scanned and equal answers have equal scores. `mongo` is the server of
the tests, in a process of its own, which says nothing about the speed of MongoDB.
"""

import argparse
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from service import SHARED
from store_speed import START, Corpus, words_of_logs

from anamnesis_pipeline.embeddings.base import query_vectors
from anamnesis_pipeline.errors import StoreBusy
from anamnesis_pipeline.model import Episode, Passage, Space, Variant
from anamnesis_pipeline.runtime import home_wiring
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.query import SearchQuery
from anamnesis_pipeline.services.backup import Home, back_up
from anamnesis_pipeline.services.restore import restore
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.search_indexes import SETTLED_AFTER_S
from anamnesis_tests.conftest import BACKENDS
from anamnesis_tests.support.hashing_embedder import HashingEmbedder

SPACE = Space("hashing-384", "hashing-384", 384, token_dims=64)
EMBEDDER = HashingEmbedder(SPACE.dim, token_dims=SPACE.token_dims)
BATCH = 250


def fill(store: Store, episodes: int, words: list[str]) -> None:
    """Write episodes with their vectors."""
    corpus = Corpus(words, seed=3)
    if not store.spaces.all():
        store.spaces.put(SPACE)
        store.spaces.activate(SPACE.key)
    for first in range(store.overview.counts().episodes, episodes, BATCH):
        batch = [made_episode(number, corpus.text()) for number in range(first, min(first + BATCH, episodes))]
        store.episodes.put(batch)
        ids = list(range(first + 1, first + len(batch) + 1))
        passages = [passage for _, (passage,) in batch]
        found = EMBEDDER.embed_with_tokens([passage.text for passage in passages], "passage")
        context = EMBEDDER.embed([passage.with_context for passage in passages], "passage")
        store.vectors.put_all(SPACE.key, ids, {Variant.TEXT: found.vectors, Variant.CONTEXT: context}, found.tokens)


def made_episode(number: int, text: str) -> tuple[Episode, list[Passage]]:
    """One of 100 words, and its only passage."""
    episode = Episode(
        episode_id=f"e{number:09d}",
        source="direct",
        timestamp=START + timedelta(minutes=number),
        instance="main",
        project=f"project-{number % 50}",
        kind="exchange",
        summary=text[:200],
        raw_exchange=text,
        tags=(f"tag-{number % 300}",),
        session_id=f"s{number // 20}",
    )
    return episode, [Passage(0, text, f"[project-{number % 50} 2026-01-01]")]


def settle(store: Store, backend: str) -> None:
    """Let a search index catch up: within seconds after a write MongoDB's is helped out by scores of our own."""
    if backend == "mongo":
        while not is_caught_up(store):
            time.sleep(1)
        store.text.unknown(["anything"])  # a search looks what the index lacks, and trusts it a while after that
        time.sleep(2 * SETTLED_AFTER_S)


def is_caught_up(store: Store) -> bool:
    """Whether the search index answers, and has every passage."""
    try:
        return not store.text.check()
    except StoreBusy:
        return False


def answers(store: Store, episodes: int, questions: int) -> list[list[tuple[str, float]]]:
    """Id and score of every hit of each question."""
    engine = Engine(store, lambda text, space: query_vectors(EMBEDDER.embed_with_tokens([text], "query")))
    rng, found = random.Random(5), []
    for _ in range(questions):
        (episode,) = store.episodes.get([f"e{rng.randrange(episodes):09d}"]).values()
        text = " ".join(rng.sample(episode.raw_exchange.split(), 3))
        hits = engine.search(SearchQuery(text, top_k=10, track=False, min_score=0)).hits
        found.append([(hit.episode.episode_id, round(hit.score, 5)) for hit in hits])
    return found


def timed(name: str, call: Callable[[], Any]) -> Any:
    """Print the seconds that a call takes, and of them those of this process's CPU."""
    started, cpu = time.perf_counter(), time.process_time()
    result = call()
    print(f"{name:34} {time.perf_counter() - started:8.1f} s   CPU {time.process_time() - cpu:8.1f} s", flush=True)
    return result


def home_of(folder: Path) -> Home:
    """A home without an archive."""
    settings = Settings(home=folder)
    return Home(folder, home_wiring.open_archive(settings), settings.archive_dir)


def file_copy(database: Path, out: Path) -> None:
    """What SQLite's own backup takes, for comparison."""
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(out)) as target:
        source.backup(target)


def main() -> None:
    """Fill, ask, back up, restore, ask again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000)
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="sqlite")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="folder for the filled memory; a second run goes on with it")
    options = parser.parse_args()
    open_store = BACKENDS[options.backend]
    with tempfile.TemporaryDirectory() as thrown_away:
        base = Path(thrown_away)
        old, new, file = options.keep or base / "old", base / "new", base / "backup"
        old.mkdir(exist_ok=True)
        new.mkdir()
        with closing(open_store(old)) as store:
            timed("fill", lambda: fill(store, options.episodes, words_of_logs(SHARED / "data")))
            settle(store, options.backend)
            before = timed("ask", lambda: answers(store, options.episodes, options.questions))
            told = (options.backend, lambda step, done, of: None)
            report = timed("backup", lambda: back_up(store, home_of(old), file, *told))
        if options.backend == "sqlite":
            timed("SQLite's own copy of the file", lambda: file_copy(old / "anamnesis.db", base / "copy.db"))
            print(f"{'database':34} {(base / 'copy.db').stat().st_size / 1e6:8,.0f} MB")
            (base / "copy.db").unlink()
        print(f"{'backup':34} {report.bytes / 1e6:8,.0f} MB, {report.rows:,} rows")
        with closing(open_store(new)) as store:
            timed("restore", lambda: restore(file, store, home_of(new), "the new memory", told[1]))
            settle(store, options.backend)
            after = timed("ask again", lambda: answers(store, options.episodes, options.questions))
        same = sum(one == other for one, other in zip(before, after, strict=True))
        print(f"{'equal answers':34} {same:8} of {len(before)}, {sum(map(len, before)):,} hits")


if __name__ == "__main__":
    main()
