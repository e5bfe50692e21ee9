"""The services that `create_app` passes to the routes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.services.dagster.api import Dagster
from anamnesis_pipeline.services.embedding_control import ModelPool, coverage
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.schemas import CoverageOut
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.admission import DiskSpace
from anamnesis_pipeline.store.base import Store


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
    def poster(self) -> EpisodeWriter:
        """Writes what clients post."""

    @property
    def pool(self) -> ModelPool:
        """Embeds queries."""

    @property
    def dagster(self) -> Dagster:
        """Runs the re-embed."""

    @property
    def close(self) -> Callable[[], None]:
        """Closes everything above."""


async def services_of(request: Request) -> Services:
    """Return the services of the application; async, since a plain function would occupy a thread."""
    services: Services = request.app.state.services
    return services


Uses = Annotated[Services, Depends(services_of)]


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a search lacks, and how much of the store is embedded; None: the store does not answer."""

    missing: list[str]
    coverage: CoverageOut | None


def readiness(services: Services, room: DiskSpace) -> Readiness:
    """Return what is missing of store, free space and model."""
    missing, covered = [], None
    try:
        covered = coverage(services.store)
        if full := room.problem(services.store):
            missing.append(f"store: {full}")
    except AnamnesisError as exc:
        missing.append(f"store: {exc}")
    pool = services.pool
    if not pool.ready:
        loading = f"{pool.model_id} is loading" if pool.model_id else "none is loaded; see ANAMNESIS_MODEL"
        missing.append(f"model: {pool.failure or loading}")
    return Readiness(missing, covered)
