"""`anamnesis topics` and `anamnesis lessons` over files that are really ingested."""

import json
from pathlib import Path

import pytest

from anamnesis_tests.cli.typed import refused, said
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.log_lines import SESSION, Log

DEPLOYS = "# Deploys\n\nHow and when the shop goes live.\n\n- On Thursdays. <!-- sources: ep1 2026-03-04 -->\n"
LESSONS = "# Lessons\n\n- Port in use\n  - Fixed by: stop the database\n"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The memory of a project whose logs, topics and own MEMORY.md are ingested."""
    ports, logs = free_ports(2), tmp_path / ".claude/projects"
    given = {"HOME": tmp_path / "home", "PORT": ports[0], "DAGSTER_PORT": ports[1], "LOG_ROOTS": logs}
    for name, value in given.items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    folder = logs / "-home-dev-shop"
    (folder / "memory/topics").mkdir(parents=True)
    log = Log(cwd="/home/dev/shop")
    log.user("Why is the build red?")
    log.say("A test waited too short.")
    (folder / f"{SESSION}.jsonl").write_text("".join(f"{line}\n" for line in log.lines))
    (folder / "memory/topics/deploys.md").write_text(DEPLOYS)
    (folder / "memory/topics/lessons.md").write_text(LESSONS)
    (folder / "memory/MEMORY.md").write_text("# Mine, by hand\n")
    said("ingest")
    return folder / "memory"


def test_topics_and_lessons_are_listed_and_read(memory: Path) -> None:
    listed = said("topics")
    assert "~/shop  Deploys  (1 entry, 1 source, changed today)" in listed
    assert "   How and when the shop goes live." in listed
    assert "Thursdays" not in listed
    assert "- On Thursdays." in said("topics", "shop", "deploys")
    assert "   fixed by: stop the database" in said("lessons", "shop")
    assert [each["name"] for each in json.loads(said("topics", "--json"))["topics"]] == ["deploys", "lessons"]
    assert "has no topic 'other'" in refused("topics", "shop", "other")
    assert "No project is called nope" in refused("lessons", "nope")


def test_index_is_written_beside_own_text_and_not_stored(memory: Path) -> None:
    index = memory / "MEMORY.md"
    assert said("topics", "--write-index").strip() == f"~/shop: {index}"
    assert index.read_text().startswith("# Mine, by hand\n\n<!-- anamnesis index begins")
    assert "**Deploys**: How and when the shop goes live." in index.read_text()
    said("remember", "Answer in German.", "--type", "preference", "--project", "garden", "--tag", "pinned")
    assert "Claude Code has no memory of this project here" in said("topics", "garden", "--write-index")
    said("ingest")
    assert "Nothing found." in said("search", "summaries route, indexes are derived", status=1)
    assert "Mine, by hand" in said("search", "Mine, by hand")


def test_topics_come_back_from_files_alone(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads(said("topics", "shop", "--json"))
    monkeypatch.setenv("ANAMNESIS_HOME", str(tmp_path / "another"))
    said("ingest")
    after = json.loads(said("topics", "shop", "--json"))
    assert (after["index"], after["topics"]) == (before["index"], before["topics"])
