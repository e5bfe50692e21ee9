"""Counting logs, and the hints about them."""

import json
import uuid
from pathlib import Path

import pytest

from anamnesis_pipeline.supervisor.log_roots import advice_without_logs, retention_advice, retention_days, survey


def test_logs_are_counted_in_all_folders_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "project" / "session" / "subagents").mkdir(parents=True)
    (tmp_path / "project" / f"{uuid.uuid4()}.jsonl").write_bytes(b"12345")
    (tmp_path / "project" / "session" / "subagents" / "agent-b.jsonl").write_bytes(b"123")
    (tmp_path / "project" / "notes.md").write_text("x")
    (tmp_path / "project" / "journal.jsonl").write_text("x")
    found = survey([tmp_path])
    assert (found.files, found.bytes, found.absent) == (2, 8, ())


def test_without_logs_the_hint_says_where_it_looked_and_offers_the_examples(tmp_path: Path) -> None:
    roots = [tmp_path, tmp_path / "none"]
    found = survey(roots)
    assert found.absent == (tmp_path / "none",)
    text = advice_without_logs(roots, found)
    assert f"{tmp_path} (no logs in it), {tmp_path / 'none'} (absent)" in text
    assert "make up LOGS=examples/claude_logs" in text


def test_the_retention_hint_names_the_file_and_the_line(tmp_path: Path) -> None:
    hint = retention_advice(tmp_path / "settings.json")
    assert hint is not None
    assert str(tmp_path / "settings.json") in hint
    assert '"cleanupPeriodDays": 3650' in hint


@pytest.mark.parametrize(("days", "hinted"), [(30, True), (364, True), (365, False), (99_999, False)])
def test_the_hint_is_silent_when_logs_are_kept_for_a_year(tmp_path: Path, days: int, hinted: bool) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"cleanupPeriodDays": days}))
    assert (retention_advice(file) is not None) is hinted


@pytest.mark.parametrize("text", ["", "[]", "{", '{"cleanupPeriodDays": "long"}', '{"cleanupPeriodDays": true}'])
def test_a_settings_file_that_says_nothing_usable_counts_as_silent(text: str) -> None:
    assert retention_days(text) is None
