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

from anamnesis_pipeline import home_wiring, wiring
from anamnesis_pipeline.embeddings.pieces import Span
from anamnesis_pipeline.errors import GiveUp
from anamnesis_pipeline.model import Space, Variant
from anamnesis_pipeline.sources.archive import Archive
from anamnesis_pipeline.steps.forget import JOB, ForgetReport
from anamnesis_pipeline.steps.forget_target import ForgetRequest
from anamnesis_pipeline.steps.posting import EpisodeDraft, Poster
from anamnesis_pipeline.store.sqlite.connection import Database
from anamnesis_tests.steps.archived_logs import DAY, FOLDER, OTHER, SESSION, Home, record, unmasked

OTHER_LOG = f"{FOLDER}/{OTHER}.jsonl"
SECOND = "How does the aardvark exporter write zanzibar files to the disk?"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.write(
        [
            record("user", "Why is the ledger of the walrus module wrong by one cent?", 1),
            record("assistant", "The walrus rounding happens twice, quagga said so in the review.", 2),
            record("user", SECOND, 3),
            {"type": "last-prompt", "lastPrompt": SECOND, "sessionId": SESSION},
            record("assistant", "It streams zanzibar rows through the okapi buffer.", 4),
            record("user", "And what of the final narwhal question, is that settled?", 50),
            record("assistant", "The narwhal question is settled.", 51),
        ]
    )
    yield home
    home.close()


def forget(home: Home, **asked: Any) -> ForgetReport:
    return wiring.open_forgetter(home.settings, home.store).forget(ForgetRequest(**asked))


def preview(home: Home, **asked: Any) -> ForgetReport:
    return wiring.open_forgetter(home.settings, home.store).preview(ForgetRequest(**asked))


def holding(home: Home, word: str) -> str:
    """The id of the one episode whose own text holds the word."""
    (found,) = [e.episode_id for e in home.episodes() if word in e.raw_exchange]
    return found


def left(home: Home, *words: str) -> list[str]:
    data = home.bytes().lower()
    return [word for word in words if word.encode() in data]


def test_a_preview_says_what_would_go_and_changes_nothing(home: Home) -> None:
    before = home.ingest(unmasked)
    report = preview(home, ids=(holding(home, "zanzibar"),))
    assert (report.dry_run, report.episodes, report.messages, report.lines, report.files) == (True, 1, 2, 3, 1)
    assert "aardvark" in report.shown[0].summary
    assert any(str(home.logs) in place for place in report.remains)
    assert any("backups" in place for place in report.remains)
    assert home.episodes() == before
    assert home.store.settings.get(JOB) is None


def test_nothing_of_an_episode_is_left_in_any_file_and_all_else_stays(home: Home) -> None:
    home.write(
        [record("user", SECOND, 3), record("user", "elsewhere the gecko sleeps in the sun", 90, OTHER)], OTHER_LOG
    )
    home.ingest(unmasked)
    assert left(home, "zanzibar", "aardvark", "okapi") == ["zanzibar", "aardvark", "okapi"]
    report = forget(home, ids=(holding(home, "okapi"),))
    assert (report.episodes, report.files, report.problems) == (1, 2, [])
    assert left(home, "zanzibar", "aardvark", "okapi") == []
    assert left(home, "walrus", "quagga", "narwhal", "gecko") == ["walrus", "quagga", "narwhal", "gecko"]
    assert [line == "{}" for line in home.archived()] == [False, False, True, True, True, False, False]
    assert [line == "{}" for line in home.archived(f"{OTHER}.jsonl")] == [True, False]
    assert home.finds("zanzibar") == set()
    assert len(home.finds("walrus")) == 1
    assert len(home.episodes()) == 3


