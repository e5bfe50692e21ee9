"""Speed of the embedded store at a size: text search, vector search, writes, and what leaving common words out costs.

    python benchmarks/store_speed.py --passages 100000 --logs ../shared/data

Texts are resampled from the words of the `.jsonl` files under `--logs`, so that common words are as common as there,
with identifiers whose frequency falls as 1/rank mixed in. Queries are ten words, stop words left out, of one passage.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from service import need_shared

from anamnesis_pipeline.model import Episode, EpisodeFilter, Passage, Space, Variant
from anamnesis_pipeline.search.words import content_words
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite import fulltext
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

PASSAGES_PER_EPISODE = 5
WORDS_PER_PASSAGE = 100
IDENTIFIERS = 60_000
DIM = 384
CLUSTERS = 2_000
START = datetime(2026, 1, 1, tzinfo=UTC)


def words_of_logs(folder: Path) -> list[str]:
    """Every word of every text in the logs, in order."""
    need_shared()
    words: list[str] = []
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            words.extend(word for text in _texts(json.loads(line)) for word in text.split())
    return words


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and " " in value:
        yield value
    elif isinstance(value, dict):
        for key in ("message", "content", "text", "thinking", "input", "command"):
            yield from _texts(value.get(key))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


class Corpus:
    """Endless realistic texts. Runs of real words keep phrases; identifiers give the long tail a real size."""

    def __init__(self, words: list[str], seed: int) -> None:
        self._words = words
        self._random = random.Random(seed)
        pieces = sorted({w.lower() for w in words if w.isalpha() and 3 < len(w) < 12})
        names = [
            f"{a}{s}{b}"
            for a, s, b in zip(
                self._random.choices(pieces, k=IDENTIFIERS),
                self._random.choices("_./-", k=IDENTIFIERS),
                self._random.choices(pieces, k=IDENTIFIERS),
                strict=True,
            )
        ]
        self._names = names
        self._weights = np.cumsum(1 / np.arange(1, len(names) + 1)).tolist()

    def text(self) -> str:
        """About `WORDS_PER_PASSAGE` words: runs of ten from the logs, one identifier after each."""
        words: list[str] = []
        while len(words) < WORDS_PER_PASSAGE:
            start = self._random.randrange(len(self._words) - 10)
            words += self._words[start : start + 10]
            words += self._random.choices(self._names, cum_weights=self._weights)
        return " ".join(words)


def fill(store: Store, corpus: Corpus, passages: int) -> tuple[list[str], float]:
    """Write episodes; returns the texts and the seconds spent in the store."""
    texts: list[str] = []
    spent = 0.0
    for first in range(0, passages, 500):
        batch = []
        for number in range(first, min(first + 500, passages), PASSAGES_PER_EPISODE):
            own = [corpus.text() for _ in range(PASSAGES_PER_EPISODE)]
            texts += own
            header = f"[project-{number // 5 % 50} 2026-01-01] {' '.join(own[0].split()[:20])}"
            episode = Episode(
                episode_id=f"e{number:09d}",
                source=f"source-{number // 5 % 20}",
                timestamp=START + timedelta(minutes=number),
                instance="main",
                project=f"project-{number // 5 % 50}",
                kind="exchange",
                summary=own[0][:200],
                raw_exchange="\n".join(own),
                tags=(f"tag-{number // 5 % 300}",),
            )
            batch.append((episode, [Passage(i, text, header) for i, text in enumerate(own)]))
        started = time.perf_counter()
        store.episodes.put(batch)
        spent += time.perf_counter() - started
    return texts, spent


def timed(call: Callable[[Any], Any], arguments: list[Any]) -> tuple[str, list[Any]]:
    """Milliseconds at p50 / p95 of one call per argument, and the results."""
    spent, results = [], []
    for argument in arguments:
        started = time.perf_counter()
        results.append(call(argument))
        spent.append(1000 * (time.perf_counter() - started))
    cuts = statistics.quantiles(spent, n=20)
    return f"p50 {statistics.median(spent):7.1f} ms   p95 {cuts[18]:7.1f} ms", results


def overlap(found: list[Any], wanted: list[Any], k: int = 10) -> float:
    """Mean share of the top k of `wanted` that is in the top k of `found`."""
    shares = []
    for one, other in zip(found, wanted, strict=True):
        top = {hit.passage_id for hit in other[:k]}
        if top:
            shares.append(len(top & {hit.passage_id for hit in one[:k]}) / len(top))
    return statistics.mean(shares)


def text_search(store: Store, texts: list[str], queries: int) -> None:
    """Times of both analyzers, and the top-10 that common words would have changed."""
    rng = random.Random(7)
    asked = [content_words(" ".join(rng.sample(rng.choice(texts).split(), 15)))[:10] for _ in range(queries)]
    calls: dict[str, Callable[[list[str]], Any]] = {
        "stem": lambda words: store.text.matching(words, 100, EpisodeFilter()),
        "stem, with context": lambda words: store.text.matching(words, 100, EpisodeFilter(), variant=Variant.CONTEXT),
        "exact": lambda words: store.text.matching(words, 100, EpisodeFilter(), analyzer="exact"),
        "stem, one of 50 projects": lambda words: store.text.matching(
            words, 100, EpisodeFilter(projects=("project-7",))
        ),
    }
    for name, call in calls.items():
        cold, _ = timed(call, asked)
        warm, found = timed(call, asked)
        kept = fulltext.RARE_ROWS, fulltext.COUNTED_ROWS
        fulltext.RARE_ROWS, fulltext.COUNTED_ROWS = 2**62, 2**62
        everything, wanted = timed(call, asked[:40])
        fulltext.RARE_ROWS, fulltext.COUNTED_ROWS = kept
        print(f"text    {name:26} new words {cold}")
        print(f"        {'':26} seen words {warm}")
        print(f"        {'':26} all words {everything}   top-10 overlap {overlap(found[:40], wanted):.3f}")


def vectors(store: Store, passages: int, queries: int) -> None:
    """Vector writes, the index, searches and their recall."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((CLUSTERS, DIM)).astype(np.float32)
    matrix = centres[rng.integers(0, CLUSTERS, passages)] + rng.standard_normal((passages, DIM)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    store.spaces.put(Space("bench", "bench", DIM, variants=(Variant.TEXT,)))
    started = time.perf_counter()
    for first in range(0, passages, 500):
        ids = list(range(first + 1, min(first + 500, passages) + 1))
        store.vectors.put("bench", Variant.TEXT, ids, matrix[first : first + len(ids)])
    print(f"vectors put               {passages / (time.perf_counter() - started):,.0f} a second")
    report = store.vectors.build("bench")
    print(f"vectors build             {report.seconds:.1f} s for {report.indexed:,}")
    asked = list(
        matrix[rng.integers(0, passages, queries)] + 0.03 * rng.standard_normal((queries, DIM)).astype(np.float32)
    )
    asked = [(q / np.linalg.norm(q)).astype(np.float32) for q in asked]
    truth = [set((np.argsort(-(matrix @ q))[:10] + 1).tolist()) for q in asked]
    for name, where in {
        "all": EpisodeFilter(hidden_kinds=("note",)),
        "one of 50 projects": EpisodeFilter(projects=("project-7",)),
        "half the time": EpisodeFilter(since=START + timedelta(minutes=passages // 2)),
    }.items():
        times, found = timed(lambda q, where=where: store.vectors.nearest("bench", Variant.TEXT, q, 100, where), asked)
        print(f"vectors nearest, {name:20} {times}")
        if name == "all":
            recall = [len(t & {h.passage_id for h in f[:10]}) / 10 for t, f in zip(truth, found, strict=True)]
            print(f"vectors recall@10         {statistics.mean(recall):.3f}")


def written_again(store: Store, passages: int, queries: int) -> None:
    """Searches while new vectors wait for the index, and bringing the index up to date."""
    ids = list(range(1, passages // 10 + 1))
    held = np.stack(list(store.vectors.get("bench", Variant.TEXT, ids).values()))
    store.vectors.put("bench", Variant.TEXT, ids, held)
    asked = list(held[np.random.default_rng(2).integers(0, len(held), queries)])
    times, _ = timed(lambda q: store.vectors.nearest("bench", Variant.TEXT, q, 100, EpisodeFilter()), asked)
    print(f"vectors nearest, {len(ids):,} not in the index {times}")
    report = store.vectors.build("bench")
    started = time.perf_counter()
    recall = store.vectors.recall("bench")
    print(f"vectors build, the same   {report.seconds:.1f} s")
    print(f"vectors recall            {recall:.3f}, told in {time.perf_counter() - started:.1f} s")
    times, _ = timed(lambda _: store.vectors.progress("bench"), [None] * 20)
    print(f"vectors progress          {times}")


def main() -> None:
    """Fill a store in a temporary folder and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--logs", type=Path, default=Path(__file__).parents[1] / "../shared/data")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = open_sqlite(Path(folder) / "speed.db", Path(folder) / "index")
        texts, spent = fill(store, Corpus(words_of_logs(options.logs), seed=3), options.passages)
        print(f"passages put              {len(texts) / spent:,.0f} a second")
        text_search(store, texts, options.queries)
        times, _ = timed(lambda _: store.overview.counts(), [None] * 20)
        print(f"counts                    {times}")
        times, _ = timed(lambda _: store.episodes.page(EpisodeFilter(projects=("project-7",)), 20), [None] * 50)
        print(f"page of a project         {times}")
        vectors(store, len(texts), options.queries)
        written_again(store, len(texts), options.queries)
        times, _ = timed(lambda _: store.text.check(), [None] * 2)
        print(f"text check                {times}")
        print(f"database                  {(Path(folder) / 'speed.db').stat().st_size / 2**20:,.0f} MiB")
        store.close()


if __name__ == "__main__":
    main()
