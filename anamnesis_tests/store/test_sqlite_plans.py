"""What an ingest costs follows what is new, and a search what it finds: no statement reads a whole table."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from anamnesis_pipeline.model import EpisodeFilter, Variant
from anamnesis_pipeline.services.handoff import read_handoff
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.documents import Verdict
from anamnesis_pipeline.store.records.exclusion import BuriedSection
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.store.test_contract_documents import commit, publish, section
from anamnesis_tests.support.ingested import OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, START, Log
from anamnesis_tests.support.samples import DAY, episode, put, space, unit

GROWING = re.compile(
    r"SCAN (?:messages|m|known|parts|p|frames|head|held|own|occurrences|episodes|e|passages|summaries)\b"
)
QUERY = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
SCAN = re.compile(rf"(?:{GROWING.pattern}|SCAN (?:pending|vectors|v)\b)(?!.*INDEX)")
COUNTS = re.compile(r"\s*SELECT (?:count|coalesce\(sum)\b", re.IGNORECASE)


def conversation() -> Log:
    log = Log()
    for number in range(3):
        log.user(f"question {number}")
        log.call("Agent", f"toolu_{number}", description="Find", prompt=f"task {number}")
        log.user(
            [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"answer {number}"}],
            toolUseResult={"agentId": f"a{number}", "status": "completed"},
        )
        log.say(f"said {number}")
    return log


def typed(log: Log) -> list[str]:
    prompts = [r for r in map(json.loads, log.lines) if isinstance(r["message"]["content"], str)]
    at = int(START.timestamp() * 1000)
    entry = {"pastedContents": {}, "project": "/home/dev/shop", "sessionId": SESSION}
    return [json.dumps(entry | {"display": r["message"]["content"], "timestamp": at}) for r in prompts]


def changed(lines: list[str], **fields: object) -> list[str]:
    return [json.dumps(json.loads(line) | fields) for line in lines]


class Watched(sqlite3.Connection):
    """Remembers each statement with the values it was first run with: SQLite plans by the statement alone."""

    seen: ClassVar[dict[str, Any]] = {}

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:  # type: ignore[override]
        self.seen.setdefault(sql, values)
        return super().execute(sql, values)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:  # type: ignore[override]
        rows = list(rows)
        self.seen.setdefault(sql, rows[0] if rows else None)
        return super().executemany(sql, rows)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store whose statements are remembered from now on."""
    connect = sqlite3.connect
    with monkeypatch.context() as patch, closing(open_sqlite(tmp_path / "memory.db", tmp_path / "index")) as made:
        made.settings.set("made", True)
        patch.setattr(Watched, "seen", {})
        patch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, factory=Watched, **options))
        with closing(open_sqlite(tmp_path / "memory.db", tmp_path / "index")) as store:
            yield store


def plans(folder: Path, *, of_counts: bool = False) -> list[tuple[str, str]]:
    """Each step of the plans of the queries seen, with these; of those that count where that is asked for."""
    with closing(sqlite3.Connection(folder / "memory.db")) as plain:
        for name in ("exact_terms", "stem_terms", "casefold"):
            plain.create_function(name, -1, lambda *texts: "")
        return [
            (row[3], sql)
            for sql, values in Watched.seen.items()
            if values is not None and QUERY.match(sql) and (of_counts or not COUNTS.match(sql))
            for row in plain.execute(f"EXPLAIN QUERY PLAN {sql}", values)
        ]


def test_no_statement_of_an_ingest_reads_a_whole_table(watched: Store, tmp_path: Path) -> None:
    store = watched
    home, log, agent = Ingested(store, tmp_path), conversation(), Log(isSidechain=True, agentId="a1")
    agent._count = 100
    agent.user("task 1")
    agent.say("answer 1")
    home.write(typed(log), "history.jsonl")
    home.write(agent.lines, f"{SESSION}/subagents/agent-a1.jsonl")
    home.write(changed(log.lines, sessionId=OTHER, forkedFrom={"sessionId": SESSION}), f"{OTHER}.jsonl", "-a-fork")
    home.ingest()
    home.write(log.lines)
    home.write(log.lines, folder="-another-folder")
    home.ingest()
    assert store.overview.counts().messages == 12
    steps = plans(tmp_path)
    assert len(steps) > 100
    growing = [(step, sql) for step, sql in steps if GROWING.match(step) and "USING INDEX parts_" not in step]
    assert growing == []


def test_no_rule_of_sessions_reads_a_whole_table(watched: Store, tmp_path: Path) -> None:
    store = watched
    written = [(episode(name, source="logs", session_id="s"), []) for name in ("a", "b")]
    store.episodes.put(written)
    Watched.seen.clear()
    store.episodes.put([(replace(written[0][0], summary="other"), [])])
    (session,) = store.consolidation.changed(9)
    store.consolidation.settle(session, {"a": "b", "b": None})
    store.consolidation.unsupersede("a")
    sessions = store.sessions
    sessions.note_branches("logs", {"s": "main"})
    sessions.changed("logs", "r", 9)
    sessions.told("logs", "s")
    sessions.copied([("logs", "a.jsonl")], 9)
    sessions.sessions_of([("logs", "a.jsonl")])
    assert sessions.join(sessions.states(["s"]), "s")
    assert sessions.settle(sessions.states(["s"]), None, ())
    store.episodes.delete("b")
    steps = plans(tmp_path)
    assert len(steps) > 40
    growing = re.compile(rf"{GROWING.pattern}|SCAN (?:consolidated|session_notes)|.* parts_by_exchange ")
    assert [(step, sql) for step, sql in steps if growing.match(step)] == []


