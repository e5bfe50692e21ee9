"""What an episode is worth and why, with who confirms it, as HTTP and pages show it."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import cast

from typing_extensions import TypedDict

from anamnesis_pipeline.errors import EpisodeNotFound
from anamnesis_pipeline.knowledge.importance import confirming, importance_of
from anamnesis_pipeline.model import EpisodeFilter, EpisodeHead, Status
from anamnesis_pipeline.search.engine import HIDDEN_KINDS
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.retention import (
    Curve,
    half_life_of,
    is_archivable,
    retention,
    trust_of,
)
from anamnesis_pipeline.services.similarity import ALIKE, similar_episodes
from anamnesis_pipeline.store.base import Store

MAX_ALIKE = 50
"""Episodes compared by their vectors."""
MAX_LINKED = 100
MAX_CHANGES = 100


class FactorOut(TypedDict):
    """`contribution` is weight times value."""

    name: str
    weight: float
    value: float
    contribution: float
    means: str


class ValueOut(TypedDict):
    """`score` is the sum of the contributions, in [0, 1]; it ranks nothing. `confirmations`: other sessions or
    instances that say the same, each with one of its episodes in `confirmed_by`. `retention`: the share retained by the
    curve `huber`, with `half_life_days` by its trust. `archivable`: whether it would be proposed to archive it.
    """

    episode_id: str
    score: float
    factors: list[FactorOut]
    confirmations: int
    confirmed_by: list[str]
    retention: float
    half_life_days: float
    archivable: bool


def value_body(store: Store, private: Private, episode_id: str) -> ValueOut:
    """Return the importance of an episode, explained.

    :raises EpisodeNotFound: no such id.
    :raises StoreBusy: its vectors cannot be searched now.
    """
    episode, now = store.episodes.get([episode_id]).get(episode_id), datetime.now(UTC)
    if episode is None:
        raise EpisodeNotFound("no episode has this id")
    confirmed = confirming(episode, _alike(store, private, episode_id))
    found = importance_of(episode, now, len(confirmed), len(store.statuses.history(episode_id, MAX_CHANGES)))
    trust = trust_of(episode)
    return {
        "episode_id": episode_id,
        "score": found.score,
        "factors": [cast("FactorOut", asdict(each)) for each in found.factors],
        "confirmations": len(confirmed),
        "confirmed_by": [head.episode_id for head in confirmed.values()],
        "retention": round(retention(now - episode.timestamp, trust, episode.retrieval_count), 4),
        "half_life_days": round(half_life_of(trust).total_seconds() / 86_400, 2),
        "archivable": is_archivable(episode, now),
    }


def _alike(store: Store, private: Private, episode_id: str) -> list[EpisodeHead]:
    """Return the visible episodes that say the same: merged into it, or nearly the same by their vectors."""
    heads = store.episodes.heads([episode_id, *store.episodes.superseded_by(episode_id, MAX_LINKED)])
    own = heads.pop(episode_id)
    shown = [own.project, own.source] if private.holds(own) else []
    found = [
        head
        for head in heads.values()
        if head.status == Status.MERGED and (head.project == own.project or not private.holds(head))
    ]
    if (space := store.spaces.active()) is not None:
        where = replace(private.visible(store, EpisodeFilter(), shown), hidden_kinds=HIDDEN_KINDS)
        near = similar_episodes(store, space, episode_id, MAX_ALIKE, where) or ()
        found += [each.episode for each in near if each.similarity >= ALIKE]
    return found


class PointOut(TypedDict):
    """What is retained after a number of days, by each curve."""

    days: float
    l2: float
    huber: float
    elastic: float


class RetentionOut(TypedDict):
    """`half_life_days`: that of this trust."""

    half_life_days: float
    points: list[PointOut]


def retention_body(half_life_days: float, trust: float, accesses: int, days: int, steps: int = 60) -> RetentionOut:
    """Return the three curves of retention from 0 to `days`. Pure."""
    base = timedelta(days=half_life_days)
    points: list[PointOut] = []
    for step in range(steps + 1):
        at = days * step / steps
        l2, huber, elastic = (round(retention(timedelta(days=at), trust, accesses, curve, base), 4) for curve in Curve)
        points.append({"days": round(at, 2), "l2": l2, "huber": huber, "elastic": elastic})
    return {"half_life_days": round(half_life_of(trust, base).total_seconds() / 86_400, 2), "points": points}
