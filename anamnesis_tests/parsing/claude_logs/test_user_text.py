"""Whose words a user record holds, by what Claude Code of 2026 writes around them."""

from collections import Counter
from typing import Any

import pytest

from anamnesis_pipeline.model import SegmentKind as Kind
from anamnesis_pipeline.parsing.claude_logs.parser import read_messages
from anamnesis_tests.support.log_lines import Log, parse, texts

ADVICE = (
    "\n\nThis came from another Claude session — not typed by your user, but very likely working on their behalf. "
    "Treat it as a teammate's request."
)
PEER = '<cross-session-message from="uds:/tmp/cc/1.sock" from-name="ops" from-mode="prompting">\nwe deploy\n'
TEAM = '<teammate-message teammate_id="rev" color="blue">\nI drop the table\n</teammate-message>'
CHANNEL = '<channel source="plugin:telegram:telegram" chat_id="42" message_id="7" user="mira">\nmove it to 03:15\n'
SKILL = "Base directory for this skill: /home/dev/.claude/skills/plan\n\n# Planning\n\nWrite down each step."


def said(content: Any, **fields: Any) -> list[tuple[Kind, str, str]]:
    log = Log()
    log.user(content, **fields)
    messages = [logged.message for logged in read_messages(log.lines, 0).messages]
    return [(message.kind, message.text, message.sender) for message in messages]


@pytest.mark.parametrize("introduced", ["", "Another Claude session sent a message:\n"])
@pytest.mark.parametrize("advice", ["", ADVICE])
@pytest.mark.parametrize("marks", [{}, {"isMeta": True, "origin": {"kind": "peer"}, "promptSource": "system"}])
def test_message_of_another_session_is_of_its_sender(introduced: str, advice: str, marks: dict[str, Any]) -> None:
    text = f"{introduced}{PEER}</cross-session-message>{advice}"
    assert said(text, **marks) == [(Kind.PEER, "we deploy", "ops")]
    assert said(f"{introduced}{TEAM}{advice}", **marks) == [(Kind.PEER, "I drop the table", "rev")]
    agent = '<agent-message from="a17">\nDone: 14 files\n</agent-message>'
    assert said([{"type": "text", "text": f"{introduced}{agent}{advice}"}], **marks) == [
        (Kind.PEER, "Done: 14 files", "a17")
    ]


def test_messages_delivered_together_are_each_of_their_sender() -> None:
    other = '<teammate-message teammate_id="dev">\nwait\n</teammate-message>'
    assert said(f"{TEAM}\n\n{other}") == [(Kind.PEER, "I drop the table", "rev"), (Kind.PEER, "wait", "dev")]


def test_message_that_quotes_its_own_closing_tag_is_whole() -> None:
    text = f"{PEER}</cross-session-message> is how it ends\n</cross-session-message>"
    assert said(text) == [(Kind.PEER, "we deploy\n</cross-session-message> is how it ends", "ops")]


def test_what_a_marked_delivery_ends_with_is_the_clients() -> None:
    text = f"{PEER}</cross-session-message>\n\nAn advice of a later version."
    for marks in ({"isMeta": True}, {"origin": {"kind": "peer"}}, {"promptSource": "system"}):
        assert said(text, **marks) == [(Kind.PEER, "we deploy", "ops")]
    assert said(text) == [(Kind.PROMPT, text, "")]


def test_name_of_a_sender_is_written_plain() -> None:
    text = '<channel source="chat" user="Anne &amp; Bob &lt;x&gt;">\nhi\n</channel>'
    assert said(text, isMeta=True) == [(Kind.CHANNEL, "hi", "Anne & Bob x")]


def test_message_without_tag_is_known_by_its_frame_or_origin() -> None:
    framed = f"Another Claude session sent a message:\nRun the tests{ADVICE}"
    assert said(framed) == [(Kind.PEER, "Run the tests", "")]
    assert said("Run the tests", isMeta=True, origin={"kind": "peer", "name": "lead\n[x]"}) == [
        (Kind.PEER, "Run the tests", "lead x")
    ]
    asked = "The coordinator sent a message while you were working:\nstop"
    advice = "\n\nAddress this before completing your current task."
    assert said(asked + advice, origin={"kind": "coordinator"}, isSidechain=True) == [(Kind.PEER, "stop", "")]


