"""Processes of `anamnesis dream`, killed at every change: what the next one finds and does is the same."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from anamnesis_pipeline.store.gateway import Tables
from anamnesis_pipeline.store.knowledge_model import Kind, Proposal, State
from anamnesis_tests.conftest import mongo_database
from anamnesis_tests.support.archived_logs import Home
from anamnesis_tests.support.dreams import dreamt, fill, lessons_of, proposals_of
from anamnesis_tests.support.live_system import free_ports
from anamnesis_tests.support.mongo_server import shared
from anamnesis_tests.support.worked_sessions import REFUSED

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
MAX_CHANGES = 300
KILLED_BEFORE = {"sqlite": range(MAX_CHANGES), "mongo": [3, *range(0, MAX_CHANGES, 8)]}
"""Changes before which a process is killed. MongoDB keeps the transaction of a killed process for a minute, so that
there all but one are killed before they begin one: before changes with an even number.
"""


@dataclass(frozen=True)
class Killed:
    """A memory in which detectors find a lesson, two notes that say the same, and one that another corrects; and its
    commands, in processes that are killed.
    """

    home: Home
    processes: subprocess.Popen[str]

    @property
    def changes(self) -> Sequence[int]:
        """The changes before which a process is killed."""
        return KILLED_BEFORE[self.home.settings.store]

    def run(self, change: int, *command: str) -> bool:
        """Run a command of `anamnesis` in a process that is killed before a change. False: it made fewer."""
        assert self.processes.stdin is not None
        assert self.processes.stdout is not None
        self.processes.stdin.write(json.dumps([change, *command]) + "\n")
        self.processes.stdin.flush()
        status = int(self.processes.stdout.readline())
        assert status in (0, -signal.SIGKILL)
        return status != 0


@pytest.fixture(params=sorted(KILLED_BEFORE))
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killed]:
    of_mongo = {"store": "mongo", "mongo_uri": shared.uri(), "mongo_database": mongo_database(tmp_path)}
    home = Home(tmp_path, settings=of_mongo if request.param == "mongo" else {})
    fill(home)
    ports = free_ports(2)
    environment = {
        **os.environ,
        "ANAMNESIS_HOME": str(home.settings.home),
        "ANAMNESIS_LOG_ROOTS": str(home.logs),
        "ANAMNESIS_MACHINE": "box",
        "ANAMNESIS_PORT": str(ports[0]),
        "ANAMNESIS_DAGSTER_PORT": str(ports[1]),
        "ANAMNESIS_STORE": home.settings.store,
        "ANAMNESIS_MONGO_URI": home.settings.mongo_uri.get_secret_value(),
        "ANAMNESIS_MONGO_DATABASE": home.settings.mongo_database,
    }
    command = [sys.executable, "-m", "anamnesis_tests.support.killed"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as processes:
        yield Killed(home, processes)
    home.close()
    if request.param == "mongo":
        shared.drop(mongo_database(tmp_path))


def delete_all(tables: Tables, names: tuple[str, ...]) -> None:
    for name in names:
        tables[name].delete({})


def start_again(home: Home) -> None:
    """Let nothing be observed and proposed yet."""
    for name in home.store.settings.all("dream."):
        home.store.settings.set(name, None)
    names = ("proposals", "proposal_evidence", "observations", "unobserved")
    home.store.gateway.write(partial(delete_all, names=names))


def found_in(home: Home) -> list[tuple[str, str, str]]:
    """Every proposal with its state, and what it says."""
    found = home.store.proposals.page(100, None)
    return sorted((each.proposal_id, each.state, each.title) for each in found)


def history_of(home: Home, of: Proposal) -> list[tuple[str, str, str]]:
    """The changes of the status of what a proposal changes."""
    ids = [edit.episode_id for edit in of.change.statuses]
    changes = home.store.statuses.histories(ids, 10)
    return [(each.former, each.status, each.by) for name in ids for each in changes.get(name, [])]


def files_in(home: Home) -> dict[str, str]:
    """Every file of topics with its text, the former ones too."""
    found = (each for each in home.settings.topics_dir.rglob("*") if each.is_file() and each.name != ".lock")
    return {str(each.relative_to(home.settings.topics_dir)): each.read_text() for each in found}


def test_dream_killed_at_any_change_proposes_the_same(killed: Killed) -> None:
    home = killed.home
    dreamt(home)
    wanted, observed = found_in(home), home.store.observations.counts()
    assert len(wanted) == 3
    for change in killed.changes if home.settings.store == "mongo" else killed.changes[::3]:
        start_again(home)
        is_killed = killed.run(change, "dream", "run", "--words-only")
        dreamt(home)
        assert found_in(home) == wanted, change
        assert home.store.observations.counts() == observed, change
        if not is_killed:
            assert change > 30
            return
    pytest.fail("it never came to its end")


def test_accepting_killed_at_any_change_is_done_or_not(killed: Killed) -> None:
    home = killed.home
    (merge,) = [each for each in dreamt(home) if each.kind is Kind.MERGE]
    before = found_in(home)
    for change in killed.changes:
        is_killed = killed.run(change, "dream", "accept", merge.proposal_id)
        state = home.store.proposals.get(merge.proposal_id).state
        rows = history_of(home, merge)
        assert [row[:2] for row in rows] == ([("active", "superseded")] if state is State.ACCEPTED else [])
        if state is State.ACCEPTED:
            assert change > 0
            return
        assert is_killed
        assert found_in(home) == before
    pytest.fail("it never came to its end")


def test_accepting_lesson_killed_at_any_change_is_finished(killed: Killed) -> None:
    home = killed.home
    (lesson,) = [each for each in dreamt(home) if each.kind is Kind.LESSON]
    for is_new in (True, False):
        before = {} if is_new else {str(lessons_of(home).relative_to(home.settings.topics_dir)): "# Mine\n"}
        for change in killed.changes:
            lessons_of(home).parent.mkdir(parents=True, exist_ok=True)
            for path in files_in(home):
                (home.settings.topics_dir / path).unlink()
            for name, text in before.items():
                (home.settings.topics_dir / name).write_text(text)
            start_again(home)
            dreamt(home)
            is_killed = killed.run(change, "dream", "accept", lesson.proposal_id)
            dreamt(home)
            done = home.store.proposals.get(lesson.proposal_id)
            if done.state is State.ACCEPTED:
                assert lessons_of(home).read_text().count(REFUSED) == 1, change
                assert done.applied is not None
                assert done.applied.is_done, change
                proposals_of(home).undo(lesson.proposal_id, "Ada")
            files = {name: text for name, text in files_in(home).items() if not name.startswith(".former/")}
            assert files == before, change
            if not is_killed:
                break
        else:
            pytest.fail("it never came to its end")
