"""From one model to another and back, by sensor and runs, with real models made on the spot."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.model import Space, Variant, Where
from anamnesis_pipeline.steps import reembed
from anamnesis_pipeline.steps.reembed_state import failure_of
from anamnesis_tests.defs.conftest import Backfills
from anamnesis_tests.embeddings.tiny_models import random_model
from anamnesis_tests.steps.spaces import write


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of different widths."""
    folder = tmp_path_factory.mktemp("models")
    return random_model(folder / "one", dim=16), random_model(folder / "two", dim=24, seed=1)


@pytest.fixture
def folders(made: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Copies that a test may take away; the first one is configured."""
    one, two = (Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in made)
    monkeypatch.setenv("ANAMNESIS_MODEL", str(one))
    return one, two


class Daemon:
    """Does what Dagster's daemon does with the sensor's answer, until it asks for nothing."""

    def __init__(self, memory: MemoryResource, instance: dg.DagsterInstance) -> None:
        self._memory, self._instance, self._cursor = memory, instance, None

    def tick(self) -> list[tuple[str, bool]]:
        """(job, success) of each run that was requested, and done."""
        with dg.build_sensor_context(
            instance=self._instance, definitions=defs, resources={"memory": self._memory}, cursor=self._cursor
        ) as context:
            result = embed_sensor(context)
        if not isinstance(result, dg.SensorResult):
            return []
        self._cursor = result.cursor
        for request in result.dynamic_partitions_requests or []:
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self._instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        return [self._run(request) for request in result.run_requests or []]

    def _run(self, request: dg.RunRequest) -> tuple[str, bool]:
        job = str(request.job_name)
        done = defs.resolve_job_def(job).execute_in_process(
            instance=self._instance, partition_key=request.partition_key, tags=request.tags, raise_on_error=False
        )
        return job, done.success

    def until_quiet(self) -> None:
        for _ in range(10):
            if not self.tick():
                return
        pytest.fail("the sensor never comes to rest")


@pytest.fixture
def daemon(
    memory: MemoryResource, folders: tuple[Path, Path], instance: dg.DagsterInstance, backfills: Backfills
) -> Daemon:
    """Thirty episodes, embedded with the first model, beside a webserver without backfills."""
    write(memory.store, 30)
    daemon = Daemon(memory, instance)
    daemon.until_quiet()
    return daemon


def active(memory: MemoryResource) -> Space:
    space = memory.store.spaces.active()
    assert space is not None
    return space


def test_another_model_is_embedded_switched_to_and_moved_back_from(
    memory: MemoryResource, folders: tuple[Path, Path], daemon: Daemon
) -> None:
    one, two = folders
    first = active(memory)
    assert (first.model_id, first.dim, memory.store.vectors.count(first.key)) == (str(one), 16, 30)
    memory.store.settings.set("config.model", str(two))
    write(memory.store, 1, first=30)
    assert daemon.tick() == [("embed", True), ("embed", True)], "what is new gets its vectors in both spaces"
    assert daemon.tick()[-1] == ("index", True)
    second = active(memory)
    assert (second.model_id, second.dim, second.precision in {"fp32", "bf16"}) == (str(two), 24, True)
    (newest,) = memory.store.episodes.passages_of("direct-30")
    vector = memory.store.vectors.get(second.key, Variant.TEXT, [newest.passage_id])[newest.passage_id]
    hits = memory.store.vectors.nearest(second.key, Variant.TEXT, vector, 1, Where())
    assert hits[0].passage_id == newest.passage_id
    daemon.until_quiet()
    assert reembed.use(memory.store, first.key, "auto").switched
    daemon.until_quiet()
    assert active(memory).key == first.key


def test_a_model_that_vanishes_half_way_leaves_the_active_space_and_is_tried_again_later(
    memory: MemoryResource, folders: tuple[Path, Path], daemon: Daemon
) -> None:
    _, two = folders
    first = active(memory)
    memory.store.settings.set("config.model", str(two))
    daemon.tick()
    write(memory.store, 30, first=30)
    two.rename(two.with_name("away"))
    assert daemon.tick() == [("embed", True), ("embed", False)], "the active space goes on"
    building = reembed.status(memory.store).space
    assert building is not None
    failure = failure_of(memory.store, building)
    assert failure is not None
    assert (failure.count, "two" in failure.last) == (1, True)
    assert all(job != "embed" for job, _ in daemon.tick()), "it is not tried again at once"
    assert active(memory).key == first.key
    two.with_name("away").rename(two)
    reembed.resume(memory.store)
    daemon.until_quiet()
    assert active(memory).model_id == str(two)
