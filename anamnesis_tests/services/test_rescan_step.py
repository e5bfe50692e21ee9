"""A rule that is new masks what is stored already, everywhere, once and for all."""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anamnesis_pipeline.cli.redact import now_and_then, render
from anamnesis_pipeline.model import ChatMessage, ChatSession
from anamnesis_pipeline.parsing.redaction.masking import Redactor
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.posting import EpisodeDraft, EpisodeWriter
from anamnesis_pipeline.services.rescan import CHECKPOINT, Rescan, RescanReport, Rules
from anamnesis_pipeline.store.base import Store
from anamnesis_tests.services.test_forget_step import _kill_before, home_with_store, replace_home
from anamnesis_tests.support.archived_logs import Home, unmasked
from anamnesis_tests.support.ingested import OTHER, Ingested
from anamnesis_tests.support.log_lines import Log

SECRET = "ghp" + "_" + "q7Zk" * 9
REDACTOR = Redactor(b"salt")
RULES = Rules(REDACTOR.mask_text, REDACTOR.mask_line, "1")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.say(f"Push with {SECRET} to the quagga repository, please.", f"I used {SECRET} for the walrus push.")
    home.say("And the zanzibar one?", "The zanzibar one needs none.", at=3)
    home.ingest(unmasked)
    EpisodeWriter(home.store, unmasked, wiring.open_pieces(), None).create(
        EpisodeDraft(f"note on {SECRET}", "i", "p", tags=(SECRET,), metadata={"a": [SECRET]}, episode_id="posted")
    )
    home.store.llm.put_reply("k", json.dumps({"summary": f"It is {SECRET}."}), "b", "m")
    home.store.settings.set("some.note", {"why": f"used {SECRET}"})
    converse(home.store)
    yield home
    home.close()


def converse(store: Store) -> None:
    """A conversation with the secret wherever one may be."""
    now = datetime(2026, 3, 1, tzinfo=UTC)
    store.chat.put_session(ChatSession("chat", f"{SECRET}?", "ollama", "m", "p", now, now))
    store.chat.rename("chat", f"About {SECRET}", now)
    store.chat.add(ChatMessage("1", "chat", "user", f"Is it {SECRET}?", now, files=(f"{SECRET}.txt",)))
    store.chat.add(ChatMessage("2", "chat", "assistant", "It is.", now, feedback=1))


def rescan(
    home: Home, *, dry_run: bool = False, rules: Rules = RULES, said: list[str] | None = None, every_s: float = 0.0
) -> RescanReport:
    say = now_and_then([].append if said is None else said.append, every_s)
    return Rescan(home.store, home.archive, rules, dry_run=dry_run, say=say).run()


def test_a_dry_run_counts_and_changes_nothing(home: Home) -> None:
    before = home.episodes(), home.archived(), home.store.forgetting.parts_after("", 10)
    report = rescan(home, dry_run=True)
    assert report.masked.keys() == {"github"}
    assert report.changed["archive lines"] == 2
    places = ("parts", "summaries", "episodes", "cached replies", "settings", "conversations")
    assert all(report.changed[place] for place in places)
    assert (home.episodes(), home.archived(), home.store.forgetting.parts_after("", 10)) == before
    assert home.store.settings.get(CHECKPOINT) is None


def test_nothing_stays_readable_and_a_second_run_changes_nothing(home: Home) -> None:
    ids = {e.episode_id for e in home.episodes()}
    parts = [p.part_id for p in home.store.forgetting.parts_after("", 10)]
    lines = home.archived()
    passages = {p.passage_id for e in ids for p in home.store.episodes.passages_of(e)}
    assert SECRET.encode() in home.bytes()
    assert rescan(home).problems == []
    assert SECRET.lower().encode() not in home.bytes().lower()
    mask = REDACTOR.mask_text(SECRET)[0]
    assert home.archived() == [line.replace(SECRET, mask) for line in lines]
    assert {e.episode_id for e in home.episodes()} == ids
    assert [p.part_id for p in home.store.forgetting.parts_after("", 10)] == parts
    assert home.store.episodes.get(["posted"])["posted"].tags == (mask,)
    after = {p.passage_id for e in ids for p in home.store.episodes.passages_of(e)}
    assert passages - after
    again = rescan(home)
    assert (again.masked, set(again.changed.values())) == ({}, {0})
    home.ingest(unmasked)
    assert {e.episode_id for e in home.episodes()} == ids
    assert SECRET.lower().encode() not in home.bytes().lower()
    assert home.finds("quagga")


