"""The asset `memory_index` on a real store: files in the home, a table, and a check that blocks."""

from pathlib import Path

import dagster as dg
import pytest

from anamnesis_pipeline.defs import memory_index as memory_index_module
from anamnesis_pipeline.defs.memory_index import memory_index
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_tests.support.topics import put_pinned, put_topic


def run(memory: MemoryResource, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return dg.materialize([memory_index], instance=instance, resources={"memory": memory}, raise_on_error=False)


def test_indexes_are_written_and_shown(memory: MemoryResource, instance: dg.DagsterInstance, home: Path) -> None:
    (none,) = run(memory, instance).asset_materializations_for_node("memory_index")
    assert none.metadata["topics"].value == 0
    put_topic(memory.store, "/c/memory/topics/deploys.md", "# Deploys\n\nHow it goes live.")
    put_pinned(memory.store, "p", "Answer in German.")
    result = run(memory, instance)
    (done,) = result.asset_materializations_for_node("memory_index")
    assert (done.metadata["topics"].value, done.metadata["pinned preferences"].value) == (1, 1)
    assert "acme/shop" in str(done.metadata["indexes"].value)
    assert "Deploys" in (home / "topics/acme%2Fshop/MEMORY.md").read_text()
    assert [each.passed for each in result.get_asset_check_evaluations()] == [True]


def test_index_that_is_too_long_fails_the_check(
    memory: MemoryResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_index_module, "MAX_LINES", 3)
    put_topic(memory.store, "/c/memory/topics/deploys.md", "# Deploys\n\nHow it goes live.")
    (check,) = run(memory, instance).get_asset_check_evaluations()
    assert (check.passed, check.severity, check.metadata["too long"].value) == (
        False,
        dg.AssetCheckSeverity.ERROR,
        "acme/shop",
    )
