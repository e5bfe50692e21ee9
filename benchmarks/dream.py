"""What a run of all detectors costs over a large memory: the first one, one when nothing is new, one after a session.

    python benchmarks/dream.py [--episodes 100000] [--notes 2000] [--texts 300] [--model] [--keep FOLDER]

The memory is made by `made_memory.py`. `--model` compares meanings with MiniLM; else words alone are compared. CPU is
that of this process with all its threads, in which the model runs, too. It dreams in a copy; `--keep`
keeps the memory for the next time. Then the answers of the service are timed.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import psutil
from made_memory import add_session, make_memory, templates
from many_sessions import timed
from proc import peak_mib
from service import sidecar

from anamnesis_pipeline.embeddings.base import Embedder
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.models import MINILM, find_model
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.proposals import DreamReport, Proposals
from anamnesis_pipeline.services.topic_edits import TopicEdits
from anamnesis_pipeline.services.topics import open_topics
from anamnesis_pipeline.services.wiring import open_pieces, open_pool_of, open_store
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

ASKED = 40
PROJECT = "acme/project-0"
"""The largest one."""
ADDRESSES = (
    "/api/proposals",
    "/api/dream",
    "/api/topics",
    f"/api/topics?project={PROJECT}",
    "/dashboard/review",
    "/dashboard/topics",
    f"/api/brief?project={PROJECT}&query=how do we deploy",
    "/api/context",
)
"""The last one is posted: the start of a session."""


def main() -> None:
    """Make the memory and measure."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--episodes", type=int, default=100_000)
    arguments.add_argument("--notes", type=int, default=2_000)
    arguments.add_argument("--texts", type=int, default=300)
    arguments.add_argument("--model", action="store_true", help="compare meanings, too")
    arguments.add_argument("--keep", type=Path, help="folder that keeps the memory for the next run")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=given.keep and given.keep.parent) as base:
        kept, home = (given.keep or Path(base)) / "made", Path(base) / "home"
        if not kept.exists():
            _, wall, _ = timed(lambda: make(kept, given.episodes, given.notes, given.texts))
            print(f"made in {wall:,.0f} s", flush=True)
        shutil.copytree(kept, home)
        settings = Settings(home=home, log_roots=(), machine="box")
        with closing(open_store(settings)) as store, _embedder(store, given.model) as embedder:
            topics = TopicEdits(store, open_topics(settings), "box")
            measure(store, Proposals(store, _writer(store, settings), topics, NOTHING_PRIVATE), settings, embedder)
        answers(home)


def make(home: Path, episodes: int, notes: int, texts: int) -> int:
    """Make the memory."""
    settings = Settings(home=home, log_roots=(), machine="box")
    with closing(open_store(settings)) as store:
        make_memory(store, _writer(store, settings), episodes, notes, texts)
        return store.overview.counts().episodes


def _writer(store: Store, settings: Settings) -> EpisodeWriter:
    return EpisodeWriter(store, open_redactor(settings).mask_text, open_pieces(), None)


@contextmanager
def _embedder(store: Store, is_wanted: bool) -> Iterator[Embedder | None]:
    if not is_wanted:
        yield None
        return
    space = find_model(MINILM, local_only=True).space()
    if not store.spaces.all():
        store.spaces.put(space)
        store.spaces.activate(space.key)
    with closing(open_pool_of(store, space, priority=Priority.QUERY)) as pool:
        pool.load()
        yield pool


def measure(store: Store, proposals: Proposals, settings: Settings, embedder: Embedder | None) -> None:
    """Dream three times; print a table."""
    counts = store.overview.counts()
    print(f"{counts.episodes:,} episodes, {counts.messages:,} messages, {len(store.projects.all())} projects")
    for name in ("first", "nothing new", "one more session"):
        if name == "one more session":
            made, number = templates(), counts.episodes
            source = next(each for each in store.files.sources() if each.folder == "-dev-0")
            add_session(store, made, source, 0, 10 * number + time.time_ns() % 10**9, timedelta())
        reports: list[DreamReport] = []
        _, wall, cpu = timed(lambda found=reports: len(found.append(proposals.dream(settings, embedder)) or found))
        proposed = {kind: each.new + each.renewed + each.reopened for kind, each in reports[0].proposed.items()}
        print(f"{name}: {cpu:,.1f} s of CPU, {wall:,.1f} s; read {reports[0].observed:,}, proposed {proposed}")
        print(f"  problems {reports[0].problems}, at most {peak_mib():,.0f} MiB", flush=True)
    print(f"observations {store.observations.counts()}", flush=True)


def answers(home: Path) -> None:
    """Time the service over this memory; print a table. The first answer counts apart."""
    print("| address | first, ms | p50 | p95 | CPU, ms each | KB |\n|---|---|---|---|---|---|")
    with sidecar(home) as base, httpx.Client(base_url=base, timeout=600) as client:
        (service,) = psutil.Process().children()
        for path in ADDRESSES:
            times, before = list[float](), 0.0
            for asked in range(ASKED + 1):
                before = sum(service.cpu_times()[:2]) if asked == 1 else before
                began = time.perf_counter()
                reply = client.get(path) if path != ADDRESSES[-1] else client.post(path, json={"project": PROJECT})
                times.append((time.perf_counter() - began) * 1000)
                reply.raise_for_status()
            cpu = (sum(service.cpu_times()[:2]) - before) * 1000 / ASKED
            p95 = statistics.quantiles(times[1:], n=20)[18]
            print(
                f"| `{path}` | {times[0]:.0f} | {statistics.median(times[1:]):.0f} | {p95:.0f} | {cpu:.0f} "
                f"| {len(reply.content) / 1000:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
