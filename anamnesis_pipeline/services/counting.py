"""Counts of episodes by one of their fields, or by time, as every way in reads them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import get_args

from typing_extensions import TypedDict

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.services.schemas import TypeName
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.overview import EVERYTHING, Grouping

SHOWN: tuple[Grouping, ...] = ("layer", "kind", "type", "project", "month")
"""Groupings that the command `status` and the Overview page show."""
MAX_VALUES = 1_000
"""Max values of one grouping; kinds and projects are named by clients."""


class ValueCountOut(TypedDict):
    """A value, and the episodes that have it; an empty one: none is named."""

    value: str
    episodes: int


class CountsOut(TypedDict):
    """Each episode counts once: the `counts`, `others` (of values beyond `limit`) and `private` add up to `total`.
    `private`: episodes of private projects and sources; with filters, they are not counted at all.
    """

    by: Grouping
    total: int
    private: int
    others: int
    counts: list[ValueCountOut]


def counts_body(
    store: Store,
    private: Private,
    by: Grouping,
    now: datetime,
    where: EpisodeFilter = EVERYTHING,
    included: Sequence[str] = (),
    limit: int = MAX_VALUES,
) -> CountsOut:
    """Count the episodes that pass a filter by one of their fields; the values with the most first, months, days
    and hours latest first.

    :param now: when the layers are those.
    :param included: names of private projects and sources to count like others; `*`: all.
    """
    shown = private.visible(store, where, included)
    groups = grouped(store, by, shown, now)
    kept = dict(list(groups.items())[:limit])
    counted = sum(groups.values())
    withheld = 0 if where.is_selective else max(0, store.episodes.count(where) - counted)
    return {
        "by": by,
        "total": counted + withheld,
        "private": withheld,
        "others": counted - sum(kept.values()),
        "counts": [{"value": value, "episodes": episodes} for value, episodes in kept.items()],
    }


def grouped(store: Store, by: Grouping, where: EpisodeFilter, now: datetime) -> Mapping[str, int]:
    """Return value -> episodes that pass a filter. What states nothing has the type ``."""
    groups = store.overview.groups(by, where, now)
    if by in ("month", "day", "hour"):
        return dict(sorted(groups.items(), reverse=True))
    if by != "type":
        return groups
    stated = {value: number for value, number in groups.items() if value in get_args(TypeName)}
    rest = sum(groups.values()) - sum(stated.values())
    return {**stated, "": rest} if rest else stated
