"""Does a question in another language find its episode? Made memories in Chinese, Japanese, German, French and Spanish.

    python benchmarks/languages.py [--part dev held] [--language LANGUAGE ...] [--together] [--model MODEL] [--show]

The episodes of each file of data/languages are posted into a fresh memory (`--together`: all into one, with 200 English
texts of the shared prompts), then its questions are asked over HTTP. Types: `inflected` uses other forms of the words,
`semantic` other words, `exact` a literal, `short` one to four words. Prints hit@1, hit@5 and MRR@10 by part, type and
language. `--model`: an embedding model by hub id or path, instead of MiniLM. Tune on the dev half only.
"""

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from service import sidecar, wait_embedded

DATA = Path(__file__).parent / "data"
LANGUAGES = ("zh", "ja", "de", "fr", "es")
TOP_K = 10
ENGLISH = 200


def read(language: str) -> dict[str, Any]:
    """Return the episodes and questions of a language."""
    found: dict[str, Any] = json.loads((DATA / f"languages/{language}.json").read_text(encoding="utf-8"))
    return found


def english() -> list[dict[str, Any]]:
    """Return English texts as episodes."""
    lines = (DATA / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["prompt"] for line in lines][:ENGLISH]
    return [{"id": f"en-{number}", "prompt": text, "answer": "", "project": "en"} for number, text in enumerate(texts)]


def post(client: httpx.Client, episodes: Sequence[dict[str, Any]]) -> None:
    """Post each episode as a prompt with its answer."""
    for episode in episodes:
        body = {
            "episode_id": episode["id"],
            "summary": episode["prompt"],
            "raw_exchange": f"User: {episode['prompt']}\n\nAssistant: {episode['answer']}",
            "instance": "languages",
            "project": episode["project"],
            "timestamp": episode.get("at", "2026-01-05T09:00:00Z"),
        }
        client.post("/api/episodes", json=body).raise_for_status()


def ask(client: httpx.Client, question: dict[str, Any], *, show: bool) -> int:
    """Return the rank of the first gold episode, 0 if it is not among the first ten."""
    body = {"query": question["question"], "top_k": TOP_K, "track": False}
    hits = client.post("/api/episodes/search", json=body).raise_for_status().json()["results"]
    ranks = [rank for rank, hit in enumerate(hits, 1) if {hit["episode_id"], *hit["also"]} & {*question["gold"]}]
    if show and ranks[:1] != [1]:
        found = [hit["episode_id"] for hit in hits[:3]]
        print(f"  {question['type']} {question['question']!r}: {question['gold']} at {ranks[:1]}, first {found}")
    return ranks[0] if ranks else 0


def table(ranks: dict[tuple[str, str, str], list[int]]) -> None:
    """Print hit@1, hit@5 and MRR@10 of each part and language by type."""
    print("| | | | questions | hit@1 | hit@5 | MRR |\n|---|---|---|---|---|---|---|")
    for (part, language, kind), its in sorted(ranks.items()):
        hit1, hit5 = (sum(0 < rank <= most for rank in its) / len(its) for most in (1, 5))
        mrr = sum(1 / rank for rank in its if rank) / len(its)
        print(f"| {part} | {language} | {kind} | {len(its)} | {hit1:.2f} | {hit5:.2f} | {mrr:.3f} |")


def main() -> None:
    """Post, ask, score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", default=["dev"], choices=("dev", "held"))
    parser.add_argument("--language", nargs="+", choices=LANGUAGES, default=LANGUAGES)
    parser.add_argument("--together", action="store_true", help="one memory for all, with English texts")
    parser.add_argument("--model", help="the embedding model, instead of the built-in one")
    parser.add_argument("--show", action="store_true", help="print the questions whose episode is not first")
    args = parser.parse_args()
    if args.model:
        os.environ["ANAMNESIS_MODEL"] = args.model
    ranks: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for languages in [args.language] if args.together else [[each] for each in args.language]:
        with (
            tempfile.TemporaryDirectory() as folder,
            sidecar(Path(folder)) as base,
            httpx.Client(base_url=base, timeout=60, trust_env=False) as client,
        ):
            for language in languages:
                post(client, read(language)["episodes"])
            if args.together:
                post(client, english())
            wait_embedded(base)
            for language in languages:
                asked = [each for each in read(language)["questions"] if each["part"] in args.part]
                for question in sorted(asked, key=lambda each: str(each["type"])):
                    rank = ask(client, question, show=args.show)
                    for kind in (question["type"], "all"):
                        ranks[question["part"], language, kind].append(rank)
    table(ranks)


if __name__ == "__main__":
    main()
