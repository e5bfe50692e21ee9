"""Does the newer of two statements come first? 50 facts, each reversed later, among unrelated newer ones, over HTTP.

    python benchmarks/reversals.py [--pairs PAIRS] [--scores OUT]

Every statement is posted as an episode with its own date, the questions are asked over all of them. Tune on dev only,
and never on data/fact_pairs_held_out.jsonl.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from service import sidecar, wait_embedded

PAIRS = Path(__file__).parent / "data/fact_pairs.jsonl"
TOP = 10


def statements(pair: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Episode id -> statement."""
    unrelated = {f"{pair['id']}-unrelated{n}": said for n, said in enumerate(pair["unrelated"])}
    return {f"{pair['id']}-old": pair["old"], f"{pair['id']}-new": pair["new"]} | unrelated


def post_all(client: httpx.Client, pairs: Sequence[dict[str, Any]]) -> None:
    """Every statement, oldest first, as a client would post a session's outcome that day."""
    said = [
        (said["date"], episode_id, pair["project"], said["text"])
        for pair in pairs
        for episode_id, said in statements(pair).items()
    ]
    for date, episode_id, project, text in sorted(said):
        body = {"summary": text, "instance": "bench", "project": project, "episode_id": episode_id}
        client.post("/api/episodes", json=body | {"timestamp": f"{date}T15:00:00Z"}).raise_for_status()
    wait_embedded(str(client.base_url).rstrip("/"))


def ask(client: httpx.Client, pair: dict[str, Any]) -> dict[str, Any]:
    """The pair's row: ranks from 1 of the newer and the older one (None: not found), and what came first."""
    body = {"query": pair["question"], "top_k": TOP, "track": False, "explain": True}
    reply = client.post("/api/episodes/search", json=body)
    reply.raise_for_status()
    hits = reply.json()["results"]
    shown = [[hit["episode_id"], *hit["also"]] for hit in hits]
    rank = {episode_id: n for n, group in reversed(list(enumerate(shown, 1))) for episode_id in reversed(group)}
    place = {episode_id: n for n, episode_id in enumerate(i for group in shown for i in group)}
    new, old = f"{pair['id']}-new", f"{pair['id']}-old"
    scores = {hit["episode_id"]: [hit["score"], hit["similarity_score"]] for hit in hits}
    return {
        "id": pair["id"],
        "split": pair["split"],
        "question": pair["question"],
        "new": rank.get(new),
        "old": rank.get(old),
        "newer_first": new in place and place[new] < place.get(old, len(place)),
        "first": {new: "newer", old: "older"}.get(shown[0][0], "unrelated") if shown else "nothing",
        "scores": scores,
    }


def report(rows: Sequence[dict[str, Any]]) -> None:
    """A line for each split: where the newer one stands, and what is shown first."""
    firsts = ("newer", "older", "unrelated", "nothing")
    print(f"{'':6} {'n':>4} {'newer first':>12}" + "".join(f"{f'{first} 1st':>15}" for first in firsts))
    for split in ("dev", "test", ""):
        part = [row for row in rows if split in ("", row["split"])]
        newer = sum(row["newer_first"] for row in part) / len(part)
        shares = [sum(row["first"] == first for row in part) / len(part) for first in firsts]
        print(f"{split or 'all':6} {len(part):>4} {newer:>12.1%}" + "".join(f"{share:>15.1%}" for share in shares))


def main() -> None:
    """Serve an empty memory, post, ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, default=PAIRS, help="the statements and questions, as JSON lines")
    parser.add_argument("--scores", type=Path, help="also write every pair's row here, as JSON lines")
    args = parser.parse_args()
    pairs = [json.loads(line) for line in args.pairs.read_text(encoding="utf-8").splitlines()]
    with (
        tempfile.TemporaryDirectory() as folder,
        sidecar(Path(folder) / "home") as base,
        httpx.Client(base_url=base, timeout=60) as client,
    ):
        post_all(client, pairs)
        rows = [ask(client, pair) for pair in pairs]
    report(rows)
    if args.scores:
        args.scores.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
