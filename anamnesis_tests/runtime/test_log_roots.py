"""Counting logs, and the hints about them."""

import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from anamnesis_pipeline.runtime.dagster_home import bundled
from anamnesis_pipeline.runtime.log_roots import (
    EXAMPLE_LOGS,
    advice_without_logs,
    examples_advice,
    retention_advice,
    retention_days,
    survey,
)


def test_logs_are_counted_in_all_folders_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "project" / "session" / "subagents").mkdir(parents=True)
    (tmp_path / "project" / f"{uuid.uuid4()}.jsonl").write_bytes(b"12345")
    (tmp_path / "project" / "session" / "subagents" / "agent-b.jsonl").write_bytes(b"123")
    (tmp_path / "project" / "notes.md").write_text("x")
    (tmp_path / "project" / "journal.jsonl").write_text("x")
    found = survey([tmp_path])
    assert (found.files, found.bytes, found.absent) == (2, 8, ())


def test_without_logs_the_hint_says_where_it_looked(tmp_path: Path) -> None:
    roots = [tmp_path, tmp_path / "none"]
    found = survey(roots)
    assert found.absent == (tmp_path / "none",)
    text = advice_without_logs(roots, found)
    assert f"{tmp_path} (no logs in it), {tmp_path / 'none'} (absent)" in text
    assert "make up LOGS=examples/claude_logs" in text


def test_examples_in_a_memory_come_with_the_way_out(tmp_path: Path) -> None:
    examples = bundled(EXAMPLE_LOGS).resolve()
    for root in (examples, examples.parent, next(examples.iterdir())):
        text = examples_advice([tmp_path, root], tmp_path / "my memory")
        assert text is not None
        assert f"ANAMNESIS_HOME='{tmp_path}/my memory' anamnesis forget --path {examples.parent} --yes" in text
    assert examples_advice([tmp_path, examples.parent.parent], tmp_path) is None


@pytest.mark.parametrize(
    ("logs", "given", "home"),
    [
        ("examples/claude_logs", {}, "/data/anamnesis-examples"),
        ("./examples/", {}, "/data/anamnesis-examples"),
        ("examples/claude_logs", {"ANAMNESIS_HOME": "/mine"}, "/mine"),
        ("examples2", {}, ""),
    ],
)
def test_make_up_gives_examples_a_home_of_their_own(logs: str, given: dict[str, str], home: str) -> None:
    makefile = Path(__file__).parents[2] / "Makefile"
    if not makefile.exists() or not shutil.which("make"):
        pytest.skip("needs a checkout and make")
    command = ["make", "--silent", "--eval", "shown: ; @echo $${ANAMNESIS_HOME-}", "shown", f"LOGS={logs}"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/home/ann", "XDG_DATA_HOME": "/data", **given}
    done = subprocess.run(command, cwd=makefile.parent, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == home


@pytest.mark.parametrize(("days", "hinted"), [(None, True), (30, True), (364, True), (365, False), (99_999, False)])
def test_hint_is_silent_where_logs_are_kept_for_a_year(tmp_path: Path, days: int | None, hinted: bool) -> None:
    file = tmp_path / "settings.json"
    if days is not None:
        file.write_text(json.dumps({"cleanupPeriodDays": days}))
    hint = retention_advice(file)
    assert (hint is not None) is hinted
    assert hint is None or (str(file) in hint and '"cleanupPeriodDays": 3650' in hint)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"cleanupPeriodDays": "long"}', '{"cleanupPeriodDays": true}'])
def test_settings_file_of_no_use_counts_as_silent(text: str) -> None:
    assert retention_days(text) is None