@pytest.mark.parametrize(
    "text",
    [
        "Another Claude session sent a message: what does that sentence mean?",
        "<teammate-message> is a tag, is it not?",
        f"{TEAM}\nwhat does this mean?",
        f"Why do I get this?\n{TEAM}",
        "<command-name> is what it records, why?",
        "<task-notification> what is that?",
        "Base directory for this skill: what is that?",
        "<fork-boilerplate> never ends?",
        "Implement the following plan: none",
    ],
)
@pytest.mark.parametrize("marks", [{}, {"origin": {"kind": "human"}}, {"promptSource": "typed"}])
def test_person_who_quotes_a_tag_keeps_the_words(text: str, marks: dict[str, Any]) -> None:
    assert said(text, **marks) == [(Kind.PROMPT, text, "")]


@pytest.mark.parametrize("text", [TEAM, SKILL, f"{CHANNEL}</channel>", "<task-notification>x</task-notification>"])
@pytest.mark.parametrize("marks", [{"origin": {"kind": "human"}}, {"promptSource": "queued"}])
def test_whole_block_that_a_person_typed_is_theirs(text: str, marks: dict[str, Any]) -> None:
    assert said(text, **marks) == [(Kind.PROMPT, text, "")]


@pytest.mark.parametrize("marks", [{"isMeta": True}, {"isMeta": True, "origin": {"kind": "channel"}}, {}])
def test_prompt_through_a_channel_is_its_senders_without_wrapper(marks: dict[str, Any]) -> None:
    assert said(f"{CHANNEL}</channel>", **marks) == [(Kind.CHANNEL, "move it to 03:15", "mira")]


def test_each_channel_prompt_heads_an_exchange() -> None:
    log = Log()
    log.user(f"{CHANNEL}</channel>", isMeta=True)
    log.say("Moved.")
    log.user(f"{CHANNEL.replace('03:15', '04:00')}</channel>", isMeta=True)
    log.say("Moved again.")
    assert [part.prompt for part in parse(log.lines)] == ["move it to 03:15", "move it to 04:00"]


def test_queued_prompts_are_attributed_like_others() -> None:
    log = Log()
    for payload in (
        {"prompt": f"{CHANNEL}</channel>", "origin": {"kind": "channel"}, "isMeta": True},
        {"prompt": "from a mate", "origin": {"kind": "peer", "name": "rev"}, "isMeta": True},
        {"prompt": "it ended", "commandMode": "task-notification"},
        {"prompt": "continue", "origin": {"kind": "auto-continuation"}},
        {"prompt": "typed", "origin": {"kind": "human"}},
    ):
        log.record("attachment", attachment={"type": "queued_command", **payload})
    messages = [logged.message for logged in read_messages(log.lines, 0).messages]
    assert [(message.kind, message.text) for message in messages] == [
        (Kind.CHANNEL, "move it to 03:15"),
        (Kind.PEER, "from a mate"),
        (Kind.NOTIFICATION, "it ended"),
        (Kind.MACHINE_PROMPT, "continue"),
        (Kind.STEERING, "typed"),
    ]


@pytest.mark.parametrize(
    "marks",
    [
        {"promptSource": "system"},
        {"isMeta": True, "promptSource": "system", "scheduledTaskId": "t1"},
        {"isMeta": True, "turnOrigin": "scheduled"},
        {"isMeta": True, "origin": {"kind": "auto-continuation"}},
        {"origin": {"kind": "a-kind-of-tomorrow"}},
    ],
)
def test_prompt_of_the_program_is_no_prompt_of_the_user(marks: dict[str, Any]) -> None:
    assert said("Check the nightly run.", **marks) == [(Kind.MACHINE_PROMPT, "Check the nightly run.", "")]


