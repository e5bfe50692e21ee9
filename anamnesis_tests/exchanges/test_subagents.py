"""Point 8 of the acceptance list, subagents: through crawl, parse and publish on a real store."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.exchanges.ingested import OTHER, Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log
from anamnesis_tests.exchanges.sessions import changed

LAYOUTS = {
    "flat": f"{SESSION}/subagents/agent-a41c9d02.jsonl",
    "nested": f"{SESSION}/subagents/agent-parent/subagents/agent-a41c9d02.jsonl",
    "workflow": f"{SESSION}/subagents/workflows/wf_1/agent-a41c9d02.jsonl",
    "old": "agent-a41c9d02.jsonl",
}


def spawning() -> tuple[Log, Log]:
    """A session that asks a subagent, and the subagent's own log."""
    trunk, agent = Log(), Log(isSidechain=True, agentId="a41c9d02")
    agent.minute, agent._count = 1.0, 100
    trunk.user("Where are refunds?")
    trunk.call("Agent", "toolu_01Qz", description="Find refund code", prompt="Find every place that issues refunds.")
    agent.user("Find every place that issues refunds.")
    agent.tool("Grep", "toolu_02", "src/refunds.py:44", pattern="refund")
    agent.say("Refunds are issued in src/refunds.py:44 only.")
    answer = [{"type": "text", "text": "Refunds are issued in src/refunds.py:44 only.\nagentId: a41c9d02"}]
    trunk.user(
        [{"type": "tool_result", "tool_use_id": "toolu_01Qz", "content": answer}],
        toolUseResult={"agentId": "a41c9d02", "status": "completed"},
    )
    return trunk, agent


DESCRIPTION = json.dumps({"agentType": "Explore", "description": "Find", "toolUseId": "toolu_01Qz"}, indent=2).encode()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_08_a_subagent_is_linked_to_the_call_that_spawned_it_and_shared_texts_count_once(
    home: Ingested, layout: str
) -> None:
    trunk, agent = spawning()
    path = LAYOUTS[layout]
    home.write(agent.lines, path)
    home.write(trunk.lines)
    home.write(DESCRIPTION, path.replace(".jsonl", ".meta.json"))
    home.write(['{"type":"started","key":"v2:x"}'], f"{SESSION}/subagents/workflows/wf_1/journal.jsonl")
    home.ingest()
    (child,) = (e for e in home.episodes() if e.kind == "subagent")
    (parent,) = (e for e in home.episodes() if e.kind == "exchange")
    assert (child.metadata["agent_id"], child.metadata["agent_type"]) == ("a41c9d02", "Explore")
    assert (child.metadata["origin"], child.session_id) == ("toolu_01Qz", parent.session_id)
    assert child.metadata["prompt"] == "Find every place that issues refunds."
    assert home.texts().count("Find every place that issues refunds.") == 1
    assert home.texts().count("Refunds are issued in src/refunds.py:44 only.") == 1
    assert "Find every place" in parent.raw_exchange
    assert home.store.overview.counts().files == 3, "a journal is no transcript"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", ["session", "subagent", "both"])
def test_08_a_subagent_is_of_the_project_that_its_session_began_in_wherever_it_runs(
    home: Ingested, layout: str, first: str
) -> None:
    trunk, agent = spawning()
    agent.lines = changed(agent.lines, cwd="/home/dev/other")
    trunk.lines[1:] = changed(trunk.lines[1:], cwd="/home/dev/moved")
    if first != "subagent":
        home.write(trunk.lines[:-1])
    if first != "session":
        home.write(agent.lines[:-1], LAYOUTS[layout], folder="-another-folder")
    home.ingest()
    home.write(trunk.lines)
    home.write(agent.lines, LAYOUTS[layout], folder="-another-folder")
    home.ingest()
    assert {(e.kind, e.project) for e in home.episodes()} == {
        ("exchange", "/home/dev/shop"),
        ("subagent", "/home/dev/shop"),
    }
    (child,) = (e for e in home.episodes() if e.kind == "subagent")
    assert child.metadata["cwd"] == "/home/dev/other"
    assert home.ingest().parts == 0


