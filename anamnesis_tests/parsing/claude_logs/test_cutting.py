from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.model import Part, part_id_of
from anamnesis_pipeline.model import SegmentKind as Kind
from anamnesis_pipeline.parsing.claude_logs.chunking import HARD, LEAD, SMALL, SOFT, is_pause, pieces, tail
from anamnesis_tests.support.log_lines import Log, parse, texts

TEXTS = st.text(alphabet=st.sampled_from("ab \n\t\u2003é😀"), max_size=3 * HARD) | st.builds(
    lambda words, gap: gap.join(words),
    st.lists(st.integers(1, HARD + 500).map(lambda n: "w" * n), max_size=12),
    st.sampled_from([" ", "\n", "\n\n  "]),
)


def size(part: Part) -> int:
    return sum(len(segment.text) for segment in part.segments)


def first_texts(parts: list[Part]) -> list[str]:
    return [part.segments[0].text for part in parts]


# --- splitting one text ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(TEXTS, st.integers(HARD // 2, HARD))
def test_the_pieces_of_a_text_joined_are_the_text(text: str, room: int) -> None:
    found = list(pieces(text, room))
    assert "".join(piece for _, piece in found) == text
    assert [start for start, _ in found] == [sum(len(p) for _, p in found[:i]) for i in range(len(found))]
    assert len(found[0][1]) <= room
    assert all(0 < len(piece) <= HARD for _, piece in found) or text == ""


@settings(deadline=None, max_examples=50)
@given(TEXTS)
def test_a_word_is_cut_only_where_it_is_longer_than_a_piece(text: str) -> None:
    for start, _ in list(pieces(text, HARD))[1:]:
        if not text[start - 1].isspace() and not text[start].isspace():
            before = text[:start].rsplit(None, 1)[-1]
            assert len(before) + len(text[start:].split(None, 1)[0]) > HARD


def test_a_text_is_rather_cut_behind_a_line_than_between_words() -> None:
    text = "word " * 500 + "\n" + "word " * 500
    assert [piece for _, piece in pieces(text, HARD)] == ["word " * 500 + "\n", "word " * 500]


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=3 * LEAD))
def test_a_lead_is_the_end_of_a_text_and_short(text: str) -> None:
    lead = tail(text)
    assert len(lead) <= LEAD
    assert text.rstrip().endswith(lead)


def test_a_lead_begins_with_a_whole_word() -> None:
    assert tail("abcdefg " * 100).startswith("abcdefg abcdefg")


# --- seams -----------------------------------------------------------------------------------------------


def test_a_statement_after_results_begins_a_part_once_there_is_enough() -> None:
    log = Log().talk("find it")
    for number in range(6):
        log.tool("Read", f"t{number}", "x" * (SOFT // 2 + 1))
        log.say(f"statement {number}")
    assert first_texts(parse(log.lines)) == ["find it", "statement 1", "statement 3", "statement 5"]


def test_thinking_before_a_statement_goes_with_it() -> None:
    log = Log().talk("find it")
    log.tool("Read", "t1", "x" * SOFT)
    log.assistant({"type": "thinking", "thinking": "so this is it"}, {"type": "text", "text": "found"})
    assert [[s.text for s in part.segments] for part in parse(log.lines)][1] == ["so this is it", "found"]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("TodoWrite", {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]}),
        ("TaskUpdate", {"taskId": "1", "status": "completed"}),
        ("Bash", {"command": "cd api && git -c user.name=x commit -m 'Fix rounding'"}),
    ],
)
def test_a_finished_step_ends_a_part_that_is_not_tiny(name: str, inputs: dict[str, object]) -> None:
    for filling, parts in ((SMALL, 2), (10, 1)):
        log = Log().talk("x " * (filling // 2))
        log.tool(name, "t1", "done", **inputs)
        log.tool("Bash", "t2", "ok", command="ls")
        assert len(parse(log.lines)) == parts


def test_the_success_of_a_tool_that_failed_before_ends_a_part() -> None:
    log = Log().talk("x " * (SMALL // 2))
    log.tool("Bash", "t1", "1 failed", command="pytest", is_error=True)
    log.tool("Read", "t2", "def f(): ...")
    log.tool("Bash", "t3", "1 passed", command="pytest")
    log.call("Bash", "t4", command="git status")
    assert first_texts(parse(log.lines))[1:] == ["Bash\ncommand: git status"]


def test_nothing_pushes_a_part_above_the_bound() -> None:
    log = Log().talk("go")
    for number in range(9):
        log.call("Write", f"t{number}", content="y" * 1900)
    parts = parse(log.lines)
    assert [len(part.segments) for part in parts] == [3, 2, 2, 2, 1]
    assert max(map(size, parts)) <= HARD


def test_a_long_record_is_split_into_consecutive_parts_and_nothing_is_dropped() -> None:
    output = "".join(f"line {number} of the output\n" for number in range(2_000))
    log = Log().talk("show it")
    log.tool("Bash", "t1", output, command="make")
    log.say("done")
    parts = parse(log.lines)
    assert max(map(size, parts)) <= HARD
    assert texts(parts, Kind.TOOL_RESULT) == [output]
    assert [part.ordinal for part in parts] == list(range(len(parts)))
    for part in parts:
        for segment in part.segments:
            assert segment.text.endswith("\n") or segment.kind is not Kind.TOOL_RESULT
    assert len({part.part_id for part in parts}) == len(parts)
    assert all(part.part_id == part_id_of(part.segments[0]) for part in parts)


def test_a_pause_ends_a_part_and_a_clock_that_goes_backwards_does_not() -> None:
    log = Log().talk("a")
    log.minute -= 600
    log.say("b")
    log.minute += 29
    log.say("c")
    log.minute += 31
    log.say("d")
    assert first_texts(parse(log.lines)) == ["a", "d"]
    now = datetime(2026, 10, 5, tzinfo=UTC)
    assert not is_pause(None, now, timedelta(0))
    assert not is_pause(now, now + timedelta(minutes=30), timedelta(minutes=30))


def test_a_part_carries_the_prompt_and_the_end_of_what_was_said_before() -> None:
    log = Log().talk("Why is the total wrong? " + "detail " * 100, "I think it is the rounding. " * 20)
    log.tool("Read", "t1", "x" * SOFT)
    log.say("It is.")
    first, second = parse(log.lines)
    assert first.lead == ""
    assert second.lead == tail("I think it is the rounding. " * 20)
    assert first.prompt == second.prompt == ("Why is the total wrong? " + "detail " * 100)[:300]


def test_the_next_part_of_a_long_statement_is_led_by_its_own_text() -> None:
    log = Log().talk("explain", "one two three four five six seven. " * 200)
    first, second = parse(log.lines)
    assert second.segments[0].kind is Kind.STATEMENT
    assert second.lead == tail(first.segments[-1].text) != ""


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
        Kind.PROMPT,
        Kind.COMMAND,
        Kind.NOTIFICATION,
        Kind.NOTIFICATION,
        Kind.STEERING,
    ]


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
