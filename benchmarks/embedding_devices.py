"""How fast a machine's GPU embeds beside its processors, and how far that comes from fp32 on a processor.

    python benchmarks/embedding_devices.py [--model MODEL] [--texts texts.json] [--rounds 3]

Texts are a list of JSON, or the passages of ../shared/data/claude_logs. The best round of each device counts. Prints a
table in Markdown.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
from embedding import passages

from anamnesis_pipeline.embeddings.cores import Priority, has_gpu
from anamnesis_pipeline.embeddings.models import MINILM, choose_precision, find_model
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.services.wiring import open_pool
from anamnesis_pipeline.settings import Settings

QUERIES = 30


def measured(texts: Sequence[str], pool: PinnedPool, rounds: int) -> tuple[float, float, "np.ndarray[tuple[int, int]]"]:
    """Texts a second, milliseconds of a query, and the vectors."""
    vectors = pool.embed(texts, "passage")  # a device meets its kernels
    seconds, queries = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        vectors = pool.embed(texts, "passage")
        seconds.append(time.perf_counter() - begun)
    for text in texts[:QUERIES]:
        begun = time.perf_counter()
        pool.embed([text[:60]], "query")
        queries.append(1000 * (time.perf_counter() - begun))
    return len(texts) / min(seconds), statistics.median(queries), vectors


def main() -> None:
    """Every device in both precisions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MINILM)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    texts = json.loads(args.texts.read_text(encoding="utf-8")) if args.texts else passages()
    files, reference = find_model(args.model), None
    print(f"{len(texts):,} texts\n\n| device | precision | workers | texts/s | query p50 ms | lowest cosine |")
    print("|---|---|---|---|---|---|")
    for device, precision in product(("cpu", "cuda") if has_gpu() else ("cpu",), ("fp32", "bf16")):
        space = files.space(precision=choose_precision(precision, device))
        settings = Settings(device=device, precision=precision)
        with closing(open_pool(settings, space, priority=Priority.LIVE)) as pool:
            pool.load()
            rate, query_ms, vectors = measured(texts, pool, args.rounds)
            reference = vectors if reference is None else reference
            cosine = np.einsum("ij,ij->i", vectors, reference).min()
            row = (pool.device, pool.precision, pool.workers, f"{rate:,.0f}", f"{query_ms:.1f}", f"{cosine:.5f}")
            print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
