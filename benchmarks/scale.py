"""What a memory of a size costs: a search in all projects, in one, with decay; tokens of five results; memory, disk.

    python benchmarks/scale.py [--episodes 3354 30000 100000] [--store sqlite|mongo] [--home FOLDER]

Episodes are made as in search_speed.py: five passages of 100 words, vectors of two variants, token vectors. Runs of
words from the logs, other ones each time, are asked in all projects, in one of 50, and with decay, in turn. Tokens are
the characters of five summaries and excerpts by four, as the scorer of ../shared/bench counts them. Memory is the
service's own (PSS), mapped pages of files included; disk is the whole home. `--home` keeps the memories in SQLite for
the next run. `mongo` is the server of the tests, in Python and in another process: how fast it is says nothing about
MongoDB, and its disk is not told.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from search_speed import fill_all
from service import SHARED, sidecar
from store_speed import PASSAGES_PER_EPISODE, words_of_logs

from anamnesis_pipeline.settings import Settings

QUESTIONS = 100
WAYS = {"all": {}, "one of 50 projects": {"project": "project-7"}, "decay": {"decay": "multiplicative"}}


@contextmanager
def server_of(store: str, data: Path) -> Iterator[None]:
    """Let services use this store; for `mongo` start a server that keeps what it holds in `data`."""
    os.environ["ANAMNESIS_STORE"] = store
    if store == "sqlite":
        yield
        return
    command = [sys.executable, "-m", "anamnesis_tests.support.mongo_server", "--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        os.environ["ANAMNESIS_MONGO_URI"] = server.stdout.readline().strip()
        try:
            yield
        finally:
            server.terminate()


def ask(base: str, runs: Iterator[str]) -> dict[str, tuple[float, float, float]]:
    """Return way -> p50 and p95 in milliseconds at the client, and the median tokens of five results."""
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    tokens: dict[str, list[float]] = {way: [] for way in WAYS}
    with httpx.Client(base_url=base, timeout=120) as client:
        for _ in range(QUESTIONS):
            for way, more in WAYS.items():
                body = {"query": next(runs), "top_k": 5, "track": False} | more
                started = time.perf_counter()
                reply = client.post("/api/episodes/search", json=body)
                spent[way].append(1000 * (time.perf_counter() - started))
                hits = reply.raise_for_status().json()["results"]
                tokens[way].append(sum(len(hit["summary"]) + len(hit["excerpt"]) for hit in hits) / 4)
    return {
        way: (statistics.median(each), statistics.quantiles(each, n=20)[18], statistics.median(tokens[way]))
        for way, each in spent.items()
    }


def service_mib() -> float:
    """Memory of the service that this process started."""
    (service,) = [each for each in psutil.Process().children() if "anamnesis_pipeline.sidecar" in each.cmdline()]
    return float(service.memory_full_info().pss) / 2**20


def main() -> None:
    """Print a row per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, nargs="+", default=[3_354, 30_000, 100_000])
    parser.add_argument("--store", choices=("sqlite", "mongo"), default="sqlite")
    parser.add_argument("--home", type=Path, help="folder that keeps the memories in SQLite (default: thrown away)")
    args = parser.parse_args()
    if args.home and args.store == "mongo":
        parser.error("--home keeps memories in SQLite only")
    words = words_of_logs(SHARED / "data")
    starts = random.Random(5).sample(range(len(words) - 10), len(WAYS) * QUESTIONS)
    rows = []
    for episodes in args.episodes:
        with tempfile.TemporaryDirectory() as folder, server_of(args.store, Path(folder, "data")):
            settings = Settings(home=(args.home or Path(folder)) / str(episodes))
            fill_all(settings, words, PASSAGES_PER_EPISODE * episodes)
            with sidecar(settings.home, timeout_s=600) as base:
                asked = ask(base, (" ".join(words[start : start + 10]) for start in starts))
                memory = service_mib()
            disk = sum(path.stat().st_size for path in settings.home.rglob("*") if path.is_file()) / 1e6
        row = [f"{episodes:,}", *(f"{p50:.0f} / {p95:.0f}" for p50, p95, _ in asked.values()), f"{asked['all'][2]:.0f}"]
        row += [f"{memory:.0f}", f"{1000 * memory / episodes:.1f}"]
        rows.append(row + ([f"{disk:,.0f}", f"{1000 * disk / episodes:.1f}"] if args.store == "sqlite" else ["-", "-"]))
    heads = ["episodes", *(f"{way}, p50 / p95 ms" for way in WAYS), "tokens of five results"]
    heads += ["service, MiB", "a thousand, MiB", "disk, MB", "a thousand, MB"]
    for row in [heads, ["---"] * len(heads), *rows]:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