def test_folders_projects_and_aliases_lose_their_secrets_too(log_home: Home) -> None:
    home = log_home
    folder = f"/srv/{SECRET}/shop"
    home.say("Where is the quagga?", "Here.", cwd=folder)
    home.ingest(unmasked)
    home.store.settings.set(f"projects.seen.{folder}", folder)
    home.store.settings.set("projects.aliases", {folder: "shop", "other": f"to-{SECRET}"})
    EpisodeWriter(home.store, unmasked, wiring.open_pieces(), None).create(
        EpisodeDraft("A note.", f"by {SECRET}", f"team/{SECRET}", kind=f"k-{SECRET}", episode_id="posted")
    )
    home.store.projects.call(folder, "shop")
    report = rescan(home)
    assert (report.changed["parts"], report.changed["settings"]) == (1, 2)
    assert SECRET.lower().encode() not in home.bytes().lower()
    mask = REDACTOR.mask_text(SECRET)[0]
    (part,) = home.store.forgetting.parts_after("", 10)
    assert part.cwd == f"/srv/{mask}/shop"
    assert part.project == f"/srv/{mask}/shop"
    posted = home.store.episodes.get(["posted"])["posted"]
    assert (posted.instance, posted.project, posted.kind) == (f"by {mask}", f"team/{mask}", f"k-{mask}")
    assert home.store.settings.get(f"projects.seen.{part.cwd}") == part.cwd
    home.ingest(unmasked)
    assert home.store.episodes.get([part.part_id])[part.part_id].project == "shop", "the alias still holds"
    assert (part.project, "shop", 2) in home.store.projects.names(), "the exchange, and the record of its session"
    assert (rescan(home).masked, SECRET.encode() in home.bytes()) == ({}, False)


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_archive_of_a_lost_database_is_named(home: Home, dry_run: bool) -> None:
    (archived,) = home.settings.archive_dir.glob("*/*.zst")
    kept = archived.with_name(f"{archived.name}.kept-1")
    shutil.copy(archived, kept)
    report = rescan(home, dry_run=dry_run)
    assert [str(kept) in place for place in report.remains] == [True]
    assert str(kept) in render(report)
    assert "delete" in render(report)
    kept.unlink()
    assert rescan(home).remains == []


@pytest.mark.kills
def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(home: Home, tmp_path: Path) -> None:
    home.close()
    turns: Counter[bool] = Counter()
    for turn in range(100):
        copy = tmp_path / "copies" / str(turn)
        shutil.copytree(home.settings.home, copy)
        child = os.fork()
        if child == 0:
            _kill_before(turn)
            rescan(home_with_store(replace_home(home, copy)))
            os._exit(0)
        killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        turns[killed] += 1
        again = home_with_store(replace_home(home, copy))
        rescan(again)
        assert SECRET.lower().encode() not in again.bytes().lower(), turn
        assert again.store.settings.get(CHECKPOINT) is None
        assert again.store.llm.replies(["k"]), "what was paid for stays"
        again.close()
        if not killed:
            break
    assert turns[True] > 3
    assert turns[False] == 1


