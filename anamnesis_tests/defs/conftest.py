"""A deployment without logs, and a Dagster instance beside it."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.resources import MemoryResource, close_kept
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.pinned_pool import LoadedModel, PinnedPool, PoolModel
from anamnesis_pipeline.embeddings.token_vectors import Projection
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.services.dagster.api import DagsterApi
from anamnesis_pipeline.services.dagster.backfills import BACKFILL_TAG, BackfillState
from anamnesis_pipeline.services.wiring import configured_cores
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.support.dagster_parts import created_run, dagster_webserver
from anamnesis_tests.support.fake_models import HashedWords

LAUNCH = """mutation($p: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $p) {
    ... on LaunchBackfillSuccess { backfillId } ... on Error { message } } }"""


@pytest.fixture
def log_roots(tmp_path: Path) -> Path:
    """Where no logs are; a file of tests with logs has its own."""
    return tmp_path / "no logs"


@pytest.fixture
def home(tmp_path: Path, log_roots: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    ours = {"HOME": tmp_path / "home", "LOG_ROOTS": log_roots, "MACHINE": "mac"}
    away = {"LOCAL_ONLY": 1, "DAGSTER_URL": "http://127.0.0.1:9", "SUMMARY_MIN_CHARS": 0}
    for name, value in (ours | away).items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
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


@dataclass
class Daemon:
    """Does what Dagster's daemon does with the answers of sensors, at a time when every host and source is due."""

    memory: MemoryResource
    instance: dg.DagsterInstance
    cursors: dict[str, str | None] = field(default_factory=dict)

    def tick(self, sensor: dg.SensorDefinition) -> dg.SensorResult:
        """Evaluate it, report its events, change partitions and keep its cursor; no run is begun."""
        settings = self.memory.store.settings
        for name, seen in settings.all("crawl.source.").items():
            settings.set(name, {key: value for key, value in seen.items() if key != "tried_at"})
        cursor = self.cursors.get(sensor.name)
        with dg.build_sensor_context(
            instance=self.instance, definitions=defs, resources={"memory": self.memory}, cursor=cursor
        ) as context:
            result = sensor(context)
        if isinstance(result, dg.SkipReason):
            return dg.SensorResult(skip_reason=result)
        assert isinstance(result, dg.SensorResult)
        self.cursors[sensor.name] = result.cursor
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        for request in result.dynamic_partitions_requests or []:
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            else:
                for key in request.partition_keys:
                    self.instance.delete_dynamic_partition(request.partitions_def_name, key)
        return result

    def requests(self, sensor: dg.SensorDefinition) -> list[dg.RunRequest]:
        return list(self.tick(sensor).run_requests or [])

    def run(self, request: dg.RunRequest) -> bool:
        """Do what was requested; whether it succeeded."""
        done = defs.resolve_job_def(str(request.job_name)).execute_in_process(
            instance=self.instance, partition_key=request.partition_key, tags=request.tags, raise_on_error=False
        )
        return done.success

    def partitions(self, of: dg.DynamicPartitionsDefinition) -> list[str]:
        return list(self.instance.get_dynamic_partitions(str(of.name)))


@pytest.fixture
def daemon(memory: MemoryResource, instance: dg.DagsterInstance) -> Daemon:
    return Daemon(memory, instance)


@dataclass
class Backfills:
    """Backfills as the UI launches them, in a webserver's own instance. No daemon works on them."""

    api: DagsterApi
    webserver_home: Path
    made: list[str] = field(default_factory=list)

    def launch(
        self, status: str = "REQUESTED", asset: str = "embeddings", keys: Sequence[str] = ("direct|new",)
    ) -> str:
        """Launch one of these partitions, and cancel it again for `CANCELING`; its id."""
        for key in keys:
            source, _, space = key.partition("|")
            self.api.add_partitions(space or "new", [source])
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(keys)}
        self.made.append(str(self.api.ask(LAUNCH, {"p": params})["launchPartitionBackfill"]["backfillId"]))
        if status == "CANCELING":
            self.api.cancel_backfill(self.made[-1])
        return self.made[-1]

    def run(self, backfill_id: str, status: dg.DagsterRunStatus) -> None:
        """Begin a run of it, or end the one that was begun."""
        with dg.DagsterInstance.from_config(str(self.webserver_home)) as instance:
            for record in instance.get_run_records(dg.RunsFilter(tags={BACKFILL_TAG: backfill_id})):
                instance.report_run_failed(record.dagster_run)
                return
            created_run(instance, status=status, tags={BACKFILL_TAG: backfill_id})

    def status(self, backfill_id: str) -> str:
        state = self.api.backfill_state(backfill_id)
        assert state is not None
        return state.status


class Launcher:
    """Ends a run as Dagster's webserver and launcher do: its status is `CANCELING`, then its process is interrupted.
    What is asked about backfills goes to a webserver.
    """

    def __init__(self, instance: dg.DagsterInstance, webserver: DagsterApi) -> None:
        self.instance, self.webserver = instance, webserver

    def backfill_state(self, backfill_id: str) -> BackfillState | None:
        return self.webserver.backfill_state(backfill_id)

    def cancel_backfill(self, backfill_id: str) -> None:
        self.webserver.cancel_backfill(backfill_id)

    def stop_runs(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            run = self.instance.get_run_by_id(run_id)
            assert run is not None
            self.instance.report_run_canceling(run)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def launcher(
    instance: dg.DagsterInstance, webserver: tuple[DagsterApi, Path], monkeypatch: pytest.MonkeyPatch
) -> Launcher:
    """In the place of Dagster's webserver, where a run asks to be ended."""
    launcher = Launcher(instance, webserver[0])
    monkeypatch.setattr("anamnesis_pipeline.defs.canceled.open_dagster", lambda settings: launcher)
    return launcher


@pytest.fixture(scope="session")
def webserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DagsterApi, Path]]:
    """Dagster's, of our definitions, with its home."""
    home = tmp_path_factory.mktemp("dagster")
    code = "python_module: {module_name: anamnesis_pipeline.definitions, location_name: anamnesis}"
    with dagster_webserver(home, code) as api:
        yield api, home


@pytest.fixture
def backfills(webserver: tuple[DagsterApi, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Backfills]:
    """Those of a webserver that the definitions ask; each has ended after the test."""
    api, home = webserver
    monkeypatch.setenv("ANAMNESIS_DAGSTER_URL", api.link("").removesuffix("/runs/b/"))
    backfills = Backfills(api, home)
    yield backfills
    for backfill_id in backfills.made:
        backfills.run(backfill_id, dg.DagsterRunStatus.SUCCESS)


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
    monkeypatch.setattr("anamnesis_pipeline.services.wiring.open_pool", models.open_pool)
    return models
