"""The services that `create_app` passes to the routes."""

from collections.abc import Callable
from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request

from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.services.dagster.api import Dagster
from anamnesis_pipeline.services.embedding_control import ModelPool
from anamnesis_pipeline.services.posting import Poster
from anamnesis_pipeline.settings import Settings
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
    def poster(self) -> Poster:
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
