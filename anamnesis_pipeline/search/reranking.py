"""Rerank the fused lists: by late interaction of the first candidates, and by their neighbours. Pure."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import RESERVED_SOURCES, EpisodeHead, ScoredPassage
from anamnesis_pipeline.search.fusion import Ranking, reciprocal_rank_fusion
from anamnesis_pipeline.store.contracts import TokenRows
from anamnesis_pipeline.store.memory_layers import LASTING_KINDS

LATE_K = 10
"""The constant of the fusion with late interaction."""
LATE_DEPTH = 60
"""Candidates whose token vectors are compared. 40 and 100 find the same."""
BY_WORDS = "words_text"
"""The list that scores passages without vectors."""
MORE_BY_WORDS = 1.5
"""Limit of the estimate for them, relative to the reference passage."""
BESIDE = timedelta(minutes=30)
"""Episodes of a session, or posted by one instance to one project, belong to one conversation within this time."""
LATEST_FACTOR = 1.5
"""On the last statement in a session, for a question about an outcome."""
COMPANIONS, AMONG = 2, 50
"""Companions counted for an episode, and candidates that they are taken from."""


def without_vectors_heard(
    scores: Mapping[int, float], rankings: Sequence[Ranking], unembedded: Collection[int]
) -> dict[int, float]:
    """Rescale the scores of passages without vectors to the word lists alone: vector lists cannot contain them."""
    whole = sum(ranking.weight for ranking in rankings)
    words = sum(ranking.weight for ranking in rankings if not ranking.name.startswith("dense"))
    if not words or not unembedded:
        return dict(scores)
    return {key: score * whole / words if key in unembedded else score for key, score in scores.items()}


def late_by_words(
    late: Mapping[int, float], rankings: Sequence[Ranking], unembedded: Collection[int]
) -> dict[int, float]:
    """Estimate the late interaction of passages without vectors: that of the passage with the best word score among the
    others, in proportion to their word scores.
    """
    if not unembedded:
        return {}
    held = {p.passage_id: p.score for r in rankings if r.name == BY_WORDS for p in r.passages}
    known = max((key for key in late if key in held), key=lambda key: held[key], default=None)
    if known is None or held[known] <= 0:
        return {}
    share = late[known] / held[known]
    return {key: min(share * held[key], MORE_BY_WORDS * late[known]) for key in unembedded if key in held}


def with_late_interaction(
    scores: Mapping[int, float],
    late: Mapping[int, float],
    weight: float,
    sharpness: float,
    episode_of: Mapping[int, str],
) -> dict[int, float]:
    """Fuse two orders: by the scores so far, and by late interaction. A passage without late interaction keeps its
    place in both. Then each score falls with its distance from the best late interaction, which ranks do not show.

    :param sharpness: a score is multiplied by e to the power of -`sharpness` times that distance.
    """
    if not late or not weight:
        return dict(scores)
    first = sorted(scores, key=lambda key: (-scores[key], -key))
    second = sorted(late, key=lambda key: (-late[key], -key))
    places = {key: place for place, key in enumerate(first) if place < LATE_DEPTH and key not in late}
    for key, place in places.items():
        second.insert(min(place, len(second)), key)
    orders = [
        Ranking(name, share, [ScoredPassage(key, episode_of[key], 0.0) for key in order])
        for name, share, order in (("first", 1.0, first), ("late", weight, second))
    ]
    fused = reciprocal_rank_fusion(orders, depth=LATE_DEPTH, k=LATE_K)
    behind = _behind_the_best(second, late)
    furthest = behind[second[-1]]
    return {key: score * math.exp(-sharpness * behind.get(key, furthest)) for key, score in fused.items()}


def _behind_the_best(order: Sequence[int], late: Mapping[int, float]) -> dict[int, float]:
    """Return the distance of each from the best; one without a value gets that of its predecessor."""
    best = had = max(late.values())
    behind = {}
    for key in order:
        had = late.get(key, had)
        behind[key] = best - had
    return behind


def with_neighbours(
    scores: Mapping[int, float], share: float, heads: Mapping[str, EpisodeHead], episode_of: Mapping[int, str]
) -> dict[int, float]:
    """Add to each score a share of the better of the passages stored right before and after it, if they belong to the
    same conversation or document.
    """
    if not share:
        return dict(scores)
    return {
        key: score + share * max((scores[near] for near in _beside(key, scores, heads, episode_of)), default=0.0)
        for key, score in scores.items()
    }


def _beside(
    key: int, scores: Mapping[int, float], heads: Mapping[str, EpisodeHead], episode_of: Mapping[int, str]
) -> list[int]:
    near = [other for other in (key - 1, key + 1) if other in scores]
    mine = heads.get(episode_of[key]) if near else None
    if mine is None:
        return []
    return [other for other in near if (theirs := heads.get(episode_of[other])) and _together(mine, theirs)]


def later_first(told: Mapping[int, EpisodeHead]) -> dict[int, float]:
    """Return the factor of each passage by its time in its session: from 1 for the first to `LATEST_FACTOR` for the
    last.

    :param told: the episode of each passage.
    """
    when = {key: (head.timestamp, head.metadata.get("ordinal") or 0) for key, head in told.items()}
    moments: dict[str, set[tuple[datetime, int]]] = defaultdict(set)
    for key, head in told.items():
        moments[head.session_id].add(when[key])
    places = {session_id: {at: n for n, at in enumerate(sorted(found))} for session_id, found in moments.items()}
    return {
        key: 1 + (LATEST_FACTOR - 1) * places[head.session_id][when[key]] / max(1, len(moments[head.session_id]) - 1)
        for key, head in told.items()
    }


def company(found: Sequence[tuple[EpisodeHead, float]]) -> list[float]:
    """Return for each episode the mean of the two best other scores of its conversation; a missing one counts as 0.
    Only the first `AMONG` get any. An episode posted as a lasting memory belongs to no conversation and gets the
    maximum of the others.

    :param found: the best first.
    """
    first = found[:AMONG]
    told: dict[tuple[str, ...], list[tuple[EpisodeHead, float]]] = defaultdict(list)
    for head, score in first:
        told[_conversation(head)].append((head, score))
    scores = []
    for head, _ in first:
        beside = (score for other, score in told[_conversation(head)] if other is not head and _near(head, other))
        scores.append(sum(islice(beside, COMPANIONS)) / COMPANIONS)
    most = max(scores, default=0.0)
    kept = [most if _is_remembered(head) else score for (head, _), score in zip(first, scores, strict=True)]
    return kept + [0.0] * (len(found) - len(first))


def _is_remembered(head: EpisodeHead) -> bool:
    """Return whether it was posted as a decision, a fact or the like."""
    return head.source == RESERVED_SOURCES[0] and (head.kind in LASTING_KINDS or "type" in head.metadata)


def _together(one: EpisodeHead, other: EpisodeHead) -> bool:
    return _conversation(one) == _conversation(other) and _near(one, other)


def _near(one: EpisodeHead, other: EpisodeHead) -> bool:
    return one.episode_id == other.episode_id or abs(one.timestamp - other.timestamp) <= BESIDE


def _conversation(head: EpisodeHead) -> tuple[str, ...]:
    """Return the key of an episode's conversation; episodes must also be near each other in time."""
    if head.session_id:
        return (head.session_id,)
    return (head.instance, head.project) if head.source in RESERVED_SOURCES else ("", "", head.episode_id)


