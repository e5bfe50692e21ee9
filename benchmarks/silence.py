"""How often context is given: 200 prompts that the shared logs answer, 200 that have nothing to do with them, and 84
questions on what they are about, but for something that is not in them.

    python benchmarks/silence.py [--home FOLDER] [--no-cwd] [--floor COSINE] [--search] [--scores OUT]

Each prompt goes to `POST /api/context`, as the hook of a client in a folder of that project would send it, unrelated
ones too (`--no-cwd`: from nowhere in particular), and to the search, to see the scores of its best hit and whether the
first five name a message that answers (others may, too). `found`: the search answers anything (at `--floor`, if given),
without the nearest that it shows where nothing answers. With `--search`, or where there is no such route, that counts
as fired. `told` is the share of blocks that quote an episode with that message; `sure` the median confidence of those
that are answered. Last come the words beside first hits, and what
they tell of questions for what is absent. Tune on the dev half only. `--home` keeps the indexed memory
for the next run. Needs ../shared/data.
"""

import argparse
import itertools
import json
import math
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from claude_qa import index
from service import SHARED, need_shared, sidecar

from anamnesis_pipeline.settings import Settings

PROMPTS = Path(__file__).parent / "data/prompts.jsonl"
ABSENT = Path(__file__).parent / "data/absent.jsonl"
LOGS = SHARED / "data/claude_logs/projects"
CONTEXT_TOKENS = 400
"""What a hook asks for at each prompt."""


def read_prompts() -> list[dict[str, Any]]:
    """Every prompt with its `kind`: related, unrelated or absent."""
    prompts = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    absent = [json.loads(line) for line in ABSENT.read_text(encoding="utf-8").splitlines()]
    kinds = ["related" if row["related"] else "unrelated" for row in prompts] + ["absent"] * len(absent)
    return [row | {"kind": kind} for row, kind in zip([*prompts, *absent], kinds, strict=True)]


def copy_logs(target: Path) -> None:
    """All shared sessions, without the compaction agents' files."""
    need_shared()
    shutil.copytree(LOGS, target, ignore=shutil.ignore_patterns("agent-acompact-*"))


def indexed_home(folder: Path) -> Path:
    """The home of a memory that holds the logs, made in `folder` unless it is there."""
    home, done = folder / "home", folder / "indexed"
    if not done.exists():
        shutil.rmtree(folder / "logs", ignore_errors=True)
        copy_logs(folder / "logs")
        index(Settings(home=home, log_roots=(folder / "logs",)))
        done.touch()
    return home


def has_context(client: httpx.Client) -> bool:
    """Whether the sidecar has the route."""
    return client.post("/api/context", json={"query": "anything", "max_tokens": 0}).status_code != httpx.codes.NOT_FOUND


def told(client: httpx.Client, prompt: str, cwd: str | None) -> list[str]:
    """The episodes in the context that the prompt is given."""
    reply = client.post("/api/context", json={"query": prompt, "max_tokens": CONTEXT_TOKENS, "cwd": cwd})
    reply.raise_for_status()
    return list(reply.json()["episodes"])


def answers(client: httpx.Client, episode_id: str, uuids: Sequence[str]) -> bool:
    """Whether an episode holds one of these messages."""
    reply = client.get(f"/api/episodes/{episode_id}")
    reply.raise_for_status()
    return bool({*uuids} & {*reply.json()["source"]["message_ids"]})


def search(client: httpx.Client, prompt: str, floor: float | None) -> list[dict[str, Any]]:
    """The first five hits, with the parts of their scores; none where the search itself calls nothing an answer."""
    body = {"query": prompt, "top_k": 5, "explain": True, "track": False, "min_score": floor, "weak": False}
    reply = client.post("/api/episodes/search", json=body)
    reply.raise_for_status()
    return list(reply.json()["results"])


