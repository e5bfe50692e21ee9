"""Questions over real Claude Code logs: indexes them as `make up` would, then scores the HTTP answers.

    python benchmarks/claude_qa.py [--set conclusions|temporal|short] [--part dev|held] [--home FOLDER] [--json OUT]
        [--shown OUT]

The shared development questions over two sessions, or one half of a set of data/ over all of them: conclusions, reasons
and preferences; what came before, after, first and last; queries of one to four words. `--home`: a home that holds
these logs already. Tune on the dev halves only. Needs ../shared/data and ../shared/bench. Prints the scorer's table and
how long each step took. Then, of the questions that are answered in the first five, the share whose answer is shown: in
the excerpts, in what the MCP tool `search` says, and in a context block of 400 tokens.
"""

import argparse
import asyncio
import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
from service import SHARED, need_shared, sidecar

from anamnesis_pipeline.embeddings.base import query_vectors
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.pipeline.embed import embed_sources
from anamnesis_pipeline.search.levels import measure_level
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.wiring import discover_sources, open_pipeline, open_pool_of, open_store, wanted_space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.mcp.client import RemoteTools, open_http

BENCH = SHARED / "bench/claude_qa"
SESSIONS = ("258c7280", "4d5611e5")
"""Those that the shared questions are about."""
DATA = Path(__file__).parent / "data"
SETS = ("conclusions", "temporal", "short")
CONTEXT_TOKENS = 400
"""What a hook asks for at each prompt."""


def copy_haystack(target: Path, sessions: tuple[str, ...] = SESSIONS) -> None:
    """Copy the sessions whose names begin so, without the compaction agents' files."""
    need_shared()
    for session in (SHARED / "data").glob("claude_logs*/projects/*/*.jsonl"):
        if session.name.startswith(sessions):
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
        print(f"ingested in {time.monotonic() - started:.1f} s: {store.overview.counts()}")
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


def shown(base: str, questions: Path) -> list[dict[str, Any]]:
    """Of each question that is answered in the first five: where its gold quote is seen."""
    sys.path.insert(0, str(BENCH))
    score = importlib.import_module("score")
    lines = questions.read_text(encoding="utf-8").splitlines()
    rows = []
    with httpx.Client(base_url=base, timeout=60, trust_env=False) as client:
        for asked in map(json.loads, lines):
            body = {"query": asked["question"], "top_k": 5, "track": False}
            hits = client.post("/api/episodes/search", json=body).raise_for_status().json()["results"]
            if not any(score.hits(hit, gold) for hit in hits for gold in asked["gold"]):
                continue
            body = {"query": asked["question"], "max_tokens": CONTEXT_TOKENS}
            block = client.post("/api/context", json=body).raise_for_status().json()["text"]
            texts = {
                "excerpts": [hit["excerpt"] for hit in hits],
                "mcp": asyncio.run(mcp_hits(base, asked["question"])).split("\n"),
                "context": block.split("\n"),
            }
            seen = {
                name: any(score.contains(text, gold["quote"]) for text in found for gold in asked["gold"])
                for name, found in texts.items()
            }
            rows.append({"id": asked["id"], "seen": seen, **texts})
    return rows


async def mcp_hits(base: str, question: str) -> str:
    """What the tool `search` says."""
    async with open_http(base, None) as http:
        return await RemoteTools(http, base).call("search", {"query": question}, None)


def questions_of(name: str | None, part: str, folder: Path) -> Path:
    """Return the file with the questions: the shared ones, or one half of a set, put in `folder`."""
    if name is None:
        return BENCH / "dev.jsonl"
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    asked = folder / "questions.jsonl"
    asked.write_text("".join(line for line in lines if json.loads(line)["part"] == part), encoding="utf-8")
    return asked


def main() -> None:
    """Index, serve, score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=SETS, help="the set of data/ to ask, instead of the shared questions")
    parser.add_argument("--part", default="dev", choices=("dev", "held"), help="which half of it")
    parser.add_argument("--home", type=Path, help="a home with these logs, instead of indexing them")
    parser.add_argument("--json", type=Path, help="also write every question's row here")
    parser.add_argument("--shown", type=Path, help="also write here what each question was shown")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if args.home is None:
            copy_haystack(folder / "logs", ("",) if args.set else SESSIONS)
            index(Settings(home=folder / "home", log_roots=(folder / "logs",)))
        asked = questions_of(args.set, args.part, folder)
        with sidecar(args.home or folder / "home") as base:
            command = [sys.executable, BENCH / "score.py", "--base", base, "--qa", asked]
            subprocess.run([*map(str, command), *(["--json", str(args.json)] if args.json else [])], check=True)
            rows = shown(base, asked)
    for name in ("excerpts", "mcp", "context"):
        missed = [row["id"] for row in rows if not row["seen"][name]]
        count = len(rows) - len(missed)
        print(f"shown in {name}: {count} of {len(rows)} ({count / len(rows):.1%}), not: {', '.join(missed) or '-'}")
    if args.shown:
        args.shown.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
