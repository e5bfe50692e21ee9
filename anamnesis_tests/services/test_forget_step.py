"""What is forgotten is gone from every file, stays away, and takes nothing else with it."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis_pipeline.embeddings.pieces import Span
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.pipeline.archive import Archive
from anamnesis_pipeline.runtime import home_wiring
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.forget import JOB
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_tests.sidecar.conftest import wait_for
from anamnesis_tests.support.archived_logs import DAY, FOLDER, OTHER, SESSION, Home, meets_a_lock, record, unmasked
from anamnesis_tests.support.samples import put

OTHER_LOG = f"{FOLDER}/{OTHER}.jsonl"
SECOND = "How does the aardvark exporter write zanzibar files to the disk?"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.say(
        "Why is the ledger of the walrus module wrong by one cent?",
        "The walrus rounding happens twice, quagga said so in the review.",
        SECOND,
    )
    home.write([{"type": "last-prompt", "lastPrompt": SECOND, "sessionId": SESSION}])
    home.write([record("assistant", "It streams zanzibar rows through the okapi buffer.", 4)])
    home.say("And what of the final narwhal question, is that settled?", "The narwhal question is settled.", at=50)
    yield home
    home.close()


def test_a_preview_says_what_would_go_and_changes_nothing(home: Home) -> None:
    before = home.ingest(unmasked)
    report = home.preview(ids=(home.holding("zanzibar"),))
    assert (report.dry_run, report.episodes, report.messages, report.lines, report.files) == (True, 1, 2, 3, 1)
    assert "aardvark" in report.shown[0].summary
    assert any(str(home.logs) in place for place in report.remains)
    assert any("backups" in place for place in report.remains)
    assert home.episodes() == before
    assert home.store.settings.get(JOB) is None


def test_nothing_of_an_episode_is_left_and_all_else_stays(home: Home) -> None:
    home.write([record("user", SECOND, 3)], OTHER_LOG)
    home.say("elsewhere the gecko sleeps in the sun", at=90, session=OTHER)
    home.ingest(unmasked)
    gone, kept = ["zanzibar", "aardvark", "okapi"], ["walrus", "quagga", "narwhal", "gecko"]
    assert home.left(*gone) == gone
    report = home.forget("okapi")
    assert (report.episodes, report.files, report.problems) == (1, 2, [])
    assert home.left(*gone, *kept) == kept
    assert [line == "{}" for line in home.archived()] == [False, False, True, True, True, False, False]
    assert [line == "{}" for line in home.archived(f"{OTHER}.jsonl")] == [True, False]
    assert home.finds("zanzibar") == set()
    assert len(home.finds("walrus")) == 1
    assert len(home.episodes()) == 3


def test_a_session_goes_with_what_surrounds_it_and_its_subagents(home: Home) -> None:
    agent = f"{FOLDER}/{SESSION}/subagents/agent-a1.jsonl"
    home.say("look for the pangolin", at=7, path=agent, isSidechain=True, agentId="a1")
    title = {"type": "custom-title", "customTitle": "walrus and pangolin", "sessionId": SESSION}
    home.write([title, '{"torn pangolin'])
    home.say("the gecko sleeps", at=90, session=OTHER)
    home.ingest(unmasked)
    home.forget(session_id=SESSION)
    assert home.left("walrus", "pangolin", "zanzibar", "narwhal", "gecko") == ["gecko"]
    assert set(home.archived()) == {"{}"}
    assert [e.session_id for e in home.episodes()] == [OTHER]


def test_only_questions_that_may_name_it_go(home: Home) -> None:
    home.ingest(unmasked)
    gone, kept = home.holding("zanzibar"), home.holding("walrus")
    named = ["zanzibar", "how do aardvarks export files to the disk?", "the okapi of the narwhal module"]
    menu = "which menu of gimp has a walrus?"
    others = ["why is the walrus ledger wrong?", "narwhal question settled?", "unheard of", menu]
    for number, query in enumerate([*named, *others]):
        home.store.queries.note(query, {}, [], DAY + timedelta(minutes=number))
    home.store.queries.note("which ones did it find?", {}, [gone], DAY + timedelta(hours=1))
    home.store.queries.note("which one stays?", {}, [kept], DAY + timedelta(hours=1))
    home.store.queries.note("of another project", {"project": "gone/project"}, [], DAY + timedelta(hours=1))
    home.forget(ids=(gone,))
    assert [asked.query for asked in home.store.queries.every().values()] == [*others, "which one stays?"]


def test_questions_in_scripts_without_spaces_go_too(home: Home) -> None:
    home.say("为什么付款网关在夜间重复扣款？请检查日志。", at=5)
    home.ingest(unmasked)
    for query in ("付款网关", "天气预报怎么样"):
        home.store.queries.note(query, {}, [], DAY)
    home.forget("付款网关")
    assert [asked.query for asked in home.store.queries.every().values()] == ["天气预报怎么样"]


@pytest.mark.parametrize("inode", ["kept", "new"])
def test_a_log_that_comes_back_from_a_backup_brings_nothing_back(home: Home, inode: str) -> None:
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    home.ingest(unmasked)
    gone, narwhal = home.holding("okapi"), home.holding("narwhal")
    home.forget(ids=(gone,))
    saved = log.read_bytes()
    if inode == "new":
        log.unlink()
    log.write_bytes(b'{"type":"mode","mode":"x"}\n' + saved)
    home.write([record("assistant", "A later word on the ibex.", 52)])
    home.ingest(unmasked)
    home.ingest(unmasked)
    assert home.left("zanzibar", "aardvark", "okapi") == []
    assert [line == "{}" for line in home.archived(generation=1)] == [False] * 3 + [True] * 3 + [False] * 3
    assert home.finds("ibex")
    assert {e.episode_id for e in home.episodes()} >= {narwhal}
    assert gone not in {e.episode_id for e in home.episodes()}


def test_a_forgotten_session_stays_away_and_goes_on_afterwards(home: Home) -> None:
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    home.write([{"type": "custom-title", "customTitle": "all about the walrus", "sessionId": SESSION}])
    home.ingest(unmasked)
    home.forget(session_id=SESSION)
    log.write_bytes(b'{"type":"mode","mode":"x"}\n' + log.read_bytes())
    home.write([record("user", "Now for the ibex, please.", 200)])
    (later,) = home.ingest(unmasked)
    assert "ibex" in later.raw_exchange
    assert home.left("walrus", "zanzibar", "narwhal") == []


def test_neighbours_lose_what_they_carried_of_it_even_edited(home: Home) -> None:
    long = "The okapi buffer holds it. " + "Then more was said about numbers and rows. " * 40
    for n in range(3):
        home.write([record("assistant", f"{long} part {n} ends with the xerus{n} note.", 100 + n)])
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "done " * 500}
        home.write([record("user", "", 103 + n, message={"role": "user", "content": [result]})])
    home.ingest(unmasked)
    first = home.holding("xerus0")
    edited = home.holding("xerus1")
    EpisodeWriter(home.store, unmasked, wiring.open_pieces(), None).patch(edited, {"tags": ("mine",)})
    prompts = [e for e in home.episodes() if e.metadata.get("prompt", "").startswith("And what of the final narwhal")]
    assert len(prompts) > 1
    gone = tuple({first, home.holding("narwhal question is settled")})
    home.forget(ids=gone)
    assert home.left("narwhal", "xerus0") == []
    assert home.left("xerus1", "xerus2") == ["xerus1", "xerus2"]
    (kept,) = home.store.episodes.get([edited]).values()
    assert kept.tags == ("mine",)


class Meanwhile:
    """A piece counter that has something done once, before it answers for the first time."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.to_do = [do]

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        while self.to_do:
            self.to_do.pop()()
        return wiring.open_pieces().spans(texts)


