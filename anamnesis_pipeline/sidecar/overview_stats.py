"""Statistics of the whole memory, for pages and clients. The store needs 50 to 150 ms for 100,000 episodes, so they are
cached for some seconds.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from typing_extensions import TypedDict

from anamnesis_pipeline.model import RESERVED_SOURCES, Episode, EpisodeFilter
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.services.briefing import HotspotsOut, hotspots_body
from anamnesis_pipeline.services.counting import SHOWN, CountsOut, ValueCountOut, counts_body
from anamnesis_pipeline.services.proposals import waiting_of
from anamnesis_pipeline.services.reminder import KnowledgeOut, knowledge_body
from anamnesis_pipeline.services.rendering import episode_body, utc_text
from anamnesis_pipeline.services.schemas import EpisodeOut
from anamnesis_pipeline.services.session_reading import timeline_page
from anamnesis_pipeline.sidecar.cache import TtlCache
from anamnesis_pipeline.sidecar.routes.consolidation import ConsolidationOut, consolidation_body
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_pipeline.store.records.overview import EVERYTHING, Census, Grouping, SourceState

KEPT_S = 5.0
FILTERS_KEPT = 16
LISTED = 10
HOT_HOURS = 72
EPOCH = date(1970, 1, 1)


class TotalsOut(TypedDict):
    """Superseded and private episodes count, too. `retrievals`: how often any was found. Projects and instances are
    those that have something not private.
    """

    episodes: int
    retrievals: int
    projects: int
    instances: int


class ProjectCountOut(TypedDict):
    """A project and its episodes."""

    project: str
    episodes: int


class InstanceCountOut(TypedDict):
    """An instance and its episodes."""

    instance: str
    episodes: int


class DirectOut(TypedDict):
    """What came without a log: posted (`direct`), uploaded (`uploads`), or said in the chat (`chat`)."""

    source: str
    episodes: int
    newest: str | None


class StatsOut(TypedDict):
    """The whole memory in figures. `private`: episodes of private projects and sources, which are named nowhere. Each
    list of counts, but that of instances, and `private` add up to all episodes; see `GET /api/counts` for the rest of
    a list that ends early. `knowledge`: proposals that wait, and when detectors last ran.
    """

    totals: TotalsOut
    private: int
    by_project: list[ProjectCountOut]
    by_instance: list[InstanceCountOut]
    by_layer: list[ValueCountOut]
    by_kind: list[ValueCountOut]
    by_type: list[ValueCountOut]
    by_month: list[ValueCountOut]
    recent: list[EpisodeOut]
    most_retrieved: list[EpisodeOut]
    consolidation: ConsolidationOut
    direct: list[DirectOut]
    knowledge: KnowledgeOut


class Overview:
    """The statistics of one application, at most `KEPT_S` old."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._census: TtlCache[EpisodeFilter, Census] = TtlCache(self._count, KEPT_S, 2)
        self._groups: TtlCache[Grouping, CountsOut] = TtlCache(self._group, KEPT_S, len(SHOWN))
        self._hot: TtlCache[None, HotspotsOut] = TtlCache(lambda _: self._used(), KEPT_S)
        self._sources: TtlCache[None, dict[str, SourceState]] = TtlCache(
            lambda _: services.store.overview.sources(), KEPT_S
        )
        self._days: TtlCache[EpisodeFilter, dict[date, int]] = TtlCache(self._count_days, KEPT_S, FILTERS_KEPT)
        self._often: TtlCache[EpisodeFilter, list[str]] = TtlCache(
            lambda where: services.store.overview.most_read(where, LISTED), KEPT_S, FILTERS_KEPT
        )

        self._knowledge: TtlCache[None, KnowledgeOut] = TtlCache(
            lambda _: knowledge_body(waiting_of(services.store, services.engine.private()), datetime.now(UTC)), KEPT_S
        )

    def census(self) -> Census:
        """Return counts of all episodes; by project and instance without private ones."""
        shown = self._census.get(self._services.engine.visible(EVERYTHING, []))
        return replace(self._census.get(EVERYTHING), projects=shown.projects, instances=shown.instances)

    def counts(self, by: Grouping) -> CountsOut:
        """Return the counts by one field, without what is private."""
        return self._groups.get(by)

    def days(self, where: EpisodeFilter) -> Mapping[date, int]:
        """Return the number of episodes that pass a filter, by day (UTC), earliest first."""
        return self._days.get(where)

    def recent(self) -> list[Episode]:
        """Return the newest sessions and other current episodes that are not private."""
        return timeline_page(self._services.store, self._shown(), LISTED).items[:LISTED]

    def most_retrieved(self) -> list[Episode]:
        """Return the current episodes that are read most often and are not private."""
        ids = self._often.get(self._shown())
        found = self._services.store.episodes.get(ids)
        return [found[name] for name in ids if name in found]

    def hot(self) -> HotspotsOut:
        """Return what was used most in the last `HOT_HOURS`."""
        return self._hot.get(None)

    def direct(self) -> list[DirectOut]:
        """Return the counts of sources without a log."""
        held = self._sources.get(None)
        return [
            {
                "source": name,
                "episodes": state.episodes if state else 0,
                "newest": utc_text(state.newest.astimezone(UTC)) if state else None,
            }
            for name in RESERVED_SOURCES
            for state in [held.get(name)]
        ]

    def stats(self) -> StatsOut:
        """Return all statistics, JSON-ready."""
        census = self.census()
        consolidation: Any = consolidation_body(self._services)
        return {
            "totals": totals_of(census),
            "private": private_of(census),
            "by_project": [{"project": name, "episodes": n} for name, n in census.projects.items()],
            "by_instance": [{"instance": name, "episodes": n} for name, n in census.instances.items()],
            "by_layer": self.counts("layer")["counts"],
            "by_kind": self.counts("kind")["counts"],
            "by_type": self.counts("type")["counts"],
            "by_month": self.counts("month")["counts"],
            "recent": [episode_body(episode, ()) for episode in self.recent()],
            "most_retrieved": [episode_body(episode, ()) for episode in self.most_retrieved()],
            "consolidation": consolidation,
            "direct": self.direct(),
            "knowledge": self._knowledge.get(None),
        }

    def _count(self, where: EpisodeFilter) -> Census:
        return self._services.store.overview.census(where)

    def _group(self, by: Grouping) -> CountsOut:
        return counts_body(self._services.store, self._services.engine.private(), by, datetime.now(UTC))

    def _used(self) -> HotspotsOut:
        since = datetime.now(UTC) - timedelta(hours=HOT_HOURS)
        return hotspots_body(self._services.store, self._services.engine, since, LISTED)

    def _count_days(self, where: EpisodeFilter) -> dict[date, int]:
        return self._services.store.overview.days(where)

    def _shown(self) -> EpisodeFilter:
        return self._services.engine.visible(EpisodeFilter(), [])


