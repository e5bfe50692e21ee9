"""Episodes leave as JSON lines and come in again: once, masked, each on its own, and many at once."""

import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import zstandard
from markdown_it import MarkdownIt
from pydantic import SecretStr

from anamnesis_pipeline.cli.exporting import render, run_export, run_import
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Episode, EpisodeFilter, Passage
from anamnesis_pipeline.services import exporting, importing, wiring
from anamnesis_pipeline.services.blocklist import add_rule
from anamnesis_pipeline.services.exporting import body_of
from anamnesis_pipeline.services.importing import BATCH_BYTES, BATCH_LINES, ImportReport, Line
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.episodes import EpisodePage
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_pipeline.store.records.statuses import Cause
from anamnesis_tests.support.mongo_server.faults import TOO_LARGE
from anamnesis_tests.support.mongo_server.server import LoopbackServer
from anamnesis_tests.support.mongo_watching import watched
from anamnesis_tests.support.samples import DAY, episode, put
from anamnesis_tests.support.samples import passages as passages_of
from anamnesis_tests.support.whole_memory import fill

FORMAT = Path(__file__).parents[2] / "docs/reference/export-format.md"
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
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "new")


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(wiring.open_store(settings)) as opened:
        yield opened


def taken(settings: Settings, folder: Path, *lines: dict[str, Any] | str) -> ImportReport:
    file = folder / "lines.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    told: list[int] = []
    report = run_import(settings, file, told.append)
    assert told == [number for number, line in enumerate(lines, 1) if line]
    return report


def episodes(store: Store) -> list[Episode]:
    return store.episodes.page(EpisodeFilter(include_superseded=True), 100, oldest_first=True).items


def passages(store: Store, episode: Episode) -> list[Passage]:
    return [held.passage for held in store.episodes.passages_of(episode.episode_id)]


def test_passages_of_a_line_are_taken_as_they_are_masked(settings: Settings, store: Store, tmp_path: Path) -> None:
    said = [{"text": f"helium {SECRET}", "context": f"[acme] {SECRET}", "message_ids": ["m"]}, {"text": "and ballast"}]
    report = taken(settings, tmp_path, {**LINE, "passages": said}, {**LINE, "summary": "cut here", "passages": []})
    assert report.created == 2
    ours, cut = sorted((passages(store, episode) for episode in episodes(store)), key=len, reverse=True)
    assert [held.ordinal for held in ours] == [0, 1]
    assert ours[0].text.startswith("helium [REDACTED:")
    assert SECRET not in ours[0].with_context
    assert ours[0].message_ids == ("m",)
    assert [held.text for held in cut] == ["cut here"]
    broken = taken(settings, tmp_path, {**LINE, "summary": "other", "passages": [{"text": ""}]})
    assert broken.problems[0].startswith("line 1: passages.0.text")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "a.jsonl.gz"])
def test_an_export_comes_in_as_it_was_once(
    old: Opened, settings: Settings, store: Store, tmp_path: Path, name: str
) -> None:
    assert run_export(old[0], tmp_path / name) == 58
    data = (tmp_path / name).read_bytes()
    plain = gzip.decompress(data) if name.endswith("gz") else data
    plain = zstandard.ZstdDecompressor().stream_reader(data).read() if name.endswith("zst") else plain
    assert plain.count(b"\n") == 58, "it is compressed as its name says"
    report = run_import(settings, tmp_path / name, lambda number: None)
    assert (report.created, report.problems) == (58, [])
    for theirs, ours in zip(episodes(old[1]), episodes(store), strict=True):
        for field in ("content_hash", "status", "superseded_by", "session_id", "message_keys", "machine"):
            assert getattr(theirs, field) == getattr(ours, field)
        assert passages(old[1], theirs) == passages(store, ours) != []
    again = run_import(settings, tmp_path / name, lambda number: None)
    assert (again.created, again.unchanged, again.differing) == (0, 58, [])
    assert store.text.matching(["zeppelin"], 5, EpisodeFilter())


