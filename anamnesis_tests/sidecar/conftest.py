"""The application over a real store, engine, poster and pool; only the model is a small deterministic one."""

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import SecretStr
from starlette.testclient import TestClient

from anamnesis_pipeline.embeddings.base import Embedded, Role
from anamnesis_pipeline.embeddings.cores import available_cores
from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.embeddings.pinned_pool import PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.space_models import SpaceModels
from anamnesis_pipeline.embeddings.token_vectors import Projection, Rows, project
from anamnesis_pipeline.errors import ServiceUnreachable
from anamnesis_pipeline.model import RESERVED_SOURCES, Space, StoredPassage
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.pipeline.daily import timings
from anamnesis_pipeline.pipeline.embed import embed_passages, embed_sources
from anamnesis_pipeline.pipeline.index import space_projection
from anamnesis_pipeline.search.engine import Engine
from anamnesis_pipeline.search.levels import LEVEL
from anamnesis_pipeline.services import embedding_control
from anamnesis_pipeline.services.dagster.backfills import BackfillState, EmbeddingBackfill, Launched
from anamnesis_pipeline.services.dagster.definitions import LoadedSchedule
from anamnesis_pipeline.services.dagster.runs import Automation, IngestRuns, JobRun
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.wiring import configured_cores, effective_settings, what_is_private
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.support.hashing_embedder import HashingEmbedder, word_directions
from anamnesis_tests.support.weight_files import safetensors

BASE = "http://127.0.0.1:3010"
SPACE = Space(key="hashing-1", model_id="hashing-64", dim=64)
Post = Callable[..., dict[str, Any]]
"""Posts an episode of this summary and these fields; the reply."""
ABSENT = 4096
"""A core that no machine of these tests has."""


