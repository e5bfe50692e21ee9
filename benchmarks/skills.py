"""Whether lessons and procedures come when needed: 24 made ones, two prompts that call for each, 200 prompts on
other people's work, and 200 that the shared logs answer.

    python benchmarks/skills.py [--home FOLDER]

`GET /api/skills` answers each prompt, in the memory of `silence.py` with the 24 posted, then with the lessons in a
`lessons.md` instead. `any`: it has at least one;
`right`: the one meant is among them; `items`: mean number, `most`: the largest. Then the share of context blocks of 400
tokens that are not empty, as of hooks in a folder of the project, before and after posting. Needs ../shared/data.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from service import environment, sidecar
from silence import indexed_home, read_prompts, told

from anamnesis_pipeline.knowledge.topic_files import with_entry
from anamnesis_pipeline.knowledge.topic_store import project_folder

SKILLS = Path(__file__).parent / "data/skills.jsonl"


def post(client: httpx.Client, cwd: str) -> tuple[list[dict[str, Any]], str]:
    """Post the skills, and wait for their vectors. Return each with its `episode_id`, and the project of the folder."""
    project = client.get("/api/projects/current", params={"cwd": cwd}).raise_for_status().json()["project"]
    rows = [json.loads(line) for line in SKILLS.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        body = {"summary": row["text"], "kind": row["type"], "instance": "bench", "project": project}
        row["episode_id"] = client.post("/api/episodes", json=body).raise_for_status().json()["episode_id"]
    while (found := client.get("/ready").json()["coverage"])["embedded"] < found["stored"]:
        time.sleep(0.2)
    return rows, project


def write_lessons(home: Path, rows: Sequence[dict[str, Any]], project: str) -> None:
    """Write the lessons into the topics of the home, and read them."""
    file, text = home / "topics" / project_folder(project) / "lessons.md", ""
    for row in rows:
        text = with_entry(text, "lessons", "", row["text"])
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    env = environment(home, ANAMNESIS_LOG_ROOTS=str(home / "none"))
    subprocess.run([Path(sys.executable).with_name("anamnesis"), "ingest"], env=env, capture_output=True, check=True)


def report(client: httpx.Client, name: str, prompts: Sequence[tuple[str, str]], project: str) -> None:
    """Ask for the skills of each prompt, given with the id or text of the one meant, and print a line."""
    found, took = list[list[str]](), list[float]()
    for prompt, _ in prompts:
        started = time.perf_counter()
        reply = client.get("/api/skills", params={"query": prompt[:9_000], "project": project}).raise_for_status()
        took.append(time.perf_counter() - started)
        items = reply.json()["items"]
        assert bool(items) == (reply.json()["reason"] is None)
        found.append([each[name] for each in items for name in ("episode_id", "text")])
    n = len(prompts)
    right = sum(meant in its for (_, meant), its in zip(prompts, found, strict=True)) / n
    print(
        f"{name:16} {n:>4} {sum(map(bool, found)) / n:>7.1%} {right:>7.1%}"
        f" {sum(map(len, found)) / 2 / max(1, sum(map(bool, found))):>6.2f} {max(map(len, found)) // 2:>5}"
        f" {statistics.median(took) * 1000:>6.0f} ms"
    )


def fired(client: httpx.Client, prompts: Sequence[dict[str, Any]]) -> str:
    """Return the share of prompts whose block has text, and the median time, by kind."""
    shares = []
    for kind in ("related", "unrelated", "absent"):
        its, took, count = [row for row in prompts if row["kind"] == kind], list[float](), 0
        for row in its:
            started = time.perf_counter()
            count += bool(told(client, row["prompt"], row["cwd"]))
            took.append(time.perf_counter() - started)
        shares.append(f"{kind} {count / len(its):.1%} ({statistics.median(took) * 1000:.0f} ms)")
    return ", ".join(shares)


def main() -> None:
    """Index, serve, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="folder that keeps the memory without the skills")
    args = parser.parse_args()
    prompts = read_prompts()
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary) / "copy"
        shutil.copytree(indexed_home(args.home or Path(temporary)), home)
        with sidecar(home) as base, httpx.Client(base_url=base, timeout=60) as client:
            print("blocks before:", fired(client, prompts))
            skills, project = post(client, prompts[0]["cwd"])
            print(f"{'':16} {'n':>4} {'any':>7} {'right':>7} {'items':>6} {'most':>5} {'median':>9}")
            for split in ("dev", "test"):
                meant = [(p, row["episode_id"]) for row in skills if row["split"] == split for p in row["prompts"]]
                report(client, f"called for {split}", meant, project)
            for kind in ("unrelated", "related"):
                report(client, kind, [(row["prompt"], "") for row in prompts if row["kind"] == kind], project)
            print("blocks after: ", fired(client, prompts))
        home = Path(temporary) / "again"
        shutil.copytree(indexed_home(args.home or Path(temporary)), home)
        lessons = [row for row in skills if row["type"] == "lesson"]
        write_lessons(home, lessons, project)
        with sidecar(home) as base, httpx.Client(base_url=base, timeout=60) as client:
            meant = [(prompt, row["text"]) for row in lessons for prompt in row["prompts"]]
            report(client, "of lessons.md", meant, project)
            report(client, "unrelated", [(row["prompt"], "") for row in prompts if row["kind"] == "unrelated"], project)


if __name__ == "__main__":
    main()
