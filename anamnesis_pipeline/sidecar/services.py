"""What the routes need, as `create_app` is given it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request

from anamnesis_pipeline.dagster_api.backfills import BackfillState, EmbeddingBackfill, Launched
from anamnesis_pipeline.dagster_api.definitions import LoadedSchedule
from anamnesis_pipeline.dagster_api.runs import Automation, IngestRuns, JobRun
from anamnesis_pipeline.embeddings.base import EmbeddingPool, QueryVectors
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.schemas import CoverageOut
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.store.base import Store


class ModelPool(Protocol):
    """The embedding model as far as the sidecar shows its state, moves it to other cores and measures its space."""

    @property
    def ready(self) -> bool:
        """Whether it is in memory."""

    @property
    def failure(self) -> str | None:
        """Why it will not be; None while there is hope."""

    @property
    def depth(self) -> int:
        """Batches that wait."""

    @property
    def model_id(self) -> str:
        """Its name."""

    @property
    def pool(self) -> EmbeddingPool | None:
        """What embeds; None until the model is in memory."""

    @property
    def next_failure(self) -> tuple[str, str] | None:
        """(model, why) when the active space's model does not load and the one before it answers."""

    def load_in_background(self) -> None:
        """Start loading and return at once."""

    def space_for(self, active: Space) -> Space:
        """The space that is searched now."""

    def embed_query(self, text: str, space: Space) -> QueryVectors:
        """A question's vectors in that space; raises RetryLater while its model loads."""

    def follow_cores(self) -> None:
        """Take over the cores that are configured now."""


class Backfills(Protocol):
    """What is asked of Dagster; see `dagster_api.api.DagsterApi`. Every call may raise ServiceUnreachable."""

    def launch_embedding_backfill(self, space: str, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> str:
        """The id of a new backfill of `embeddings`."""

    def cancel_backfill(self, backfill_id: str) -> None:
        """Start no further run of it."""

    def unfinished_backfills(self) -> list[EmbeddingBackfill]:
        """Those of `embeddings` that have work to do, whoever launched them."""

    def backfill_state(self, backfill_id: str) -> BackfillState | None:
        """How far it is; None when it is not known."""

    def link(self, backfill_id: str) -> str:
        """Where the UI shows it; raises nothing."""

    def launch_ingest(self, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> Launched:
        """Run `ingest` for these sources, of which there is at least one."""

    def ingest_runs(self, cut_off: str | None = None) -> IngestRuns:
        """What `ingest` is doing. `cut_off`: the id of the run that was cut off last."""

    def unfinished_ingest_backfills(self) -> list[str]:
        """See `DagsterApi.unfinished_ingest_backfills`."""

    def launch_job(self, job: str) -> str:
        """The id of a new run of a job without partitions."""

    def latest_run(self, job: str) -> JobRun | None:
        """The run of a job that was launched last."""

    def stop_runs(self, run_ids: Sequence[str]) -> None:
        """End these runs."""

    def stopped_automations(self) -> list[Automation]:
        """Sensors and schedules that should run, and are stopped."""

    def start_automations(self) -> list[Automation]:
        """Start those; returns them."""

    def schedules(self) -> list[LoadedSchedule]:
        """The schedules of the loaded definitions."""

    def reload_definitions(self) -> None:
        """Load the definitions again."""

    def run_link(self, run_id: str) -> str:
        """Where the UI shows a run; raises nothing."""


class Services(Protocol):
    """Everything behind the routes. Whoever makes the application also decides what `close` ends."""

    @property
    def settings(self) -> Settings:
        """Of this process."""

    @property
    def store(self) -> Store:
        """Open."""

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
        """Does the work of a re-embed."""

    @property
    def close(self) -> Callable[[], None]:
        """Ends everything above."""


async def services_of(request: Request) -> Services:
    """The services of the application that answers; async, since a plain function would cost a thread."""
    services: Services = request.app.state.services
    return services


Uses = Annotated[Services, Depends(services_of)]


def coverage(store: Store) -> CoverageOut:
    """How many passages the active space has embedded."""
    space = store.spaces.active()
    if space is None:
        return {"space": None, "model_id": None, "embedded": 0, "stored": store.overview.counts().passages}
    now = store.vectors.progress(space.key)
    return {"space": space.key, "model_id": space.model_id, "embedded": now.passages_done, "stored": now.passages}
