from anamnesis_pipeline.model import SegmentKind as Kind
from anamnesis_tests.exchanges.log_lines import Log, parse, texts


def test_an_exchange_is_a_prompt_and_all_that_follows_up_to_the_next_one() -> None:
    log = Log()
    for number in range(3):
        log.user(f"prompt {number}")
        log.tool("Bash", f"t{number}", "ok", command="ls")
        log.say("done")
    parts = parse(log.lines)
    assert [part.prompt for part in parts] == ["prompt 0", "prompt 1", "prompt 2"]
    assert [part.closed for part in parts] == [True, True, False]
    assert len({part.exchange_id for part in parts}) == 3
    assert {part.kind for part in parts} == {"exchange"}


def test_commands_notifications_and_steering_stay_in_the_exchange_they_come_in() -> None:
    log = Log().talk("prompt")
    log.user("<command-name>/model</command-name>")
    log.user("<task-notification>done</task-notification>")
    log.user([{"type": "text", "text": "[Request interrupted by user]"}])
    log.record("attachment", attachment={"type": "queued_command", "prompt": "faster"})
    (part,) = parse(log.lines)
    assert [s.kind for s in part.segments] == [
        Kind.PROMPT, Kind.COMMAND, Kind.NOTIFICATION, Kind.NOTIFICATION, Kind.STEERING,
    ]  # fmt: skip


def test_what_comes_before_the_first_prompt_is_kept_in_an_exchange_of_its_own() -> None:
    log = Log().talk("<task-notification>nightly run failed</task-notification>", "I look at it.", "thanks")
    first, second = parse(log.lines)
    assert first.exchange_id != second.exchange_id
    assert first.prompt == ""
    assert texts([first]) == ["<task-notification>nightly run failed</task-notification>", "I look at it."]


def test_a_compaction_summary_is_a_part_of_its_own_inside_the_running_exchange() -> None:
    log = Log().talk("prompt", "half")
    log.user("what was said", isCompactSummary=True)
    log.user("what was said, shorter", isCompactSummary=True)
    log.say("other half")
    parts = parse(log.lines)
    assert [part.kind for part in parts] == ["exchange", "compact_summary", "compact_summary", "exchange"]
    assert {part.prompt for part in parts} == {"prompt"}
    assert len({part.exchange_id for part in parts}) == 1


def test_what_a_parent_asks_begins_an_exchange_in_the_subagents_file_only() -> None:
    log = Log(isSidechain=True, agentId="a41c9d02").talk("Find every refund", "Found one.")
    (agent,) = parse(log.lines, "s/subagents/agent-a41c9d02.jsonl")
    assert (agent.kind, agent.agent_id, agent.prompt) == ("subagent", "a41c9d02", "Find every refund")
    assert agent.segments[0].kind is Kind.AGENT_PROMPT
    trunk = Log().talk("prompt")
    trunk.user("Find every refund", isSidechain=True)
    (part,) = parse(trunk.lines)
    assert [s.kind for s in part.segments] == [Kind.PROMPT, Kind.AGENT_PROMPT]
