"""A store, a server that speaks the services' forms, and pools of their models."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.embeddings.base import EmbeddingPool
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.index import known_space
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.conftest import OpenStore, mongo_database
from anamnesis_tests.support.embedding_server import EmbeddingServer
from anamnesis_tests.support.mongo_server import shared

Opened = Callable[[str], EmbeddingPool]
"""Opens the pool of a model and loads it."""
KEY = "key-of-a-service"
SMALL = "text-embedding-3-small"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer().running() as server:
        yield server


@pytest.fixture
def store(
    open_store: OpenStore, place: tuple[str, Path], server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> Store:
    keys = {f"{service}_API_KEY": KEY for service in ("OPENAI", "VOYAGE", "GEMINI")}
    backend, folder = place
    if backend == "mongo":
        keys |= {"STORE": "mongo", "MONGO_URI": shared.uri(), "MONGO_DATABASE": mongo_database(folder)}
    for name, value in {
        **keys,
        "HOME": str(folder),
        "EMBEDDING_API_URL": server.url,
        "LLM_DAILY_DOLLARS": "1",
        "LOCAL_ONLY": "0",
        "LLM_REQUESTS_PER_MINUTE": "10000",
    }.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", value)
    return open_store()


def space_of(store: Store, model: str) -> Space:
    files = wiring.model_files(wiring.effective_settings(store), model)
    store.spaces.put(files.space())
    return files.space()


def pool_space(store: Store) -> Space:
    return known_space(store, wiring.model_files(wiring.effective_settings(store), SMALL).space().key)


@pytest.fixture
def opened(store: Store) -> Iterator[Opened]:
    pools: list[EmbeddingPool] = []

    def opened(model: str) -> EmbeddingPool:
        pool = wiring.open_pool_of(store, space_of(store, model), priority=Priority.QUERY)
        pools.append(pool)
        pool.load()
        return pool

    yield opened
    for pool in pools:
        pool.close()


def used(store: Store) -> Any:
    return store.llm.used(f"{datetime.now(UTC):%Y-%m-%d}")
