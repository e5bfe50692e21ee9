"""Fuse several rankings into one. Pure."""

import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anamnesis_pipeline.model import ScoredPassage

RRF_K = 20
"""Reciprocal rank fusion's constant. 60 is the published value; smaller ones trust the first ranks more, which suits
lists cut at 30. See benchmarks/ranking.md for what 10, 20 and 40 find."""
FUSION_DEPTH = 30
"""Ranks that count in full. Deeper ranks only order the remaining candidates: shorter lists fuse better (LoCoMo
recall@10 .694 at 30, .663 at 50, k = 60)."""
DEEP_SHARE = 1e-3
"""Weight of a rank beyond FUSION_DEPTH: orders, but never overtakes."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """One candidate list, best first, and its weight."""

    name: str
    weight: float
    passages: Sequence[ScoredPassage]


def reciprocal_rank_fusion(rankings: Sequence[Ranking], depth: int = FUSION_DEPTH, k: int = RRF_K) -> dict[int, float]:
    """Return passage ID -> score in (0, 1], 1 for first place everywhere.

    Cormack, Clarke and Buettcher, "Reciprocal Rank Fusion outperforms Condorcet", SIGIR 2009, with weights.
    """
    best = sum(ranking.weight for ranking in rankings) / (k + 1)
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, candidate in enumerate(ranking.passages, 1):
            share = ranking.weight / (k + rank)
            scores[candidate.passage_id] += (share if rank <= depth else share * DEEP_SHARE) / best
    return dict(scores)


def best_passages(rankings: Sequence[Ranking], scores: dict[int, float]) -> list[ScoredPassage]:
    """Return the best passage of each episode with its fused score, best first (ties: the newer passage)."""
    episode_of = {p.passage_id: p.episode_id for ranking in rankings for p in ranking.passages}
    best: dict[str, ScoredPassage] = {}
    for passage_id in sorted(scores, key=lambda p: (-scores[p], -p)):
        episode_id = episode_of[passage_id]
        if episode_id not in best:
            best[episode_id] = ScoredPassage(passage_id, episode_id, scores[passage_id])
    return list(best.values())


def explain(rankings: Sequence[Ranking], passage_id: int) -> dict[str, dict[str, float]]:
    """Return list name -> rank (from 1), score and weight of a passage, for the lists that have it."""
    return {
        ranking.name: {"rank": rank, "score": round(candidate.score, 6), "weight": ranking.weight}
        for ranking in rankings
        for rank, candidate in enumerate(ranking.passages, 1)
        if candidate.passage_id == passage_id
    }


# --- folding ---------------------------------------------------------------------------------------------

# Collapse near-duplicates. Pure.

SAME = 0.9
"""Share of words two texts must have in common (Jaccard) to count as one."""

_WORD = re.compile(r"\w+")


def fold(shown: Iterable[tuple[str, ...]], most: int = sys.maxsize) -> list[list[int]]:
    """Group the indexes of near-duplicates. Each group's first index is its best; groups are in order of their best.

    :param shown: the shown texts of each index, the best one first. An index joins the first group whose best shows a
        text similar to its own best text, so that no text is lost.
    :param most: number of groups; everything behind the last of them is skipped.
    """
    groups: list[list[int]] = []
    texts: list[list[frozenset[str]]] = []
    with_word: dict[str, set[int]] = {}
    words = ([frozenset(_WORD.findall(text.lower())) for text in each] for each in shown)
    for index, mine in enumerate(words):
        own = _first_words(mine[0])
        near = sorted({n for word in own for n in with_word.get(word, ())})
        home = next((n for n in near if any(_alike(mine[0], other) for other in texts[n])), None)
        if home is not None:
            groups[home].append(index)
            continue
        if len(groups) == most:
            break
        for word in {*own, *(word for text in mine[1:] for word in _first_words(text))}:
            with_word.setdefault(word, set()).add(len(groups))
        groups.append([index])
        texts.append(mine)
    return groups


def _first_words(words: frozenset[str]) -> list[str]:
    """Return enough words, sorted the same way for all texts, that two similar texts share at least one."""
    return sorted(words)[: len(words) - math.ceil(SAME * len(words)) + 1]


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    smaller, larger = sorted((len(a), len(b)))
    if smaller < SAME * larger or not smaller:
        return False
    common = len(a & b)
    return common >= SAME * (len(a) + len(b) - common)
