"""Archived logs come back as they were."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from anamnesis_pipeline.cli.app import app
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.pipeline.source_specs import put_specs
from anamnesis_pipeline.pipeline.survey import look
from anamnesis_pipeline.runtime.crawler_wiring import built_in, open_crawler
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.extract import EVERY, extract, extractable
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec
from anamnesis_tests.support.archived_logs import FOLDER, OTHER, SESSION, Home, record, unmasked

EXAMPLES = Path(__file__).parents[2] / "examples/claude_logs"


@pytest.fixture
def home(log_home: Home) -> Home:
    return log_home


def restored(home: Home, to: Path, *, force: bool = False, **wanted: object) -> dict[str, bytes]:
    extract(home.store, home.archive, extractable(home.store, **wanted), to, force=force)  # type: ignore[arg-type]
    return {str(f.relative_to(to)): f.read_bytes() for f in sorted(to.rglob("*")) if f.is_file()}


def test_a_file_comes_back_byte_for_byte_after_its_log_is_gone(home: Home, tmp_path: Path) -> None:
    log = home.write([record("user", "größe → \U0001f600", 1), '{"a" : 1,\t"b":"\\u00e9\\/"}', record("user", "b", 2)])
    before = log.read_bytes()
    home.ingest(unmasked)
    log.unlink()
    home.ingest(unmasked)
    assert restored(home, tmp_path / "out", session_id=SESSION) == {f"{FOLDER}/{SESSION}.jsonl": before}
    (written,) = (tmp_path / "out").rglob("*.jsonl")
    assert written.stat().st_mode & 0o777 == 0o600


def test_what_a_text_line_cannot_hold_is_left_out_as_documented(home: Home, tmp_path: Path) -> None:
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(b'\xef\xbb\xbf{"a":1}\r\n\r\n\n {"b":"\xff\x00"} \n{"torn":')
    home.ingest(unmasked)
    (data,) = restored(home, tmp_path / "out", session_id=SESSION).values()
    assert data == '{"a":1}\n{"b":"\ufffd"}\n'.encode()


def test_only_secrets_differ(home: Home, tmp_path: Path) -> None:
    secret = "ghp" + "_" + "q7" * 18
    log = home.write([record("user", f"use {secret} and go on", 1), record("user", "harmless", 2)])
    before = log.read_text(encoding="utf-8")
    home.ingest()
    (data,) = restored(home, tmp_path / "out", path=str(log)).values()
    start, end = before.split(secret)
    after = data.decode()
    assert after.startswith(f"{start}[REDACTED:github:")
    assert after.endswith(f"]{end}")


def test_the_latest_generation_is_the_default(home: Home, tmp_path: Path) -> None:
    log = home.write([record("user", "first", 1), record("user", "second", 2)])
    first = log.read_bytes()
    home.ingest(unmasked)
    log.write_text(json.dumps(record("user", "other", 3)) + "\n")
    second = log.read_bytes()
    home.ingest(unmasked)
    name = f"{FOLDER}/{SESSION}"
    assert restored(home, tmp_path / "latest", session_id=SESSION) == {f"{name}.jsonl": second}
    assert restored(home, tmp_path / "first", session_id=SESSION, generation=0) == {f"{name}.generation-0.jsonl": first}
    assert restored(home, tmp_path / "all", session_id=SESSION, generation=EVERY) == {
        f"{name}.generation-0.jsonl": first,
        f"{name}.jsonl": second,
    }
    assert extractable(home.store, session_id=SESSION, generation=7) == []


def test_a_session_comes_with_its_subagents_and_nothing_else(home: Home, tmp_path: Path) -> None:
    home.say("trunk")
    agent = f"{FOLDER}/{SESSION}/subagents/agent-a1.jsonl"
    home.say("task", at=2, path=agent, isSidechain=True, agentId="a1")
    home.say("elsewhere", at=3, session=OTHER)
    home.say("old layout", at=4, path=f"{FOLDER}/agent-a2.jsonl", isSidechain=True, agentId="a2")
    home.ingest(unmasked)
    names = {f"{FOLDER}/{SESSION}.jsonl", agent, f"{FOLDER}/agent-a2.jsonl"}
    assert restored(home, tmp_path / "session", session_id=SESSION).keys() == names
    everything = names | {f"{FOLDER}/{OTHER}.jsonl"}
    assert restored(home, tmp_path / "source", keys=[home.source().key]).keys() == everything
    assert restored(home, tmp_path / "all").keys() == everything
    folder = home.logs / FOLDER / SESSION
    assert restored(home, tmp_path / "path", path=f"{folder}/").keys() == {agent}


def test_a_file_that_is_there_is_overwritten_only_by_force(home: Home, tmp_path: Path) -> None:
    home.say("one")
    home.say("two", session=OTHER)
    home.ingest(unmasked)
    mine = tmp_path / "out" / FOLDER / f"{SESSION}.jsonl"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(GiveUp, match=r"1 of 2 files are there already.*nothing was written"):
        restored(home, tmp_path / "out")
    assert [f.name for f in mine.parent.iterdir()] == [mine.name]
    assert len(restored(home, tmp_path / "out", force=True)) == 2
    assert "one" in mine.read_text()


def test_example_logs_come_back_byte_for_byte(home: Home, tmp_path: Path) -> None:
    found = discover(home.host, [str(EXAMPLES)]).sources
    home.store.files.put_sources(found)
    pipeline = replace(wiring.open_pipeline(home.settings, home.store), mask=unmasked)
    assert all(pipeline.crawl(source).problems == [] for source in found)
    data = restored(home, tmp_path / "out")
    logs = {str(f.relative_to(EXAMPLES)): f.read_bytes() for f in EXAMPLES.rglob("*.jsonl")}
    assert len(logs) > 3
    assert {name: data[name] for name in logs} == logs


@pytest.fixture
def private_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Logs of an open and a private project, open notes, and private ones."""
    places = {"HOME": home.settings.home, "LOG_ROOTS": home.logs}
    for name, value in (places | {"MACHINE": "box", "PRIVATE_PROJECTS": "/code/vault"}).items():
        monkeypatch.setenv(f"ANAMNESIS_{name}", str(value))
    home.say("an open question")
    vault = [record("user", "a private question", 1, OTHER, cwd="/code/vault")]
    home.write(vault, f"-code-vault/{OTHER}.jsonl")
    home.write(vault, f"-code-vault/{OTHER}/tool-results/out.txt")
    specs = []
    for name in ("open", "diary"):
        page = home.base / name / "page.md"
        page.parent.mkdir()
        page.write_text(f"# The {name} page\n\nIt is long enough to be read by the crawler, surely.\n")
        specs.append(SourceSpec(name, DOCUMENTS, str(page.parent), machine="box", private=name == "diary"))
    settings = wiring.effective_settings(home.store)
    put_specs(home.store.settings, specs, built_in(settings), "box")
    look(open_crawler(settings, home.store, lasting=False), datetime.now(UTC), everything=True)
    ingest_all(wiring.open_pipeline(settings, home.store), home.store.files.sources())
    return home


