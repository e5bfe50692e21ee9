"""The asset `memory_map` and its schedule, on a real store and a real Dagster instance."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.definitions import defs
from anamnesis_pipeline.defs.memory_map import memory_map
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_pipeline.defs.schedules import daily_map
from anamnesis_pipeline.pipeline.memory_map import MIN_EPISODES, map_path, read_map
from anamnesis_tests.pipeline.test_memory_map import fill


def test_a_materialization_writes_the_map_and_shows_it(memory: MemoryResource, home: Path) -> None:
    fill(memory.store, 60)
    result = defs.resolve_job_def("draw_map").execute_in_process(resources={"memory": memory})
    (done,) = result.asset_materializations_for_node("memory_map")
    shown = {name: value.value for name, value in done.metadata.items()}
    assert str(shown["map"]).startswith("![The map of memory](data:image/png;base64,iVBOR")
    assert (shown["episodes"], shown["points"], shown["projects"], shown["space"]) == (60, 60, 2, "s")
    made = read_map(map_path(home))
    assert made is not None
    assert made.episodes == 60


@pytest.mark.parametrize(("episodes", "told"), [(0, "No space is active"), (MIN_EPISODES - 1, "needs 30 episodes")])
def test_memory_map_of_too_little_says_why_it_is_empty(
    memory: MemoryResource, instance: dg.DagsterInstance, home: Path, episodes: int, told: str
) -> None:
    if episodes:
        fill(memory.store, episodes)
    result = dg.materialize([memory_map], instance=instance, resources={"memory": memory})
    (done,) = result.asset_materializations_for_node("memory_map")
    assert told in str(done.metadata["status"].value)
    assert read_map(map_path(home)) is None


def test_the_map_is_drawn_only_where_much_is_new(memory: MemoryResource) -> None:
    def ticked() -> dg.RunRequest | dg.SkipReason:
        with dg.build_schedule_context(
            scheduled_execution_time=datetime(2026, 3, 1, 6, tzinfo=UTC), resources={"memory": memory}
        ) as context:
            outcome = daily_map(context)
        assert isinstance(outcome, dg.RunRequest | dg.SkipReason)
        return outcome

    assert isinstance(ticked(), dg.SkipReason)
    fill(memory.store, 40)
    fired = ticked()
    assert isinstance(fired, dg.RunRequest)
    assert fired.run_key == "2026-03-01T06:00Z"
    assert dg.materialize([memory_map], resources={"memory": memory}).success
    assert isinstance(ticked(), dg.SkipReason)
