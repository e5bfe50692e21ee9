"""Recall of searches by meaning beside many copies of one text: a repeated line, a template, a retried command.

    python benchmarks/copies.py [--store sqlite|mongo] [--most 100000]

Sentences of LoCoMo are embedded with MiniLM. Copies of one of them, near copies (noise of .02 in all, and in each
number) and copies of two are added, and the answers to 100 sentences that are not stored are compared with an exact
scan. `graph` is what the index finds of it when it is built, `exact` whether searches therefore compare every vector.
With MongoDB, whose index is the server's, ANAMNESIS_MONGO_URI names the server; a database `anamnesis_copies` is made
and dropped.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymongo import MongoClient
from service import SHARED

from anamnesis_pipeline.embeddings.models import find_model
from anamnesis_pipeline.embeddings.registry import MINILM
from anamnesis_pipeline.embeddings.transformer_model import load_model
from anamnesis_pipeline.model import EpisodeFilter, Space, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.opening import open_mongo
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_pipeline.store.vector_values import kth_scores, share_found
from anamnesis_tests.support.samples import episode, passages

Vectors = NDArray[np.float32]

QUERIES, K = 100, 10
COPIES = (0, 4_000, 32_000, 100_000)
NOISE = 0.02
PER_EPISODE = 500
DATABASE = "anamnesis_copies"


def sentences() -> Vectors:
    """Different sentences, embedded, shape (n, dim)."""
    talks = json.loads((SHARED / "data/locomo/locomo_dev5.json").read_text())
    turns = (
        turn for talk in talks for part in talk["conversation"].values() if isinstance(part, list) for turn in part
    )
    texts = list(dict.fromkeys(turn["text"] for turn in turns if "text" in turn))
    model = load_model(find_model(MINILM), "fp32", "cpu", None)
    return np.concatenate([model.embed(texts[first : first + 64]) for first in range(0, len(texts), 64)])


def unit(vectors: Vectors) -> Vectors:
    """Of length 1."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def kinds(texts: Vectors, count: int) -> dict[str, Vectors]:
    """Name -> `count` vectors that are added."""
    noise = np.random.default_rng(1).standard_normal((count, texts.shape[1])).astype(np.float32)
    one, two = np.repeat(texts[:1], count, axis=0), np.repeat(texts[[1, 2]], [count // 2, count - count // 2], axis=0)
    if not count:
        return {"none": one}
    return {
        "one": one,
        "one, near": unit(one + NOISE * unit(noise)),
        "one, near each": unit(one + NOISE * noise),
        "two": two,
        "two, near": unit(two + NOISE * unit(noise)),
    }


def fill(store: Store, vectors: Vectors) -> None:
    """One passage for each vector."""
    store.spaces.put(Space("bench", "bench", vectors.shape[1], variants=(Variant.TEXT,)))
    for first in range(0, len(vectors), PER_EPISODE):
        page = vectors[first : first + PER_EPISODE]
        store.episodes.put([(episode(f"e{first}"), passages(*(f"text {first + i}" for i in range(len(page)))))])
        keys = [held.passage_id for held in store.episodes.passages_of(f"e{first}")]
        store.vectors.put("bench", Variant.TEXT, keys, page)


def measure(store: Store, name: str, vectors: Vectors, queries: Vectors) -> None:
    """Print one line."""
    fill(store, vectors)
    started = time.perf_counter()
    store.vectors.build("bench", force=True)
    built_s = time.perf_counter() - started
    of_sample = store.vectors.recall("bench")
    state = store.vectors.index_state("bench")
    wanted = kth_scores([vectors.astype(np.float16).astype(np.float32)], queries, K)
    started = time.perf_counter()
    found = [
        [hit.score for hit in store.vectors.nearest("bench", Variant.TEXT, q, K, EpisodeFilter())] for q in queries
    ]
    each_ms = (time.perf_counter() - started) / len(queries) * 1000
    recall = share_found(found, wanted, K)
    graph = "-" if state.recall is None else f"{state.recall:.3f}"
    exact = "yes" if state.is_exact else "no"
    print(
        f"{name:22}{len(vectors):>9,}{recall:>9.3f}{of_sample:>9.3f}{graph:>9}{exact:>9}{each_ms:>9.1f}{built_s:>9.1f}",
        flush=True,
    )


@contextmanager
def opened(backend: str) -> Iterator[Store]:
    """An empty store that is gone afterwards."""
    if backend == "sqlite":
        with (
            tempfile.TemporaryDirectory() as home,
            closing(open_sqlite(Path(home) / "a.db", Path(home) / "i")) as store,
        ):
            yield store
        return
    uri = os.environ["ANAMNESIS_MONGO_URI"]
    with MongoClient[dict[str, Any]](uri) as client:
        client.drop_database(DATABASE)
        with closing(open_mongo(uri, DATABASE)) as store:
            yield store
        client.drop_database(DATABASE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", choices=("sqlite", "mongo"), default="sqlite")
    parser.add_argument("--most", type=int, default=COPIES[-1])
    given = parser.parse_args()
    embedded = sentences()
    queries, texts = embedded[:QUERIES], embedded[QUERIES:]
    print(f"recall@{K} of {QUERIES} queries, {len(texts):,} sentences, {given.store}")
    heads = ("copies of", "vectors", "queries", "sample", "graph", "exact", "ms each", "built s")
    print(f"{heads[0]:22}" + "".join(f"{head:>9}" for head in heads[1:]))
    for count in (count for count in COPIES if count <= given.most):
        for name, copies in kinds(texts, count).items():
            with opened(given.store) as store:
                measure(store, f"{name} {count:,}", np.concatenate([texts, copies]), queries)


if __name__ == "__main__":
    main()
