"""What starts embedding and indexing: whatever the store says is missing. Resumes a re-embed after any end of a run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from logging import Logger
from typing import Any

import dagster as dg

from anamnesis_pipeline.dagster_api.api import DagsterApi, open_dagster
from anamnesis_pipeline.dagster_api.backfills import EMBED_TAG, STARTING_RUNS, UNFINISHED_BACKFILLS, EmbeddingBackfill
from anamnesis_pipeline.defs.checks import embedding_evaluations, posted_evaluations
from anamnesis_pipeline.defs.embeddings import SOURCES_PER_RUN, partition_materialization
from anamnesis_pipeline.defs.jobs import consolidate, draw_map, embed, index
from anamnesis_pipeline.defs.partitions import (
    EMBEDDED_SOURCES,
    SPACE_BY_SOURCE,
    SPACES,
    contiguous_runs,
    embed_key,
    new_keys,
    split_embed_key,
    stretch,
)
from anamnesis_pipeline.defs.posted import posted_news
from anamnesis_pipeline.defs.reporting import owned, tagged
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.run_statuses import UNFINISHED_STATUSES, has_run
from anamnesis_pipeline.errors import AnamnesisError, ServiceUnreachable, SpaceConflict, UnknownModel
from anamnesis_pipeline.model import Space, content_id
from anamnesis_pipeline.steps.reembed import adopt
from anamnesis_pipeline.steps.reembed_state import failure_of, is_paused
from anamnesis_pipeline.steps.spaces import building_space
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.overview import SourceState
from anamnesis_pipeline.wiring import wanted_space

REINDEX_AFTER = 5_000
"""New vectors after which the index file is looked at again; below that the exact scan of what is new is fast."""
BACKLOG = 2_000
"""With more passages than that to embed, a run takes minutes: it then covers the sources that have nothing to embed
yet, too, so that what arrives in them meanwhile goes first."""
LONGEST_WAIT_S = {"active": 300.0, "building": 3_600.0}
"""Between two attempts to embed a space that fails."""
INDEX_RETRY_S = 300.0
RETRIED_S = 300.0
"""Dagster retries a run that was cut off within a minute, at a start as soon as its daemon is at work."""
REPORTED_PER_TICK = 200
"""Partitions embedded without a run that one tick reports: each costs a look at its source."""
_EMBEDDINGS = dg.AssetKey("embeddings")
_FIRST = {"memory_map": draw_map, "consolidation_report": consolidate}
NOTHING_TO_EMBED = "Nothing lacks a vector, or what lacks one is being embedded, paused, or tried later."
NO_DOWNLOAD = (
    "The model that is set has no space yet. A tick downloads no model; the service does when it starts, or "
    "`anamnesis model use`"
)
URGENT = {"dagster/priority": "10"}
"""Past the hundreds of `ingest` runs that wait in the queue after the first start."""


@dg.sensor(
    jobs=[embed, index, draw_map, consolidate],
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    tags=tagged("memory"),
    **owned(dg.sensor),
    description="Embeds what the store says is missing, then indexes a space once nothing is. Reports what the service "
    "stored or embedded since the last tick.",
)
def embed_sensor(context: dg.SensorEvaluationContext, memory: MemoryResource) -> dg.SensorResult | dg.SkipReason:
    """Begins the space that the settings ask for; requests `embed` for many sources at once, then `index`, and the
    first map and consolidation once there is an index.
    """
    instance = context.instance
    backfills = _Backfills(open_dagster(memory.settings), context.log)
    _adopt_backfill(backfills, memory.store)
    reason = NOTHING_TO_EMBED
    try:
        wanted_space(memory.settings, memory.store, downloads=False)
    except UnknownModel as exc:
        reason = f"{NOTHING_TO_EMBED} {NO_DOWNLOAD}: {exc}"
        context.log.warning(reason)
    except AnamnesisError as exc:
        context.log.warning(str(exc))
    space_keys = instance.get_dynamic_partitions(str(SPACES.name))  # before the spaces: those are stored first
    source_keys = instance.get_dynamic_partitions(str(EMBEDDED_SOURCES.name))
    spaces, settings = memory.store.spaces.all(), memory.settings
    pending = {
        space.key: memory.store.vectors.pending_sources(space.key) for space in spaces if space.status in LONGEST_WAIT_S
    }
    added = new_keys(source_keys, (source for sources in pending.values() for source in sources))
    order = [*source_keys, *added]
    tick = _Tick(instance, backfills, memory.store, datetime.now(UTC), order, settings.switch, settings.embed_run_tags)
    indexed, seen, told = _remembered(context.cursor, spaces)
    requests = [request for space in spaces for request in tick.requests(space, pending.get(space.key), indexed)]
    changes = [*_space_changes(backfills, space_keys, spaces)]
    events: list[dg.AssetMaterialization | dg.AssetCheckEvaluation] = []
    present = _fingerprint(memory.store, spaces, order, pending)
    if present != seen:
        held = memory.store.overview.sources()
        # read again: an episode stored since the first look must not make its source look embedded
        lacking = {key: memory.store.vectors.pending_sources(key) for key in pending}
        look = _Look(instance, memory.store, backfills, held, spaces, order, lacking)
        told, evaluations = posted_evaluations(memory, told)
        news = [*look.news()]
        reported = sum(event.asset_key == _EMBEDDINGS for event in news)
        if reported:
            evaluations += embedding_evaluations(memory)
        added, events = [*added, *look.added()], [*news, *evaluations]
        requests += look.first_runs()
        empty = look.empty()
        is_dropping = bool(empty) and not look.may_cover_empty(requests)
        if is_dropping:
            changes.append(EMBEDDED_SOURCES.build_delete_request(empty))
        is_settled = look.is_settled() and reported < REPORTED_PER_TICK
        seen = present if is_settled and (is_dropping or not empty) else ""
    if added:
        changes.append(EMBEDDED_SOURCES.build_add_request(added))
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else reason,
        dynamic_partitions_requests=changes,
        asset_events=events,
        cursor=json.dumps({"indexed": indexed, "seen": seen, "told": told}),
    )


@dataclass
class _Backfills:
    """The backfills of `embeddings` that go on. Dagster's webserver is asked once in a tick, if at all."""

    dagster: DagsterApi
    log: Logger

    @cached_property
    def unfinished(self) -> list[EmbeddingBackfill] | None:
        """None: the webserver does not answer, so that there may be any."""
        try:
            return self.dagster.unfinished_backfills(UNFINISHED_BACKFILLS)
        except ServiceUnreachable as exc:
            self.log.warning(f"What depends on backfills is left to the next tick: {exc}")
            return None

    def may_embed_into(self, space: str) -> bool:
        return self.unfinished is None or any(space in backfill.spaces for backfill in self.unfinished)