class HashedWords:
    """A model for the pool: one piece per word, vectors by feature hashing."""

    precision, fidelity = "fp32", None

    def __init__(self) -> None:
        self._embedder = HashingEmbedder(SPACE.dim)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [[zlib.crc32(word.encode()) for word in text.lower().split()] for text in texts]

    def forward(self, batch: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        return self._embedder.embed([" ".join(map(str, ids)) for ids in batch], "passage")

    def forward_with_tokens(
        self, batch: Sequence[Sequence[int]], projection: Projection | None
    ) -> tuple[NDArray[np.float32], list[Rows]]:
        rows = [word_directions(" ".join(map(str, ids)), SPACE.dim) for ids in batch]
        return self.forward(batch), rows if projection is None else [project(found, projection) for found in rows]


@dataclass
class DagsterInMemory:
    """Takes backfills and does none of them; answers as long as it is `up`."""

    up: bool = True
    ingest_tags: list[dict[str, str]] = field(default_factory=list)
    launched: list[tuple[str, tuple[str, ...], str, dict[str, str]]] = field(default_factory=list)
    by_hand: list[EmbeddingBackfill] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ingests: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    runs: IngestRuns = field(default_factory=lambda: IngestRuns((), None))
    stopped: list[str] = field(default_factory=list)
    jobs: list[tuple[str, JobRun]] = field(default_factory=list)
    automations: list[Automation] = field(default_factory=list)
    """Those that are stopped."""
    settings: Callable[[], Settings] | None = None
    """What a reload makes the schedules from; None: it has no effect, as with `dagster api grpc`."""
    loaded: list[LoadedSchedule] = field(default_factory=list)
    reloads: int = 0

    def launch_embedding_backfill(self, space: str, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> str:
        self._answer()
        self.launched.append((space, tuple(sources), title, dict(tags)))
        return f"backfill{len(self.launched)}"

    def unfinished_backfills(self) -> list[EmbeddingBackfill]:
        self._answer()
        return self.by_hand

    def cancel_backfill(self, backfill_id: str) -> None:
        self._answer()
        self.cancelled.append(backfill_id)

    def backfill_state(self, backfill_id: str) -> BackfillState | None:
        self._answer()
        number = int(backfill_id.removeprefix("backfill"))
        return BackfillState("REQUESTED", len(self.launched[number - 1][1]), 0, 0, 0, None)

    def launch_ingest(self, sources: Sequence[str], title: str, tags: Mapping[str, str]) -> Launched:
        self._answer()
        self.ingests.append((tuple(sources), title))
        self.ingest_tags.append(dict(tags))
        launch_id = f"ingest{len(self.ingests)}"
        return Launched(launch_id, self.link(launch_id))

    def ingest_runs(self, cut_off: str | None = None) -> IngestRuns:
        self._answer()
        interrupted = self.runs.interrupted
        return self.runs if interrupted and interrupted.run_id == cut_off else replace(self.runs, interrupted=None)

    def launch_job(self, job: str) -> str:
        self._answer()
        self.jobs.append((job, JobRun(f"run{len(self.jobs) + 1}", "QUEUED")))
        return self.jobs[-1][1].run_id

    def latest_run(self, job: str) -> JobRun | None:
        self._answer()
        return next((run for name, run in reversed(self.jobs) if name == job), None)

    def stop_runs(self, run_ids: Sequence[str]) -> None:
        self._answer()
        self.stopped += run_ids
        left = tuple(run for run in self.runs.unfinished if run.run_id not in run_ids)
        self.runs = replace(self.runs, unfinished=left)

    def unfinished_ingest_backfills(self) -> list[str]:
        self._answer()
        return [f"ingest{n + 1}" for n in range(len(self.ingests))]

    def stopped_automations(self) -> list[Automation]:
        self._answer()
        return list(self.automations)

    def start_automations(self) -> list[Automation]:
        started = self.stopped_automations()
        self.automations.clear()
        return started

    def reload_definitions(self) -> None:
        self._answer()
        self.reloads += 1
        made = timings(self.settings()) if self.settings else {}
        self.loaded = [
            LoadedSchedule(name, each.cron, each.zone, each.is_enabled, None, None, each.next_tick(datetime.now(UTC)))
            for name, each in made.items()
        ]

    def schedules(self) -> list[LoadedSchedule]:
        self._answer()
        return self.loaded

    def run_link(self, run_id: str) -> str:
        return f"http://127.0.0.1:3000/runs/{run_id}"

    def link(self, backfill_id: str) -> str:
        return f"http://127.0.0.1:3000/runs/b/{backfill_id}"

    def _answer(self) -> None:
        if not self.up:
            raise ServiceUnreachable("Dagster does not answer on http://127.0.0.1:3000/ (ConnectError)")


@dataclass(frozen=True)
class TestServices:
    __test__ = False

    settings: Settings
    store: Store
    engine: Engine
    poster: EpisodeWriter
    pool: SpaceModels
    dagster: DagsterInMemory
    close: Callable[[], None]


@dataclass(frozen=True)
class SpaceEmbedder:
    models: SpaceModels
    space: Space
    model_id: str = SPACE.model_id
    dim: int = SPACE.dim

    def embed(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        return self.models.embed_passages(texts, self.space).vectors

    def embed_with_tokens(self, texts: Sequence[str], role: Role) -> Embedded:
        return self.models.embed_passages(texts, self.space)


def open_services(home: Path, load: Callable[[], HashedWords] = HashedWords, **settings: Any) -> TestServices:
    """Services over `home`; `load` may take as long as a test wants the model to load."""
    store = open_sqlite(home / "anamnesis.db", home / "index")
    if store.spaces.active() is None:
        store.spaces.put(SPACE)
        store.spaces.activate(SPACE.key)
    model = PoolModel(SPACE.model_id, SPACE.dim, load)
    models = SpaceModels(
        lambda space: PinnedPool(
            replace(model, projection=partial(space_projection, store, space)), available_cores()[:1]
        ),
        store.spaces.active,
        cores=lambda: configured_cores(effective_settings(store)),
    )

    def embed_now(passages: Sequence[StoredPassage], active: Space) -> None:
        space = models.space_for(active)
        embed_passages(store, space, passages, SpaceEmbedder(models, space))

    def close() -> None:
        models.close()
        store.close()

    token = settings.pop("api_token", None)
    return TestServices(
        settings=Settings(home=home, api_token=SecretStr(token) if token else None, **settings),
        store=store,
        engine=Engine(store, models.embed_query, models.space_for, private=partial(what_is_private, store)),
        poster=EpisodeWriter(store, Redactor(b"0123456789abcdef").mask_text, minilm_pieces(), embed_now),
        pool=models,
        dagster=DagsterInMemory(settings=partial(effective_settings, store)),
        close=close,
    )


def know_the_unrelated(store: Store) -> None:
    """The space counts as measured: what is unrelated in it is known."""
    level = {"means": {"dense_text": 0.2}, "spreads": {"dense_text": 0.15}, "unknown": 0.4, "passages": 1}
    store.settings.set(LEVEL + SPACE.key, level)


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def raising(error: Exception) -> Callable[..., Any]:
    """A function that fails with this, whatever it is given."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def problem(reply: Any, status: int = 422) -> dict[str, Any]:
    """The body of a refusal."""
    assert (reply.status_code, reply.headers["content-type"]) == (status, "application/problem+json"), reply.text
    body: dict[str, Any] = reply.json()
    return body


def model_folder(folder: Path, seed: int = 0) -> str:
    """The path of a folder that describes a model as wide as the one of these tests; its weights are no weights."""
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"hidden_size": SPACE.dim, "max_position_embeddings": 128}))
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (folder / "model.safetensors").write_bytes(safetensors(b"weights %d" % seed))
    return str(folder)


def stored(services: TestServices) -> dict[str, Any]:
    """The settings in the store."""
    return services.store.settings.all("config.")


def embed_all(services: TestServices, space: str) -> None:
    """What the runs of a backfill do."""
    embed_sources(services.store, space, RESERVED_SOURCES, HashingEmbedder(SPACE.dim, token_dims=64), 25)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own settings, and no download."""
    for name in [name for name in os.environ if name.startswith("ANAMNESIS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path))
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "1")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[TestServices]:
    services = open_services(tmp_path)
    yield services
    services.close()


@pytest.fixture
def client(services: TestServices) -> Iterator[TestClient]:
    with TestClient(create_app(services), base_url=BASE) as client:
        wait_for(lambda: services.pool.ready)
        yield client


@pytest.fixture
def post(client: TestClient) -> Post:
    """Its fields are sensible ones unless a test says others."""

    def post(summary: str, **fields: Any) -> dict[str, Any]:
        reply = client.post("/api/episodes", json={"summary": summary, "instance": "mac", "project": "acme", **fields})
        assert reply.status_code == 201, reply.text
        body: dict[str, Any] = reply.json()
        return body

    return post


@pytest.fixture
def model(tmp_path: Path) -> str:
    return model_folder(tmp_path / "tiny")


@pytest.fixture
def first_model_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of the first space, which has no files, looks as if it had those that made its vectors."""
    find = embedding_control.model_files

    def found(settings: Settings, model_id: str, *rest: Any) -> object:
        made_it = SimpleNamespace(model_id=SPACE.model_id, space=lambda generation: SPACE)
        return made_it if model_id == SPACE.model_id else find(settings, model_id, *rest)

    monkeypatch.setattr(embedding_control, "model_files", found)


@pytest.fixture
def roots(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and a note to crawl, outside the home, in which nothing is crawled."""
    folder = tmp_path_factory.mktemp("roots")
    logs = folder / "claude" / "projects"
    (logs / "-a").mkdir(parents=True)
    (logs / "-a" / "11111111-2222-4333-8444-555555555555.jsonl").write_text("{}\n")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("# A\n")
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(logs))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "mac")
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "false")
    return folder


@pytest.fixture
def no_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of logs is empty, and no key of a service is in the environment."""
    logs = tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(logs))
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    return logs
