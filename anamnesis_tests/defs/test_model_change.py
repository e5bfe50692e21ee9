"""From one model to another, by sensor and runs, with real models made on the spot."""

from pathlib import Path

import pytest

from anamnesis_pipeline.defs.embed_sensor import embed_sensor
from anamnesis_pipeline.model import Space
from anamnesis_pipeline.pipeline.reembed_state import failure_of
from anamnesis_pipeline.services import reembedding
from anamnesis_tests.defs.conftest import Backfills, Daemon
from anamnesis_tests.support.spaces import write
from anamnesis_tests.support.tiny_models import random_model


def work(daemon: Daemon) -> list[tuple[str, bool]]:
    """(job, success) of each run that a tick requested; all of them are done."""
    return [(str(request.job_name), daemon.run(request)) for request in daemon.requests(embed_sensor)]


def until_quiet(daemon: Daemon) -> Space:
    """Work until nothing is requested; the space that answers then."""
    for _ in range(10):
        if not work(daemon):
            space = daemon.memory.store.spaces.active()
            assert space is not None
            return space
    pytest.fail("the sensor never comes to rest")


def test_model_that_vanishes_half_way_is_tried_again_later(
    daemon: Daemon, backfills: Backfills, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = random_model(tmp_path / "one", dim=16), random_model(tmp_path / "two", dim=24, seed=1)
    monkeypatch.setenv("ANAMNESIS_MODEL", str(one))
    store = daemon.memory.store
    write(store, 30)
    first = until_quiet(daemon)
    assert (first.model_id, first.dim, store.vectors.count(first.key)) == (str(one), 16, 30)
    store.settings.set("config.model", str(two))
    work(daemon)
    write(store, 30, first=30)
    two.rename(two.with_name("away"))
    assert work(daemon) == [("embed", True), ("embed", False)], "the active space goes on"
    building = reembedding.status(store).space
    assert building is not None
    failure = failure_of(store, building)
    assert failure is not None
    assert (failure.count, "two" in failure.last) == (1, True)
    assert all(job != "embed" for job, _ in work(daemon)), "it is not tried again at once"
    assert store.spaces.active() == first
    two.with_name("away").rename(two)
    reembedding.resume(store)
    second = until_quiet(daemon)
    assert (second.model_id, second.dim, second.precision in {"fp32", "bf16"}) == (str(two), 24, True)
    assert store.vectors.count(second.key) == 60