def test_08_a_description_that_comes_late_or_changes_sets_right_what_was_published(home: Ingested) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines)
    home.write(agent.lines, LAYOUTS["flat"])
    home.ingest()
    for agent_type in ("Explore", "general-purpose"):
        home.write(
            DESCRIPTION.replace(b"Explore", agent_type.encode()), LAYOUTS["flat"].replace(".jsonl", ".meta.json")
        )
        home.ingest()
        (child,) = (e for e in home.episodes() if e.kind == "subagent")
        assert (child.metadata["agent_type"], child.metadata["origin"]) == (agent_type, "toolu_01Qz")
    agent.say("And in the tests.")
    home.append(agent.lines[-1:], LAYOUTS["flat"])
    home.ingest()
    assert {e.metadata["agent_type"] for e in home.episodes() if e.kind == "subagent"} == {"general-purpose"}
    assert home.store.overview.counts().unparsed_lines == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", ["session", "subagent", "both"])
def test_08_without_a_description_the_result_in_the_session_tells_the_call_whichever_is_read_first(
    home: Ingested, layout: str, first: str
) -> None:
    trunk, agent = spawning()
    if first in ("session", "both"):
        home.write(trunk.lines)
    if first in ("subagent", "both"):
        home.write(trunk.lines[:-1])
        home.write(agent.lines, LAYOUTS[layout])
    home.ingest()
    home.write(trunk.lines)
    home.write(agent.lines, LAYOUTS[layout])
    home.ingest()
    (child,) = (e for e in home.episodes() if e.kind == "subagent")
    assert (child.metadata["agent_id"], child.metadata["origin"]) == ("a41c9d02", "toolu_01Qz")
    assert home.ingest().parts == 0
    agent.say("And in the tests.")
    home.append(agent.lines[-1:], LAYOUTS[layout])
    home.ingest()
    assert {e.metadata["origin"] for e in home.episodes() if e.kind == "subagent"} == {"toolu_01Qz"}


def test_08_a_description_without_a_call_leaves_the_one_that_the_session_tells(home: Ingested) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines)
    home.write(agent.lines, LAYOUTS["flat"])
    home.write(b'{"agentType": "Explore"}', LAYOUTS["flat"].replace(".jsonl", ".meta.json"))
    home.ingest()
    (child,) = (e for e in home.episodes() if e.kind == "subagent")
    assert (child.metadata["agent_type"], child.metadata["origin"]) == ("Explore", "toolu_01Qz")


def test_08_a_subagent_that_no_result_names_has_no_origin(home: Ingested) -> None:
    trunk, agent = spawning()
    home.write([line.replace("a41c9d02", "b41c9d02") for line in trunk.lines])
    home.write(agent.lines, LAYOUTS["flat"])
    home.ingest()
    assert "origin" not in next(e for e in home.episodes() if e.kind == "subagent").metadata


@pytest.mark.parametrize("trunk_lines", [1, 2])
@pytest.mark.parametrize("agent_lines", [1, 2, 3, 4])
def test_08_what_a_subagents_file_had_before_its_session_is_the_sessions_all_the_same(
    home: Ingested, tmp_path: Path, trunk_lines: int, agent_lines: int
) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines[:trunk_lines])
    home.write(agent.lines[:agent_lines], LAYOUTS["flat"])
    home.ingest()
    home.append(trunk.lines[trunk_lines:])
    home.append(agent.lines[agent_lines:], LAYOUTS["flat"])
    home.ingest()
    home.ingest()
    with closing(open_sqlite(tmp_path / "other.db", tmp_path / "other-index")) as other:
        undisturbed = Ingested(other, tmp_path)
        undisturbed.ingest()
        expected = {(e.episode_id, e.raw_exchange) for e in undisturbed.episodes()}
        assert other.overview.counts().messages == home.store.overview.counts().messages
    assert {(e.episode_id, e.raw_exchange) for e in home.episodes()} == expected
    assert home.texts().count("Find every place that issues refunds.") == 1
    assert home.texts().count("Refunds are issued in src/refunds.py:44 only.") == 1


