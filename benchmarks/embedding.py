"""The embedding pool against the usual design, against the machine's matrix products, and beside queries.

    python benchmarks/embedding.py [--rounds 3] [--part speed|share|queries|threads]

Texts are the passages of ../shared/data/claude_logs, in both variants. Designs take turns, round after round, on the
same texts and cores, and the best round of each counts: the machine may be shared. Prints tables in Markdown.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import torch
from embedding_designs import (
    Vectors,
    as_they_come,
    by_tokens,
    encode,
    one_by_one,
    sorted_by_length,
    table,
)
from embedding_share import share
from proc import cpu_ticks, last_core_of, pinned_to, resident_mib
from sentence_transformers import SentenceTransformer
from service import SHARED
from transformers.utils.logging import disable_progress_bar

from anamnesis_pipeline.embeddings.cores import Priority, available_cores
from anamnesis_pipeline.embeddings.models import MINILM, choose_precision, find_model
from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.wiring import discover_sources, open_pipeline, open_pool, open_store, wanted_space
from anamnesis_pipeline.settings import Settings

MIXED_TEXTS = 120
WINDOW_TEXTS = 32
WARM_UP_TEXTS = 4_000
"""oneDNN keeps a kernel for each size of batch it meets; by then it has met them all."""
QUESTIONS = ("why did webhook retries charge twice", "where do we keep the queue now", "fix for database is locked")
CORES = available_cores()


def passages() -> list[str]:
    """Every distinct text that a space of the shared logs embeds."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder) / "home", log_roots=(SHARED / "data/claude_logs/projects",))
        with closing(open_store(settings)) as store:
            sources = discover_sources(settings).sources
            ingest_all(open_pipeline(settings, store), sources)
            space = wanted_space(settings, store)
            found = store.vectors.pending(space.key, [source.key for source in sources], 1_000_000)
            stored = [passage.passage for episode in found for passage in episode.passages]
    return list(dict.fromkeys(text for passage in stored for text in (passage.text, passage.with_context)))


def full_windows(texts: Sequence[str], count: int, pieces: int = 254) -> list[str]:
    """Texts that fill the model's window to the last piece."""
    made = []
    for first in range(0, 12 * count, 12):
        text = " ".join(texts[first : first + 12])
        end = minilm_pieces().spans([text])[0][pieces - 1][1]
        made.append(text[:end])
    return made


def lengths_of(texts: Sequence[str]) -> list[int]:
    """Word pieces of each text, special ones included."""
    return [len(spans) + 2 for spans in minilm_pieces().spans(texts)]


@contextmanager
def pool_of(priority: Priority = Priority.LIVE, cores: Sequence[int] = ()) -> Iterator[PinnedPool]:
    """MiniLM in a loaded pool."""
    settings = Settings(embed_cores=tuple(cores))
    space = find_model(MINILM).space(precision=choose_precision("auto"))
    with closing(open_pool(settings, space, priority=priority)) as pool:
        pool.load()
        yield pool


def plain(precision: torch.dtype) -> SentenceTransformer:
    """MiniLM as sentence-transformers runs it."""
    return SentenceTransformer(str(find_model(MINILM).path), device="cpu", local_files_only=True).to(precision).eval()


# --- speed: against the usual design --------------------------------------------------------------

Design = Callable[[], tuple[float, Vectors]]


def designs(texts: Sequence[str], pool: PinnedPool, single: PinnedPool) -> dict[str, Design]:
    """From the usual design, one change at a time, to the pool; then what threads are worth."""
    fp32, bf16, lengths = plain(torch.float32), plain(torch.bfloat16), lengths_of(texts)

    def timed(pool: PinnedPool) -> tuple[float, Vectors]:
        begun = time.perf_counter()
        vectors = pool.embed(texts, "passage")
        return time.perf_counter() - begun, vectors

    return {
        "usual: pinned workers, one text a call, fp32": lambda: encode(fp32, texts, one_by_one(texts), CORES),
        "+ 16 texts a call": lambda: encode(fp32, texts, as_they_come(texts), CORES),
        "+ sorted by length": lambda: encode(fp32, texts, sorted_by_length(lengths), CORES),
        "+ cut by tokens": lambda: encode(fp32, texts, by_tokens(lengths), CORES),
        "+ bf16": lambda: encode(bf16, texts, by_tokens(lengths), CORES),
        "the pool: + blocks of 16, masks once, lean layers": lambda: timed(pool),
        "the pool with one worker": lambda: timed(single),
        "usual, every worker with a torch thread for every core": lambda: encode(
            fp32, texts, one_by_one(texts), CORES, threads_each=len(CORES)
        ),
    }


