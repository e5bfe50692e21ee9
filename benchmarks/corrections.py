"""The numbers of `search/freshness.py`: what tells a correction of an older statement from what is true beside it?

    python benchmarks/corrections.py

40 facts (`data/corrections.jsonl`), each with what corrected it and two statements on the same thing that leave it
true, one of which tells of some change; and the 25 development pairs of `data/fact_pairs.jsonl` with what is unrelated
to them. Prints what each measure tells alone and a logistic regression, judged on facts it was not fitted to.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from service import sidecar, wait_embedded

from anamnesis_pipeline.embeddings.base import QueryVectors
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.search.freshness import Statement, measures
from anamnesis_pipeline.search.reranking import max_similarities
from anamnesis_pipeline.services.wiring import open_services
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.store.base import Store

FACTS, PAIRS = (Path(__file__).parent / "data" / name for name in ("corrections.jsonl", "fact_pairs.jsonl"))
PARTS = ("old", "corrected", "also0", "also1")
MEASURES = ("cosine", "answers", "names")
BOLDNESS = 3.0
"""What the service adds to the fitted constant: what is stale misleads, and what is true but second is still read."""
RIDGE = 0.5
"""Of the weights, over measures of unit variance."""


def load() -> list[dict[str, Any]]:
    """The facts, and the development pairs as facts."""
    facts = [json.loads(line) for line in FACTS.read_text(encoding="utf-8").splitlines()]
    pairs = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    return facts + [
        {"id": pair["id"], "question": pair["question"], "old": pair["old"]["text"], "corrected": pair["new"]["text"]}
        | {"also_true": [said["text"] for said in pair["unrelated"]]}
        for pair in pairs
        if pair["split"] == "dev"
    ]


def post_all(home: Path, facts: Sequence[dict[str, Any]]) -> None:
    """Every statement, as an episode of its own on a day of its own, in the order in which they were said."""
    with sidecar(home) as base, httpx.Client(base_url=base, timeout=60) as client:
        for month, part in enumerate(PARTS, 1):
            for n, fact in enumerate(facts):
                when = datetime(2025, 2 * month, 1 + n % 28, 9 + n // 28, tzinfo=UTC)
                text = fact["also_true"][int(part[-1])] if part.startswith("also") else fact[part]
                body = {"summary": text, "instance": "bench", "project": f"acme/p{n % 8}"}
                body |= {"episode_id": f"{fact['id']}-{part}", "timestamp": when.isoformat()}
                client.post("/api/episodes", json=body).raise_for_status()
        wait_embedded(base)


def read_all(home: Path, facts: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """Shape (facts, 3, measures): what corrected the old statement, and the two that did not, each against it."""
    services = open_services(Settings(home=home))
    try:
        space = services.store.spaces.active()
        if space is None:
            raise SystemExit("nothing was embedded: is the model there?")
        services.pool.load_in_background()
        while not services.pool.ready:
            time.sleep(0.1)
        asked = [services.pool.embed_query(fact["question"], space) for fact in facts]
        rows = [_measured(services.store, space, fact, vectors) for fact, vectors in zip(facts, asked, strict=True)]
        return np.array(rows)
    finally:
        services.close()


def _measured(store: Store, space: Space, fact: dict[str, Any], asked: QueryVectors) -> list[tuple[float, ...]]:
    old, *newer = (_statement(store, space, f"{fact['id']}-{part}", asked) for part in PARTS)
    rows = [measures(fact["question"], each, old) for each in newer]
    return [row for row in rows if row is not None]


def _statement(store: Store, space: Space, episode_id: str, asked: QueryVectors) -> Statement:
    stored = store.episodes.passages_of(episode_id)[0]
    head, key = store.episodes.heads([episode_id])[episode_id], stored.passage_id
    vector = store.vectors.get(space.key, Variant.TEXT, [key])[key]
    assert asked.tokens is not None
    late = max_similarities(asked.tokens, store.vectors.tokens(space.key, [key]))[key]
    return Statement(stored.passage.text, head.timestamp, head.project, True, late, vector)


def fit(rows: NDArray[np.float64], corrects: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The weights of a logistic regression, the constant last. Rows have shape (n, measures)."""
    mean, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    x = np.c_[(rows - mean) / spread, np.ones(len(rows))]
    ridge = np.diag([RIDGE] * rows.shape[1] + [1e-6])
    weights = np.zeros(x.shape[1])
    for _ in range(50):  # Newton's method
        p = 1 / (1 + np.exp(-x @ weights))
        hessian = x.T @ (x * (p * (1 - p))[:, None]) + ridge
        weights -= np.linalg.solve(hessian, x.T @ (p - corrects) + ridge @ weights)
    inner = weights[:-1] / spread
    return np.r_[inner, weights[-1] - inner @ mean]


def report(facts: NDArray[np.float64], corrects: NDArray[np.bool_]) -> None:
    """Each measure alone, then all of them, on facts that they were not fitted to."""
    print(f"{'':24} {'AUC':>6} {'corrections':>12} {'true beside':>12} {'leads':>6}   at the service")
    without = {f"without {name}": [i for i in range(len(MEASURES)) if i != n] for n, name in enumerate(MEASURES)}
    chosen = {name: [n] for n, name in enumerate(MEASURES)} | without | {"all": list(range(len(MEASURES)))}
    for name, columns in chosen.items():
        part = facts[:, :, columns]
        odds = np.array([_odds_of(part, corrects, n) for n in range(len(facts))])
        right, wrong = odds[:, 0], odds[:, 1:]
        auc = np.mean(right[:, None] > wrong.ravel()[None, :])
        leads = np.mean(right > wrong.max(axis=1))
        bold = f"{np.mean(right > -BOLDNESS):.2f} {np.mean(wrong > -BOLDNESS):.2f}"
        print(f"{name:24} {auc:>6.3f} {np.mean(right > 0):>12.2f} {np.mean(wrong > 0):>12.2f} {leads:>6.2f}   {bold}")
    weights = fit(facts.reshape(-1, len(MEASURES)), corrects)
    print("weights:", ", ".join(f"{n} {w:.2f}" for n, w in zip((*MEASURES, "constant"), weights, strict=True)))


def _odds_of(facts: NDArray[np.float64], corrects: NDArray[np.bool_], left_out: int) -> NDArray[np.float64]:
    others = np.delete(facts, left_out, axis=0).reshape(-1, facts.shape[2])
    weights = fit(others, corrects[: len(others)])
    return facts[left_out] @ weights[:-1] + weights[-1]


def main() -> None:
    """Post, measure, fit."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    facts = load()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        post_all(home, facts)
        report(read_all(home, facts), np.tile([True, False, False], len(facts)))


if __name__ == "__main__":
    main()
