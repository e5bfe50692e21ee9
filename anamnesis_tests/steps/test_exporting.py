"""Episodes leave as JSON lines and come in again: once, masked, each on its own."""

import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard

from anamnesis_pipeline import wiring
from anamnesis_pipeline.commands.exporting import render, run_export, run_import
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Episode, Passage, Where
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.steps import exporting
from anamnesis_pipeline.steps.blocklist import add_rule
from anamnesis_pipeline.steps.exporting import body_of
from anamnesis_pipeline.steps.importing import ImportReport, Line
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import EpisodePage
from anamnesis_tests.steps.whole_memory import fill
from anamnesis_tests.store.samples import DAY, put

FORMAT = Path(__file__).parents[2] / "docs/export-format.md"
Opened = tuple[Settings, Store]
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
LINE = {"summary": "the zeppelin needs helium", "timestamp": "2026-03-01T12:00:00Z"}


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Opened]:
    settings = Settings(home=tmp_path / "old")
    with closing(wiring.open_store(settings)) as store:
        fill(store)
        yield settings, store


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Opened]:
    settings = Settings(home=tmp_path / "new")
    with closing(wiring.open_store(settings)) as store:
        yield settings, store


def taken(settings: Settings, folder: Path, *bodies: dict[str, Any] | str) -> ImportReport:
    file = folder / "lines.jsonl"
    file.write_text("".join(f"{body if isinstance(body, str) else json.dumps(body)}\n" for body in bodies))
    return run_import(settings, file, lambda number: None)


def episodes(store: Store) -> list[Episode]:
    return store.episodes.page(Where(include_superseded=True), 100, oldest_first=True).items


def passages(store: Store, episode: Episode) -> list[Passage]:
    return [held.passage for held in store.episodes.passages_of(episode.episode_id)]


def test_passages_of_a_line_are_taken_as_they_are_masked(new: Opened, tmp_path: Path) -> None:
    said = [{"text": f"helium {SECRET}", "context": f"[acme] {SECRET}", "message_ids": ["m"]}, {"text": "and ballast"}]
    report = taken(new[0], tmp_path, {**LINE, "passages": said}, {**LINE, "summary": "cut here", "passages": []})
    assert report.created == 2
    ours, cut = sorted((passages(new[1], episode) for episode in episodes(new[1])), key=len, reverse=True)
    assert [held.ordinal for held in ours] == [0, 1]
    assert ours[0].text.startswith("helium [REDACTED:")
    assert SECRET not in ours[0].with_context
    assert ours[0].message_ids == ("m",)
    assert [held.text for held in cut] == ["cut here"]
    broken = taken(new[0], tmp_path, {**LINE, "summary": "other", "passages": [{"text": ""}]})
    assert broken.problems[0].startswith("line 1: passages.0.text")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "a.jsonl.gz"])
def test_an_export_comes_in_as_it_was_and_only_once(old: Opened, new: Opened, tmp_path: Path, name: str) -> None:
    assert run_export(old[0], tmp_path / name) == 58
    data = (tmp_path / name).read_bytes()
    plain = gzip.decompress(data) if name.endswith("gz") else data
    plain = zstandard.ZstdDecompressor().stream_reader(data).read() if name.endswith("zst") else plain
    assert plain.count(b"\n") == 58, "it is compressed as its name says"
    report = run_import(new[0], tmp_path / name, lambda number: None)
    assert (report.created, report.problems) == (58, [])
    for theirs, ours in zip(episodes(old[1]), episodes(new[1]), strict=True):
        for field in ("content_hash", "status", "superseded_by", "session_id", "message_keys", "machine"):
            assert getattr(theirs, field) == getattr(ours, field)
        assert passages(old[1], theirs) == passages(new[1], ours) != []
    again = run_import(new[0], tmp_path / name, lambda number: None)
    assert (again.created, again.unchanged, again.differing) == (0, 58, [])
    assert new[1].text.matching(["zeppelin"], 5, Where())