def test_documents_find_sightings_by_indexes_that_leave_few(watched: Store, tmp_path: Path) -> None:
    store = watched
    first, moved, new = section("One", "first"), section("One", "first", path="b.md"), section("One", "new", since=2)
    commit(store, first)
    commit(store, new)
    publish(store, first[0], new[0])
    store.documents.settle(store.documents.unsettled("notes", 9), {first[0].part_id: Verdict(False, new[0].part_id)})
    commit(store, moved, path="b.md")
    commit(store)
    store.exclusion.bury_sections([BuriedSection("e", "notes", "a.md", "place", b"")])
    assert store.exclusion.buried_at("notes", "other", ["first"])
    assert store.documents.same_text([first[0].part_id]) == {first[0].part_id}
    store.documents.remove([first[0].part_id])
    steps = [step for step, sql in plans(tmp_path) if "sightings" in step and "sightings" in sql]
    assert len(steps) > 10
    assert [step for step in steps if "SCAN" in step or step.endswith("(source=?)")] == []


EAST = unit(1, 0, 0, 0)
HOUR = EpisodeFilter(since=DAY, until=DAY + timedelta(hours=1))
SORTED = {"page of a project", "parts to summarize"}
"""What is sorted, of the few that pass."""
HOT: dict[str, Callable[[Store], object]] = {
    "page": lambda store: store.episodes.page(EpisodeFilter(), 20),
    "page of a project": lambda store: store.episodes.page(EpisodeFilter(projects=("p",)), 20),
    "passages of a project": lambda store: store.vectors.nearest(
        "s", Variant.TEXT, EAST, 9, EpisodeFilter(projects=("p",))
    ),
    "passages of a source": lambda store: store.vectors.nearest(
        "s", Variant.TEXT, EAST, 9, EpisodeFilter(source="logs")
    ),
    "passages of a tag": lambda store: store.vectors.nearest("s", Variant.TEXT, EAST, 9, EpisodeFilter(tags=("t",))),
    "passages of an hour": lambda store: store.vectors.nearest("s", Variant.TEXT, EAST, 9, HOUR),
    "parts to publish": lambda store: store.parts.parts_to_publish("x", 9),
    "parts to summarize": lambda store: store.summaries.parts_to_summarize("x", DAY, 9),
    "totals": lambda store: store.vectors.progress("s"),
    "vectors of a variant": lambda store: store.vectors.build("s", force=True),
    "pending episodes": lambda store: store.vectors.pending("s", ["x"], 25),
}


@pytest.mark.parametrize("name", HOT)
def test_hot_question_neither_scans_a_table_nor_sorts(watched: Store, tmp_path: Path, name: str) -> None:
    watched.spaces.put(space("s"))
    watched.vectors.put("s", Variant.TEXT, put(watched, "e", "text", project="p"), EAST[None])
    Watched.seen.clear()
    HOT[name](watched)
    steps = [step for step, sql in plans(tmp_path, of_counts=True)]
    assert steps
    assert [step for step in steps if SCAN.match(step)] == []
    assert name in SORTED or [step for step in steps if "TEMP B-TREE" in step] == []


@contextmanager
def counted_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Store, list[int]]]:
    """A store, and how many hundreds of steps SQLite's machine made for it so far."""
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_progress_handler(count, 100)
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", watched)
        store = open_sqlite(folder / "memory.db", folder / "index")
        yield store, counted
        store.close()


def steps_of_one_more_prompt(folder: Path, known: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Hundreds of steps of SQLite's machine for one prompt with its answer, beside `known` others."""
    with counted_store(folder, monkeypatch) as (store, counted):
        home, log, last = Ingested(store, folder), Log(), Log(session=OTHER)
        for number in range(known):
            log.user(f"question {number}")
        last._count = known
        last.user("one more question")
        last.say("one more answer")
        home.write(log.lines)
        home.write(typed(log), "history.jsonl")
        home.crawl()
        home.parse()
        home.write(last.lines, f"{OTHER}.jsonl", "-another-folder")
        home.crawl()
        counted[0] = 0
        home.parse()
        return counted[0]


def test_prompt_costs_the_same_beside_ten_and_two_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = steps_of_one_more_prompt(tmp_path / "few", 10, monkeypatch)
    many = steps_of_one_more_prompt(tmp_path / "many", 2_000, monkeypatch)
    assert many < 2 * few + 10


def steps_of_a_handoff(folder: Path, known: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Hundreds of steps of SQLite's machine for the hand-off of a project with `known` notes, among other projects."""
    with counted_store(folder, monkeypatch) as (store, counted):
        kinds = ("note", "exchange", "document", "code")
        notes = [episode(f"e{n}", n, kind=kinds[n % 4], project=f"p{n % 3}", session_id=f"s{n}") for n in range(known)]
        store.episodes.put([(note, []) for note in notes])
        counted[0] = 0
        read_handoff(store, ["p1"])
        assert store.context.has_project("p1")
        return counted[0]


def test_handoff_costs_the_same_among_few_and_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = steps_of_a_handoff(tmp_path / "few", 800, monkeypatch)
    many = steps_of_a_handoff(tmp_path / "many", 4_000, monkeypatch)
    assert many < 1.2 * few + 10