def _adopt_backfill(backfills: _Backfills, store: Store) -> None:
    """Make a backfill that was launched by hand over an added space the re-embed; its first run may wait for long."""
    if store.spaces.active() is None or building_space(store) is not None:
        return
    added = [space for space in store.spaces.all() if space.status == "added"]
    for backfill in (backfills.unfinished or ()) if added else ():
        for space in added if backfill.status == STARTING_RUNS else ():
            with suppress(SpaceConflict):  # something else was started since we looked
                if space.key in backfill.spaces and adopt(store, space, backfill.backfill_id):
                    return


def _remembered(cursor: str | None, spaces: Sequence[Space]) -> tuple[dict[str, int], str, dict[str, str]]:
    """Space -> passages it had when its index was requested last; the fingerprint of what was looked at last; external
    asset -> fingerprint of the check result that was reported last. A cursor of an earlier release has no such results:
    what it looked at is looked at again.
    """
    values: dict[str, Any] = json.loads(cursor or "{}")
    indexed: dict[str, int] = values.get("indexed", values)  # a cursor of an earlier release is the former alone
    told: dict[str, str] = values.get("told", {})
    seen = values.get("seen", "") if told else ""
    return {space.key: indexed[space.key] for space in spaces if space.key in indexed}, seen, told


def _space_changes(
    backfills: _Backfills, known: Sequence[str], spaces: Sequence[Space]
) -> Iterator[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """A partition for every space, so that one that was only added can be backfilled by hand; none for dropped ones.
    A retired one loses its partition, too, once no backfill is about it: what comes later is not embedded there.
    """
    if added := new_keys(known, [space.key for space in spaces if space.status != "retired"]):
        yield SPACES.build_add_request(added)
    dropped = set(new_keys([space.key for space in spaces], known))
    retired = {space.key for space in spaces if space.status == "retired"} & set(known)
    dropped |= {key for key in retired if not backfills.may_embed_into(key)}
    if dropped:
        yield SPACES.build_delete_request(sorted(dropped))


def _fingerprint(
    store: Store, spaces: Sequence[Space], order: Sequence[str], pending: Mapping[str, Mapping[str, int]]
) -> str:
    """Changes whenever `_Look` may find something else."""
    last = [event.number for event in store.events.latest(1, (Happening.WRITE, Happening.FORGET))]
    state = [last, [(space.key, space.status) for space in spaces], sorted(order), pending]
    return content_id(json.dumps(state, sort_keys=True))


def has_unfinished_run(instance: dg.DagsterInstance, job: str, tag: str, space: Space) -> bool:
    """Whether a run of a job waits or goes on whose tag names the space."""
    filters = dg.RunsFilter(job_name=job, statuses=UNFINISHED_STATUSES, tags={tag: space.key})
    return has_run(instance, filters)


@dataclass(frozen=True, slots=True)
class _Look:
    """Compares what the store holds with what Dagster knows of it. `held`: what there is of each source; `order` and
    `pending` as in a tick.
    """

    instance: dg.DagsterInstance
    store: Store
    backfills: _Backfills
    held: Mapping[str, SourceState]
    spaces: Sequence[Space]
    order: Sequence[str]
    pending: Mapping[str, Mapping[str, int]]

    def added(self) -> list[str]:
        """Sources with episodes that are no partition yet: the service embeds what is posted."""
        return new_keys(self.order, sorted(self.held))

    def empty(self) -> list[str]:
        """Partitions of sources that have no episode, and so nothing to embed."""
        filled = self.held.keys() | {source for sources in self.pending.values() for source in sources}
        return new_keys(filled, self.order)

    def may_cover_empty(self, requests: Sequence[dg.RunRequest]) -> bool:
        """Whether a run that is requested, goes on, is retried or is one of a backfill can have an empty partition in
        its range. Where an end of the range is gone, Dagster fails to create the run, and leaves one that never starts,
        which holds its space back until it times out.
        """
        lately = datetime.now(UTC) - timedelta(seconds=RETRIED_S)
        failed = dg.RunsFilter(job_name=embed.name, statuses=[dg.DagsterRunStatus.FAILURE], updated_after=lately)
        going = dg.RunsFilter(job_name=embed.name, statuses=UNFINISHED_STATUSES)
        return (
            any(request.job_name == embed.name for request in requests)
            or any(has_run(self.instance, runs) for runs in (going, failed))
            or self.backfills.unfinished != []
        )

    def news(self) -> Iterator[dg.AssetMaterialization]:
        """What was posted, and the partitions of `embeddings` that are complete without a run."""
        yield from posted_news(self.instance, self.held)
        complete = {
            embed_key(source, space.key)
            for space in self._embedded_now()
            if not self._is_embedding(space)
            for source in self.held.keys() - self.pending[space.key].keys()
        }
        known = self.instance.get_status_by_partition(_EMBEDDINGS, sorted(complete), SPACE_BY_SOURCE) or {}
        states = {key: status.value for key, status in known.items() if status is not None}
        missing = [key for key in sorted(complete) if states.get(key) != "MATERIALIZED"]
        for key in missing[:REPORTED_PER_TICK]:
            about = {"embedded by": "the service, as soon as it was stored"}
            yield partition_materialization(self.store, *split_embed_key(key), 0, about)

    def first_runs(self) -> list[dg.RunRequest]:
        """The first map and the first consolidation, as soon as there is an index; later ones are on schedules."""
        if not self._is_indexed():
            return []
        lacking = [(asset, job) for asset, job in _FIRST.items() if self._lacks(asset)]
        return [dg.RunRequest(job_name=job.name, run_key=f"first {asset}") for asset, job in lacking]

    def is_settled(self) -> bool:
        """Whether the next tick has nothing to look for as long as the store does not change. Without an active space
        there is no index, and so no first run, to wait for.
        """
        awaits_first = self._active() is not None and any(map(self._lacks, _FIRST))
        return not awaits_first and not any(map(self._is_embedding, self._embedded_now()))

    def _embedded_now(self) -> list[Space]:
        return [space for space in self.spaces if space.key in self.pending]

    def _active(self) -> str | None:
        return next((space.key for space in self.spaces if space.status == "active"), None)

    def _is_indexed(self) -> bool:
        active = self._active()
        if active is None:
            return False
        of_it = dg.AssetRecordsFilter(asset_key=dg.AssetKey("vector_index"), asset_partitions=[active])
        return bool(self.instance.fetch_materializations(of_it, limit=1).records)

    def _is_embedding(self, space: Space) -> bool:
        return has_unfinished_run(self.instance, embed.name, EMBED_TAG, space)

    def _lacks(self, asset: str) -> bool:
        return self.instance.get_latest_materialization_event(dg.AssetKey(asset)) is None


@dataclass(frozen=True, slots=True)
class _Tick:
    """What a tick decides about, as things are now. `order` is the sources as Dagster orders them, `tags` are for
    every run that embeds.
    """

    instance: dg.DagsterInstance
    backfills: _Backfills
    store: Store
    now: datetime
    order: Sequence[str]
    switch: str
    tags: Mapping[str, str]

    def requests(self, space: Space, pending: dict[str, int] | None, indexed: dict[str, int]) -> list[dg.RunRequest]:
        """`embed` where vectors are missing; `index`, noted in `indexed`, where enough is new.

        :param pending: sources with passages that lack a vector; None: the space is neither searched nor built.
        """
        if pending is None:
            return []
        requests = []
        if pending and self._may_embed(space):
            requests = self._embed_requests(space, pending)
        count = self.store.vectors.count(space.key)
        is_due = self._is_index_due(space, count, indexed.get(space.key), is_complete=not pending)
        if is_due and not self._index_has_to_wait(space):
            indexed[space.key] = count
            requests.append(dg.RunRequest(job_name=index.name, partition_key=space.key, tags=URGENT))
        return requests

    def _may_embed(self, space: Space) -> bool:
        failure = failure_of(self.store, space.key)
        if failure is not None and self.now < failure.next_try(LONGEST_WAIT_S[space.status]):
            return False
        if has_unfinished_run(self.instance, embed.name, EMBED_TAG, space):
            return False
        if space.status == "active":
            return True
        if is_paused(self.store) or self.backfills.may_embed_into(space.key):
            return False
        return not has_unfinished_run(self.instance, index.name, "dagster/partition", space)

    def _embed_requests(self, space: Space, pending: dict[str, int]) -> list[dg.RunRequest]:
        """The runs with the newest episodes first."""
        wanted = set(self.order) if sum(pending.values()) > BACKLOG else set(pending)
        runs = contiguous_runs(self.order, wanted, SOURCES_PER_RUN)
        dated = [(newest, run) for run in runs for newest in self._newest(space, stretch(self.order, *run))]
        urgent = URGENT if space.status == "active" else {}
        return [_embed_request(*run, space.key, {**self.tags, **urgent}) for _, run in sorted(dated, reverse=True)]

    def _newest(self, space: Space, sources: Sequence[str]) -> list[datetime]:
        """When the newest episode happened that these sources lack; nothing when they lack none."""
        pending = self.store.vectors.pending(space.key, sources, 1)
        found = self.store.episodes.get([episode.episode_id for episode in pending])
        return [episode.timestamp for episode in found.values()]

    def _is_index_due(self, space: Space, count: int, indexed: int | None, *, is_complete: bool) -> bool:
        """A space that is being built is indexed in order to be switched to, however little it holds; the active one
        also while its backlog is long, since searches read what is not indexed.
        """
        much_is_new = abs(count - (indexed or 0)) >= REINDEX_AFTER or self.store.vectors.index_state(space.key).is_lost
        if space.status == "building":
            return is_complete and (self.switch == "auto" or indexed is None or much_is_new)
        return much_is_new or (is_complete and indexed is None and count > 0)

    def _index_has_to_wait(self, space: Space) -> bool:
        """Whether an `index` run of the space goes on, or failed just now."""
        filters = dg.RunsFilter(job_name=index.name, tags={"dagster/partition": space.key})
        for record in self.instance.get_run_records(filters, limit=1):
            status, ended = record.dagster_run.status, record.end_time or 0.0
            recent = self.now.timestamp() - ended < INDEX_RETRY_S
            return status in UNFINISHED_STATUSES or (status is dg.DagsterRunStatus.FAILURE and recent)
        return False


def _embed_request(first: str, last: str, space: str, tags: dict[str, str]) -> dg.RunRequest:
    covered = {
        "dagster/asset_partition_range_start": embed_key(first, space),
        "dagster/asset_partition_range_end": embed_key(last, space),
        EMBED_TAG: space,
    }
    return dg.RunRequest(job_name=embed.name, tags={**covered, **tags})
