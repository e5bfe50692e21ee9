"""The asset `drift_report` on a real store and real files."""

from pathlib import Path

import dagster as dg

from anamnesis_pipeline.defs.drift_report import drift_report
from anamnesis_pipeline.defs.resources import MemoryResource
from anamnesis_tests.support.topics import put_topic


def run(memory: MemoryResource, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    return dg.materialize([drift_report], instance=instance, resources={"memory": memory}, raise_on_error=False)


def test_report_has_scores_and_findings(memory: MemoryResource, instance: dg.DagsterInstance, tmp_path: Path) -> None:
    (none,) = run(memory, instance).asset_materializations_for_node("drift_report")
    assert none.metadata["claims"].value == 0
    root = tmp_path / "shop"
    (root / "src").mkdir(parents=True)
    (root / "src/api.py").write_text("def price(): ...\n")
    claims = "\n".join(f"- Part {n} is in `src/part{n}.py`." for n in range(3))
    put_topic(
        memory.store, "/c/memory/topics/parts.md", f"# Parts\n\nIn `src/api.py`.\n\n{claims}\n", project=str(root)
    )
    result = run(memory, instance)
    (done,) = result.asset_materializations_for_node("drift_report")
    assert (done.metadata["claims"].value, done.metadata["dagster/row_count"].value) == (4, 4), "and it is old"
    assert "src/part2.py" in str(done.metadata["findings"].value)
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "67" in str(check.metadata["low"].value)
