"""Subagents and the sessions that asked them: through crawl, parse and publish on a real store."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.model import Episode
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.parsing.claude_logs.sessions import changed
from anamnesis_tests.support.ingested import OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, Log

LAYOUTS = {
    "flat": f"{SESSION}/subagents/agent-a41c9d02.jsonl",
    "nested": f"{SESSION}/subagents/agent-parent/subagents/agent-a41c9d02.jsonl",
    "workflow": f"{SESSION}/subagents/workflows/wf_1/agent-a41c9d02.jsonl",
    "old": "agent-a41c9d02.jsonl",
}


TASK, ANSWER = "Find every place that issues refunds.", "Refunds are issued in src/refunds.py:44 only."


def spawning() -> tuple[Log, Log]:
    """A session that asks a subagent, and the subagent's own log."""
    trunk, agent = Log(), Log(isSidechain=True, agentId="a41c9d02")
    agent.minute, agent._count = 1.0, 100
    trunk.user("Where are refunds?")
    trunk.call("Agent", "toolu_01Qz", description="Find refund code", prompt=TASK)
    agent.user(TASK)
    agent.tool("Grep", "toolu_02", "src/refunds.py:44", pattern="refund")
    agent.say(ANSWER)
    answer = [{"type": "text", "text": f"{ANSWER}\nagentId: a41c9d02"}]
    trunk.user(
        [{"type": "tool_result", "tool_use_id": "toolu_01Qz", "content": answer}],
        toolUseResult={"agentId": "a41c9d02", "status": "completed"},
    )
    return trunk, agent


def put(home: Ingested, trunk: Log, agent: Log, layout: str = "flat") -> None:
    home.write(trunk.lines)
    home.write(agent.lines, LAYOUTS[layout])


def describe(home: Ingested, text: bytes, layout: str = "flat") -> None:
    home.write(text, LAYOUTS[layout].replace(".jsonl", ".meta.json"))


def subagent(home: Ingested) -> Episode:
    (child,) = (episode for episode in home.episodes() if episode.kind == "subagent")
    return child


DESCRIPTION = json.dumps({"agentType": "Explore", "description": "Find", "toolUseId": "toolu_01Qz"}, indent=2).encode()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_subagent_is_linked_to_its_call_and_shares_texts_once(home: Ingested, layout: str) -> None:
    trunk, agent = spawning()
    put(home, trunk, agent, layout)
    describe(home, DESCRIPTION, layout)
    home.take(['{"type":"started","key":"v2:x"}'], f"{SESSION}/subagents/workflows/wf_1/journal.jsonl")
    child = subagent(home)
    (parent,) = (e for e in home.episodes() if e.kind == "exchange")
    assert (child.metadata["agent_id"], child.metadata["agent_type"]) == ("a41c9d02", "Explore")
    assert (child.metadata["origin"], child.session_id) == ("toolu_01Qz", parent.session_id)
    assert child.metadata["prompt"] == TASK
    assert home.texts().count(TASK) == home.texts().count(ANSWER) == 1
    assert "Find every place" in parent.raw_exchange
    assert home.store.overview.counts().files == 3, "a journal is no transcript"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", ["session", "subagent", "both"])
def test_subagent_is_of_the_project_its_session_began_in(home: Ingested, layout: str, first: str) -> None:
    trunk, agent = spawning()
    agent.lines = changed(agent.lines, cwd="/home/dev/other")
    trunk.lines[1:] = changed(trunk.lines[1:], cwd="/home/dev/moved")
    if first != "subagent":
        home.write(trunk.lines[:-1])
    if first != "session":
        home.write(agent.lines[:-1], LAYOUTS[layout], folder="-another-folder")
    home.ingest()
    home.write(trunk.lines)
    home.take(agent.lines, LAYOUTS[layout], folder="-another-folder")
    kinds = {(episode.kind, episode.project) for episode in home.episodes()}
    assert kinds == {("exchange", "/home/dev/shop"), ("subagent", "/home/dev/shop")}
    assert subagent(home).metadata["cwd"] == "/home/dev/other"
    assert home.ingest().parts == 0


def test_subagent_is_described_by_what_comes_late_or_changes(home: Ingested) -> None:
    trunk, agent = spawning()
    put(home, trunk, agent)
    home.ingest()
    for agent_type in ("Explore", "general-purpose"):
        describe(home, DESCRIPTION.replace(b"Explore", agent_type.encode()))
        home.ingest()
        child = subagent(home)
        assert (child.metadata["agent_type"], child.metadata["origin"]) == (agent_type, "toolu_01Qz")
    agent.say("And in the tests.")
    home.grow(agent.lines[-1:], LAYOUTS["flat"])
    assert {e.metadata["agent_type"] for e in home.episodes() if e.kind == "subagent"} == {"general-purpose"}
    assert home.store.overview.counts().unparsed_lines == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", ["session", "subagent", "both"])
def test_subagent_without_description_is_linked_by_the_result(home: Ingested, layout: str, first: str) -> None:
    trunk, agent = spawning()
    if first in ("session", "both"):
        home.write(trunk.lines)
    if first in ("subagent", "both"):
        home.write(trunk.lines[:-1])
        home.write(agent.lines, LAYOUTS[layout])
    home.ingest()
    put(home, trunk, agent, layout)
    home.ingest()
    child = subagent(home)
    assert (child.metadata["agent_id"], child.metadata["origin"]) == ("a41c9d02", "toolu_01Qz")
    assert home.ingest().parts == 0
    agent.say("And in the tests.")
    home.grow(agent.lines[-1:], LAYOUTS[layout])
    assert {e.metadata["origin"] for e in home.episodes() if e.kind == "subagent"} == {"toolu_01Qz"}