@pytest.mark.parametrize("folder", ["-another-folder", "-home-dev-shop"])
def test_08_a_session_that_was_moved_still_owns_its_subagents_answer(home: Ingested, folder: str) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines[:1])
    home.write(agent.lines, LAYOUTS["flat"])
    home.ingest()
    home.path(f"{SESSION}.jsonl").rename(home.path(f"{SESSION}.jsonl", folder))
    home.append(trunk.lines[1:], folder=folder)
    home.ingest()
    assert home.store.overview.counts().messages == 5
    for text in ("Find every place that issues refunds.", "Refunds are issued in src/refunds.py:44 only."):
        (owner,) = (e for e in home.episodes() if text in e.raw_exchange)
        assert owner.kind == "exchange"


def test_08_a_subagents_file_that_grew_while_its_session_took_over_the_answer_is_parsed_in_the_same_run(
    home: Ingested,
) -> None:
    trunk, agent = spawning()
    home.write(trunk.lines[:1])
    home.write(agent.lines, LAYOUTS["flat"])
    home.ingest()
    home.append(trunk.lines[1:])
    agent.say("And in the tests.")
    home.append(agent.lines[-1:], LAYOUTS["flat"])
    assert home.ingest().messages == 3
    assert home.store.overview.counts().unparsed_lines == 0


@pytest.mark.parametrize("shown", [1, 2, 3])
def test_08_a_copy_of_the_session_that_came_before_it_leaves_the_task_once(home: Ingested, shown: int) -> None:
    trunk, agent = spawning()
    home.write(agent.lines, LAYOUTS["flat"])
    home.ingest()
    home.write(changed(trunk.lines[:shown], sessionId=OTHER), f"{OTHER}.jsonl")
    home.ingest()
    home.write(trunk.lines)
    home.ingest()
    assert home.store.overview.counts().messages == 5
    assert home.texts().count("Find every place that issues refunds.") == 1
    assert home.texts().count("Refunds are issued in src/refunds.py:44 only.") == 1


def test_08_a_subagent_whose_file_was_moved_may_say_the_same_again(home: Ingested) -> None:
    _, agent = spawning()
    home.write(agent.lines, LAYOUTS["flat"])
    home.ingest()
    agent.user("Sure?")
    agent.say("Refunds are issued in src/refunds.py:44 only.")
    home.write(agent.lines, LAYOUTS["flat"], folder="-another-folder")
    assert home.ingest().messages == 2
    assert home.texts().count("Refunds are issued in src/refunds.py:44 only.") == 2


BOILERPLATE = (
    "<fork-boilerplate>\nYou are a worker fork. Execute ONE directive, then stop.\n</fork-boilerplate>\n\n"
    "Your directive: "
)


@pytest.mark.parametrize("is_marked", [True, False])
def test_task_of_a_forked_subagent_heads_its_exchange(home: Ingested, *, is_marked: bool) -> None:
    task = "Check the rotation of the logs."
    trunk = Log()
    trunk.user("Why is the disk full?")
    trunk.call("Agent", "toolu_01Qz", description="Check", prompt=task, subagent_type="fork")
    agent = Log(**({"isSidechain": True, "agentId": "a41c9d02"} if is_marked else {}))
    agent.minute, agent._count = 1.0, 100
    agent.lines = changed([trunk.lines[1]], uuid="copied")
    started = {"type": "tool_result", "tool_use_id": "toolu_01Qz", "content": "Fork started"}
    agent.user([started, {"type": "text", "text": f"{BOILERPLATE}{task}"}])
    agent.say("It rotates weekly.")
    home.write(trunk.lines)
    home.write(agent.lines, LAYOUTS["flat"])
    home.ingest()
    answers = [e for e in home.episodes() if "It rotates weekly." in e.raw_exchange]
    assert [(e.kind, e.metadata["prompt"]) for e in answers] == [("subagent", task)]
    assert "worker fork" not in home.texts()
    assert "Your directive" not in home.texts()
    assert home.texts().count(task) == 1
