"""Dagster API over GraphQL: partitions, runs of `ingest`, backfills for a re-embed, definitions.

The queries fit dagster-graphql 1.12 and 1.13. Open-source Dagster has no authentication: `sidecar/dagster_ui.py` guards
its port.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from anamnesis_pipeline.model import RESERVED_SOURCES
from anamnesis_pipeline.runtime.dagster_home import dagster_link, dagster_url
from anamnesis_pipeline.services.dagster.backfills import Backfills, BackfillState, EmbeddingBackfill, Launched
from anamnesis_pipeline.services.dagster.definitions import LoadedDefinitions, LoadedSchedule
from anamnesis_pipeline.services.dagster.runs import Automation, IngestRuns, JobRun, Runs
from anamnesis_pipeline.settings import Settings

ASSET_PAGES = {
    "crawled_files": "/dashboard/sources",
    "documents": "/dashboard/sources",
    "exchanges": "/dashboard/logs",
    "summaries": "/dashboard/logs",
    "episodes": "/dashboard/episodes",
    "session_summaries": "/dashboard/sessions",
    "entities": "/dashboard/entities",
    "posted_notes": "/dashboard/episodes",
    "uploaded_documents": "/dashboard/sources",
    "chat_answers": "/chat",
    "embeddings": "/dashboard/embedding",
    "vector_index": "/dashboard/embedding",
    "memory_map": "/dashboard/map",
    "consolidation_report": "/dashboard",
    "observations": "/dashboard/review",
    "proposals": "/dashboard/review",
    "review_report": "/dashboard/review",
    "memory_index": "/dashboard/topics",
    "drift_report": "/dashboard/drift",
}
"""Asset, or what its key begins with, -> the page with its content; each links to the other."""
POSTED_ASSETS = dict(zip(RESERVED_SOURCES, ("posted_notes", "uploaded_documents", "chat_answers"), strict=True))
"""Reserved source -> its asset; it is a partition of `embeddings` only."""


class DagsterApi(Runs, Backfills, LoadedDefinitions):
    """All calls to one Dagster webserver."""


def open_dagster(settings: Settings) -> DagsterApi:
    """Return the Dagster of this deployment."""
    return DagsterApi(dagster_url(settings), dagster_link(settings), settings.api_token)


class Dagster(Protocol):
    """The calls to Dagster, which `DagsterApi` makes. Each may raise ServiceUnreachable."""

    def launch_embedding_backfill(self, space: str, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> str:
        """Launch a backfill of `embeddings` and return its id."""

    def cancel_backfill(self, backfill_id: str) -> None:
        """Start no further runs of a backfill."""

    def unfinished_backfills(self) -> list[EmbeddingBackfill]:
        """Return the unfinished backfills of `embeddings`, from any origin."""

    def backfill_state(self, backfill_id: str) -> BackfillState | None:
        """Return its progress; None if unknown."""

    def link(self, backfill_id: str) -> str:
        """Return its URL in the UI; never raises."""

    def launch_ingest(self, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> Launched:
        """Run `ingest` for these sources, at least one."""

    def ingest_runs(self, cut_off: str | None = None) -> IngestRuns:
        """Return the state of `ingest`. `cut_off`: id of the last interrupted run."""

    def unfinished_ingest_backfills(self) -> list[str]:
        """Return the ids of unfinished backfills of `ingest`."""

    def launch_job(self, job: str) -> str:
        """Launch a run of a job without partitions and return its id."""

    def latest_run(self, job: str) -> JobRun | None:
        """Return the latest run of a job."""

    def stop_runs(self, run_ids: Sequence[str]) -> None:
        """Stop these runs."""

    def stopped_automations(self) -> list[Automation]:
        """Return sensors and schedules that should run but are stopped."""

    def start_automations(self) -> list[Automation]:
        """Start these and return them."""

    def schedules(self) -> list[LoadedSchedule]:
        """Return the schedules of the loaded definitions."""

    def reload_definitions(self) -> None:
        """Reload the definitions."""

    def run_link(self, run_id: str) -> str:
        """Return a run's URL in the UI; never raises."""
