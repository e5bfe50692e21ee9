"""Sensor for embedding and indexing: requests the work that the store lacks, and resumes a re-embed after any end of a
run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from logging import Logger
from typing import Any

import dagster as dg

from anamnesis_pipeline.defs.checks import embedding_evaluations, posted_evaluations
from anamnesis_pipeline.defs.embeddings import SOURCES_PER_RUN, partition_materialization
from anamnesis_pipeline.defs.jobs import UNFINISHED_STATUSES, consolidate, draw_map, embed, has_run, index
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
from anamnesis_pipeline.errors import AnamnesisError, ServiceUnreachable, SpaceConflict, UnknownModel
from anamnesis_pipeline.model import Space, content_id
from anamnesis_pipeline.pipeline.index import building_space
from anamnesis_pipeline.pipeline.reembed_state import failure_of, is_paused
from anamnesis_pipeline.services.dagster.api import DagsterApi, open_dagster
from anamnesis_pipeline.services.dagster.backfills import (
    EMBED_TAG,
    STARTING_RUNS,
    UNFINISHED_BACKFILLS,
    EmbeddingBackfill,
)
from anamnesis_pipeline.services.reembedding import adopt
from anamnesis_pipeline.services.wiring import wanted_space
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.overview import SourceState

REINDEX_AFTER = 5_000
"""New vectors before the index file is updated; below that, the exact scan of new ones is fast."""
BACKLOG = 2_000
"""With more pending passages, a run takes minutes: it then covers all sources, so that new content in them is embedded
first."""
LONGEST_WAIT_S = {"active": 300.0, "building": 3_600.0}
"""Longest wait in seconds between attempts for a failing space."""
INDEX_RETRY_S = 300.0
RETRIED_S = 300.0
"""Dagster retries an interrupted run within a minute, at startup once its daemon works."""
REPORTED_PER_TICK = 200
"""Max partitions embedded without a run that one tick reports: each costs a query of its source."""
_EMBEDDINGS = dg.AssetKey("embeddings")
_FIRST = {"memory_map": draw_map, "consolidation_report": consolidate}
NOTHING_TO_EMBED = "Nothing lacks a vector, or what lacks one is being embedded, paused, or tried later."
NO_DOWNLOAD = (
    "The model that is set has no space yet. A tick downloads no model; the service does when it starts, or "
    "`anamnesis model use`"
)
URGENT = {"dagster/priority": "10"}
"""Ahead of the hundreds of queued `ingest` runs after the first start."""


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
    """Start the configured space; request `embed` for many sources at once, then `index`, and the first map and
    consolidation once an index exists.
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
    space_keys = instance.get_dynamic_partitions(str(SPACES.name))  # before the spaces, which are stored first
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
        # read again: an episode stored meanwhile must not make its source look embedded
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
    """The unfinished backfills of `embeddings`. The webserver is queried at most once per tick."""

    dagster: DagsterApi
    log: Logger

    @cached_property
    def unfinished(self) -> list[EmbeddingBackfill] | None:
        """None: the webserver does not answer; there may be some."""
        try:
            return self.dagster.unfinished_backfills(UNFINISHED_BACKFILLS)
        except ServiceUnreachable as exc:
            self.log.warning(f"What depends on backfills is left to the next tick: {exc}")
            return None

    def may_embed_into(self, space: str) -> bool:
        return self.unfinished is None or any(space in backfill.spaces for backfill in self.unfinished)


def _adopt_backfill(backfills: _Backfills, store: Store) -> None:
    """Adopt a manual backfill of an added space as the re-embed; its first run may wait long."""
    if store.spaces.active() is None or building_space(store) is not None:
        return
    added = [space for space in store.spaces.all() if space.status == "added"]
    for backfill in (backfills.unfinished or ()) if added else ():
        for space in added if backfill.status == STARTING_RUNS else ():
            with suppress(SpaceConflict):  # another re-embed was started meanwhile
                if space.key in backfill.spaces and adopt(store, space, backfill.backfill_id):
                    return


def _remembered(cursor: str | None, spaces: Sequence[Space]) -> tuple[dict[str, int], str, dict[str, str]]:
    """Parse the cursor: space -> passages at the last index request; the last fingerprint; external asset ->
    fingerprint of its last reported check result. A cursor of an earlier release has no results, so its fingerprint is
    ignored.
    """
    values: dict[str, Any] = json.loads(cursor or "{}")
    indexed: dict[str, int] = values.get("indexed", values)  # a cursor of an earlier release is only the first
    told: dict[str, str] = values.get("told", {})
    seen = values.get("seen", "") if told else ""
    return {space.key: indexed[space.key] for space in spaces if space.key in indexed}, seen, told


