"""Asset: vectors of passages, one partition per source and embedding space."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import dagster as dg

from anamnesis_pipeline.defs.canceled import end_as_canceled
from anamnesis_pipeline.defs.checks import EMBEDDING_CHECKS, every_passage_is_embedded, vectors_are_sound
from anamnesis_pipeline.defs.partitions import SPACE_BY_SOURCE, split_embed_key
from anamnesis_pipeline.defs.posted import POSTED
from anamnesis_pipeline.defs.reporting import ROWS, versioned
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, MemoryResource, follow_cores
from anamnesis_pipeline.errors import AnamnesisError, SpaceConflict, SpaceNotFound
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.embed import EmbedReport, embed_sources
from anamnesis_pipeline.pipeline.index import known_space
from anamnesis_pipeline.pipeline.reembed_state import is_paused, stopped_backfill
from anamnesis_pipeline.services.dagster.backfills import BACKFILL_TAG, EMBED_TAG
from anamnesis_pipeline.services.reembedding import adopt, follow
from anamnesis_pipeline.store.base import Store

OBSERVE_EVERY_S = 5.0
"""Seconds between two progress events; one costs about 45 ms of Dagster's storage."""
SOURCES_PER_RUN = 100
NO_PARTITION = dg.SpecificPartitionsPartitionMapping([])
"""The store knows which vectors are missing: posted text has no upstream partition, and `embed_sensor` embeds changed
partitions in the spaces that need it, instead of a backfill in every space."""
POOL = "embedding"
"""Dagster's pool of runs that load a model. Its limit is their maximum number: on a cluster, the number of GPUs."""


@dg.asset(
    partitions_def=SPACE_BY_SOURCE,
    deps=[
        dg.AssetDep("episodes", partition_mapping=NO_PARTITION),
        dg.AssetDep("session_summaries", partition_mapping=NO_PARTITION),
        *POSTED.values(),
    ],
    group_name="memory",
    kinds={"pytorch"},
    pool=POOL,
    check_specs=EMBEDDING_CHECKS,
    output_required=False,
    backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=SOURCES_PER_RUN),
)
def embeddings(
    context: dg.AssetExecutionContext, memory: MemoryResource, embedding_pool: EmbeddingPoolResource
) -> Iterator[dg.AssetCheckResult]:
    """Vectors of the passages that have none in a space, newest episodes first, with a checkpoint every
    `checkpoint_every` episodes. One partition per source and space.

    `embed_sensor` requests what is missing. To embed everything again with another model, add its space with
    `anamnesis model add <model>`, then backfill all sources of that space here. The re-embed can be paused, resumed,
    canceled and retried, and no passage is embedded twice. Searches use the active space until the new one is complete
    and indexed.
    """
    by_space: dict[str, list[str]] = defaultdict(list)
    for key in context.partition_keys:
        source, space_key = split_embed_key(key)
        by_space[space_key].append(source)
    for space_key, sources in by_space.items():
        run = _Run(context, memory, _space(context, memory, space_key), sources)
        embedding_pool.check(memory, run.space)
        try:
            run.materialize(*_embed(run, embedding_pool))
        except SpaceNotFound:
            end_as_canceled(
                context, memory, f"{space_key} was dropped while it was being embedded; its vectors are gone."
            )
    yield every_passage_is_embedded(memory)
    yield vectors_are_sound(memory)


def _space(context: dg.AssetExecutionContext, memory: MemoryResource, key: str) -> Space:
    """Return the space of a partition. A backfill of an added space is a re-embed, from any launcher."""
    tags, store = context.run.tags, memory.store
    backfill_id = tags.get(BACKFILL_TAG)
    if backfill_id is not None and backfill_id == stopped_backfill(store):
        end_as_canceled(context, memory, _stopped(key))
    try:
        space = known_space(store, key)
        if space.status == "added" and backfill_id is not None:
            adopt(store, space, backfill_id)
        elif space.status == "building" and backfill_id is not None:
            follow(store, space, backfill_id)
    except SpaceNotFound as exc:
        if EMBED_TAG in tags:  # it existed when this run was requested
            end_as_canceled(context, memory, f"{exc}. It was dropped meanwhile")
        raise dg.Failure(f"{exc}. It was dropped meanwhile, or add it with: anamnesis model add") from exc
    except SpaceConflict as exc:
        context.log.warning("%s gets its vectors, but is not switched to by itself: %s", key, exc)
    return known_space(store, key)