def test_an_ingest_beside_a_forgetting_writes_nothing_of_it(home: Home) -> None:
    home.ingest(unmasked)
    every = home.store.forgetting.parts_after("", 100)
    home.store.forgetting.replace_parts(every)  # all are to be published again
    gone = home.holding("walrus")
    pieces = Meanwhile(lambda: home.forget(ids=(gone,)))  # the parts are read, and their episodes not written yet
    replace(wiring.open_pipeline(home.settings, home.store), pieces=pieces).publish(home.source())
    assert home.left("walrus", "quagga") == []
    assert len(home.episodes()) == len(every) - 1
    assert home.store.parts.parts_to_publish(home.source().key, 9) == []


def test_a_posted_episode_is_no_context_of_later_ones_any_more(home: Home) -> None:
    poster = EpisodeWriter(home.store, unmasked, wiring.open_pieces(), None)
    given = {"instance": "main", "project": "p"}
    for n, text in enumerate(("the walrus came first", "the secret zanzibar plan", "the narwhal came last")):
        draft = EpisodeDraft(text, timestamp=DAY + timedelta(minutes=n), episode_id=f"ep{n}", **given)
        poster.create(draft)
    assert "zanzibar" in home.store.episodes.passages_of("ep2")[0].passage.context
    home.forget(ids=("ep1",))
    assert "walrus" in home.store.episodes.passages_of("ep2")[0].passage.context
    assert home.left("zanzibar") == []
    assert home.finds("narwhal") == {"ep2"}