def _space_changes(
    backfills: _Backfills, known: Sequence[str], spaces: Sequence[Space]
) -> Iterator[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Yield requests to add a partition for every space, so that an added one can be backfilled manually, and to delete
    those of dropped spaces. A retired space loses its partition once no backfill covers it: new content is not embedded
    there.
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
    """Return a value that changes whenever `_Look` may find something new."""
    last = [event.number for event in store.events.latest(1, (Happening.WRITE, Happening.FORGET))]
    state = [last, [(space.key, space.status) for space in spaces], sorted(order), pending]
    return content_id(json.dumps(state, sort_keys=True))


def has_unfinished_run(instance: dg.DagsterInstance, job: str, tag: str, space: Space) -> bool:
    """Return whether a job has an unfinished run whose tag names the space."""
    filters = dg.RunsFilter(job_name=job, statuses=UNFINISHED_STATUSES, tags={tag: space.key})
    return has_run(instance, filters)


@dataclass(frozen=True, slots=True)
class _Look:
    """Compares the store with Dagster's state. `held`: the contents by source; `order` and `pending` as in a tick."""

    instance: dg.DagsterInstance
    store: Store
    backfills: _Backfills
    held: Mapping[str, SourceState]
    spaces: Sequence[Space]
    order: Sequence[str]
    pending: Mapping[str, Mapping[str, int]]

    def added(self) -> list[str]:
        """Return sources with episodes but no partition: the service embeds posted content."""
        return new_keys(self.order, sorted(self.held))

    def empty(self) -> list[str]:
        """Return partitions of sources without episodes, and so without embeddings."""
        filled = self.held.keys() | {source for sources in self.pending.values() for source in sources}
        return new_keys(filled, self.order)

    def may_cover_empty(self, requests: Sequence[dg.RunRequest]) -> bool:
        """Return whether a requested, running, retried or backfill run may cover an empty partition. If an end of its
        range is deleted, Dagster fails to create the run, and leaves one that never starts, which blocks its space
        until it times out.
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
        """Yield posted content, and the partitions of `embeddings` completed without a run."""
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
        """Return the runs for the first map and consolidation, once an index exists; later ones are scheduled."""
        if (active := self._active()) is None:
            return []
        indexed = dg.AssetRecordsFilter(asset_key=dg.AssetKey("vector_index"), asset_partitions=[active])
        if not self.instance.fetch_materializations(indexed, limit=1).records:
            return []
        lacking = [(asset, job) for asset, job in _FIRST.items() if self._lacks(asset)]
        return [dg.RunRequest(job_name=job.name, run_key=f"first {asset}") for asset, job in lacking]

    def is_settled(self) -> bool:
        """Return whether the next tick has nothing to do unless the store changes. Without an active space there is no
        index, and so no first run to wait for.
        """
        awaits_first = self._active() is not None and any(map(self._lacks, _FIRST))
        return not awaits_first and not any(map(self._is_embedding, self._embedded_now()))

    def _embedded_now(self) -> list[Space]:
        return [space for space in self.spaces if space.key in self.pending]

    def _active(self) -> str | None:
        return next((space.key for space in self.spaces if space.status == "active"), None)

    def _is_embedding(self, space: Space) -> bool:
        return has_unfinished_run(self.instance, embed.name, EMBED_TAG, space)

    def _lacks(self, asset: str) -> bool:
        return self.instance.get_latest_materialization_event(dg.AssetKey(asset)) is None


@dataclass(frozen=True, slots=True)
class _Tick:
    """State of one tick. `order` is the sources in Dagster's order, `tags` apply to every embedding run."""

    instance: dg.DagsterInstance
    backfills: _Backfills
    store: Store
    now: datetime
    order: Sequence[str]
    switch: str
    tags: Mapping[str, str]

    def requests(self, space: Space, pending: dict[str, int] | None, indexed: dict[str, int]) -> list[dg.RunRequest]:
        """Return `embed` runs for missing vectors, and an `index` run if due, recorded in `indexed`.

        :param pending: sources with passages without a vector; None: the space is neither searched nor built.
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
        """Return the runs, newest episodes first."""
        wanted = set(self.order) if sum(pending.values()) > BACKLOG else set(pending)
        runs = contiguous_runs(self.order, wanted, SOURCES_PER_RUN)
        dated: list[tuple[datetime, tuple[str, str]]] = []
        for run in runs:
            newest = self.store.vectors.pending(space.key, stretch(self.order, *run), 1)
            found = self.store.episodes.get([episode.episode_id for episode in newest])
            dated += [(episode.timestamp, run) for episode in found.values()]
        tags = {EMBED_TAG: space.key, **self.tags, **(URGENT if space.status == "active" else {})}
        return [
            dg.RunRequest(
                job_name=embed.name,
                tags={
                    "dagster/asset_partition_range_start": embed_key(first, space.key),
                    "dagster/asset_partition_range_end": embed_key(last, space.key),
                    **tags,
                },
            )
            for _, (first, last) in sorted(dated, reverse=True)
        ]

    def _is_index_due(self, space: Space, count: int, indexed: int | None, *, is_complete: bool) -> bool:
        """Return whether to index. A space being built is always indexed before the switch; the active one also during
        a long backlog, since searches scan what is not indexed.
        """
        much_is_new = abs(count - (indexed or 0)) >= REINDEX_AFTER or self.store.vectors.index_state(space.key).is_lost
        if space.status == "building":
            return is_complete and (self.switch == "auto" or indexed is None or much_is_new)
        return much_is_new or (is_complete and indexed is None and count > 0)

    def _index_has_to_wait(self, space: Space) -> bool:
        """Return whether an `index` run of the space is unfinished, or has just failed."""
        filters = dg.RunsFilter(job_name=index.name, tags={"dagster/partition": space.key})
        for record in self.instance.get_run_records(filters, limit=1):
            status, ended = record.dagster_run.status, record.end_time or 0.0
            recent = self.now.timestamp() - ended < INDEX_RETRY_S
            return status in UNFINISHED_STATUSES or (status is dg.DagsterRunStatus.FAILURE and recent)
        return False