def extracted(home: Home, *arguments: str) -> tuple[set[str], Result]:
    """Names of the files that the command writes, and what it says."""
    to = home.base / "out"
    done = CliRunner().invoke(app, ["archive", "extract", "--to", str(to), *arguments])
    names = {file.name for file in to.rglob("*") if file.is_file()} if to.exists() else set()
    shutil.rmtree(to, ignore_errors=True)
    return names, done


def test_extract_of_all_leaves_out_what_is_private(private_home: Home) -> None:
    names, done = extracted(private_home, "--all")
    assert names == {f"{SESSION}.jsonl", "page.md"}
    assert "3 private files left out; --private writes them too" in done.stderr
    names, done = extracted(private_home, "--path", str(private_home.base))
    assert names == {f"{SESSION}.jsonl", "page.md"}
    names, done = extracted(private_home, "--all", "--private")
    assert names == {f"{SESSION}.jsonl", f"{OTHER}.jsonl", "out.txt", "page.md"}
    assert "left out" not in done.stderr


def test_extract_writes_what_is_private_when_it_is_named(private_home: Home) -> None:
    base = private_home.base
    logs = {f"{OTHER}.jsonl", "out.txt"}
    for arguments, expected in (
        ((OTHER,), logs),
        (("--path", f"{private_home.logs}/-code-vault"), logs),
        (("--path", str(base / "diary")), {"page.md"}),
        (("--path", str(base / "diary/page.md")), {"page.md"}),
    ):
        names, done = extracted(private_home, *arguments)
        assert (names, done.stderr) == (expected, "")


def test_extract_takes_the_names_of_the_list_of_sources(private_home: Home) -> None:
    listed = CliRunner().invoke(app, ["sources", "list"]).stdout
    assert "diary  documents in " in listed
    of_logs = f" in {private_home.logs}  (built in)"
    (logs,) = [line.split("  ")[0] for line in listed.splitlines() if line.endswith(of_logs)]
    (key,) = [source.key for source in private_home.store.files.sources() if source.spec == "diary"]
    for name in ("diary", key):
        names, done = extracted(private_home, "--source", name)
        assert (names, done.exit_code) == ({"page.md"}, 0)
    assert f"{SESSION}.jsonl" in extracted(private_home, "--source", logs)[0]
    names, done = extracted(private_home, "--source", "none")
    assert "no source 'none'" in str(done.exception)
