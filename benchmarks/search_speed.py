"""Latency of a whole search over HTTP, query embedding included, in a memory of a given size.

    python benchmarks/search_speed.py [--passages 100000] [--home FOLDER] [--peer]

Texts are made as in store_speed.py; vectors are clustered random ones in the real model's space, and token vectors are
random, as many as real logs have (their content does not change what a search costs). `--home` keeps the memory for the
next run. Queries are the questions of ../shared/bench/claude_qa and runs of ten words from the
logs, each asked once, so that a word is new unless the corpus repeats it; then the questions again, filtered. `--peer`:
then other runs of words are asked in turn of this memory and of MemPalace, which holds some 1,000 of the passages.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
from memory import WORK
from memory_arms import Place, UnavailableError, opened, passages_of
from memory_sets import Question
from prometheus_client.parser import text_string_to_metric_families
from service import SHARED, sidecar
from store_speed import CLUSTERS, Corpus, fill, words_of_logs

from anamnesis_pipeline.model import Space
from anamnesis_pipeline.services.wiring import open_store, wanted_space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

RUNS_OF_WORDS = 200
TOKENS = 100
"""Token vectors of a passage."""
PEER_PASSAGES = 1_000
"""What MemPalace holds: the time that it takes hardly grows with them."""


def fill_vectors(store: Store, space: Space, passages: int) -> None:
    """Unit vectors in clusters, both variants of every passage, with token vectors, and the index."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((CLUSTERS, space.dim)).astype(np.float32)
    for first in range(0, passages, 500):
        ids = list(range(first + 1, min(first + 500, passages) + 1))
        vectors = {}
        for variant in space.variants:
            rows = centres[rng.integers(0, CLUSTERS, len(ids))]
            rows += rng.standard_normal(rows.shape).astype(np.float32)
            vectors[variant] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        tokens = rng.integers(-127, 128, (len(ids), TOKENS, space.token_dims), dtype=np.int8)
        store.vectors.put_all(space.key, ids, vectors, list(tokens))
    report = store.vectors.build(space.key)
    print(f"index of {report.indexed:,} vectors built in {report.seconds:.0f} s")


def fill_all(settings: Settings, words: list[str], passages: int) -> None:
    """Make a memory of so many passages, unless it is there.

    :raises SystemExit: the home holds another memory, or one that was not filled to its end.
    """
    filled = settings.home / "filled.txt"
    if filled.exists() and filled.read_text(encoding="ascii") == str(passages):
        return
    if settings.database.exists():
        sys.exit(
            f"{settings.home} does not hold a whole memory of {passages:,} passages; delete it or name another --home"
        )
    with closing(open_store(settings)) as store:
        texts, _ = fill(store, Corpus(words, seed=3), passages)
        fill_vectors(store, wanted_space(settings, store), len(texts))
    filled.write_text(str(passages), encoding="ascii")
    print(f"{len(texts):,} passages")


def ask(base: str, questions: list[str], name: str, **body: object) -> None:
    """Print p50, p95 and the slowest of one search per question, at the client."""
    spent = []
    with httpx.Client(base_url=base, timeout=60) as client:
        for question in questions:
            started = time.perf_counter()
            reply = client.post("/api/episodes/search", json={"query": question, "top_k": 10, "track": False} | body)
            spent.append(1000 * (time.perf_counter() - started))
            reply.raise_for_status()
    cuts = statistics.quantiles(spent, n=20)
    print(f"{name:24} p50 {statistics.median(spent):6.1f} ms   p95 {cuts[18]:6.1f} ms   max {max(spent):6.1f} ms")


def ask_in_turn(base: str, questions: list[str], settings: Settings) -> None:
    """Print the times of a search per question here and in MemPalace, each first every other time, and their ratio."""
    with closing(open_store(settings)) as store:
        place = Place(base, store, settings, passages_of(store, PEER_PASSAGES), None, (), WORK.resolve())
        with opened("anamnesis", place, {None}) as ours, opened("mempalace", place, {None}) as peer:
            arms = {"anamnesis": ours, "mempalace": peer}
            spent: dict[str, list[float]] = {name: [] for name in arms}
            for number, question in enumerate(questions):
                for name in sorted(arms, reverse=bool(number % 2)):
                    arm = arms[name]
                    if isinstance(arm, UnavailableError):
                        sys.exit(f"{name} cannot be asked: {arm}")
                    started = time.perf_counter()
                    arm.ask(Question("", question, "", ()), gate=False)
                    spent[name].append(1000 * (time.perf_counter() - started))
    for name, times in spent.items():
        print(f"{name:24} p50 {statistics.median(times):6.1f} ms   p95 {statistics.quantiles(times, n=20)[18]:6.1f} ms")
    print(f"ratio of p50 {statistics.median(spent['anamnesis']) / statistics.median(spent['mempalace']):.2f}")


def stages(base: str) -> None:
    """Print the mean time of each stage of a search so far, as the service counts them."""
    families = text_string_to_metric_families(httpx.get(f"{base}/metrics").text)
    samples = [s for f in families if f.name == "anamnesis_search_stage_seconds" for s in f.samples]
    sums = {s.labels["stage"]: s.value for s in samples if s.name.endswith("_sum")}
    counts = {s.labels["stage"]: s.value for s in samples if s.name.endswith("_count")}
    for stage, total in sums.items():
        print(f"  {stage:22} mean {1000 * total / counts[stage]:6.1f} ms   {counts[stage]:.0f} times")


def main() -> None:
    """Fill, serve, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--home", type=Path, help="folder that keeps the memory (default: thrown away)")
    parser.add_argument("--peer", action="store_true", help="ask MemPalace, too")
    args = parser.parse_args()
    words = words_of_logs(SHARED / "data")
    lines = (SHARED / "bench/claude_qa/dev.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=(args.home or Path(folder)) / "home")
        fill_all(settings, words, args.passages)
        print(f"database of {settings.database.stat().st_size / 2**20:,.0f} MiB")
        starts = random.Random(5).sample(range(len(words) - 10), 2 * RUNS_OF_WORDS)
        runs = [" ".join(words[start : start + 10]) for start in starts]
        with sidecar(settings.home) as base:
            ask(base, questions, "questions, cold")
            ask(base, runs[:RUNS_OF_WORDS], "runs of ten words")
            ask(base, questions, "questions again")
            stages(base)
            ask(base, questions, "one of 50 projects", project="project-7")
            ask(base, questions, "half the time", since="2026-02-05T00:00:00Z")
            ask(base, questions, "exact", mode="exact")
            ask(base, questions, "semantic", mode="semantic")
            if args.peer:
                ask_in_turn(base, runs[RUNS_OF_WORDS:], settings)


if __name__ == "__main__":
    main()