def test_filters_are_combined_and_a_query_wants_every_word(home: Home) -> None:
    home.ingest(unmasked)
    with pytest.raises(GiveUp, match="say what to forget"):
        home.preview()
    assert home.preview(query="WALRUS rounding").episodes == 1
    assert home.preview(query="walrus zanzibar").episodes == 0
    assert home.preview(query="narwhal", since=DAY + timedelta(minutes=45)).episodes == 1
    assert home.preview(query="narwhal", until=DAY + timedelta(minutes=45)).episodes == 0
    label = home.episodes()[0].project
    assert home.preview(project=label.rsplit("/", 1)[-1]).episodes == 3
    assert home.preview(project="no such").episodes == 0
    assert home.preview(path=str(home.logs / FOLDER)).episodes == 3
    assert home.preview(ids=("no such id",)).episodes == 0
    assert home.forget(ids=("no such id",)).lines == 0


def test_vectors_and_cached_replies_go_with_it(home: Home) -> None:
    home.ingest(unmasked)
    space = Space("s", "model", 4, variants=(Variant.TEXT,))
    home.store.spaces.put(space)
    chance = np.random.default_rng(1)
    for episode in home.episodes():
        ids = [p.passage_id for p in home.store.episodes.passages_of(episode.episode_id)]
        home.store.vectors.put("s", Variant.TEXT, ids, chance.standard_normal((len(ids), 4)).astype(np.float32))
    home.store.vectors.build("s", force=True)
    gone, kept = home.holding("okapi"), home.holding("walrus")
    for part in home.store.forgetting.parts([gone, kept]):
        for version in ("earlier", "present"):
            key = f"{version} {part.part_id}"
            assert home.store.llm.note_asked({key: part}) == {key}
            assert home.store.llm.put_reply(key, json.dumps({"summary": f"{version} {part.prompt}"}), "ollama", "m")
    before = home.store.vectors.count("s")
    home.forget(ids=(gone,))
    assert {r.key for r in home.store.llm.replies_after("", 9)} == {f"earlier {kept}", f"present {kept}"}
    report = home.store.vectors.build("s")
    assert (report.dead, report.vectors) == (0, home.store.vectors.count("s"))
    assert report.vectors < before
    assert home.left("zanzibar") == []


