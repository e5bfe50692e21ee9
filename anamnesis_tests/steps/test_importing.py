"""Lines are written many at once, and told as if each had come alone."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from anamnesis_pipeline import wiring
from anamnesis_pipeline.commands.exporting import run_export, run_import
from anamnesis_pipeline.model import Passage, Where
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sources.exclusion import Rule, RuleKind
from anamnesis_pipeline.steps import importing
from anamnesis_pipeline.steps.blocklist import add_rule
from anamnesis_pipeline.steps.importing import BATCH_BYTES, BATCH_LINES, ImportReport
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.events import Happening
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_tests.mongo_server.faults import TOO_LARGE
from anamnesis_tests.mongo_server.server import LoopbackServer
from anamnesis_tests.store.mongo_watching import watched
from anamnesis_tests.store.samples import episode, passages, put

Line = dict[str, Any] | str


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "new")


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with closing(wiring.open_store(settings)) as opened:
        yield opened


def note(text: str, minute: int = 0, **fields: Any) -> dict[str, Any]:
    """A line that says something, in a minute of one day."""
    return {"summary": text, "timestamp": f"2026-03-01T{minute // 60:02}:{minute % 60:02}:00Z"} | fields


def taken(settings: Settings, folder: Path, *lines: Line) -> ImportReport:
    file = folder / "lines.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    told: list[int] = []
    report = run_import(settings, file, told.append)
    assert told == list(range(1, len(lines) + 1))
    return report


def transactions(store: Store) -> int:
    """How many wrote episodes: each leaves one event."""
    return len(store.events.latest(10_000, [Happening.WRITE]))


def contexts(store: Store) -> dict[str, list[str]]:
    """Summary of each episode -> the contexts of its passages."""
    found = store.episodes.page(Where(include_superseded=True), 1_000).items
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


def test_a_line_costs_mongodb_two_commands_and_no_commit_of_its_own(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, lines = watched(monkeypatch), [note(f"valve {number} leaks", number) for number in range(200)]
    settings = Settings(home=tmp_path / "new", store="mongo", mongo_uri=SecretStr(server.uri))
    wiring.open_store(settings).close()
    assert sent.during(lambda: taken(settings, tmp_path, *lines)) <= 2 * len(lines)
    assert [name for name, _ in sent.commands].count("commitTransaction") == 1
    assert taken(settings, tmp_path, *lines).unchanged == 200


def test_what_the_store_refuses_fails_alone_and_is_context_of_nothing(server: LoopbackServer, tmp_path: Path) -> None:
    lines = [
        note("the first", 0), note("the huge one", 1, raw_exchange="x " * 300_000), "{not json", note("the next", 2),
        note("the last", 3), note(" ", 4),
    ]  # fmt: skip
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
        "one": "what a log says", "two": "b", "three": "c",
    }  # fmt: skip


def test_what_is_said_twice_meets_what_the_first_line_left(settings: Settings, store: Store, tmp_path: Path) -> None:
    put(store, "gone", "the harbor")
    store.episodes.delete("gone")
    add_rule(store, Rule(RuleKind.CONTENT_PATTERN, "lantern"))
    report = taken(
        settings, tmp_path, note("a", episode_id="one"), note("a", episode_id="one"), note("b", episode_id="one"),
        note("a lantern", episode_id="two"), note("c", episode_id="two"), note("d", episode_id="gone"),
        note("d", episode_id="gone"), note("e"), note("e"),
    )  # fmt: skip
    assert (report.created, report.unchanged, report.differing, report.tombstoned) == (3, 2, ["one"], 2)
    (problem,) = report.problems
    assert problem.startswith("line 4: ")
    assert {e.episode_id: e.summary for e in store.episodes.get(["one", "two"]).values()} == {"one": "a", "two": "c"}


def test_lines_of_one_file_have_the_contexts_that_files_of_one_line_give_them(tmp_path: Path) -> None:
    lines = [
        note("a valve", 0), note("a pump", 1), note("under another name", 1, project="water"), note("a pipe", 2),
        note("at the same time", 2), note("in the past", 0), note("superseded", 3, status="superseded"),
        note("forgotten", 3, episode_id="gone"), note("its messages are forgotten", 3, message_keys=["k1"]),
        note("a lantern", 3), note("a record", 3, kind="record"), note("of others", 3, instance="other"),
        note("a tank", 4), note("a boiler", 33), note("a chimney", 90),
    ]  # fmt: skip
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


def test_implausible_times_are_kept_as_text_beside_their_neighbours(
    settings: Settings, store: Store, tmp_path: Path
) -> None:
    lines = [
        note("first", timestamp="0001-01-01T00:00:00+05:00", session_id="b"),
        note("second", 1, session_id="a"),
        note("third", 2, session_id="b"),
        note("last", timestamp="9999-12-31T23:59:59Z", session_id="a"),
        note("moon", timestamp="1970-01-01T00:00:00Z"),
    ]
    report = taken(settings, tmp_path, *lines)
    assert (report.created, report.problems, report.moved) == (5, [], 2)
    found = {each.summary: each for each in store.episodes.page(Where(), 10).items}
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
            stored.episodes.put([(odd, passages("something"))])
    file = tmp_path / "all.jsonl"
    run_export(old, file)
    assert run_import(new, file, lambda number: None).created == 2