def test_an_episode_moved_in_time_meanwhile_is_exported_once(old: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = old
    monkeypatch.setattr(exporting, "PAGE", 2)
    all_ids = {each.episode_id for each in store.episodes.page(EpisodeFilter(include_superseded=True), 100).items}
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
            move(page(EpisodeFilter(include_superseded=True), 1).items[0].episode_id, -9_000)
        return looks[-1]

    monkeypatch.setattr(store.episodes, "page", meanwhile)
    out = io.BytesIO()
    count = exporting.export(store, EpisodeFilter(include_superseded=True), out)
    written = [json.loads(line)["episode_id"] for line in out.getvalue().splitlines()]
    assert (count, len(written), set(written)) == (len(all_ids), len(all_ids), all_ids)


def test_an_export_holds_private_text_on_demand(
    old: Opened, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = old[1].episodes.count(EpisodeFilter(projects=("acme/api",), include_superseded=True))
    old[1].settings.set("config.private_projects", ["acme/api"])
    assert run_export(old[0], tmp_path / "a") == 58 - count
    assert f"{count} private episodes left out; --private writes them too" in capsys.readouterr().err
    assert run_export(old[0], tmp_path / "b", private=True) == 58
    assert run_export(old[0], tmp_path / "c", EpisodeFilter(projects=("api",), include_superseded=True)) == count
    assert capsys.readouterr().err == ""


def test_an_export_is_of_a_project_and_a_time(old: Opened, tmp_path: Path) -> None:
    since = datetime(2026, 3, 2, tzinfo=UTC)
    run_export(old[0], tmp_path / "a", EpisodeFilter(projects=("api",), since=since))
    said = [json.loads(line) for line in (tmp_path / "a").read_text(encoding="utf-8").splitlines()]
    assert {line["project"] for line in said} == {"acme/api"}
    assert min(line["timestamp"] for line in said) >= "2026-03-02"
    with pytest.raises(GiveUp, match="No project is called nobody; there are: "):
        run_export(old[0], tmp_path / "b", EpisodeFilter(projects=("nobody",)))
    assert not (tmp_path / "b").exists()
    with pytest.raises(GiveUp, match="there already"):
        run_export(old[0], tmp_path / "a")


def test_statuses_with_their_history_come_back(settings: Settings, store: Store, tmp_path: Path) -> None:
    put(store, "old", "we deploy on Friday", summary="we deploy on Friday")
    put(store, "new", "we deploy on Monday", summary="we deploy on Monday")
    for status, successor, reason in (("challenged", None, "odd"), ("superseded", "new", f"said {SECRET}")):
        held = store.episodes.get(["old"])["old"]
        kept = passages(store, held)
        changed = replace(held, status=status, superseded_by=successor)
        store.episodes.replace(changed, kept, held.content_hash, Cause("Ada", reason))
    run_export(settings, tmp_path / "a")
    line = next(json.loads(text) for text in (tmp_path / "a").read_text().splitlines() if '"old"' in text)
    assert [change["status"] for change in line["status_history"]] == ["challenged", "superseded"]
    other = Settings(home=tmp_path / "other")
    for created in (2, 0):
        assert run_import(other, tmp_path / "a", lambda number: None).created == created
        with closing(wiring.open_store(other)) as theirs:
            ours = store.statuses.history("old", 10)
            came = theirs.statuses.history("old", 10)
            assert [replace(change, reason="") for change in came] == [replace(change, reason="") for change in ours]
            assert (came[0].reason, SECRET in came[1].reason) == ("odd", False)
            assert theirs.episodes.get(["old"])["old"].superseded_at == store.episodes.get(["old"])["old"].superseded_at
    older = {name: value for name, value in line.items() if name not in ("status_history", "superseded_at")}
    assert taken(Settings(home=tmp_path / "third"), tmp_path, older).created == 1


def test_markdown_shows_each_episode_as_text_alone(settings: Settings, store: Store, tmp_path: Path) -> None:
    put(store, "a", "x", summary="# Not a heading", raw_exchange="```\ncode\n```\n## [link](http://example.com)")
    put(store, "b", "x", kind="decision", summary="On Monday", raw_exchange="On Monday", tags=("t",))
    assert run_export(settings, tmp_path / "a.md", format="markdown") == 2
    text = (tmp_path / "a.md").read_text()
    tokens = MarkdownIt().parse(text)
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h2", "h2"]
    fences = [token.content.strip() for token in tokens if token.type == "fence"]
    assert fences == ["# Not a heading", "```\ncode\n```\n## [link](http://example.com)", "On Monday"]
    assert "- Kind: decision\n" in text
    assert run_export(settings, tmp_path / "b.md", EpisodeFilter(types=("decision",)), "markdown") == 1


def test_a_bad_line_fails_alone_and_is_named(settings: Settings, store: Store, tmp_path: Path) -> None:
    report = taken(
        settings,
        tmp_path,
        LINE,
        "{not json",
        "",
        {"summary": "no time"},
        {**LINE, "tags": "one"},
        {**LINE, "summary": " "},
        {**LINE, "schema": "other/1"},
        "[1]",
        {**LINE, "summary": "the last one"},
        {**LINE, "timestamp": "2026-03-01"},
    )
    assert report.created == 2
    assert [problem.partition(":")[0] for problem in report.problems] == [f"line {n}" for n in (2, 4, 5, 6, 7, 8, 10)]
    assert "line 4: timestamp: Field required" in report.problems
    assert "2 episodes stored" in render(report)


def test_a_line_is_one_episode_each_time_and_stays_as_stored(settings: Settings, store: Store, tmp_path: Path) -> None:
    assert taken(settings, tmp_path, LINE, LINE).created == 1
    assert taken(settings, tmp_path, LINE).unchanged == 1
    assert len(episodes(store)) == 1
    put(store, "mine", "what I said", summary="mine")
    report = taken(settings, tmp_path, {**LINE, "episode_id": "mine"})
    assert (report.created, report.differing) == (0, ["mine"])
    assert store.episodes.get(["mine"])["mine"].summary == "mine"


def test_secrets_are_masked_on_their_way_in(settings: Settings, store: Store, tmp_path: Path) -> None:
    secret = {
        "summary": f"the token {SECRET}",
        "raw_exchange": f"export GITHUB_TOKEN={SECRET}",
        "path": f"/x/{SECRET}",
        "tags": [SECRET],
        "metadata": {"password": "hunter2-and-more", "deep": [SECRET]},
    }
    assert taken(settings, tmp_path, {**LINE, **secret}).created == 1
    (stored,) = episodes(store)
    assert SECRET not in json.dumps(body_of(stored, passages(store, stored)))
    assert "hunter2-and-more" not in json.dumps(body_of(stored, passages(store, stored)))
    assert stored.metadata["masked"]
    assert taken(settings, tmp_path, {**LINE, **secret}).unchanged == 1


def test_what_was_deleted_or_is_excluded_here_stays_away(settings: Settings, store: Store, tmp_path: Path) -> None:
    put(store, "gone", "the harbor", message_keys=("k1",))
    store.episodes.delete("gone")
    add_rule(store, Rule(RuleKind.CONTENT_PATTERN, "lantern"))
    report = taken(
        settings,
        tmp_path,
        {**LINE, "episode_id": "gone"},
        {**LINE, "episode_id": "twin", "message_keys": ["k1"]},
        {**LINE, "summary": "a lantern"},
    )
    assert (report.created, report.tombstoned, len(report.problems)) == (0, 2, 1)
    assert "kept away: they were deleted or forgotten here" in render(report)
    assert episodes(store) == []


def test_a_damaged_file_is_told_and_its_beginning_stored(
    old: Opened, settings: Settings, store: Store, tmp_path: Path
) -> None:
    run_export(old[0], tmp_path / "a.gz")
    data = (tmp_path / "a.gz").read_bytes()
    (tmp_path / "a.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(GiveUp, match="damaged"):
        run_import(settings, tmp_path / "a.gz", lambda number: None)
    assert 0 < len(episodes(store)) < 58
    with pytest.raises(GiveUp, match="cannot be read"):
        run_import(settings, tmp_path / "nothing", lambda number: None)


def test_standard_output_and_input_are_files(old: Opened, settings: Settings, tmp_path: Path) -> None:
    def run(settings: Settings, *words: str, given: bytes = b"") -> bytes:
        command = [sys.executable, "-m", "anamnesis_pipeline", *words]
        environment = {"ANAMNESIS_HOME": str(settings.home), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(command, input=given, env=environment, check=True, capture_output=True).stdout

    exported = run(old[0], "export", "-", "--project", "home")
    assert {json.loads(line)["project"] for line in exported.splitlines()} == {"home"}
    assert b"20 episodes stored" in run(settings, "import", "-", given=exported)


def test_the_document_explains_every_field() -> None:
    table = re.findall(r"^\| (`.+?) \| (.+?) \|", FORMAT.read_text(encoding="utf-8"), re.MULTILINE)
    explained = {name: said for names, said in table for name in re.findall(r"`(\w+)`", names)}
    episode = Episode("e", "direct", DAY, "main", "acme/api", "note", "said", "said at length")
    assert explained.keys() == body_of(episode, []).keys()
    fields = {(field.alias or name): field.is_required() for name, field in Line.model_fields.items()}
    assert fields == {name: "needed" in said for name, said in explained.items() if said != "not read"}


# --- many lines at once -----------------------------------------------------------------------------------


def note(text: str, minute: int = 0, **fields: Any) -> dict[str, Any]:
    """A line that says something, in a minute of one day."""
    return {"summary": text, "timestamp": f"2026-03-01T{minute // 60:02}:{minute % 60:02}:00Z"} | fields


def transactions(store: Store) -> int:
    """How many wrote episodes: each leaves one event."""
    return len(store.events.latest(10_000, [Happening.WRITE]))


def contexts(store: Store) -> dict[str, list[str]]:
    """Summary of each episode -> the contexts of its passages."""
    found = store.episodes.page(EpisodeFilter(include_superseded=True), 1_000).items
    return {e.summary: [held.passage.context for held in store.episodes.passages_of(e.episode_id)] for e in found}


def test_many_lines_are_one_transaction(settings: Settings, store: Store, tmp_path: Path) -> None:
    lines = [note(f"valve {number} leaks", number) for number in range(BATCH_LINES + 50)]
    assert taken(settings, tmp_path, *lines).created == len(lines)
    assert transactions(store) == 2
    assert taken(settings, tmp_path, *lines).unchanged == len(lines)
    assert transactions(store) == 2


def test_long_lines_are_written_apart(settings: Settings, store: Store, tmp_path: Path) -> None:
    long = "x" * (BATCH_BYTES // 2)
    assert taken(settings, tmp_path, *(note(f"note {n}", not_looked_at=long) for n in range(3))).created == 3
    assert transactions(store) == 3


def test_a_line_costs_mongodb_two_commands_and_no_commit(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, lines = watched(monkeypatch), [note(f"valve {number} leaks", number) for number in range(200)]
    settings = Settings(home=tmp_path / "new", store="mongo", mongo_uri=SecretStr(server.uri))
    wiring.open_store(settings).close()
    assert sent.during(lambda: taken(settings, tmp_path, *lines)) <= 2 * len(lines)
    assert [name for name, _ in sent.commands].count("commitTransaction") == 1
    assert taken(settings, tmp_path, *lines).unchanged == 200


def test_what_the_store_refuses_is_context_of_nothing(server: LoopbackServer, tmp_path: Path) -> None:
    lines = [
        note("the first", 0),
        note("the huge one", 1, raw_exchange="x " * 300_000),
        "{not json",
        note("the next", 2),
        note("the last", 3),
        note(" ", 4),
    ]
    settings = Settings(home=tmp_path / "new", store="mongo", mongo_uri=SecretStr(server.uri))
    with closing(wiring.open_store(settings)) as store:
        server.faults.add("insert", "update", error=TOO_LARGE, times=None, over_bytes=300_000)
        report = taken(settings, tmp_path, *lines)
        stands = contexts(store)
        again = taken(settings, tmp_path, *lines)
    assert report.created == 3
    assert [problem.partition(":")[0] for problem in report.problems] == ["line 2", "line 3", "line 6"]
    assert report.problems[1] == "line 3: Invalid JSON: key must be a string at column 2"
    assert stands.keys() == {"the first", "the next", "the last"}
    assert "the first" in stands["the next"][0]
    assert "huge" not in str(stands)
    assert (again.created, again.unchanged, again.problems) == (0, 3, report.problems)


def test_what_others_write_meanwhile_stays_as_it_is(
    settings: Settings, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [note("a", episode_id="one"), note("b", episode_id="two"), note("c", episode_id="three")]
    make_passages, begun = importing.posted_passages, []

    def meanwhile(*given: Any, **named: Any) -> list[Passage]:
        if not begun:
            begun.append(True)
            put(store, "one", "what a log says", summary="what a log says")
            taken(settings, elsewhere, lines[1])
        return make_passages(*given, **named)

    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(importing, "posted_passages", meanwhile)
    report = taken(settings, tmp_path, *lines)
    assert (report.created, report.unchanged, report.differing, report.problems) == (1, 1, ["one"], [])
    assert {key: found.summary for key, found in store.episodes.get(["one", "two", "three"]).items()} == {
        "one": "what a log says",
        "two": "b",
        "three": "c",
    }


def test_what_is_said_twice_meets_what_the_first_line_left(settings: Settings, store: Store, tmp_path: Path) -> None:
    put(store, "gone", "the harbor")
    store.episodes.delete("gone")
    add_rule(store, Rule(RuleKind.CONTENT_PATTERN, "lantern"))
    report = taken(
        settings,
        tmp_path,
        note("a", episode_id="one"),
        note("a", episode_id="one"),
        note("b", episode_id="one"),
        note("a lantern", episode_id="two"),
        note("c", episode_id="two"),
        note("d", episode_id="gone"),
        note("d", episode_id="gone"),
        note("e"),
        note("e"),
    )
    assert (report.created, report.unchanged, report.differing, report.tombstoned) == (3, 2, ["one"], 2)
    (problem,) = report.problems
    assert problem.startswith("line 4: ")
    assert {e.episode_id: e.summary for e in store.episodes.get(["one", "two"]).values()} == {"one": "a", "two": "c"}


def test_lines_have_the_contexts_that_files_of_one_line_give(tmp_path: Path) -> None:
    lines = [
        note("a valve", 0),
        note("a pump", 1),
        note("under another name", 1, project="water"),
        note("a pipe", 2),
        note("at the same time", 2),
        note("in the past", 0),
        note("superseded", 3, status="superseded"),
        note("forgotten", 3, episode_id="gone"),
        note("its messages are forgotten", 3, message_keys=["k1"]),
        note("a lantern", 3),
        note("a record", 3, kind="record"),
        note("of others", 3, instance="other"),
        note("a tank", 4),
        note("a boiler", 33),
        note("a chimney", 90),
    ]
    lines = [{"project": "api"} | line for line in lines]
    found = []
    for files in ([lines], [[line] for line in lines]):
        settings = Settings(home=tmp_path / str(len(files)))
        with closing(wiring.open_store(settings)) as store:
            put(store, "gone", "what was forgotten", message_keys=("k1",))
            store.episodes.delete("gone")
            store.settings.set(PROJECT_ALIASES, {"water": "api"})
            add_rule(store, Rule(RuleKind.CONTENT_PATTERN, "lantern"))
            for file in files:
                taken(settings, tmp_path, *file)
            found.append(contexts(store))
    together, one_by_one = found
    assert together == one_by_one
    assert together["a tank"] == ["2026-03-01 api\na pipe\nat the same time"]
    assert together["a chimney"] == ["2026-03-01 api"]


def test_implausible_times_are_kept_as_text(settings: Settings, store: Store, tmp_path: Path) -> None:
    lines = [
        note("first", timestamp="0001-01-01T00:00:00+05:00", session_id="b"),
        note("second", 1, session_id="a"),
        note("third", 2, session_id="b"),
        note("last", timestamp="9999-12-31T23:59:59Z", session_id="a"),
        note("moon", timestamp="1970-01-01T00:00:00Z"),
    ]
    report = taken(settings, tmp_path, *lines)
    assert (report.created, report.problems, report.moved) == (5, [], 2)
    found = {each.summary: each for each in store.episodes.page(EpisodeFilter(), 10).items}
    assert found["first"].timestamp == found["third"].timestamp
    assert found["last"].timestamp == found["second"].timestamp
    assert found["moon"].timestamp.year == 1970
    assert found["first"].metadata == {"timestamp_as_written": "0001-01-01T00:00:00+05:00"}
    again = taken(settings, tmp_path, *lines)
    assert (again.unchanged, again.differing) == (5, [])


def test_export_of_implausible_times_can_be_imported(tmp_path: Path) -> None:
    old, new = Settings(home=tmp_path / "old"), Settings(home=tmp_path / "new")
    with closing(wiring.open_store(old)) as stored:
        for when in (datetime.min, datetime.max):
            odd = replace(episode(str(when.year)), timestamp=when.replace(tzinfo=UTC))
            stored.episodes.put([(odd, passages_of("something"))])
    file = tmp_path / "all.jsonl"
    run_export(old, file)
    assert run_import(new, file, lambda number: None).created == 2