def test_a_dead_letter_goes_with_its_line_and_the_others_stay(home: Home) -> None:
    home.write(['{"torn": "aardvark exporter', '{"torn": "walrus'])
    home.write([record("user", "elsewhere the gecko sleeps", 90, OTHER), '{"torn": "gecko'], OTHER_LOG)
    home.ingest(unmasked)
    assert len(home.store.messages.dead_letters()) == 3
    home.forget(session_id=SESSION)
    (left_over,) = home.store.messages.dead_letters()
    assert left_over.path == f"{OTHER}.jsonl"
    assert home.left("walrus", "aardvark") == []
    assert all(cursor.parsed_lines == cursor.lines for cursor in home.store.files.cursors(left_over.source).values())


def test_a_retrieval_that_is_noted_late_brings_nothing_back(home: Home) -> None:
    home.ingest(unmasked)
    gone, kept = home.holding("okapi"), home.holding("walrus")
    home.store.episodes.track([gone, kept], DAY)
    home.forget(ids=(gone,))
    home.store.episodes.track([gone, kept], DAY)
    assert gone not in home.store.episodes.get([gone, kept])
    assert home.store.episodes.get([kept])[kept].retrieval_count == 2
    assert gone not in {e.episode_id for e in home.ingest(unmasked)}


def test_who_forgets_waits_until_another_has_finished(home: Home) -> None:
    home.ingest(unmasked)
    gone, held = home.holding("okapi"), threading.Event()

    def second() -> None:
        held.set()
        home.forget("narwhal")

    with home.archive.alone():
        thread = threading.Thread(target=second)
        thread.start()
        assert held.wait(60)
        wait_for(lambda: meets_a_lock(os.getpid()))
        assert home.store.settings.get(JOB) is None
    thread.join(30)
    assert home.left("narwhal") == []
    assert home.left("okapi") == ["okapi"]
    assert gone in {e.episode_id for e in home.episodes()}


def test_what_was_deleted_before_can_still_be_forgotten(home: Home) -> None:
    home.ingest(unmasked)
    gone = home.holding("okapi")
    assert home.store.episodes.delete(gone)
    assert home.left("okapi") == ["okapi"]
    home.forget(ids=(gone,))
    assert home.left("okapi", "zanzibar") == []


@pytest.mark.kills
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(home: Home, tmp_path: Path) -> None:
    home.write([record("user", SECOND, 3), record("user", "elsewhere the gecko sleeps", 90, OTHER)], OTHER_LOG)
    home.ingest(unmasked)
    gone = home.holding("okapi")
    home.store.close()
    reached = 0
    for turn in range(200):
        copy = tmp_path / "copies" / str(turn)
        shutil.copytree(home.settings.home, copy)
        if not _killed_at(replace_home(home, copy), gone, turn):
            reached = turn
            break
        again = replace_home(home, copy)
        again.store = wiring.open_store(again.settings)
        if turn % 3:
            wiring.open_forgetter(again.settings, again.store).resume()
        else:
            again.ingest(unmasked)
        if again.finds("okapi"):  # it died before it had noted what to do
            again.forget(ids=(gone,))
        assert again.left("zanzibar", "aardvark", "okapi") == [], turn
        assert again.left("walrus", "gecko", "narwhal") == ["walrus", "gecko", "narwhal"], turn
        assert again.store.settings.get(JOB) is None
        assert [line == "{}" for line in again.archived()] == [False, False, True, True, True, False, False]
        again.close()
        shutil.rmtree(copy)
    assert reached > 10


def replace_home(home: Home, place: Path) -> Home:
    other = object.__new__(Home)
    other.__dict__ |= home.__dict__
    other.settings = home.settings.model_copy(update={"home": place})
    other.archive = home_wiring.open_archive(other.settings)
    return other


def _killed_at(home: Home, gone: str, turn: int) -> bool:
    """Forget in a child that is killed before its change number `turn`; False when it made fewer."""
    child = os.fork()
    if child == 0:
        _kill_before(turn)
        home_with_store(home).forget(ids=(gone,))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def home_with_store(home: Home) -> Home:
    home.store = wiring.open_store(home.settings)
    return home