def test_a_whole_session_goes_with_what_surrounds_it_and_with_its_subagents(home: Home) -> None:
    agent = f"{FOLDER}/{SESSION}/subagents/agent-a1.jsonl"
    home.write([record("user", "look for the pangolin", 7, isSidechain=True, agentId="a1")], agent)
    home.write(
        [{"type": "custom-title", "customTitle": "walrus and pangolin", "sessionId": SESSION}, '{"torn pangolin']
    )
    home.write([record("user", "the gecko sleeps", 90, OTHER)], OTHER_LOG)
    home.ingest(unmasked)
    forget(home, session_id=SESSION)
    assert left(home, "walrus", "pangolin", "zanzibar", "narwhal") == []
    assert left(home, "gecko") == ["gecko"]
    assert set(home.archived()) == {"{}"}
    assert [e.session_id for e in home.episodes()] == [OTHER]


def test_only_questions_that_may_name_it_go(home: Home) -> None:
    home.ingest(unmasked)
    gone, kept = holding(home, "zanzibar"), holding(home, "walrus")
    named = ["zanzibar", "how do aardvarks export files to the disk?", "the okapi of the narwhal module"]
    others = [
        "why is the walrus ledger wrong?",
        "narwhal question settled?",
        "unheard of",
        "which menu of gimp has a walrus?",
    ]
    for number, query in enumerate([*named, *others]):
        home.store.queries.note(query, {}, [], DAY + timedelta(minutes=number))
    home.store.queries.note("which ones did it find?", {}, [gone], DAY + timedelta(hours=1))
    home.store.queries.note("which one stays?", {}, [kept], DAY + timedelta(hours=1))
    home.store.queries.note("of another project", {"project": "gone/project"}, [], DAY + timedelta(hours=1))
    forget(home, ids=(gone,))
    assert [asked.query for asked in home.store.queries.every().values()] == [*others, "which one stays?"]


def test_questions_in_scripts_without_spaces_go_too(home: Home) -> None:
    home.write([record("user", "为什么付款网关在夜间重复扣款？请检查日志。", 5)])
    home.ingest(unmasked)
    for query in ("付款网关", "天气预报怎么样"):
        home.store.queries.note(query, {}, [], DAY)
    forget(home, ids=(holding(home, "付款网关"),))
    assert [asked.query for asked in home.store.queries.every().values()] == ["天气预报怎么样"]


@pytest.mark.parametrize("inode", ["kept", "new"])
def test_a_log_that_comes_back_from_a_backup_brings_nothing_back(home: Home, inode: str) -> None:
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    home.ingest(unmasked)
    gone, narwhal = holding(home, "okapi"), holding(home, "narwhal")
    forget(home, ids=(gone,))
    saved = log.read_bytes()
    if inode == "new":
        log.unlink()
    log.write_bytes(b'{"type":"mode","mode":"x"}\n' + saved)
    home.write([record("assistant", "A later word on the ibex.", 52)])
    home.ingest(unmasked)
    home.ingest(unmasked)
    assert left(home, "zanzibar", "aardvark", "okapi") == []
    assert [line == "{}" for line in home.archived(generation=1)] == [False] * 3 + [True] * 3 + [False] * 3
    assert home.finds("ibex")
    assert {e.episode_id for e in home.episodes()} >= {narwhal}
    assert gone not in {e.episode_id for e in home.episodes()}


def test_a_forgotten_session_stays_away_with_what_surrounded_it_and_goes_on_afterwards(home: Home) -> None:
    log = home.logs / FOLDER / f"{SESSION}.jsonl"
    home.write([{"type": "custom-title", "customTitle": "all about the walrus", "sessionId": SESSION}])
    home.ingest(unmasked)
    forget(home, session_id=SESSION)
    log.write_bytes(b'{"type":"mode","mode":"x"}\n' + log.read_bytes())
    home.write([record("user", "Now for the ibex, please.", 200)])
    (later,) = home.ingest(unmasked)
    assert "ibex" in later.raw_exchange
    assert left(home, "walrus", "zanzibar", "narwhal") == []


