"""The services that `create_app` passes to the routes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request

from anamnesis_pipeline.embeddings.base import EmbeddingPool, QueryVectors
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.services.dagster.backfills import BackfillState, EmbeddingBackfill, Launched
from anamnesis_pipeline.services.dagster.definitions import LoadedSchedule
from anamnesis_pipeline.services.dagster.runs import Automation, IngestRuns, JobRun
from anamnesis_pipeline.services.posting import Poster
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.schemas import CoverageOut
from anamnesis_pipeline.store.base import Store


class ModelPool(Protocol):
    """The embedding model: its state, its cores, and query vectors to measure its space."""

    @property
    def ready(self) -> bool:
        """Whether it is in memory."""

    @property
    def failure(self) -> str | None:
        """Why it will never load; None: it may."""

    @property
    def depth(self) -> int:
        """Number of waiting batches."""

    @property
    def model_id(self) -> str:
        """Its name."""

    @property
    def pool(self) -> EmbeddingPool | None:
        """The embedding pool; None until the model is in memory."""

    @property
    def next_failure(self) -> tuple[str, str] | None:
        """(model, reason) if the active space's model does not load and the previous one answers."""

    def load_in_background(self) -> None:
        """Start loading and return at once."""

    def space_for(self, active: Space) -> Space:
        """Return the space that is searched now."""

    def embed_query(self, text: str, space: Space) -> QueryVectors:
        """Embed a query in that space; raise RetryLater while its model loads."""

    def follow_cores(self) -> None:
        """Move to the configured cores."""


class Backfills(Protocol):
    """The calls to Dagster, as in `dagster_api.api.DagsterApi`. Each may raise ServiceUnreachable."""

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


class Services(Protocol):
    """Everything behind the routes. The creator of the application decides what `close` ends."""

    @property
    def settings(self) -> Settings:
        """Settings of this process."""

    @property
    def store(self) -> Store:
        """The open store."""

    @property
    def engine(self) -> Engine:
        """Answers searches."""

    @property
    def poster(self) -> Poster:
        """Writes what clients post."""

    @property
    def pool(self) -> ModelPool:
        """Embeds queries."""

    @property
    def dagster(self) -> Backfills:
        """Runs the re-embed."""

    @property
    def close(self) -> Callable[[], None]:
        """Closes everything above."""


async def services_of(request: Request) -> Services:
    """Return the services of the application; async, since a plain function would occupy a thread."""
    services: Services = request.app.state.services
    return services


Uses = Annotated[Services, Depends(services_of)]


def coverage(store: Store) -> CoverageOut:
    """Return how many passages are embedded in the active space."""
    space = store.spaces.active()
    if space is None:
        return {"space": None, "model_id": None, "embedded": 0, "stored": store.overview.counts().passages}
    now = store.vectors.progress(space.key)
    return {"space": space.key, "model_id": space.model_id, "embedded": now.passages_done, "stored": now.passages}
