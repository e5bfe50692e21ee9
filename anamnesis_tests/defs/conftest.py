"""A deployment without logs, and a Dagster instance beside it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.dagster_api.api import DagsterApi
from anamnesis_pipeline.defs.resources import MemoryResource, close_kept
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel, PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.token_vectors import Projection
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.wiring import configured_cores
from anamnesis_tests.dagster_parts import dagster_webserver
from anamnesis_tests.embeddings.fake_models import HashedWords

LAUNCH = """mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
    ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(tmp_path / "no logs"))
    monkeypatch.setenv("ANAMNESIS_MACHINE", "mac")
    monkeypatch.setenv("ANAMNESIS_LOCAL_ONLY", "1")
    monkeypatch.setenv("ANAMNESIS_SUMMARY_MIN_CHARS", "0")
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    """A store that the code server would keep ends with its test."""
    yield
    close_kept()


@pytest.fixture
def memory(home: Path) -> Iterator[MemoryResource]:
    resource = MemoryResource()
    yield resource
    resource.store.close()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@dataclass(frozen=True)
class Backfills:
    """Backfills in `instance` as the UI launches them: each is made by a webserver of its own and copied."""

    api: DagsterApi
    webserver_home: Path
    instance: dg.DagsterInstance

    def launch(
        self, status: str = "REQUESTED", asset: str = "embeddings", keys: Sequence[str] = ("direct|new",)
    ) -> str:
        """Add one of these partitions, in the state of that name; its id."""
        for key in keys:
            source, _, space = key.partition("|")
            self.api.add_partitions(space or "new", [source])
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(keys)}
        launched = self.api.ask(LAUNCH, {"p": params})["launchPartitionBackfill"]
        with dg.DagsterInstance.from_config(str(self.webserver_home)) as instance:
            made = instance.get_backfill(launched["backfillId"])
        assert made is not None
        self.instance.add_backfill(made.with_status(type(made.status)(status)))
        return str(launched["backfillId"])

    def set_status(self, backfill_id: str, status: str) -> None:
        """As Dagster's daemon does it."""
        made = self.instance.get_backfill(backfill_id)
        assert made is not None
        self.instance.update_backfill(made.with_status(type(made.status)(status)))

    def status(self, backfill_id: str) -> str:
        made = self.instance.get_backfill(backfill_id)
        assert made is not None
        return str(made.status.value)


@pytest.fixture(scope="session")
def webserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DagsterApi, Path]]:
    """Dagster's, of our definitions, with its home."""
    home = tmp_path_factory.mktemp("dagster")
    code = "python_module: {module_name: anamnesis_pipeline.definitions, location_name: anamnesis}"
    with dagster_webserver(home, code) as api:
        yield api, home


@pytest.fixture
def backfills(webserver: tuple[DagsterApi, Path], instance: dg.DagsterInstance) -> Backfills:
    api, home = webserver
    return Backfills(api, home, instance)


class MeasuredWords(HashedWords):
    """Hashed words in bf16, near enough to fp32."""

    precision, fidelity = "bf16", 0.9995


class HashedModels:
    """Stands in for the models of spaces: real pools, whose models hash words. `model_of` makes the one of a space."""

    def __init__(self) -> None:
        self.model_of: Callable[[Space], LoadedModel] = lambda space: MeasuredWords(space.dim)
        self.opened: list[PinnedPool] = []
        self.priorities: list[Priority] = []

    def open_pool(
        self,
        settings: Settings,
        space: Space,
        *,
        has_vectors: bool,
        priority: Priority,
        on_loaded: Callable[[LoadedModel], None],
        projection: Callable[[LoadedModel], Projection | None],
    ) -> PinnedPool:
        model = PoolModel(
            space.model_id, space.dim, lambda: self.model_of(space), on_loaded=on_loaded, projection=projection
        )
        self.opened.append(PinnedPool(model, configured_cores(settings), priority=priority))
        self.priorities.append(priority)
        return self.opened[-1]


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> HashedModels:
    models = HashedModels()
    monkeypatch.setattr("anamnesis_pipeline.wiring.open_pool", models.open_pool)
    return models