def test_neighbours_lose_what_they_carried_of_it_even_when_a_client_edited_them(home: Home) -> None:
    long = "The okapi buffer holds it. " + "Then more was said about numbers and rows. " * 40
    for n in range(3):
        home.write([record("assistant", f"{long} part {n} ends with the xerus{n} note.", 100 + n)])
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "done " * 500}
        home.write([record("user", "", 103 + n, message={"role": "user", "content": [result]})])
    home.ingest(unmasked)
    first = holding(home, "xerus0")
    edited = holding(home, "xerus1")
    Poster(home.store, unmasked, wiring.open_pieces(), None).patch(edited, {"tags": ("mine",)})
    prompts = [e for e in home.episodes() if e.metadata.get("prompt", "").startswith("And what of the final narwhal")]
    assert len(prompts) > 1
    gone = tuple({first, holding(home, "narwhal question is settled")})
    forget(home, ids=gone)
    assert left(home, "narwhal", "xerus0") == []
    assert left(home, "xerus1", "xerus2") == ["xerus1", "xerus2"]
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


def test_an_ingest_that_publishes_a_neighbour_while_a_part_is_forgotten_writes_nothing_of_it(home: Home) -> None:
    home.ingest(unmasked)
    every = home.store.forgetting.parts_after("", 100)
    home.store.forgetting.replace_parts(every)  # all are to be published again
    gone = holding(home, "walrus")
    pieces = Meanwhile(lambda: forget(home, ids=(gone,)))  # the parts are read, and their episodes not written yet
    replace(wiring.open_pipeline(home.settings, home.store), pieces=pieces).publish(home.source())
    assert left(home, "walrus", "quagga") == []
    assert len(home.episodes()) == len(every) - 1
    assert home.store.parts.parts_to_publish(home.source().key, 9) == []


def test_a_posted_episode_is_no_context_of_later_ones_any_more(home: Home) -> None:
    poster = Poster(home.store, unmasked, wiring.open_pieces(), None)
    given = {"instance": "main", "project": "p"}
    for n, text in enumerate(("the walrus came first", "the secret zanzibar plan", "the narwhal came last")):
        draft = EpisodeDraft(text, timestamp=DAY + timedelta(minutes=n), episode_id=f"ep{n}", **given)
        poster.create(draft)
    assert "zanzibar" in home.store.episodes.passages_of("ep2")[0].passage.context
    forget(home, ids=("ep1",))
    assert "walrus" in home.store.episodes.passages_of("ep2")[0].passage.context
    assert left(home, "zanzibar") == []
    assert home.finds("narwhal") == {"ep2"}


def test_filters_are_combined_and_a_query_wants_every_word(home: Home) -> None:
    home.ingest(unmasked)
    with pytest.raises(GiveUp, match="say what to forget"):
        preview(home)
    assert preview(home, query="WALRUS rounding").episodes == 1
    assert preview(home, query="walrus zanzibar").episodes == 0
    assert preview(home, query="narwhal", since=DAY + timedelta(minutes=45)).episodes == 1
    assert preview(home, query="narwhal", until=DAY + timedelta(minutes=45)).episodes == 0
    label = home.episodes()[0].project
    assert preview(home, project=label.rsplit("/", 1)[-1]).episodes == 3
    assert preview(home, project="no such").episodes == 0
    assert preview(home, path=str(home.logs / FOLDER)).episodes == 3
    assert preview(home, ids=("no such id",)).episodes == 0
    assert forget(home, ids=("no such id",)).lines == 0


def test_vectors_and_cached_replies_go_with_it(home: Home) -> None:
    home.ingest(unmasked)
    space = Space("s", "model", 4, variants=(Variant.TEXT,))
    home.store.spaces.put(space)
    chance = np.random.default_rng(1)
    for episode in home.episodes():
        ids = [p.passage_id for p in home.store.episodes.passages_of(episode.episode_id)]
        home.store.vectors.put("s", Variant.TEXT, ids, chance.standard_normal((len(ids), 4)).astype(np.float32))
    home.store.vectors.build("s", force=True)
    gone, kept = holding(home, "okapi"), holding(home, "walrus")
    for part in home.store.forgetting.parts([gone, kept]):
        for version in ("earlier", "present"):
            key = f"{version} {part.part_id}"
            assert home.store.llm.note_asked({key: part}) == {key}
            assert home.store.llm.put_reply(key, json.dumps({"summary": f"{version} {part.prompt}"}), "ollama", "m")
    before = home.store.vectors.count("s")
    forget(home, ids=(gone,))
    assert {r.key for r in home.store.llm.replies_after("", 9)} == {f"earlier {kept}", f"present {kept}"}
    report = home.store.vectors.build("s")
    assert (report.dead, report.vectors) == (0, home.store.vectors.count("s"))
    assert report.vectors < before
    assert left(home, "zanzibar") == []


