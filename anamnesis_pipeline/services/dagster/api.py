"""Dagster API over GraphQL: partitions, runs of `ingest`, backfills for a re-embed, definitions.

The queries fit dagster-graphql 1.12 and 1.13. Open-source Dagster has no authentication: `sidecar/dagster_ui.py` guards
its port.
"""

from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.services.dagster.backfills import Backfills
from anamnesis_pipeline.services.dagster.definitions import LoadedDefinitions
from anamnesis_pipeline.services.dagster.runs import Runs
from anamnesis_pipeline.settings import Settings

LOOPBACK = "127.0.0.1"
ASSET_PAGES = {
    "crawled_files": "/dashboard/sources",
    "documents": "/dashboard/sources",
    "exchanges": "/dashboard/logs",
    "summaries": "/dashboard/logs",
    "episodes": "/dashboard/episodes",
    "session_summaries": "/dashboard/sessions",
    "posted_notes": "/dashboard/episodes",
    "uploaded_documents": "/dashboard/sources",
    "chat_answers": "/chat",
    "embeddings": "/dashboard/embedding",
    "vector_index": "/dashboard/embedding",
    "memory_map": "/dashboard/map",
    "consolidation_report": "/dashboard",
}
"""Asset -> the page with its content; each links to the other."""
POSTED_ASSETS = dict(zip(RESERVED_SOURCES, ("posted_notes", "uploaded_documents", "chat_answers"), strict=True))
"""Reserved source -> its asset; it is a partition of `embeddings` only."""


class DagsterApi(Runs, Backfills, LoadedDefinitions):
    """All calls to one Dagster webserver."""


def dagster_url(settings: Settings) -> str:
    """Return the base address of the Dagster UI for this process."""
    return settings.dagster_url or f"http://{LOOPBACK}:{settings.dagster_port}"


def dagster_link(settings: Settings) -> str:
    """Return the base address of the Dagster UI for its users."""
    return settings.dagster_link or dagster_url(settings)


def open_dagster(settings: Settings) -> DagsterApi:
    """Return the Dagster of this deployment."""
    return DagsterApi(dagster_url(settings), dagster_link(settings), settings.api_token)