@pytest.mark.parametrize(
    "copied",
    [{"sessionId": OTHER}, {"sessionId": OTHER, "sessionKind": "bg"}, {"version": "2.1.299"}],
    ids=["resumed", "in the background", "rewritten by an upgrade"],
)
def test_a_copy_masked_by_new_rules_adds_no_message(store: Store, tmp_path: Path, copied: dict[str, str]) -> None:
    home, log = Ingested(store, tmp_path), Log()
    home.mask = unmasked
    log.user(f"Push with {SECRET}, please.")
    log.assistant({"type": "thinking", "thinking": f"It is {SECRET}."}, {"type": "text", "text": f"Used {SECRET}."})
    log.say(f"Once more: {SECRET}.")
    log.tool("Bash", "t1", f"pushed with {SECRET}", command=f"push {SECRET}")
    home.write(log.lines)
    assert home.ingest().messages == 6
    Rescan(home.store, home.archive, RULES, dry_run=False).run()
    home.mask = REDACTOR.mask_line
    home.write([json.dumps(json.loads(line) | copied) for line in log.lines], f"{OTHER}.jsonl")
    assert home.ingest().messages == 0
    counts = store.overview.counts()
    assert (counts.messages, counts.occurrences) == (6, 6)


class Interrupted(BaseException):
    """Ends a run as a signal would."""


def counting(lines: list[str], stop_at: int | None = None, version: str = "1") -> Rules:
    """Today's rules; each log line that is looked at is added to `lines`, and the run ends before number `stop_at`."""

    def mask_line(line: str) -> tuple[str, Counter[str]]:
        if len(lines) == stop_at:
            raise Interrupted
        if line.startswith('{"type"'):
            lines.append(line)
        return REDACTOR.mask_line(line)

    return Rules(REDACTOR.mask_text, mask_line, version)


def with_files(home: Home, count: int) -> None:
    """More logs, each of two lines with a secret."""
    for n in range(count):
        session = f"{n:08}-2222-4333-8444-555555555555"
        home.say(f"log {n}: {SECRET}", f"so: {SECRET}", at=10, session=session)
    home.ingest(unmasked)


def test_an_interrupted_run_goes_on_behind_its_last_file(home: Home) -> None:
    with_files(home, 4)
    read: list[str] = []
    with pytest.raises(Interrupted):
        rescan(home, rules=counting(read, stop_at=10))
    assert any("log 0" in line for line in read)
    again: list[str] = []
    said: list[str] = []
    report = rescan(home, rules=counting(again), said=said)
    assert not any("log 0" in line for line in again)
    assert any("log 3" in line for line in again)
    assert report.changed["archive lines"] == 2 * 4 + 2, "what the interrupted run had changed is counted"
    assert said[0] == "going on where an earlier run was interrupted"
    assert "archived files: 5 of 5" in said
    assert SECRET.lower().encode() not in home.bytes().lower()
    assert home.store.settings.get(CHECKPOINT) is None


def test_an_interrupted_run_begins_anew_when_rules_changed(home: Home) -> None:
    with_files(home, 2)
    read: list[str] = []
    with pytest.raises(Interrupted):
        rescan(home, rules=counting(read, stop_at=8))
    again: list[str] = []
    rescan(home, rules=counting(again, version="2"))
    assert any("log 0" in line for line in read)
    assert any("log 0" in line for line in again)


def test_progress_is_said_now_and_then_and_at_each_end() -> None:
    said: list[str] = []
    rarely, always = now_and_then(said.append, 3_600.0), now_and_then(said.append, 0.0)
    for text in ("one", "two", "three"):
        rarely(text, False)
    rarely("three", True)
    for text in ("four", "five"):
        always(text, False)
    always("five", True)
    assert said == ["one", "three", "four", "five"]


def test_progress_ends_at_the_total(home: Home) -> None:
    said: list[str] = []
    rescan(home, said=said, every_s=3_600.0)
    files = [text for text in said if text.startswith("archived files")]
    number, _, total = files[-1].removeprefix("archived files: ").partition(" of ")
    assert number == total
    assert len(files) <= 2
