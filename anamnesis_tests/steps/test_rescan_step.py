"""A rule that is new masks what is stored already, everywhere, once and for all."""

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from anamnesis_pipeline import wiring
from anamnesis_pipeline.exchanges.redaction import Redactor
from anamnesis_pipeline.steps.posting import EpisodeDraft, Poster
from anamnesis_pipeline.steps.rescan import Rescan, RescanReport
from anamnesis_tests.steps.archived_logs import Home, record, unmasked
from anamnesis_tests.steps.test_forget_step import _kill_before, home_with_store, replace_home

SECRET = "ghp" + "_" + "q7Zk" * 9
REDACTOR = Redactor(b"salt")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.write(
        [
            record("user", f"Push with {SECRET} to the quagga repository, please.", 1),
            record("assistant", f"I used {SECRET} for the walrus push.", 2),
            record("user", "And the zanzibar one?", 3),
            record("assistant", "The zanzibar one needs none.", 4),
        ]
    )
    home.ingest(unmasked)
    Poster(home.store, unmasked, wiring.open_pieces(), None).create(
        EpisodeDraft(f"note on {SECRET}", "i", "p", tags=(SECRET,), metadata={"a": [SECRET]}, episode_id="posted")
    )
    home.store.llm.put_reply("k", json.dumps({"summary": f"It is {SECRET}."}), "b", "m")
    home.store.settings.set("some.note", {"why": f"used {SECRET}"})
    return home


def rescan(home: Home, *, dry_run: bool = False) -> RescanReport:
    return Rescan(home.store, home.archive, REDACTOR.mask_text, REDACTOR.mask_line, dry_run=dry_run).run()


def test_a_dry_run_counts_and_changes_nothing(home: Home) -> None:
    before = home.episodes(), home.archived(), home.store.forgetting.parts_after("", 10)
    report = rescan(home, dry_run=True)
    assert report.masked.keys() == {"github"}
    assert report.changed["archive lines"] == 2
    assert all(report.changed[place] for place in ("parts", "summaries", "episodes", "cached replies", "settings"))
    assert (home.episodes(), home.archived(), home.store.forgetting.parts_after("", 10)) == before
    home.close()


def test_nothing_stays_readable_ids_stay_and_a_second_run_changes_nothing(home: Home) -> None:
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
    home.close()


def test_a_run_that_is_killed_anywhere_is_finished_by_the_next(home: Home, tmp_path: Path) -> None:
    home.close()
    turns: Counter[bool] = Counter()
    for turn in range(0, 60, 3):
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
        again.close()
        if not killed:
            break
    assert turns[True] > 3
    assert turns[False] == 1
