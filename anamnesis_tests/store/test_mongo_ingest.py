"""What the contract says nothing of: how much is sent to MongoDB while logs are read, and what happens when two runs,
or the server, get in the way.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandStartedEvent

from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import (
    ArchiveBase,
    ArchiveFrame,
    DeadLetter,
    FileCursor,
    Occurrence,
    Part,
    Source,
    content_id,
)
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.mongo.client import Database
from anamnesis_pipeline.store.records.episodes import Publication
from anamnesis_pipeline.store.records.messages import ParsedChunk
from anamnesis_tests.conftest import OpenStore, mongo_database
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.mongo_watching import Sent, watched
from anamnesis_tests.support.samples import DAY, at_once, crawled, parsed, part, put, segment, summary

MANY = 300

Work = Callable[[], bool]
"""Something to do to the store, which says whether that was done."""


# --- what is sent ----------------------------------------------------------------------------------------


def calls_of(sent: Sent, work: Callable[[], Any]) -> int:
    """How many calls some work makes, but for those that fetch more of a long answer."""
    sent.during(work)
    return len([name for name, _ in sent.commands if name != "getMore"])


def chunk(store: Store, count: int, begin: str) -> Work:
    """As many messages, with a further key, a claim, a copy elsewhere, a part and a broken line each."""
    before, path = crawled(store, begin), begin
    keys = [f"{begin}{n}" for n in range(count)]
    aliases = {f"alias of {key}": key for key in keys}
    made = ParsedChunk(
        before,
        before,
        [*keys, *aliases],
        [Occurrence(key, path, n) for n, key in enumerate(keys)],
        [part(segment(key, minute=n), path=path, ordinal=n) for n, key in enumerate(keys)],
        dead=[DeadLetter("logs", path, 0, n, "torn") for n in range(count)],
        aliases=aliases,
        claims={f"claim of {key}": key for key in keys},
    )
    return lambda: store.messages.commit_parsed(made)


def prompts_of_the_history(store: Store, count: int, begin: str) -> Work:
    store.files.put_sources([Source("logs"), Source("history", kind="claude_history")])
    keys = [f"{begin}{n}" for n in range(count)]
    typed = [part(segment(key), source="history", exchange_id=content_id("exchange", key)) for key in keys]
    parsed(store, *typed, source="history", keys=keys)
    before, claims = crawled(store, begin), {key: f"message of {key}" for key in keys}
    taking = ParsedChunk(before, before, list(claims.values()), claims=claims)
    return lambda: store.messages.commit_parsed(taking) and store.overview.counts("history").parts == 0


def crawl(store: Store, count: int, begin: str) -> Work:
    count = min(count, 100)  # of which each has two rows
    frame = ArchiveFrame(0, 0, 9, 0, 99, mark=begin)
    copied = replace(frame, mark="", base=ArchiveBase("logs", f"{begin}0", 0, 0, 0, 99))
    whole = [(None, FileCursor("logs", f"{begin}{n}"), frame) for n in range(count)]
    copies = [(None, FileCursor("logs", f"{begin} copy {n}"), copied) for n in range(count)]
    return lambda: store.files.commit_crawls([*whole, *copies]) == [True] * (2 * count)


def summaries(store: Store, count: int, begin: str) -> Work:
    parts = [part(segment(f"{begin}{n}")) for n in range(count)]
    parsed(store, *parts, path=begin)
    return lambda: store.summaries.put_summaries([summary(each) for each in parts]) == count


def agents_of_sessions(store: Store, count: int, begin: str) -> Work:
    sessions = [f"{begin}{n}" for n in range(count)]
    agents = [part(segment(f"agent of {s}"), session_id=s, agent_id="a1", project="elsewhere") for s in sessions]
    parsed(store, *agents, path=begin)
    before = store.files.cursors("logs")[begin]
    own = ParsedChunk(before, before, parts=[part(segment(f"of {s}"), session_id=s) for s in sessions])

    def place() -> bool:
        assert store.messages.commit_parsed(own)
        return {each.project for each in store.forgetting.parts([each.part_id for each in agents])} == {"acme/api"}

    return place


def counting(store: Store, count: int, begin: str) -> Work:
    keys = [f"{begin}{n}" for n in range(count)]
    parsed(store, *(part(segment(key)) for key in keys), keys=keys)
    return lambda: store.overview.counts("logs").parts >= count


def sources_with_work(store: Store, count: int, begin: str) -> Work:
    for n in range(min(count, 30)):
        parsed(store, part(segment(f"{begin}{n}"), source=f"{begin}{n}"), source=f"{begin}{n}")

    def look() -> bool:
        wanting = store.summaries.sources_to_summarize(DAY + timedelta(days=1))
        return wanting >= store.parts.unread_sources() and store.parts.unfinished_sources(DAY) == wanting

    return look


@pytest.mark.parametrize(
    ("arrange", "most"),
    [
        (chunk, 25),
        (prompts_of_the_history, 40),
        (crawl, 9),
        (summaries, 25),
        (agents_of_sessions, 25),
        (counting, 13),
        (sources_with_work, 25),
    ],
)
def test_many_cost_as_two(sent: Sent, store: Store, arrange: Callable[[Store, int, str], Work], most: int) -> None:
    def cost(count: int, begin: str) -> int:
        work, done = arrange(store, count, begin), list[bool]()
        calls = calls_of(sent, lambda: done.append(work()))
        assert done == [True]
        return calls

    few = cost(2, "few")
    assert cost(MANY, "many") <= few <= most, sent.commands


def test_older_copy_takes_messages_over_with_few_calls(sent: Sent, store: Store) -> None:
    def take(count: int, begin: str) -> int:
        keys = [f"{begin}{n}" for n in range(count)]
        younger = FileCursor("copies", begin, offset=9, lines=9, first_mtime_ns=2)
        store.files.commit_crawls(
            [(None, younger, None), (None, replace(younger, source="logs", first_mtime_ns=1), None)]
        )
        parts = [part(segment(key), source="copies", path=begin, ordinal=n) for n, key in enumerate(keys)]
        parsed(store, *parts, path=begin, source="copies", keys=keys)
        before = store.files.cursors("logs")[begin]
        own = [replace(each, source="logs") for each in parts]
        return calls_of(sent, lambda: store.messages.commit_parsed(ParsedChunk(before, before, keys, parts=own)))

    calls = take(2, "few")
    assert take(20, "many") <= calls + 1
    assert take(200, "most") <= calls + 10, "parts are read twenty at a time"
    assert (store.overview.counts("copies").parts, store.overview.counts("copies").messages) == (0, 0)


def test_second_of_two_frames_that_lean_on_each_other_is_refused(store: Store) -> None:
    whole = (None, FileCursor("logs", "a"), ArchiveFrame(0, 0, 9, 0, 99))
    copy = (None, FileCursor("logs", "b"), ArchiveFrame(0, 0, 9, 0, 1, base=ArchiveBase("logs", "a", 0, 0, 0, 99)))
    again = (None, FileCursor("logs", "c"), ArchiveFrame(0, 0, 9, 0, 1, base=ArchiveBase("logs", "b", 0, 0, 0, 1)))
    missing = (None, FileCursor("logs", "d"), ArchiveFrame(0, 0, 9, 0, 1, base=ArchiveBase("logs", "x", 0, 0, 0, 1)))
    assert store.files.commit_crawls([whole, copy, again, missing]) == [True, True, False, False]
    assert set(store.files.cursors("logs")) == {"a", "b"}


# --- what is stored --------------------------------------------------------------------------------------


def test_texts_that_look_like_fields_of_mongodb_are_texts(store: Store) -> None:
    odd = part(
        segment("$m", "$text"),
        source="$s",
        path="$p",
        session_id="$id",
        exchange_id="$x",
        project="$HOME",
        cwd="$PWD",
        prompt="$1",
        agent_type="$ROOT",
        origin="$$ROOT",
        lead="$lead",
    )
    parsed(store, odd, source="$s", path="$p", keys=["$m"])
    assert store.parts.part(odd.part_id) == odd
    store.parts.name_agent("$s", "$p", "$$NOW", "$$REMOVE")
    store.projects.move_parts("$s", ["$p"], "", "$HOME", "$OTHER")
    expected = replace(odd, agent_type="$$NOW", origin="$$REMOVE", project="$OTHER")
    assert store.parts.parts_to_publish("$s", 9) == [(expected, None)]
    store.episodes.publish([Publication(expected, None, [])])
    assert store.parts.parts_to_publish("$s", 9) == []


def test_part_of_more_than_16_mb_is_refused_and_leaves_nothing(store: Store) -> None:
    before = crawled(store)
    noise = random.Random(7).randbytes(17 << 20).hex()
    huge = ParsedChunk(before, replace(before, parsed_lines=10), ["m"], parts=[part(segment("m", noise))])
    with pytest.raises(GiveUp, match=r"one document for parts has more than the 16 MB.*split the text"):
        store.messages.commit_parsed(huge)
    assert store.files.cursors("logs")["a.jsonl"] == before
    assert store.messages.owners(["m"]) == {}


def held(database: Database) -> list[dict[str, Any]]:
    with database.read() as tables:
        return tables["parts"].find({})


def test_what_is_left_to_do_always_follows_from_what_a_part_is(store: Store, database: Database) -> None:
    """Every step through which a part passes, in any order."""
    chance = random.Random(11)
    ids = [part(segment(f"m{n}")).part_id for n in range(4)]

    def grow(n: int, current: Part) -> None:
        longer = (*current.segments, segment(f"m{n}", "more", start=len(current.segments)))
        parsed(store, replace(current, segments=longer, closed=chance.random() < 0.5))

    def summarize(_: int, current: Part) -> None:
        flagged = replace(summary(current), problem="away", retry_at=DAY)
        store.summaries.put_summaries([chance.choice((summary(current), flagged))])

    def publish(*_: Any) -> None:
        store.episodes.publish([Publication(each, of, []) for each, of in store.parts.parts_to_publish("logs", 1)])

    def move(_: int, current: Part) -> None:
        store.projects.move_parts("logs", ["a.jsonl"], "", current.project, chance.choice(("one", "two")))

    steps: list[Callable[[int, Part], Any]] = [
        grow,
        summarize,
        publish,
        move,
        lambda _, current: store.exclusion.hold({current.part_id: "rule"}),
        lambda *_: store.exclusion.release("rule"),
        lambda *_: store.parts.close_idle_parts("logs", DAY + timedelta(days=1)),
        lambda *_: store.parts.name_agent("logs", "a.jsonl", chance.choice("ab"), ""),
    ]
    for _ in range(150):
        n = chance.randrange(len(ids))
        chance.choice(steps)(n, store.parts.part(ids[n]) or part(segment(f"m{n}")))
        for found in held(database):
            free = found["held_by"] is None
            assert found["to_publish"] == (free and found["published_hash"] != found["wanted_hash"])
            missing = found["closed"] == 1 and found["summarized_hash"] != found["content_hash"]
            assert found["to_summarize"] == (free and missing)


# --- who gets in the way ---------------------------------------------------------------------------------


def test_of_two_runs_that_read_the_same_cursor_one_writes(open_store: OpenStore) -> None:
    runs = [open_store(), open_store()]
    for turn in range(10):
        before = crawled(runs[0], f"{turn}.jsonl")
        written = part(segment(f"m{turn}"), path=before.path)
        same = ParsedChunk(before, before, [f"m{turn}"], [Occurrence("copy", before.path, 1)], [written])
        won = at_once([partial(run.messages.commit_parsed, same) for run in runs])
        assert sorted(won) == [False, True]
    counts = runs[0].overview.counts("logs")
    assert (counts.parts, counts.messages, counts.occurrences) == (10, 10, 10)


def test_of_two_files_that_claim_the_same_messages_one_owns_them(open_store: OpenStore) -> None:
    runs = [open_store(), open_store()]
    for turn in range(5):
        chunks = []
        for path in ("a", "b"):
            before = crawled(runs[0], f"{path}{turn}")
            written = part(segment(f"m{turn}"), path=before.path)
            chunks.append(ParsedChunk(before, before, [f"m{turn}"], parts=[written]))
        won = at_once([partial(run.messages.commit_parsed, its) for run, its in zip(runs, chunks, strict=True)])
        assert sorted(won) == [False, True]
        owner = runs[0].messages.owners([f"m{turn}"])[f"m{turn}"]
        assert owner[1] == chunks[won.index(True)].before.path


class Meddler(Sent):
    """Changes a part from outside, once, when a transaction is about to write it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.part_id = ""
        self.turns = 0

    def started(self, event: CommandStartedEvent) -> None:
        super().started(event)
        if event.command_name == "update" and event.command["update"] == "parts" and self.part_id:
            part_id, self.part_id = self.part_id, ""
            with MongoClient[dict[str, Any]](shared.uri()) as other:
                parts = other[mongo_database(self._folder)]["parts"]
                parts.update_one({"part_id": part_id}, {"$set": {"lead": "meddled"}})
            self.turns += 1


