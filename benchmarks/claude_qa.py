"""Questions over real Claude Code logs: indexes two sessions as `make up` would, then scores the HTTP answers.

    python benchmarks/claude_qa.py [--json OUT]

Needs ../shared/data and ../shared/bench. Prints the scorer's table and how long each step took.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from service import SHARED, sidecar

from anamnesis_pipeline.embeddings.base import query_vectors
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.search.levels import measure_level
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.steps.embeddings import embed_sources
from anamnesis_pipeline.steps.pipeline import ingest_all
from anamnesis_pipeline.wiring import discover_sources, open_pipeline, open_pool_of, open_store, wanted_space

SESSIONS = ("258c7280", "4d5611e5")


def copy_haystack(target: Path) -> None:
    """The sessions that the question set names, without the compaction agents' files."""
    for session in (SHARED / "data/claude_logs/projects").glob("*/*.jsonl"):
        if session.name.startswith(SESSIONS):
            folder = target / session.parent.name
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(session, folder)
            agents = session.with_suffix("")
            if agents.is_dir():
                shutil.copytree(agents, folder / agents.name, ignore=shutil.ignore_patterns("agent-acompact-*"))


def index(settings: Settings) -> None:
    """Everything that the pipeline does, in this process."""
    started = time.monotonic()
    with closing(open_store(settings)) as store:
        sources = discover_sources(settings).sources
        ingest_all(open_pipeline(settings, store), sources)
        print(f"ingested in {time.monotonic() - started:.1f} s: {store.ingest.counts()}")
        space = wanted_space(settings, store)
        with closing(open_pool_of(store, space, priority=Priority.QUERY)) as pool:
            pool.load()
            started = time.monotonic()
            keys = [source.key for source in sources]
            passages = embed_sources(store, space.key, keys, pool, settings.checkpoint_every).passages
            seconds = time.monotonic() - started
            measure_level(store, space, lambda text, _: query_vectors(pool.embed_with_tokens([text], "query")))
        print(f"embedded {passages} passages in {seconds:.1f} s ({passages / seconds:.0f} a second)")
        store.vectors.build(space.key)


def main() -> None:
    """Index, serve, score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write every question's row here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home, logs = Path(folder) / "home", Path(folder) / "logs"
        copy_haystack(logs)
        index(Settings(home=home, log_roots=(logs,)))
        with sidecar(home) as base:
            bench = SHARED / "bench/claude_qa"
            command = [sys.executable, bench / "score.py", "--base", base, "--qa", bench / "dev.jsonl"]
            subprocess.run([*map(str, command), *(["--json", str(args.json)] if args.json else [])], check=True)


if __name__ == "__main__":
    main()