def test_subagent_described_without_a_call_keeps_its_own(home: Ingested) -> None:
    trunk, agent = spawning()
    put(home, trunk, agent)
    describe(home, b'{"agentType": "Explore"}')
    home.ingest()
    child = subagent(home)
    assert (child.metadata["agent_type"], child.metadata["origin"]) == ("Explore", "toolu_01Qz")


def test_subagent_that_no_result_names_has_no_origin(home: Ingested) -> None:
    trunk, agent = spawning()
    home.write([line.replace("a41c9d02", "b41c9d02") for line in trunk.lines])
    home.take(agent.lines, LAYOUTS["flat"])
    assert "origin" not in subagent(home).metadata


@pytest.mark.parametrize("trunk_lines", [1, 2])
@pytest.mark.parametrize("agent_lines", [1, 2, 3, 4])
def test_subagent_read_early_changes_nothing(
    home: Ingested, tmp_path: Path, trunk_lines: int, agent_lines: int
) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines[:trunk_lines])
    home.take(agent.lines[:agent_lines], LAYOUTS["flat"])
    home.append(trunk.lines[trunk_lines:])
    home.grow(agent.lines[agent_lines:], LAYOUTS["flat"])
    home.ingest()
    with closing(open_sqlite(tmp_path / "other.db", tmp_path / "other-index")) as other:
        undisturbed = Ingested(other, tmp_path)
        undisturbed.ingest()
        expected = {(e.episode_id, e.raw_exchange) for e in undisturbed.episodes()}
        assert other.overview.counts().messages == home.store.overview.counts().messages
    assert {(e.episode_id, e.raw_exchange) for e in home.episodes()} == expected
    assert home.texts().count(TASK) == home.texts().count(ANSWER) == 1


@pytest.mark.parametrize("folder", ["-another-folder", "-home-dev-shop"])
def test_subagents_answer_is_of_a_session_that_was_moved(home: Ingested, folder: str) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines[:1])
    home.take(agent.lines, LAYOUTS["flat"])
    home.path(f"{SESSION}.jsonl").rename(home.path(f"{SESSION}.jsonl", folder))
    home.grow(trunk.lines[1:], folder=folder)
    assert home.store.overview.counts().messages == 5
    for text in (TASK, ANSWER):
        assert home.owners(text) == {f"{SESSION}.jsonl"}


def test_subagents_file_that_grew_meanwhile_is_parsed_at_once(home: Ingested) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines[:1])
    home.take(agent.lines, LAYOUTS["flat"])
    home.append(trunk.lines[1:])
    agent.say("And in the tests.")
    assert home.grow(agent.lines[-1:], LAYOUTS["flat"]).messages == 3
    assert home.store.overview.counts().unparsed_lines == 0


@pytest.mark.parametrize("shown", [1, 2, 3])
def test_subagents_task_is_there_once_beside_an_early_copy(home: Ingested, shown: int) -> None:
    trunk, agent = spawning()
    home.take(agent.lines, LAYOUTS["flat"])
    home.take(changed(trunk.lines[:shown], sessionId=OTHER), f"{OTHER}.jsonl")
    home.take(trunk.lines)
    assert home.store.overview.counts().messages == 5
    assert home.texts().count(TASK) == home.texts().count(ANSWER) == 1


def test_subagent_whose_file_was_moved_may_repeat_itself(home: Ingested) -> None:
    _, agent = spawning()
    home.take(agent.lines, LAYOUTS["flat"])
    agent.user("Sure?")
    agent.say(ANSWER)
    assert home.take(agent.lines, LAYOUTS["flat"], folder="-another-folder").messages == 2
    assert home.texts().count(ANSWER) == 2


BOILERPLATE = (
    "<fork-boilerplate>\nYou are a worker fork. Execute ONE directive, then stop.\n</fork-boilerplate>\n\n"
    "Your directive: "
)


@pytest.mark.parametrize("is_marked", [True, False])
def test_task_of_a_forked_subagent_heads_its_exchange(home: Ingested, *, is_marked: bool) -> None:
    task = "Check the rotation of the logs."
    trunk = Log().talk("Why is the disk full?")
    trunk.call("Agent", "toolu_01Qz", description="Check", prompt=task, subagent_type="fork")
    agent = Log(**({"isSidechain": True, "agentId": "a41c9d02"} if is_marked else {}))
    agent.minute, agent._count = 1.0, 100
    agent.lines = changed([trunk.lines[1]], uuid="copied")
    started = {"type": "tool_result", "tool_use_id": "toolu_01Qz", "content": "Fork started"}
    agent.user([started, {"type": "text", "text": f"{BOILERPLATE}{task}"}])
    agent.say("It rotates weekly.")
    put(home, trunk, agent)
    home.ingest()
    answers = [e for e in home.episodes() if "It rotates weekly." in e.raw_exchange]
    assert [(e.kind, e.metadata["prompt"]) for e in answers] == [("subagent", task)]
    assert "worker fork" not in home.texts()
    assert "Your directive" not in home.texts()
    assert home.texts().count(task) == 1