def _projects(census: Census) -> int:
    """Return the number of projects; "" stands for no project."""
    return sum(map(bool, census.projects))


def private_of(census: Census) -> int:
    """Return the number of episodes outside the listed projects. Pure."""
    return census.episodes - sum(census.projects.values())


def totals_of(census: Census) -> TotalsOut:
    """Return the totals of a census. Pure."""
    return {
        "episodes": census.episodes,
        "retrievals": census.retrievals,
        "projects": _projects(census),
        "instances": len(census.instances),
    }


def points_of(days: Mapping[date, int], most: int = 1_000) -> tuple[list[list[int]], int]:
    """Return a chart's points, [days since 1970, episodes from that day on], in order, and the days per point: more
    than one if there would be more than `most` points. Pure.
    """
    for step in (1, 7, 30, 365, 3_650):
        points: dict[int, int] = {}
        for day, count in days.items():
            number = (day - EPOCH).days // step * step
            points[number] = points.get(number, 0) + count
        if len(points) <= most:
            break
    return [list(point) for point in points.items()], step


def sentence_of(census: Census, embedded: float | None, newest: datetime | None, wrong: int, now: datetime) -> str:
    """Describe the state of the memory in plain words. Pure.

    :param embedded: share of the passages that are embedded; None: nothing is stored.
    :param newest: timestamp of the newest episode.
    :param wrong: number of problems.
    """
    if not census.episodes:
        what = "The memory is empty"
    else:
        of = counted(_projects(census), "project")
        what = f"{counted(census.episodes, 'episode')} of {of}, {_ago(newest, now)}"
        if embedded is not None and embedded < 1:
            what += f"; {embedded:.1%} can be found by meaning so far"
    return f"{what}; " + (f"{counted(wrong, 'thing')} to look at." if wrong else "all is well.")


def _ago(newest: datetime | None, now: datetime) -> str:
    if newest is None:
        return "none of them current"
    minutes = max(0, int((now - newest).total_seconds() // 60))
    if minutes < 60:
        return f"the newest of {counted(minutes, 'minute')} ago" if minutes else "the newest of just now"
    hours = minutes // 60
    return f"the newest of {counted(hours, 'hour')} ago" if hours < 48 else f"the newest of {hours // 24:,} days ago"
