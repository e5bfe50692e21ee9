"""The store behind assets and sensors: for how long it is open."""

from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs import resources
from anamnesis_pipeline.defs.resources import MemoryResource, close_kept
from anamnesis_pipeline.errors import AnamnesisError, StoreCorrupt


def tick(instance: dg.DagsterInstance, name: str) -> None:
    """As the code server does it: with the resources of the definitions, made anew."""
    sensor = defs.resolve_sensor_def(name)
    with dg.build_resources({"memory": defs.resources["memory"]}) as made:  # type: ignore[index]
        context = dg.build_sensor_context(instance=instance, definitions=defs, resources={"memory": made.memory})
        with context:
            sensor.evaluate_tick(context)


def test_the_code_server_opens_the_store_once_and_not_at_each_tick(
    home: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    real = resources.open_store
    monkeypatch.setattr(resources, "open_store", lambda settings: opened.append(settings.home) or real(settings))
    for name in ("embed_sensor", "quick_crawl_sensor", "crawl_sensor", "embed_sensor"):
        tick(instance, name)
    assert opened == [home]


def test_a_store_that_could_not_be_opened_is_tried_again_by_the_next_tick(
    home: Path, instance: dg.DagsterInstance
) -> None:
    home.mkdir()
    (home / "anamnesis.db").write_bytes(b"this is no database at all, it is a text" * 100)
    with pytest.raises(StoreCorrupt):
        tick(instance, "embed_sensor")
    (home / "anamnesis.db").unlink()
    tick(instance, "embed_sensor")


def test_a_resource_of_its_own_closes_its_store(home: Path) -> None:
    own, kept = MemoryResource(), MemoryResource(keeps_open=True)
    context = dg.build_init_resource_context()
    for resource in (own, kept):
        assert resource.store.files.sources()
        resource.teardown_after_execution(context)
    with pytest.raises(AnamnesisError):
        own.store.files.sources()
    assert kept.store.files.sources()
    close_kept()
