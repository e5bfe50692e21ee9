"""Records of sessions: what they tell, when they are written, and what becomes of them."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.model import EpisodeFilter
from anamnesis_pipeline.pipeline.publish import delete_episode
from anamnesis_pipeline.pipeline.session_summaries import SessionReport
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.session_model import SESSION_KIND, SessionRecord, of_episode
from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import SESSION, START, Log

SECOND = "9af4606d-e5b5-4bac-b0b2-fab40b03792a"
THIRD = "b1111111-e5b5-4bac-b0b2-fab40b03792a"
ASKED = "The login test fails every tenth time. Find out why, and fix it."
DONE = "The test waited for one fixed second. It now waits for the answer of the server, and passes 200 times in a row."
REPLY = "Next steps:\n- Measure the slow start of the server"


class Sessions(Ingested):
    """A Claude home of which sessions are recorded, too."""

    def run(self, log: Log | None = None) -> list[SessionRecord]:
        """Ingest what a log holds by now, record, and what there is."""
        if log is not None:
            self.write(log.lines)
        self.ingest()
        self.record()
        return self.records()

    def records(self, *, former: bool = False) -> list[SessionRecord]:
        where = EpisodeFilter(kinds=(SESSION_KIND,), include_superseded=former)
        found = [of_episode(episode) for episode in self.store.episodes.page(where, 100).items]
        return [record for record in found if record is not None]

    def text(self) -> str:
        """All that records say, former ones too."""
        where = EpisodeFilter(kinds=(SESSION_KIND,), include_superseded=True)
        episodes = self.store.episodes.page(where, 100).items
        passages = [p.passage for e in episodes for p in self.store.episodes.passages_of(e.episode_id)]
        return "\n".join([*map(str, episodes), *map(str, passages)])


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Sessions:
    return Sessions(store, tmp_path)


def worked(**common: Any) -> Log:
    """A session in which something was asked, changed, tested and committed."""
    log = Log(gitBranch="fix-login", **common)
    log.user(ASKED)
    log.say("Let me look at the test.")
    log.tool("Bash", "t1", "tests/test_login.py", command="ls tests && cat tests/test_login.py")
    log.tool("Bash", "t2", "Exit code 1\n1 failed, 11 passed in 3.20s", is_error=True, command="pytest -q tests")
    log.tool("Edit", "t3", "done", file_path="/home/dev/shop/tests/test_login.py", old_string="a", new_string="b")
    log.tool("Edit", "t4", "no such file", is_error=True, file_path="/home/dev/shop/tests/gone.py", old_string="a")
    log.tool("Write", "t5", "done", file_path="/tmp/notes.md", content="x")
    log.tool("Bash", "t6", "12 passed in 2.91s", command="cd /home/dev/shop && pytest -q tests 2>&1 | tail -3")
    log.say("I'll go with the answer of the server rather than a longer pause.")
    told = "[fix-login 3f9c2ab] Wait for the answer\n 1 file changed"
    log.tool("Bash", "t7", told, command="git commit -am 'Wait for the answer'")
    log.tool("Bash", "t8", "done", command="npm run build")
    log.say(f"{DONE}\n\n{REPLY}")
    return log


def test_short_session_tells_what_was_done(home: Sessions) -> None:
    (record,) = home.run(worked())
    assert record.title == "The login test fails every tenth time. Find out why, and fix it"
    assert record.prompt == ASKED
    assert record.outcome == f"{DONE}\n\n{REPLY}"
    assert (record.session_id, record.session_ids, record.machine) == (SESSION, (SESSION,), "box")
    assert (record.project, record.branch, record.revision) == ("/home/dev/shop", "fix-login", 1)
    assert record.started == START + timedelta(minutes=0.5)
    assert record.ended == START + timedelta(minutes=10)
    assert (record.messages, record.errors) == (20, 2)
    assert record.files == ("tests/test_login.py", "/tmp/notes.md")
    assert record.tests == ("pytest -q tests: 1 failed, 11 passed in 3.20s", "pytest -q tests: 12 passed in 2.91s")
    assert record.commits == ("3f9c2ab Wait for the answer",)
    assert record.commands == ("pytest -q tests", "npm run build")
    assert record.decisions == ("I'll go with the answer of the server rather than a longer pause.",)
    assert record.open_items == ("Measure the slow start of the server",)


def test_session_is_recorded_only_when_at_rest(home: Sessions) -> None:
    home.now = START + timedelta(minutes=11)
    assert home.run(worked()) == []
    home.now = START + timedelta(minutes=60)
    assert len(home.run()) == 1


def test_record_written_again_changes_nothing(home: Sessions) -> None:
    first = home.run(worked())
    before = home.text()
    assert home.run() == first
    assert home.record() == [SessionReport()], "nothing is looked at that did not change"
    assert home.text() == before


def test_resumed_session_gets_a_revision(home: Sessions) -> None:
    log = worked()
    home.run(log)
    log.minute += 300
    log.user("Now measure the slow start of the server, please.")
    log.say("The start takes 4 seconds, of which 3 are spent on reading the catalogue. It is cached now.")
    (record,) = home.run(log)
    assert (record.revision, record.prompt) == (2, ASKED)
    assert record.outcome.startswith("The start takes 4 seconds")
    assert record.open_items == ()
    stored = home.store.episodes.page(EpisodeFilter(kinds=(SESSION_KIND,), include_superseded=True), 10).items
    former, present = sorted(stored, key=lambda episode: episode.status, reverse=True)
    assert (former.status, former.superseded_by) == ("superseded", present.episode_id)


def forked(**fields: Any) -> list[str]:
    """The log of a fork: the messages of the session, and one exchange of its own."""
    lines = [json.dumps(json.loads(line) | {"sessionId": SECOND, **fields}) for line in worked().lines]
    own = Log(SECOND, gitBranch="fix-login")
    own.minute = 200
    own.user("And is the logout test flaky in the same way?", uuid="own-1")
    own.assistant(
        {"type": "text", "text": "No: the logout test has waited for the answer since it was written."},
        uuid="own-2",
        message_id="own-m",
    )
    return [*lines, *own.lines]


FORKED = {"forkedFrom": {"sessionId": SESSION, "messageUuid": "uuid-1"}}


# A copy that does not say so, and that is read first, is the original.
@pytest.mark.parametrize(("mark", "first"), [({}, SESSION), (FORKED, SESSION), (FORKED, SECOND)])
def test_fork_is_one_record_with_its_session(home: Sessions, mark: dict[str, Any], first: str) -> None:
    logs = {SESSION: worked().lines, SECOND: forked(**mark)}
    for name in sorted(logs, key=lambda name: name != first):
        home.write(logs[name], f"{name}.jsonl")
        home.run()
    (record,) = home.records()
    assert (record.session_id, record.session_ids) == (SESSION, (SESSION, SECOND))
    assert record.outcome.startswith("No: the logout test")
    assert record.messages == 22
    assert record.commits == ("3f9c2ab Wait for the answer",)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_continued_session_is_one_record(home: Sessions, order: tuple[int, int]) -> None:
    first, later = worked(), Log(SECOND)
    first.lines.append(json.dumps({"type": "continued-in", "sessionId": SESSION, "continuedInSessionId": SECOND}))
    later.minute = 200
    later.user("Write down what we learned.", uuid="later-1")
    later.assistant(
        {"type": "text", "text": "It is in docs/testing.md: wait for answers, never for seconds."}, uuid="l2"
    )
    logs = [(first.lines, SESSION), (later.lines, SECOND)]
    for number in order:
        lines, name = logs[number]
        home.write(lines, f"{name}.jsonl")
        home.run()
    (record,) = home.records()
    assert (record.session_ids, record.prompt) == ((SESSION, SECOND), ASKED)
    assert record.outcome.startswith("It is in docs/testing.md")
    assert {r.session_id for r in home.records(former=True)} <= {SESSION, SECOND}


def test_sessions_of_two_projects_stay_two_records(home: Sessions) -> None:
    first, later = worked(), Log(SECOND, cwd="/home/dev/secret")
    first.lines.append(json.dumps({"type": "continued-in", "sessionId": SESSION, "continuedInSessionId": SECOND}))
    later.user("Something of another project", uuid="later-1")
    home.write(first.lines)
    home.write(later.lines, f"{SECOND}.jsonl", folder="-home-dev-secret")
    assert {record.project for record in home.run()} == {"/home/dev/shop", "/home/dev/secret"}


def test_one_session_id_in_two_projects_is_two_records(home: Sessions) -> None:
    other = Log(SESSION, cwd="/home/dev/zoo")
    other.user("Which animals eat at noon?", uuid="zoo-1")
    home.write(worked().lines)
    home.write(other.lines, folder="-home-dev-zoo")
    both = {"/home/dev/shop": ASKED, "/home/dev/zoo": "Which animals eat at noon?"}
    for _ in range(2):
        assert {record.project: record.prompt for record in home.run()} == both
    other.user("And who eats at night?", uuid="zoo-2")
    home.write(other.lines, folder="-home-dev-zoo")
    assert {(record.project, record.revision) for record in home.run()} == {("/home/dev/shop", 1), ("/home/dev/zoo", 2)}
    zoo = home.store.episodes.page(EpisodeFilter(projects=("/home/dev/zoo",)), 100).items
    for episode in zoo:
        if episode.kind != SESSION_KIND:
            delete_episode(home.store, episode.episode_id)
    assert [record.project for record in home.run()] == ["/home/dev/shop"]


def test_two_projects_that_shared_a_record_get_their_own(home: Sessions) -> None:
    """As a store of an earlier version has them."""
    other = Log(SESSION, cwd="/home/dev/zoo")
    other.user("Which animals eat at noon?", uuid="zoo-1")
    home.write(worked().lines)
    home.write(other.lines, folder="-home-dev-zoo")
    home.run()
    home.store.gateway.write(lambda tables: tables["session_notes"].update({"session_id": SESSION}, {"root": SESSION}))
    other.user("And who eats at night?", uuid="zoo-2")
    home.write(other.lines, folder="-home-dev-zoo")
    home.run()
    assert {record.project for record in home.run()} == {"/home/dev/shop", "/home/dev/zoo"}


def test_compacted_session_is_one_record(home: Sessions) -> None:
    log = worked()
    log.record("system", subtype="compact_boundary", content="compacted", logicalParentUuid="uuid-20")
    log.user("This session is being continued. Summary: the login test waits.", isCompactSummary=True)
    log.user("Is the build green?")
    log.say("The build is green: the bundle is 40 kB smaller than before the change.")
    (record,) = home.run(log)
    assert record.prompt == ASKED
    assert record.outcome.startswith("The build is green")
    assert "Summary: the login" not in str(record)


def notified(log: Log, text: str) -> None:
    log.user(
        f"<task-notification>\n<task-id>b1</task-id>\n<summary>{text}</summary>\n</task-notification>",
        origin={"kind": "task-notification"},
    )


def test_outcome_is_no_answer_to_a_notification(home: Sessions) -> None:
    log = worked()
    notified(log, "Background command completed")
    log.say("The background command that I started for the build has completed; there is nothing left to do here.")
    log.user("go on")
    log.say("There is nothing to go on with, as all of it is done.")
    (record,) = home.run(log)
    assert record.outcome.startswith(DONE)


def test_session_of_notifications_has_no_prompt(home: Sessions) -> None:
    log = Log()
    notified(log, "Background command completed")
    log.say("The nightly backup of the shop has completed without an error.")
    (record,) = home.run(log)
    assert record.prompt == ""
    assert record.outcome == "The nightly backup of the shop has completed without an error."
    assert record.title == "The nightly backup of the shop has completed without an error"


def test_subagents_belong_to_their_session(home: Sessions) -> None:
    home.write(worked().lines)
    agent = Log(isSidechain=True, agentId="a1")
    agent.user("Look for further tests that wait", uuid="a-1")
    agent.tool("Edit", "at1", "done", file_path="/home/dev/shop/tests/test_cart.py", old_string="a", new_string="b")
    agent.tool("Bash", "at2", "boom", is_error=True, command="make lint")
    agent.assistant({"type": "text", "text": "The cart test waited as well; it is mended the same way."}, uuid="a-9")
    lines = [json.dumps(json.loads(line) | {"uuid": f"agent-{n}"}) for n, line in enumerate(agent.lines)]
    home.write(lines, f"{SESSION}/subagents/agent-a1.jsonl")
    (record,) = home.run()
    assert sorted(record.files) == ["/tmp/notes.md", "tests/test_cart.py", "tests/test_login.py"]
    assert (record.errors, record.outcome) == (3, f"{DONE}\n\n{REPLY}")


def test_deleted_record_stays_deleted_until_session_goes_on(home: Sessions) -> None:
    log = worked()
    home.run(log)
    (episode,) = home.store.episodes.page(EpisodeFilter(kinds=(SESSION_KIND,)), 10).items
    assert delete_episode(home.store, episode.episode_id)
    home.store.parts.renew_session(SESSION)
    assert home.run() == []
    log.minute += 100
    log.user("Please do the same for the logout test.")
    (record,) = home.run(log)
    assert record.revision == 2


def test_deleted_exchange_leaves_the_record(home: Sessions) -> None:
    log = worked()
    log.minute += 100
    log.user("The door code is zanzibar, remember it for the review.")
    log.say("The door code zanzibar is in mind for the whole review of the login.")
    home.run(log)
    log.minute += 100
    log.user("That is all.")
    home.run(log)
    assert "zanzibar" in home.text()
    (told,) = [e for e in home.episodes() if "zanzibar" in e.raw_exchange and e.kind == "exchange"]
    delete_episode(home.store, told.episode_id)
    assert home.records(former=True) == [], "no revision is left that may tell of it"
    (record,) = home.run()
    assert record.prompt == ASKED
    assert "zanzibar" not in home.text()


def test_record_goes_with_the_last_of_its_session(home: Sessions) -> None:
    home.run(worked())
    for episode in home.episodes():
        if episode.kind != SESSION_KIND:
            delete_episode(home.store, episode.episode_id)
    assert home.run() == []
    assert home.store.sessions.states([SESSION]) == []


def test_moved_session_keeps_one_record_of_its_new_project(home: Sessions) -> None:
    home.run(worked())
    (source,) = [s for s in home.store.files.sources() if s.kind == "claude_logs"]
    home.store.projects.move_parts(source.key, [f"{SESSION}.jsonl"], "", "/home/dev/shop", "acme/shop")
    (record,) = home.run()
    assert (record.project, record.revision) == ("acme/shop", 1)
    assert home.records(former=True) == [record]


def test_text_that_a_client_took_out_leaves_the_record(home: Sessions) -> None:
    home.run(worked())
    for episode in home.episodes():
        if "passes 200 times" in episode.raw_exchange and episode.kind == "exchange":
            cut = replace(episode, raw_exchange="taken out", summary="taken out")
            home.store.episodes.replace(cut, [], episode.content_hash)
    assert home.records(former=True) == []
    home.run()
    assert "passes 200 times" not in home.text()


def test_session_that_changes_meanwhile_is_left_to_the_next_run(home: Sessions) -> None:
    home.write(worked().lines)
    home.ingest()
    (state,) = home.store.sessions.states([SESSION])
    assert home.store.sessions.join([state], SESSION)
    delete_episode(home.store, next(e.episode_id for e in home.episodes()))
    assert not home.store.sessions.settle([state], None, [])
    assert home.store.sessions.states([SESSION])[0].noted > state.noted
