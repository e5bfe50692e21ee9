"""The application over a real store, engine, poster and pool; only the model is a small deterministic one."""

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import SecretStr
from starlette.testclient import TestClient

from anamnesis_pipeline.embeddings.base import Role
from anamnesis_pipeline.embeddings.hashing import HashingEmbedder
from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel, available_cores
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.exchanges.redaction import Redactor
from anamnesis_pipeline.model import Space, StoredPassage
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.steps.embeddings import embed_passages
from anamnesis_pipeline.steps.posting import Poster
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite

BASE = "http://127.0.0.1:3010"
SPACE = Space(key="hashing-1", model_id="hashing-64", dim=64)


class HashedWords:
    """A model for the pool: one piece per word, vectors by feature hashing."""

    def __init__(self) -> None:
        self._embedder = HashingEmbedder(SPACE.dim)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [[zlib.crc32(word.encode()) for word in text.lower().split()] for text in texts]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return self._embedder.embed([" ".join(map(str, ids)) for ids in batch], "passage")


@dataclass(frozen=True)
class TestServices:
    __test__ = False

    settings: Settings
    store: Store
    engine: Engine
    poster: Poster
    pool: SpaceModels
    close: Callable[[], None]


@dataclass(frozen=True)
class SpaceEmbedder:
    models: SpaceModels
    model_id: str = SPACE.model_id
    dim: int = SPACE.dim

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        return self.models.embed_passages(texts, SPACE)


def open_services(home: Path, load: Callable[[], HashedWords] = HashedWords, **settings: Any) -> TestServices:
    """Services over `home`; `load` may take as long as a test wants the model to load."""
    store = open_sqlite(home / "anamnesis.db", home / "index")
    store.spaces.put(SPACE)
    store.spaces.activate(SPACE.key)
    model = PoolModel(SPACE.model_id, SPACE.dim, load)
    models = SpaceModels(lambda space: PinnedPool(model, available_cores()[:1]), store.spaces.active)

    def embed_now(passages: Sequence[StoredPassage], space: Space) -> None:
        embed_passages(store, space, passages, SpaceEmbedder(models))

    def close() -> None:
        models.close()
        store.close()

    token = settings.pop("api_token", None)
    return TestServices(
        settings=Settings(home=home, api_token=SecretStr(token) if token else None, **settings),
        store=store,
        engine=Engine(store, models.embed_query, models.space_for),
        poster=Poster(store, Redactor(b"0123456789abcdef").mask_text, minilm_pieces(), embed_now),
        pool=models,
        close=close,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def services(tmp_path: Path) -> TestServices:
    return open_services(tmp_path)


@pytest.fixture
def client(services: TestServices) -> Iterator[TestClient]:
    with TestClient(create_app(services), base_url=BASE) as client:
        wait_for(lambda: services.pool.ready)
        yield client


@pytest.fixture
def post(client: TestClient) -> Callable[..., dict[str, Any]]:
    """Posts an episode with sensible fields; returns the reply."""

    def post(summary: str, **fields: Any) -> dict[str, Any]:
        reply = client.post("/api/episodes", json={"summary": summary, "instance": "mac", "project": "acme", **fields})
        assert reply.status_code == 201, reply.text
        body: dict[str, Any] = reply.json()
        return body

    return post
