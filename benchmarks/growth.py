"""How a search's two parts grow with the store: full text and nearest vectors, without HTTP and without a model.

    python benchmarks/growth.py --passages 10000 100000 1000000 [--part text|vectors] [--keep FOLDER]

Each part and size has a store of its own. Texts are runs of words from the logs, shorter than real ones (33 words), so
that a million are written in minutes; vectors are clustered random ones of 384 dimensions, one variant. A search of
full text is both lists of ten words (text, text with context), a search of vectors is one list; 40 deep, as the engine
asks for ten hits. Memory is the process's own and the file pages it has mapped, after the searches.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import store_speed
from service import SHARED
from store_speed import CLUSTERS, DIM, START, Corpus, words_of_logs

from anamnesis_pipeline.model import Episode, EpisodeFilter, Passage, Space, Variant
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

DEPTH = 40
SEARCHES = 200
WHERE = EpisodeFilter(hidden_kinds=("compact_summary",))
SHORT_WORDS = 30


def put(store: Store, passages: int, text: Callable[[], str], each: int) -> None:
    """Write that many passages, `each` an episode."""
    for first in range(store.overview.counts().passages, passages, 500):
        batch = []
        for number in range(first, min(first + 500, passages), each):
            own = [text() for _ in range(each)]
            episode = Episode(
                episode_id=f"e{number:09d}",
                source="direct",
                timestamp=START,
                instance="main",
                project=f"project-{number // each % 50}",
                kind="exchange",
                summary=own[0][:60],
                raw_exchange=own[0],
            )
            batch.append((episode, [Passage(i, mine, own[0][:60]) for i, mine in enumerate(own)]))
        store.episodes.put(batch)


def vectors(rng: np.random.Generator, passages: int) -> Iterator[np.ndarray[Any, Any]]:
    """Unit vectors in clusters, 500 at a time."""
    centres = rng.standard_normal((CLUSTERS, DIM)).astype(np.float32)
    for _ in range(0, passages, 500):
        rows = centres[rng.integers(0, CLUSTERS, 500)] + rng.standard_normal((500, DIM)).astype(np.float32)
        yield rows / np.linalg.norm(rows, axis=1, keepdims=True)


def timed(name: str, call: Callable[[Any], Any], asked: list[Any]) -> None:
    """Print p50 and p95 of one call per argument, on the clock and in CPU time of the process."""
    spent, busy = [], []
    for argument in asked:
        started, cpu = time.perf_counter(), time.process_time()
        call(argument)
        spent.append(1000 * (time.perf_counter() - started))
        busy.append(1000 * (time.process_time() - cpu))
    cuts = [statistics.quantiles(values, n=20)[18] for values in (spent, busy)]
    print(
        f"  {name:26} p50 {statistics.median(spent):6.1f} ms   p95 {cuts[0]:6.1f} ms   "
        f"CPU p50 {statistics.median(busy):6.1f} ms   p95 {cuts[1]:6.1f} ms   {memory()}",
        flush=True,
    )


def memory() -> str:
    """Own memory and mapped file pages of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
    return f"own {kib['RssAnon'] / 1024:,.0f} MiB, mapped {kib['RssFile'] / 1024:,.0f} MiB"


def text_part(store: Store, passages: int, words: list[str]) -> None:
    """Fill, then search runs of ten words: each for the first time, then again."""
    store_speed.WORDS_PER_PASSAGE = SHORT_WORDS
    put(store, passages, Corpus(words, seed=3).text, each=5)
    print(f"  before any search          {memory()}")
    starts = random.Random(5).sample(range(len(words) - 10), SEARCHES)
    asked = [content_words(" ".join(words[start : start + 10])) for start in starts]

    def search(question: list[str]) -> None:
        for variant in Variant:
            store.text.matching(question, DEPTH, WHERE, variant=variant)

    timed("text, new words", search, asked)
    timed("text, seen words", search, asked)


def vectors_part(store: Store, passages: int) -> None:
    """Fill, build the index, then search near stored vectors."""
    space = Space("bench", "bench", DIM, variants=(Variant.TEXT,))
    put(store, passages, lambda: "x", each=50)
    if not store.spaces.all():
        store.spaces.put(space)
        for number, rows in enumerate(vectors(np.random.default_rng(1), passages)):
            store.vectors.put(space.key, Variant.TEXT, range(500 * number + 1, 500 * number + 501), rows)
    report = store.vectors.build(space.key)
    print(f"  {report.indexed:,} vectors in the index, brought up to date in {report.seconds:.0f} s")
    near = next(vectors(np.random.default_rng(1), 500))[:SEARCHES]
    near += 0.3 / DIM**0.5 * np.random.default_rng(2).standard_normal(near.shape).astype(np.float32)
    asked = list(near / np.linalg.norm(near, axis=1, keepdims=True))

    def search(vector: np.ndarray[Any, Any]) -> None:
        store.vectors.nearest(space.key, Variant.TEXT, vector, DEPTH, WHERE)

    timed("vectors, first time", search, asked)
    timed("vectors, again", search, asked)
    print(f"  recall@10 {store.vectors.recall(space.key, samples=50):.3f}")


def main() -> None:
    """Each part at each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--part", choices=["text", "vectors"], action="append")
    parser.add_argument(
        "--keep", type=Path, help="folder for the stores (default: thrown away); a second run reuses them"
    )
    args = parser.parse_args()
    words = words_of_logs(SHARED / "data")
    with tempfile.TemporaryDirectory() as thrown_away:
        for part in args.part or ["text", "vectors"]:
            for passages in args.passages:
                folder = (args.keep or Path(thrown_away)) / f"{part}-{passages}"
                print(f"{part}, {passages:,} passages", flush=True)
                with closing(open_sqlite(folder / "a.db", folder / "index")) as store:
                    if part == "text":
                        text_part(store, passages, words)
                    else:
                        vectors_part(store, passages)
                held = sum(path.stat().st_size for path in (folder / "index").glob("*"))
                print(f"  database {(folder / 'a.db').stat().st_size / 2**20:,.0f} MiB, index {held / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main()