def _kill_before(turn: int) -> None:
    left_over = [turn]

    def counted(function: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            left_over[0] -= 1
            if left_over[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **named)

        return call

    for owner, name in ((Database, "write"), (Database, "empty_log"), (Archive, "rewrite"), (Archive, "remove_former")):
        setattr(owner, name, counted(getattr(owner, name)))


def test_a_source_of_logs_is_forgotten_by_its_listed_name(home: Home) -> None:
    home.ingest(unmasked)
    (source,) = [source for source in home.store.files.sources() if source.root == str(home.logs)]
    assert home.preview(source="local-logs").episodes == len(home.episodes()) > 0
    assert home.preview(source="local-memory").episodes == 0
    assert home.preview(source="box-claude").episodes == 0
    home.store.files.put_sources([replace(source, spec="box-claude")])
    assert home.preview(source="local-logs").episodes == 0
    home.forget(source="box-claude")
    assert home.episodes() == []


@pytest.mark.parametrize("minutes", [5, 600])
def test_a_later_prompt_of_the_same_words_stays(tmp_path: Path, minutes: int) -> None:
    home = Home(tmp_path)
    home.say("continue", "The first, secret thing.", at=0)
    home.ingest()
    home.forget("secret")
    home.say("continue", "Second, quite other work.", at=minutes)
    home.ingest()
    assert [e.raw_exchange for e in home.episodes()] == ["[User]\ncontinue\n\n[Claude]\nSecond, quite other work."]
    home.close()


@pytest.mark.parametrize("how", ["a fork", "a subagent"])
def test_what_another_file_had_first_is_forgotten_there_too(tmp_path: Path, how: str) -> None:
    home = Home(tmp_path)
    text = "The zanzibar rows go through the okapi buffer, every single night."
    if how == "a fork":
        copies = [record("user", "Where do they go?", 1), record("assistant", text, 2)]
        fork = [line | {"forkedFrom": {"sessionId": SESSION}, "sessionId": OTHER} for line in copies]
        home.write([*fork, record("user", "elsewhere the gecko sleeps", 90, OTHER)], f"another/{OTHER}.jsonl")
        home.ingest()
        home.write(copies)
    else:
        agent = f"{FOLDER}/{SESSION}/subagents/agent-a1.jsonl"
        home.say("Look for it.", text, path=agent, isSidechain=True, agentId="a1")
        home.ingest()
        result = record("user", "", 3)
        result["message"]["content"] = [{"type": "tool_result", "tool_use_id": "t1", "content": text}]
        home.write([record("user", "Where do they go?", 0), result | {"toolUseResult": {"agentId": "a1"}}])
    home.ingest()
    assert home.left("okapi") == ["okapi"]
    home.forget("okapi")
    assert home.left("okapi") == []
    assert how == "a subagent" or home.left("gecko") == ["gecko"]
    home.close()


def test_pinned_note_stays_unless_it_is_named(home: Home) -> None:
    home.ingest(unmasked)
    for name, tags in (("twin", ()), ("pinned", ("pinned",))):
        put(home.store, name, "Prefer the quokka theme", summary="Prefer the quokka theme", tags=tags, project="zoo")
    for request in ({"query": "quokka"}, {"query": "quokka", "project": "zoo"}, {"project": "zoo"}):
        report = home.preview(**request)
        assert [shown.episode_id for shown in report.shown] == ["twin"]
        assert report.spared == 1
    home.forget(query="quokka")
    assert set(home.store.episodes.get(["twin", "pinned"])) == {"pinned"}
    for named in ({"project": "zoo", "include_pinned": True}, {"ids": ("pinned",)}):
        assert [shown.episode_id for shown in home.preview(**named).shown] == ["pinned"]