def speed(texts: Sequence[str], rounds: int) -> None:
    """Throughput of every design on mixed passages, and of two on full windows."""
    mixed, full = random.Random(1).sample(texts, MIXED_TEXTS), full_windows(texts, WINDOW_TEXTS)
    with pool_of() as pool, pool_of(cores=CORES[:1]) as single:
        of_mixed = designs(mixed, pool, single)
        of_full = {n: d for n, d in designs(full, pool, single).items() if n.startswith(("usual: ", "the pool: "))}
        best: dict[str, float] = defaultdict(lambda: float("inf"))
        made: dict[str, Vectors] = {}
        for _ in range(rounds):
            for kind, chosen in (("mixed ", of_mixed), ("full ", of_full)):
                for name, design in chosen.items():
                    seconds, made[kind + name] = design()
                    best[kind + name] = min(best[kind + name], seconds)
    for kind, chosen, count in (("mixed ", of_mixed, MIXED_TEXTS), ("full ", of_full, WINDOW_TEXTS)):
        usual = kind + next(iter(chosen))
        rows, before = [], best[usual]
        for name in chosen:
            seconds = best[kind + name]
            cosine = np.sum(made[kind + name] * made[usual], axis=1).min()
            rows.append(
                [
                    name,
                    f"{count / seconds:.1f}",
                    f"{best[usual] / seconds:.2f}",
                    f"{before / seconds:.2f}",
                    f"{cosine:.5f}",
                ]
            )
            before = seconds
        heading = f"{'mixed passages' if kind == 'mixed ' else 'full windows'}, {len(CORES)} cores"
        table([heading, "texts/s", "x usual", "x row above", "lowest cosine"], rows)


# --- queries beside a re-embed in another process -------------------------------------------------


def queries(texts: Sequence[str], rounds: int) -> None:
    """A query's embedding, alone and beside a process that embeds passages as fast as it can on the same cores."""
    spent: dict[str, list[float]] = defaultdict(list)
    with (
        pool_of(Priority.QUERY) as pool,
        reembedding(texts, Priority.BACKGROUND) as idle_only,
        reembedding(texts, Priority.QUERY) as as_equals,
    ):
        beside = {"alone": None, "beside a re-embed": idle_only, "beside one of equal rank": as_equals}
        for _ in range(rounds):
            for name, process in beside.items():
                with going_on(process):
                    spent[name] += [ask(pool, number) for number in range(80)]
    alone = statistics.quantiles(spent["alone"], n=20)[18]
    rows = []
    for name, times in spent.items():
        p95 = statistics.quantiles(times, n=20)[18]
        rows.append([name, f"{statistics.median(times):.1f}", f"{p95:.1f}", f"{p95 / alone:.2f}"])
    table(["a query's embedding", "p50 ms", "p95 ms", "p95 x alone"], rows)


def ask(pool: PinnedPool, number: int) -> float:
    """Milliseconds of one query, after a pause as people make."""
    time.sleep(0.02)
    begun = time.perf_counter()
    pool.embed([f"{QUESTIONS[number % 3]} {number}"], "query")
    return 1000 * (time.perf_counter() - begun)