# --- late interaction ------------------------------------------------------------------------------------

# Late interaction: match the contextual token vectors of a passage with the words of a question. Pure.

_ONE = 127
"""The int8 value of 1.0."""
ROWS_AT_ONCE = 384
"""Stored tokens converted to floats at a time: those of all candidates at once would take megabytes per search. With
multiples of 12 OpenBLAS adds up in the same order as over all of them.
"""


def max_similarities(query: NDArray[np.float32], tokens: TokenRows) -> dict[int, float]:
    """Return passage ID -> the cosines of its nearest tokens to each of the query's, weighted and summed; in [-1, 1].

    Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction", SIGIR
    2020.

    :param query: shape (tokens, dims); a row's length is its weight, and the weights sum to 1.
    """
    nearest = np.full((len(tokens.starts), len(query)), -np.inf, dtype=np.float32)
    for start in range(0, len(tokens.bits), ROWS_AT_ONCE):
        similar = similarities(query, tokens.numbers(start, start + ROWS_AT_ONCE))
        first, last = np.searchsorted(tokens.starts, [start, start + len(similar) - 1], side="right")
        of_these, begin = nearest[first - 1 : last], np.maximum(tokens.starts[first - 1 : last] - start, 0)
        np.maximum(of_these, np.maximum.reduceat(similar, begin, axis=0), out=of_these)
    return dict(zip(tokens.passage_ids, nearest.sum(axis=1).tolist(), strict=True))


def similarities(query: NDArray[np.float32], rows: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the cosine of each stored token and each query token, times the latter's weight, shape (rows, tokens)."""
    return np.asarray(rows.astype(np.float32) @ (query.T / _ONE), dtype=np.float32)
