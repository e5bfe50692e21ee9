"""Hide episodes that a later one of the same session repeats: the newest replaces them. Nothing is deleted, and
everything can be undone.

An episode is hidden only if the later one contains all of it: each of its passages is within `threshold` (cosine) of
one of the later one's, and each of its words occurs there. Vectors alone do not distinguish `retries: 3` from `retries:
5`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamnesis_pipeline.model import Episode, EpisodeFilter, Space, Variant
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.memory_layers import PINNED
from anamnesis_pipeline.store.records.links import Link

LAST_RUN = "consolidation.last_run"
"""Stored setting: statistics of the last run."""
RULE = "consolidation.rule"
"""Stored setting: space and threshold that sessions were reconciled with."""
MAX_GROUP = 500
"""Episodes of a session that are compared with each other; a longer session is split into groups of this size."""
PAGE = 100
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ConsolidationReport:
    """What one run did. `waiting`: sessions left, whose vectors are still missing."""

    sessions: int = 0
    episodes: int = 0
    superseded: int = 0
    revived: int = 0
    waiting: int = 0
    problem: str = ""
    started_at: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """An episode's words, and its passages' vectors, shape (passages, dim)."""

    episode_id: str
    kind: str
    words: frozenset[str]
    vectors: NDArray[np.float32] = field(repr=False)


def consolidate_sessions(store: Store, threshold: float) -> ConsolidationReport:
    """Reconcile each session that changed since it was last reconciled; the cost depends on these sessions only.

    :param threshold: cosine in the active space.
    """
    started = datetime.now(UTC)
    space = store.spaces.active()
    if space is None:
        report = ConsolidationReport(
            problem="no space answers searches yet", waiting=store.consolidation.changed_count()
        )
    else:
        rule = [space.key, threshold]
        if store.settings.get(RULE) != rule:
            store.consolidation.note_all()
            store.settings.set(RULE, rule)
        report = _settle_changed(store, space, threshold)
    seconds = round((datetime.now(UTC) - started).total_seconds(), 3)
    report = replace(report, started_at=started.isoformat(), seconds=seconds)
    store.settings.set(LAST_RUN, stats_of(report))
    return report


def stats_of(report: ConsolidationReport) -> dict[str, Any]:
    """Return the report as stored and shown."""
    return {name: getattr(report, name) for name in report.__dataclass_fields__}


def _settle_changed(store: Store, space: Space, threshold: float) -> ConsolidationReport:
    logs = frozenset(source.key for source in store.files.log_sources())
    report, done = ConsolidationReport(), set[str]()
    while fresh := [each for each in store.consolidation.changed(PAGE) if each.session_id not in done]:
        for session in fresh:
            canonical_of = _canonicals(store, space, session.session_id, logs, threshold)
            settled = store.consolidation.settle(session, canonical_of)
            report = replace(
                report,
                sessions=report.sessions + 1,
                episodes=report.episodes + len(canonical_of),
                superseded=report.superseded + settled.superseded,
                revived=report.revived + settled.revived,
            )
        done.update(each.session_id for each in fresh)
    return replace(report, waiting=store.consolidation.changed_count())


def _canonicals(
    store: Store, space: Space, session_id: str, logs: frozenset[str], threshold: float
) -> dict[str, str | None]:
    """Return episode id -> the one that replaces it, or None; for a session's episodes that come from logs."""
    found: dict[str, str | None] = {}
    episodes = _episodes(store, session_id, logs)
    for start in range(0, len(episodes), MAX_GROUP):
        found |= newest_of_equals(_spoken(store, space, episodes[start : start + MAX_GROUP]), threshold)
    pinned = {episode.episode_id for episode in episodes if PINNED in episode.tags}
    return {key: None if key in pinned else canonical for key, canonical in found.items()}


def _episodes(store: Store, session_id: str, logs: frozenset[str]) -> list[Episode]:
    """Return the session's episodes, oldest first, without those superseded by anything but consolidation."""
    where = EpisodeFilter(session_id=session_id, include_superseded=True)
    found: list[Episode] = []
    cursor, is_more = None, True
    while is_more:
        page = store.episodes.page(where, PAGE, cursor, oldest_first=True)
        links = store.consolidation.links([episode.episode_id for episode in page.items])
        found += [e for e in page.items if e.source in logs and _is_ours(e, links)]
        cursor, is_more = page.next_cursor, page.next_cursor is not None
    return found


def _is_ours(episode: Episode, links: Mapping[str, Link]) -> bool:
    link = links.get(episode.episode_id)
    is_hidden_by_it = link is not None and not link.undone and episode.superseded_by == link.canonical
    return episode.status == "active" or is_hidden_by_it


def _spoken(store: Store, space: Space, episodes: Sequence[Episode]) -> list[Spoken]:
    variant = Variant.TEXT if Variant.TEXT in space.variants else space.variants[0]
    return [
        Spoken(e.episode_id, e.kind, frozenset(_WORD.findall(e.raw_exchange.casefold())), vectors)
        for e in episodes
        if (vectors := _vectors(store, space.key, variant, e.episode_id)) is not None
    ]


def _vectors(store: Store, space: str, variant: Variant, episode_id: str) -> NDArray[np.float32] | None:
    """Return the vectors of all passages of an episode; None if one is missing."""
    ids = [stored.passage_id for stored in store.episodes.passages_of(episode_id)]
    found = store.vectors.get(space, variant, ids)
    return np.stack([found[key] for key in ids]) if ids and len(found) == len(ids) else None


def newest_of_equals(episodes: Sequence[Spoken], threshold: float) -> dict[str, str | None]:
    """Return episode id -> the newest later episode of its kind that contains all of it, or None.

    :param episodes: the oldest first.
    """
    canonical: dict[str, str | None] = {}
    for n in range(len(episodes) - 1, -1, -1):
        older = episodes[n]
        later = (
            e for e in reversed(episodes[n + 1 :]) if canonical[e.episode_id] is None and _says(e, older, threshold)
        )
        newest = next(later, None)
        canonical[older.episode_id] = newest.episode_id if newest else None
    return canonical


def _says(newer: Spoken, older: Spoken, threshold: float) -> bool:
    """Return whether one contains all of the other. Words are compared first: they decide most pairs cheaply."""
    if newer.kind != older.kind or not older.words <= newer.words:
        return False
    nearest = (older.vectors @ newer.vectors.T).max(axis=1)
    return bool(nearest.min() >= threshold)