def ask(client: httpx.Client, row: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """The prompt's row with what came of it: `fired`, `answered` and the parts of the best hit's score."""
    hits = search(client, row["prompt"], asked.floor)
    top = hits[0] if hits else {}
    explained = top.get("explanation") or {}
    block = [] if asked.search else told(client, row["prompt"], row["cwd"] if asked.cwd else None)
    return row | {
        "found": bool(hits),
        "fired": bool(hits if asked.search else block),
        "told": any(answers(client, episode_id, row.get("uuids", ())) for episode_id in block),
        "answered": any({*row.get("uuids", ())} & {*hit["source"]["message_ids"]} for hit in hits),
        "score": top.get("score"),
        "cosine": top.get("similarity_score"),
        "cosines": [hit["similarity_score"] for hit in hits],
        "components": explained,
        "word": top.get("confidence", "none"),
        "sure": explained.get("stages", {}).get("confidence"),
        "excerpt": top.get("excerpt", "")[:200],
    }


def median(rows: Sequence[dict[str, Any]], key: str) -> str:
    """The median of what is there, as text."""
    values = [row[key] for row in rows if row[key] is not None]
    return f"{statistics.median(values):.3f}" if values else "-"


def report(rows: Sequence[dict[str, Any]]) -> None:
    """A line for each kind of prompt and split."""
    columns = " ".join(f"{name:>7}" for name in ("found", "fired", "told", "in five", "score", "cosine", "sure"))
    print(f"{'':14} {'n':>4} {columns}   (the last three: medians)")
    for kind, split in itertools.product(("related", "unrelated", "absent"), ("dev", "test", "")):
        part = [row for row in rows if row["kind"] == kind and split in ("", row["split"])]
        shares = "".join(f"{sum(row[key] for row in part) / len(part):>8.1%}" for key in ("found", "fired", "told"))
        answered = f"{sum(row['answered'] for row in part) / len(part):.1%}" if kind == "related" else "-"
        medians = " ".join(f"{median(part, key):>7}" for key in ("score", "cosine", "sure"))
        print(f"{kind} {split or 'all':<{13 - len(kind)}} {len(part):>4}{shares} {answered:>7} {medians}")


def report_words(rows: Sequence[dict[str, Any]]) -> None:
    """What the word beside a first hit is worth: a line for each and each split."""
    print("first hits called so, of prompts that the logs answer, on other people's work, and with the answer in five")
    for word, split in itertools.product(("strong", "fair", "weak"), ("dev", "test")):
        part = [row for row in rows if row["word"] == word and row["split"] == split]
        shares = [
            sum(told) / max(1, len(part))
            for told in (
                [row["kind"] == "related" for row in part],
                [row["kind"] == "unrelated" for row in part],
                [row["answered"] for row in part],
            )
        ]
        print(f"{word:6} {split:<7} {len(part):>4}" + "".join(f"{share:>8.1%}" for share in shares))


def report_absent(rows: Sequence[dict[str, Any]]) -> None:
    """How often nothing, or a weak hit, comes first; then the share of questions for what is absent that would be weak
    if a share of the related ones was, by the confidence in the whole answer.
    """
    print("nothing, or a weak hit, first; then at these shares of related prompts")
    at = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
    print(f"{'':7}" + "".join(f"{name:>11}" for name in ("related", "unrelated", "absent", *at)))
    for split in ("dev", "test"):
        part = [row for row in rows if row["split"] == split]
        kinds = {name: [row for row in part if row["kind"] == name] for name in ("related", "unrelated", "absent")}
        now = [sum(row["word"] in ("none", "weak") for row in its) / len(its) for its in kinds.values()]
        sure = {name: [-math.inf if row["sure"] is None else row["sure"] for row in its] for name, its in kinds.items()}
        floors = [sorted(sure["related"])[int(share * len(sure["related"]))] for share in at]
        curve = [sum(each < floor for each in sure["absent"]) / len(sure["absent"]) for floor in floors]
        print(f"{split:7}" + "".join(f"{share:>11.1%}" for share in (*now, *curve)))


def main() -> None:
    """Index, serve, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, help="folder that keeps the memory (default: thrown away)")
    parser.add_argument("--no-cwd", dest="cwd", action="store_false", help="send no working directory")
    parser.add_argument("--floor", type=float, help="min_score of the searches")
    parser.add_argument("--search", action="store_true", help="ask the search, not the context route")
    parser.add_argument("--scores", type=Path, help="also write each prompt with its best hit's scores here")
    args = parser.parse_args()
    prompts = read_prompts()
    with tempfile.TemporaryDirectory() as temporary:
        home = indexed_home(args.home or Path(temporary))
        with sidecar(home) as base, httpx.Client(base_url=base, timeout=60) as client:
            args.search = args.search or not has_context(client)
            print(
                "fired:", f"the search finds any, floor {args.floor}" if args.search else "POST /api/context gives text"
            )
            rows = [ask(client, row, args) for row in prompts]
    report(rows)
    report_words(rows)
    report_absent(rows)
    if args.scores:
        args.scores.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