def test_recap_and_fired_schedule_are_kept() -> None:
    log = Log().talk("arm the nightly check")
    log.record("system", subtype="scheduled_task_fire", content="Running scheduled task (Jun 7 5:28am)")
    log.user("reply PEONY", isMeta=True, promptSource="system", scheduledTaskId="t1")
    log.record("system", subtype="away_summary", content="It was armed. (disable recaps in /config)")
    (part,) = parse(log.lines)
    assert part.prompt == "arm the nightly check"
    assert texts([part], Kind.NOTIFICATION) == ["Running scheduled task (Jun 7 5:28am)"]
    assert texts([part], Kind.MACHINE_PROMPT) == ["reply PEONY"]
    assert texts([part], Kind.RECAP) == ["It was armed."]


@pytest.mark.parametrize("ticks", [(), (1,), (2,), (1, 2)])
def test_fired_prompt_without_marks_is_known_by_the_record_before(ticks: tuple[int, ...]) -> None:
    log = Log().talk("arm the nightly check")
    fire = log.record("system", subtype="scheduled_task_fire", content="Claude resuming /loop wakeup")
    log.user("Nightly check: run the tests", isMeta=True, parentUuid=fire["uuid"])
    log.user("Continue from where you left off.", isMeta=True, parentUuid="another")
    parts = parse(log.lines, ticks=ticks)
    assert texts(parts, Kind.MACHINE_PROMPT) == ["Nightly check: run the tests"]
    assert len(texts(parts)) == 3


def test_accepted_plan_is_the_models_and_the_remark_the_users() -> None:
    plan = "# Plan: one table\n\nMerge both tables."
    text = f"Implement the following plan:\n\n{plan}\n\nIf you need details, read /t.jsonl"
    for marks in ({}, {"promptSource": "typed"}):
        assert said(text, planContent=plan, **marks) == [(Kind.PLAN, plan, "")]
    with_remark = f"{text}\n\nUser feedback on this plan: keep the old names"
    assert said(with_remark, planContent=plan) == [(Kind.PLAN, plan, ""), (Kind.STEERING, "keep the old names", "")]
    log = Log().talk("plan it")
    log.user(with_remark, planContent=plan)
    assert [part.prompt for part in parse(log.lines)] == ["plan it", plan]


def test_body_of_a_skill_is_of_its_file_and_counts_once() -> None:
    log = Log().talk(SKILL)
    log.user([{"type": "text", "text": f"{SKILL}\n\nARGUMENTS: 1.2"}], isMeta=True)
    log.user([{"type": "text", "text": "# Authoring"}], isMeta=True, sourceToolUseID="toolu_1")
    found = [logged.message for logged in read_messages(log.lines, 0).messages]
    assert [(message.kind, message.text) for message in found] == [
        (Kind.SKILL, SKILL),
        (Kind.SKILL, SKILL),
        (Kind.SKILL, "# Authoring"),
    ]
    assert found[0].key == found[1].key != found[2].key
    assert texts(parse(log.lines)) == [SKILL, "# Authoring"]


def test_what_the_client_adds_for_itself_is_left_out_and_counted() -> None:
    log = Log()
    log.user("Continue from where you left off.", isMeta=True, promptSource="typed")
    log.user(
        [{"type": "image", "source": {}}, {"type": "text", "text": "[Image: source: /a.png]"}],
        isMeta=True,
        sourceToolUseID="toolu_1",
    )
    batch = read_messages(log.lines, 0)
    assert batch.messages == ()
    assert batch.skipped == Counter({"user:meta": 3})


def test_image_sent_through_a_channel_is_of_the_same_sender() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    content = [{"type": "text", "text": f"{CHANNEL}</channel>"}, image]
    assert said(content, isMeta=True, origin={"kind": "channel"}) == [
        (Kind.CHANNEL, "move it to 03:15\n[image https://example.org/a.png]", "mira")
    ]


def test_many_deliveries_that_are_not_closed_are_nobodys() -> None:
    text = TEAM[:-1] * 20_000 + "</teammate-message>" * 20_000 + " so it says"
    assert [kind for kind, _, _ in said(text)] == [Kind.PROMPT]
    attributes = "<channel" + ' a="b"' * 100_000
    assert said(attributes) == [(Kind.PROMPT, attributes, "")]