@pytest.fixture
def meddler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Meddler:
    """Before the store, whose client it listens to."""
    made = Meddler(tmp_path)
    monkeypatch.setattr("anamnesis_tests.support.mongo_watching.Sent", lambda: made)
    watched(monkeypatch)
    return made


def test_chunk_that_meets_another_write_is_written_once(meddler: Meddler, store: Store) -> None:
    parsed(store, part(segment("m0"), closed=False), keys=["m0"])
    before = store.files.cursors("logs")["a.jsonl"]
    grown = part(segment("m0"), segment("m1"))
    growing = ParsedChunk(
        before,
        before,
        ["m1"],
        [Occurrence("m9", "a.jsonl", 1)],
        [grown, part(segment("m2"))],
        [DeadLetter("logs", "a.jsonl", 0, 3, "torn")],
    )
    meddler.part_id = grown.part_id
    meddler.commands.clear()
    assert store.messages.commit_parsed(growing)
    assert meddler.turns == 1
    assert [name for name, _ in meddler.commands].count("commitTransaction") == 1
    assert meddler.commands.count(("update", "parts")) > 1, "it was done anew"
    assert store.parts.part(grown.part_id) == grown
    assert store.files.cursors("logs")["a.jsonl"].version == before.version + 1
    counts = store.overview.counts("logs")
    assert (counts.parts, counts.messages, counts.occurrences, counts.dead_letters) == (2, 2, 1, 1)


def test_exchange_of_the_history_is_taken_over_once_on_a_retry(store: Store) -> None:
    if (server := shared.server()) is None:
        pytest.skip("only the loopback server fails when it is asked to")
    store.files.put_sources([Source("logs"), Source("history", kind="claude_history")])
    typed = part(segment("y"), source="history", exchange_id=content_id("exchange", "y"), ordinal=7)
    parsed(store, typed, source="history", keys=["y"])
    put(store, typed.part_id, "text", source="history")
    before = crawled(store)
    taking = ParsedChunk(before, before, ["m"], parts=[part(segment("m"))], claims={"y": "m"})
    server.faults.add("commitTransaction", error=251, labels=("TransientTransactionError",))
    try:
        assert store.messages.commit_parsed(taking)
    finally:
        server.faults.clear()
    assert store.messages.occurrences_of(["m"]) == [("history", Occurrence("m", "a.jsonl", 7))]
    assert store.episodes.get([typed.part_id]) == {}
    assert store.overview.counts("history").parts == 0
    assert store.messages.owners(["y", "m"]) == dict.fromkeys(["y", "m"], ("logs", "a.jsonl"))