@contextmanager
def reembedding(texts: Sequence[str], priority: Priority) -> Iterator["subprocess.Popen[str]"]:
    """A process that embeds these texts over and over whenever it is told to go on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(list(texts[:2000])), encoding="utf-8")
        command = [sys.executable, __file__, "--part", "reembed", "--texts", str(path), "--priority", priority.value]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while "ready" not in process.stdout.readline():
                pass
            try:
                yield process
            finally:
                process.kill()


@contextmanager
def going_on(process: "subprocess.Popen[str] | None") -> Iterator[None]:
    if process is None:
        yield
        return
    assert process.stdin is not None
    assert process.stdout is not None
    for word in ("go", "stop"):
        process.stdin.write(word + "\n")
        process.stdin.flush()
        process.stdout.readline()
        if word == "go":
            yield


def reembed(texts: Sequence[str], priority: Priority) -> None:
    """The other process."""
    busy, idle = threading.Event(), threading.Event()
    idle.set()

    def obey() -> None:
        for word in sys.stdin:
            (busy.set if word.strip() == "go" else busy.clear)()
            if word.strip() == "stop":
                idle.wait()
            print(word.strip(), flush=True)
        os._exit(0)

    with pool_of(priority) as pool:
        pool.embed(texts[:64], "passage")
        print("ready", flush=True)
        threading.Thread(target=obey, daemon=True).start()
        for first in range(0, sys.maxsize, 100):
            busy.wait()
            idle.clear()
            pool.embed(texts[first % 1900 : first % 1900 + 100], "passage")
            idle.set()


# --- threads, cores and memory --------------------------------------------------------------------


def threads(texts: Sequence[str]) -> None:
    """With one core set nothing embeds elsewhere; over 10,000 passages neither threads nor memory grow."""
    many = [texts[n % len(texts)] for n in range(WARM_UP_TEXTS + 10_000)]
    core = CORES[-1]
    with pool_of(cores=[core]) as pool:
        pool.embed(many[:WARM_UP_TEXTS], "passage")
        before, counts, sizes, seen = cpu_ticks(), [], [], set()
        for first in range(WARM_UP_TEXTS, len(many), 500):
            pool.embed(many[first : first + 500], "passage")
            counts.append(len(os.listdir("/proc/self/task")))
            sizes.append(resident_mib())
            seen.add(last_core_of("embed-0"))
        spent = {tid: ticks - before.get(tid, 0) for tid, ticks in cpu_ticks().items()}
    free = sum(ticks for tid, ticks in spent.items() if tid not in pinned_to(core, spent))
    rows = [
        ["cores that the worker was seen on", sorted(seen)],
        ["CPU time of threads pinned to that core", f"{(sum(spent.values()) - free) / 100:.1f} s"],
        ["CPU time of all other threads (the caller)", f"{free / 100:.1f} s"],
        ["threads after 500, 10,000 texts", f"{counts[0]}, {counts[-1]} (most {max(counts)})"],
        ["resident MiB after 500, 5,000, 10,000 texts", f"{sizes[0]:.0f}, {sizes[9]:.0f}, {sizes[-1]:.0f}"],
        ["most resident MiB", f"{max(sizes):.0f}"],
    ]
    table([f"10,000 passages with cores = [{core}], after {WARM_UP_TEXTS:,} others", ""], rows)


def main() -> None:
    """All parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parts = ["speed", "share", "queries", "threads", "reembed"]
    parser.add_argument("--part", choices=parts, help="the last one is another process of this file")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--priority", default="background")
    args = parser.parse_args()
    disable_progress_bar()
    if args.part == "reembed":
        return reembed(json.loads(args.texts.read_text(encoding="utf-8")), Priority(args.priority))
    texts = passages()
    begun = time.perf_counter()
    pieces = statistics.mean(lengths_of(texts[:1000]))
    print(f"{len(texts):,} distinct texts of {pieces:.0f} word pieces; {len(CORES)} cores")
    for name, part in {"speed": speed, "share": share, "queries": queries}.items():
        if args.part in (None, name):
            part(texts, args.rounds)
    if args.part == "threads":
        threads(texts)
    elif args.part is None:  # in a process of its own: the parts above leave threads that end when they like
        subprocess.run([sys.executable, __file__, "--part", "threads"], check=True)
    print(f"\n{time.perf_counter() - begun:.0f} s")
    return None


if __name__ == "__main__":
    main()
