from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.storage.schedules.sql_schedule_storage import SqlScheduleStorage
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.impl import get_external_sensor_execution

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.kept_instance import close_kept, instance_of, keep_connections

ORIGIN = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="anamnesis_pipeline.definitions"))


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    close_kept()
    yield
    close_kept()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[InstanceRef]:
    """The instances that are opened from their references."""
    refs: list[InstanceRef] = []
    real = dg.DagsterInstance.from_ref
    monkeypatch.setattr(dg.DagsterInstance, "from_ref", staticmethod(lambda ref: refs.append(ref) or real(ref)))
    return refs


def test_ticks_of_one_process_share_an_instance_that_is_opened_once(tmp_path: Path, opened: list[InstanceRef]) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        ref = instance.get_ref()
        kept = []
        for _ in range(2):
            with dg.build_sensor_context(instance_ref=ref) as context:
                kept.append(instance_of(context))
        assert kept[0] is kept[1]
        assert opened == [ref]
        instance.add_dynamic_partitions("colours", ["red"])
        assert list(kept[0].get_dynamic_partitions("colours")) == ["red"]


@pytest.mark.parametrize("name", ["crawl_sensor", "embed_sensor", "quick_crawl_sensor"])
def test_no_tick_of_a_sensor_opens_an_instance_of_its_own(
    name: str, tmp_path: Path, home: Path, opened: list[InstanceRef]
) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        ref = instance.get_ref()
        for _ in range(2):
            answer = get_external_sensor_execution(
                defs.get_repository_def(), ORIGIN, ref, name, None, None, None, None, None
            )
            assert isinstance(answer, SensorExecutionData), answer
        assert opened == [ref]


def test_another_deployment_has_its_own(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    with (
        dg.DagsterInstance.local_temp(str(tmp_path / "one")) as one,
        dg.DagsterInstance.local_temp(str(tmp_path / "other")) as other,
    ):
        for instance in (one, other, one):
            with dg.build_sensor_context(instance_ref=instance.get_ref()) as context:
                assert instance_of(context).root_directory == instance.root_directory


def test_a_tick_without_a_deployment_uses_its_own_instance() -> None:
    with dg.DagsterInstance.ephemeral() as instance, dg.build_sensor_context(instance=instance) as context:
        assert instance_of(context) is instance


def test_whether_the_table_of_sensors_was_migrated_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = SqlScheduleStorage._has_instigators_table
    monkeypatch.setattr(
        SqlScheduleStorage, "_has_instigators_table", lambda self, conn: asked.append(1) or real(self, conn)
    )
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.all_instigator_state()
        assert asked
        keep_connections(instance)
        del asked[:]
        for _ in range(3):
            assert list(instance.all_instigator_state()) == []
        assert asked == []