def partition_materialization(
    store: Store, source: str, space: str, pending: int, about: Mapping[str, Any]
) -> dg.AssetMaterialization:
    """Return the materialization of `source|space`, with its size and the embedded content's data version.

    :param pending: passages without a vector.
    """
    content = store.overview.content_of(source)
    return dg.AssetMaterialization(
        "embeddings",
        partition=dg.MultiPartitionKey({"source": source, "space": space}),
        metadata={ROWS: max(0, store.overview.counts(source).passages - pending), **about},
        tags=versioned(f"{space}-{content}-pending:{pending}"),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """The work of a run for one space."""

    context: dg.AssetExecutionContext
    memory: MemoryResource
    space: Space
    sources: Sequence[str]

    @property
    def store(self) -> Store:
        return self.memory.store

    def partition(self, source: str) -> dg.MultiPartitionKey:
        return dg.MultiPartitionKey({"source": source, "space": self.space.key})

    def lacking(self) -> set[str]:
        """Return the sources of this run with passages without a vector."""
        return set(self.sources) & self.store.vectors.pending_sources(self.space.key).keys()

    def reason_to_end(self) -> str | None:
        """Return why the run must end early; None while it goes on, as always for the active space.

        :raises SpaceNotFound: it was dropped.
        """
        status = known_space(self.store, self.space.key).status
        if status == "active":
            return None
        if self.space.status == "building" and status == "added":
            return _stopped(self.space.key)
        if not is_paused(self.store):
            return None
        missing = sum(self.store.vectors.pending_sources(self.space.key).values())
        return (
            f"Paused: {missing} passages of {self.space.key} lack their vectors until the re-embed is resumed "
            "(anamnesis reembed resume)."
        )

    def materialize(self, report: EmbedReport, about: Mapping[str, Any]) -> None:
        """Log the materialization of every partition: each has a separate data version, which one output for a range of
        partitions cannot have.
        """
        pending = self.store.vectors.pending_sources(self.space.key)
        for source in self.sources:
            done = {"passages embedded": report.sources.get(source, 0), **about}
            self.context.log_event(
                partition_materialization(self.store, source, self.space.key, pending.get(source, 0), done)
            )

    @contextmanager
    def keeping_complete_sources(self) -> Iterator[None]:
        """Materialize completed sources even if the run ends early."""
        before = self.lacking()
        try:
            yield
        except BaseException:
            with suppress(AnamnesisError):  # the store or the space may be gone
                for source in sorted(before - self.lacking()):
                    self.context.log_event(partition_materialization(self.store, source, self.space.key, 0, {}))
            raise


def _embed(run: _Run, embedding_pool: EmbeddingPoolResource) -> tuple[EmbedReport, dict[str, Any]]:
    """Embed the missing passages; return the report, and the metadata shared by all sources."""
    if not run.lacking():
        return EmbedReport(), _about(run, EmbedReport())
    if reason := run.reason_to_end():
        end_as_canceled(run.context, run.memory, reason)
    reasons: list[str] = []

    def should_end() -> bool:
        if reason := run.reason_to_end():
            reasons.append(reason)
        return bool(reasons)

    with run.keeping_complete_sources(), embedding_pool.open(run.memory, run.space) as pool:
        report = embed_sources(
            run.store,
            run.space.key,
            run.sources,
            pool,
            embedding_pool.settings(run.memory).checkpoint_every,
            should_pause=should_end,
            on_checkpoint=_Observer(run).observe,
            before_checkpoint=lambda: follow_cores(pool, embedding_pool.settings(run.memory), run.context.log.warning),
        )
        if reasons:
            end_as_canceled(run.context, run.memory, reasons[0])
        cores = ", ".join(map(str, pool.cores))
        return report, _about(run, report) | {"cores": cores, "workers": pool.workers, "device": pool.device}


@dataclass(slots=True)
class _Observer:
    """Reports progress to Dagster at intervals."""

    run: _Run
    next_s: float = 0.0

    def observe(self, report: EmbedReport) -> None:
        if report.seconds < self.next_s:
            return
        self.next_s = report.seconds + OBSERVE_EVERY_S
        busiest = max(report.sources, key=lambda source: report.sources[source])
        self.run.context.log_event(
            dg.AssetObservation(
                self.run.context.asset_key, partition=self.run.partition(busiest), metadata=_about(self.run, report)
            )
        )


def _about(run: _Run, report: EmbedReport) -> dict[str, Any]:
    space = known_space(run.store, run.space.key)
    progress = run.store.vectors.progress(space.key)
    missing = progress.passages - progress.passages_done
    about: dict[str, Any] = {
        "passages done": progress.passages_done,
        "passages in all": progress.passages,
        "episodes of this run": report.episodes,
        "passages per second": report.passages_per_s,
        "model": space.model_id,
        "dimensions": space.dim,
        "precision": space.precision,
    }
    if space.fidelity is not None:
        about["lowest cosine to fp32"] = round(space.fidelity, 5)
    if report.passages_per_s and missing:
        about["minutes left"] = round(missing / report.passages_per_s / 60, 1)
    return about


def _stopped(key: str) -> str:
    return f"{key} is no longer being built, and keeps what it has; go on with: anamnesis model use {key}"