def test_a_dead_letter_goes_with_its_line_and_the_others_stay(home: Home) -> None:
    home.write(['{"torn": "aardvark exporter', '{"torn": "walrus'])
    home.write([record("user", "elsewhere the gecko sleeps", 90, OTHER), '{"torn": "gecko'], OTHER_LOG)
    home.ingest(unmasked)
    assert len(home.store.messages.dead_letters()) == 3
    forget(home, session_id=SESSION)
    (left_over,) = home.store.messages.dead_letters()
    assert left_over.path == f"{OTHER}.jsonl"
    assert left(home, "walrus", "aardvark") == []
    assert all(cursor.parsed_lines == cursor.lines for cursor in home.store.files.cursors(left_over.source).values())


def test_a_retrieval_that_is_noted_late_brings_nothing_back(home: Home) -> None:
    home.ingest(unmasked)
    gone, kept = holding(home, "okapi"), holding(home, "walrus")
    home.store.episodes.track([gone, kept], DAY)
    forget(home, ids=(gone,))
    home.store.episodes.track([gone, kept], DAY)
    assert gone not in home.store.episodes.get([gone, kept])
    assert home.store.episodes.get([kept])[kept].retrieval_count == 2
    assert gone not in {e.episode_id for e in home.ingest(unmasked)}


def test_who_forgets_waits_until_another_has_finished(home: Home) -> None:
    home.ingest(unmasked)
    gone, held = holding(home, "okapi"), threading.Event()

    def second() -> None:
        held.set()
        forget(home, ids=(holding(home, "narwhal"),))

    with home.archive.alone():
        thread = threading.Thread(target=second)
        thread.start()
        assert held.wait(60)
        thread.join(0.2)
        assert thread.is_alive()
        assert home.store.settings.get(JOB) is None
    thread.join(30)
    assert left(home, "narwhal") == []
    assert left(home, "okapi") == ["okapi"]
    assert gone in {e.episode_id for e in home.episodes()}


def test_what_was_deleted_before_can_still_be_forgotten(home: Home) -> None:
    home.ingest(unmasked)
    gone = holding(home, "okapi")
    assert home.store.episodes.delete(gone)
    assert left(home, "okapi") == ["okapi"]
    forget(home, ids=(gone,))
    assert left(home, "okapi", "zanzibar") == []


def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(home: Home, tmp_path: Path) -> None:
    home.write([record("user", SECOND, 3), record("user", "elsewhere the gecko sleeps", 90, OTHER)], OTHER_LOG)
    home.ingest(unmasked)
    gone = holding(home, "okapi")
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
            forget(again, ids=(gone,))
        assert left(again, "zanzibar", "aardvark", "okapi") == [], turn
        assert left(again, "walrus", "gecko", "narwhal") == ["walrus", "gecko", "narwhal"], turn
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
        forget(home_with_store(home), ids=(gone,))
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


def test_a_source_of_logs_is_forgotten_by_the_name_that_the_list_shows(home: Home) -> None:
    home.ingest(unmasked)
    (source,) = [source for source in home.store.files.sources() if source.root == str(home.logs)]
    assert preview(home, source="local-logs").episodes == len(home.episodes()) > 0
    assert preview(home, source="local-memory").episodes == 0
    assert preview(home, source="box-claude").episodes == 0
    home.store.files.put_sources([replace(source, spec="box-claude")])
    assert preview(home, source="local-logs").episodes == 0
    forget(home, source="box-claude")
    assert home.episodes() == []