def test_an_episode_moved_in_time_meanwhile_is_exported_once(old: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = old
    monkeypatch.setattr(exporting, "PAGE", 2)
    all_ids = {each.episode_id for each in store.episodes.page(Where(include_superseded=True), 100).items}
    page, looks = store.episodes.page, []

    def move(episode_id: str, days: int) -> None:
        (held,) = store.episodes.get([episode_id]).values()
        moved = replace(held, timestamp=held.timestamp + timedelta(days=days))
        passages = [each.passage for each in store.episodes.passages_of(episode_id)]
        store.episodes.replace(moved, passages, held.content_hash)

    def meanwhile(*given: Any, **named: Any) -> EpisodePage:
        looks.append(page(*given, **named))
        if len(looks) == 1:
            move(looks[0].items[0].episode_id, 5_000)
            move(page(Where(include_superseded=True), 1).items[0].episode_id, -9_000)
        return looks[-1]

    monkeypatch.setattr(store.episodes, "page", meanwhile)
    out = io.BytesIO()
    count = exporting.export(store, Where(include_superseded=True), out)
    written = [json.loads(line)["episode_id"] for line in out.getvalue().splitlines()]
    assert (count, len(written), set(written)) == (len(all_ids), len(all_ids), all_ids)


def test_an_export_holds_what_is_private_only_on_demand(
    old: Opened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = old[1].episodes.count(Where(projects=("acme/api",), include_superseded=True))
    old[1].settings.set("config.private_projects", ["acme/api"])
    assert run_export(old[0], tmp_path / "a") == 58 - count
    assert f"{count} private episodes left out; --private writes them too" in capsys.readouterr().err
    assert run_export(old[0], tmp_path / "b", private=True) == 58
    assert run_export(old[0], tmp_path / "c", project="api") == count
    assert capsys.readouterr().err == ""


def test_an_export_is_of_a_project_and_a_time(old: Opened, tmp_path: Path) -> None:
    run_export(old[0], tmp_path / "a", project="api", since="2026-03-02T00:00:00+00:00")
    said = [json.loads(line) for line in (tmp_path / "a").read_text(encoding="utf-8").splitlines()]
    assert {line["project"] for line in said} == {"acme/api"}
    assert min(line["timestamp"] for line in said) >= "2026-03-02"
    with pytest.raises(GiveUp, match="No project is called nobody; there are: "):
        run_export(old[0], tmp_path / "b", project="nobody")
    assert not (tmp_path / "b").exists()
    with pytest.raises(GiveUp, match="there already"):
        run_export(old[0], tmp_path / "a")


def test_a_bad_line_fails_alone_and_is_named(new: Opened, tmp_path: Path) -> None:
    report = taken(
        new[0], tmp_path, LINE, "{not json", "", {"summary": "no time"}, {**LINE, "tags": "one"},
        {**LINE, "summary": " "}, {**LINE, "schema": "other/1"}, "[1]", {**LINE, "summary": "the last one"},
        {**LINE, "timestamp": "2026-03-01"},
    )  # fmt: skip
    assert report.created == 2
    assert [problem.partition(":")[0] for problem in report.problems] == [f"line {n}" for n in (2, 4, 5, 6, 7, 8, 10)]
    assert "line 4: timestamp: Field required" in report.problems
    assert "2 episodes stored" in render(report)


def test_a_line_is_one_episode_each_time_and_stays_as_stored(new: Opened, tmp_path: Path) -> None:
    assert taken(new[0], tmp_path, LINE, LINE).created == 1
    assert taken(new[0], tmp_path, LINE).unchanged == 1
    assert len(episodes(new[1])) == 1
    put(new[1], "mine", "what I said", summary="mine")
    report = taken(new[0], tmp_path, {**LINE, "episode_id": "mine"})
    assert (report.created, report.differing) == (0, ["mine"])
    assert new[1].episodes.get(["mine"])["mine"].summary == "mine"


def test_secrets_are_masked_on_their_way_in(new: Opened, tmp_path: Path) -> None:
    secret = {"summary": f"the token {SECRET}", "raw_exchange": f"export GITHUB_TOKEN={SECRET}", "path": f"/x/{SECRET}",
              "tags": [SECRET], "metadata": {"password": "hunter2-and-more", "deep": [SECRET]}}  # fmt: skip
    assert taken(new[0], tmp_path, {**LINE, **secret}).created == 1
    (stored,) = episodes(new[1])
    assert SECRET not in json.dumps(body_of(stored, passages(new[1], stored)))
    assert "hunter2-and-more" not in json.dumps(body_of(stored, passages(new[1], stored)))
    assert stored.metadata["masked"]
    assert taken(new[0], tmp_path, {**LINE, **secret}).unchanged == 1


def test_what_was_deleted_or_is_excluded_here_stays_away(new: Opened, tmp_path: Path) -> None:
    settings, store = new
    put(store, "gone", "the harbor", message_keys=("k1",))
    store.episodes.delete("gone")
    add_rule(store, Rule(RuleKind.CONTENT_PATTERN, "lantern"))
    report = taken(
        settings, tmp_path, {**LINE, "episode_id": "gone"}, {**LINE, "episode_id": "twin", "message_keys": ["k1"]},
        {**LINE, "summary": "a lantern"},
    )  # fmt: skip
    assert (report.created, report.tombstoned, len(report.problems)) == (0, 2, 1)
    assert "kept away: they were deleted or forgotten here" in render(report)
    assert episodes(store) == []


def test_a_damaged_file_is_told_and_what_came_before_is_stored(old: Opened, new: Opened, tmp_path: Path) -> None:
    run_export(old[0], tmp_path / "a.gz")
    data = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(GiveUp, match="damaged"):
        run_import(new[0], tmp_path / "a.gz", lambda number: None)
    assert 0 < len(episodes(new[1])) < 58
    with pytest.raises(GiveUp, match="cannot be read"):
        run_import(new[0], tmp_path / "nothing", lambda number: None)


def test_standard_output_and_input_are_files_like_others(old: Opened, new: Opened, tmp_path: Path) -> None:
    def run(settings: Settings, *words: str, given: bytes = b"") -> bytes:
        command = [sys.executable, "-m", "anamnesis_pipeline", *words]
        environment = {"ANAMNESIS_HOME": str(settings.home), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, input=given, env=environment, check=True, capture_output=True).stdout

    exported = run(old[0], "export", "-", "--project", "home")
    assert {json.loads(line)["project"] for line in exported.splitlines()} == {"home"}
    assert b"20 episodes stored" in run(new[0], "import", "-", given=exported)


def test_the_document_explains_every_field() -> None:
    table = re.findall(r"^\| (`.+?) \| (.+?) \|", FORMAT.read_text(encoding="utf-8"), re.MULTILINE)
    explained = {name: said for names, said in table for name in re.findall(r"`(\w+)`", names)}
    episode = Episode("e", "direct", DAY, "main", "acme/api", "note", "said", "said at length")
    assert explained.keys() == body_of(episode, []).keys()
    fields = {(field.alias or name): field.is_required() for name, field in Line.model_fields.items()}
    assert fields == {name: "needed" in said for name, said in explained.items() if said != "not read"}
