"""The Dagster project: assets in flow order, then what starts and checks them."""

import dagster as dg

from anamnesis_pipeline.defs.checks import CHECKS
from anamnesis_pipeline.defs.consolidation import consolidation_report
from anamnesis_pipeline.defs.crawled_files import crawled_files
from anamnesis_pipeline.defs.documents import documents
from anamnesis_pipeline.defs.drift_report import drift_report
from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.defs.embeddings import embeddings
from anamnesis_pipeline.defs.entities import entities, every_thing_is_found
from anamnesis_pipeline.defs.episodes import episodes
from anamnesis_pipeline.defs.exchanges import exchanges
from anamnesis_pipeline.defs.jobs import consolidate, draw_map, dream, embed, index, ingest, review
from anamnesis_pipeline.defs.knowledge import KNOWLEDGE_CHECKS, observations, proposals, review_report
from anamnesis_pipeline.defs.memory_index import memory_index
from anamnesis_pipeline.defs.memory_map import memory_map
from anamnesis_pipeline.defs.posted import POSTED, finish_posted
from anamnesis_pipeline.defs.reporting import described
from anamnesis_pipeline.defs.resources import EmbeddingPoolResource, LlmResource, MemoryResource, SshResource
from anamnesis_pipeline.defs.schedules import (
    daily_consolidation,
    daily_dream,
    daily_ingest,
    daily_map,
    weekly_review,
)
from anamnesis_pipeline.defs.sensors import crawl_sensor, quick_crawl_sensor
from anamnesis_pipeline.defs.session_summaries import session_summaries
from anamnesis_pipeline.defs.summaries import summaries
from anamnesis_pipeline.defs.vector_index import vector_index

ASSETS: tuple[dg.AssetsDefinition | dg.AssetSpec, ...] = (
    crawled_files,
    exchanges,
    documents,
    summaries,
    episodes,
    session_summaries,
    entities,
    *POSTED.values(),
    embeddings,
    vector_index,
    memory_map,
    consolidation_report,
    observations,
    proposals,
    review_report,
    memory_index,
    drift_report,
)

defs = dg.Definitions(
    assets=dg.with_source_code_references(dg.map_asset_specs(described, ASSETS)),
    asset_checks=[*CHECKS, every_thing_is_found, *KNOWLEDGE_CHECKS],
    jobs=[ingest, embed, index, draw_map, consolidate, dream, review, finish_posted],
    sensors=[crawl_sensor, quick_crawl_sensor, embed_sensor],
    schedules=[daily_ingest, daily_consolidation, daily_map, daily_dream, weekly_review],
    resources={
        "memory": MemoryResource(keeps_open=True),
        "embedding_pool": EmbeddingPoolResource(),
        "llm": LlmResource(),
        "ssh": SshResource(),
    },
    # One process per run: 2.2 times cheaper than a process per step, and the steps follow each other anyway.
    executor=dg.in_process_executor,
)
