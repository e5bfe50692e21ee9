import base64
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from anamnesis_pipeline.exchanges.log_lines import read_records
from anamnesis_pipeline.exchanges.parsing import read_messages
from anamnesis_pipeline.exchanges.records import LoggedMessage
from anamnesis_pipeline.model import SegmentKind as Kind
from anamnesis_tests.exchanges.log_lines import Log

SAMPLES = Path(__file__).parents[1] / "fixtures/record_families.jsonl"
RECORD = {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "why?"}}
LINE = json.dumps(RECORD)


def read(log: Log) -> list[LoggedMessage]:
    return list(read_messages(log.lines, 0).messages)


def kinds_and_texts(log: Log) -> list[tuple[Kind, str]]:
    return [(logged.message.kind, logged.message.text) for logged in read(log)]


# --- lines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [LINE + "\r", "\ufeff" + LINE, f"  {LINE}\t"])
def test_what_editors_and_crashes_leave_around_a_record_is_ignored(line: str) -> None:
    assert read_records(line) == ([RECORD], False)


@pytest.mark.parametrize("line", ["", "   ", "\r"])
def test_an_empty_line_is_neither_a_record_nor_damage(line: str) -> None:
    assert read_records(line) == ([], False)


@pytest.mark.parametrize("line", ["{", "nonsense", "[1, 2]", '"text"', LINE[:-1], "{" * 5_000, "[" * 100_000])
def test_a_malformed_line_is_counted_and_never_fatal(line: str) -> None:
    assert read_records(line) == ([], True)
    assert read_messages([line, LINE], 0).malformed == 1
    assert len(read_messages([line, LINE], 0).messages) == 1


@pytest.mark.parametrize("length", range(1, len(LINE)))
def test_a_record_glued_to_a_torn_one_is_recovered_wherever_the_tear_is(length: int) -> None:
    whole = json.dumps({"parentUuid": None, "type": "user", "message": {"content": [{"type": "text", "text": "x"}]}})
    records, damaged = read_records(LINE[:length] + whole)
    assert records == [json.loads(whole)]
    assert damaged


def test_nothing_inside_a_torn_record_passes_for_a_record() -> None:
    torn = '{"type":"assistant","message":{"content":[{"type":"text","text":"half"}],"usage":{"input_tok'
    assert read_records(torn) == ([], True)
    assert read_records(torn + LINE) == ([RECORD], True)


def test_two_whole_records_on_one_line_are_both_read() -> None:
    assert read_records(LINE + LINE) == ([RECORD, RECORD], False)


def test_a_damaged_line_of_many_megabytes_is_given_up_after_bounded_work() -> None:
    assert read_records('{"a":[' + '{"b":1},' * 500_000) == ([], True)


def test_control_characters_inside_a_string_are_tolerated() -> None:
    assert read_records('{"type":"user","content":"a\tb\x01"}') == ([{"type": "user", "content": "a\tb\x01"}], False)


def test_of_duplicate_keys_the_last_counts() -> None:
    assert read_records('{"type":"progress","type":"user"}') == ([{"type": "user"}], False)


def test_lone_surrogates_become_replacement_characters_and_pairs_stay() -> None:
    records, _ = read_records(r'{"type":"user","content":"a\ud83d b\ud83d\ude00 \\ud83d"}')
    assert records[0]["content"] == "a\ufffd b\U0001f600 \\ud83d"
    assert read_records('{"content":"\udc9f"}')[0] == [{"content": "\ufffd"}]


# --- user records ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Why does this fail?", Kind.PROMPT),
        ("<div> is not closed, fix it", Kind.PROMPT),
        ("<command-name>/model</command-name>", Kind.COMMAND),
        ("<local-command-stdout>ok</local-command-stdout>", Kind.COMMAND),
        ("<bash-input>ls</bash-input>", Kind.COMMAND),
        ("  <bash-stdout>a.py</bash-stdout>", Kind.COMMAND),
        ("<task-notification>\n<task-id>b1</task-id>", Kind.NOTIFICATION),
        ("<task-notification>done</task-notification>\nRead the output file to retrieve it: /a", Kind.NOTIFICATION),
        ("[SYSTEM NOTIFICATION - NOT USER INPUT]\nmonitor: CI failed", Kind.NOTIFICATION),
        ("[Request interrupted by user for tool use]", Kind.NOTIFICATION),
        (
            "This session is being continued from a previous conversation that ran out of context. So",
            Kind.COMPACT_SUMMARY,
        ),
    ],
)
def test_a_user_text_is_classified_by_its_markup_and_kept_verbatim(text: str, kind: Kind) -> None:
    log = Log()
    log.user(text)
    log.user([{"type": "text", "text": text}])
    assert kinds_and_texts(log) == [(kind, text), (kind, text)]


def test_a_reminder_beside_typed_text_is_not_the_users_speech() -> None:
    log = Log()
    log.user("<system-reminder>be brief</system-reminder> and now: why?")
    assert kinds_and_texts(log) == [(Kind.PROMPT, "and now: why?")]


@pytest.mark.parametrize(
    "text",
    [
        "<user-prompt-submit-hook>run the linter</user-prompt-submit-hook>",
        "<ide_opened_file>The user opened a.py</ide_opened_file>",
        "<ide_selection>lines 1 to 3</ide_selection>",
        "Stop hook feedback:\n- tests failed",
        "Caveat: The messages below were generated by the user while running local commands.",
    ],
)
def test_what_hooks_and_editors_add_is_not_the_users_speech(text: str) -> None:
    log = Log()
    log.user(text)
    assert kinds_and_texts(log) == []


@pytest.mark.parametrize("tag", ["ide_selection", "ide_opened_file", "system-reminder", "user-prompt-submit-hook"])
def test_what_is_typed_beside_it_is(tag: str) -> None:
    log = Log()
    log.user(f"<{tag}>lines 1 to 3</{tag}>\nWhy does this fail?")
    log.user(f"And this?\n<{tag}>lines 4 to 6</{tag}>")
    log.user(f"What does <{tag}> mean?")
    wanted = ["Why does this fail?", "And this?", f"What does <{tag}> mean?"]
    assert kinds_and_texts(log) == [(Kind.PROMPT, text) for text in wanted]
    assert read_messages(log.lines, 0).skipped == {"user:injected": 2}


@pytest.mark.parametrize("text", ["the words of a file " * 20, "one\ttwo\t3\n" * 40, "0123456789abcdef" * 40])
def test_words_and_figures_are_no_bytes_of_a_file(text: str) -> None:
    log = Log()
    log.call("Write", "toolu_1", data=text)
    assert kinds_and_texts(log) == [(Kind.TOOL_INPUT, f"Write\ndata: {text}")]


def test_injected_text_is_skipped_and_counted() -> None:
    log = Log()
    log.user("Caveat: generated by local commands", isMeta=True)
    log.user("<system-reminder>\nrelevant memories\n</system-reminder>\n<system-reminder>x</system-reminder>")
    log.record("attachment", attachment={"type": "hook_additional_context", "content": "3 relevant memories"})
    batch = read_messages(log.lines, 0)
    assert batch.messages == ()
    assert batch.skipped == {"user:meta": 1, "user:injected": 2, "attachment:hook_additional_context": 1}


def test_a_compaction_pair_yields_a_summary_that_is_no_user_speech() -> None:
    log = Log()
    log.record("system", subtype="compact_boundary", content="Conversation compacted", logicalParentUuid="uuid-0")
    log.user("Summary of what was said", isCompactSummary=True, isVisibleInTranscriptOnly=True)
    assert kinds_and_texts(log) == [(Kind.COMPACT_SUMMARY, "Summary of what was said")]
    assert read_messages(log.lines, 0).skipped == {"system:compact_boundary": 1}


def test_text_sent_by_the_client_itself_is_a_notification() -> None:
    log = Log()
    log.user("Agent finished", origin={"kind": "task-notification"})
    log.user("typed", origin={"kind": "human"})
    assert [kind for kind, _ in kinds_and_texts(log)] == [Kind.NOTIFICATION, Kind.PROMPT]


def test_text_and_image_typed_together_are_one_prompt_without_the_bytes() -> None:
    data = base64.b64encode(b"\x89PNG" * 100).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    log = Log()
    log.user([{"type": "text", "text": "what is wrong here?"}, image])
    digest = hashlib.sha256(b"\x89PNG" * 100).hexdigest()[:12]
    assert kinds_and_texts(log) == [
        (Kind.PROMPT, f"what is wrong here?\n[image image/png, 400 bytes, sha256 {digest}]")
    ]


def test_images_and_documents_never_bring_their_base64_wherever_they_stand() -> None:
    data = base64.b64encode(bytes(range(256)) * 40).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    document = {"type": "document", "title": "invoice", "source": source}
    log = Log()
    log.result("t1", [{"type": "text", "text": "page 1"}, document])
    log.result("t2", {"file": {"data": data}})
    log.call("Upload", "t3", files=[document], source=source, data=data, note="kept")
    log.user([document, {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}])
    whole = "\n".join(text for _, text in kinds_and_texts(log))
    assert data[:60] not in whole
    assert whole.count("10240 bytes, sha256 ") == 6
    assert "page 1" in whole
    assert "note: kept" in whole
    assert "[image https://example.org/a.png]" in whole


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "tool_reference", "tool_name": "mcp__x"}], '{"type":"tool_reference","tool_name":"mcp__x"}'),
        (["bare"], "bare"),
    ],
)
@pytest.mark.parametrize("rich", [{"stdout": "x"}, "text", ["a"], None])
def test_a_tool_result_is_read_whatever_its_shape(content: object, text: str, rich: object) -> None:
    log = Log()
    block = {"type": "tool_result", "tool_use_id": "t1", "content": content}
    log.user([block], toolUseResult=rich)
    log.user([{**block, "tool_use_id": "t2", "is_error": True}], toolUseResult=rich)
    assert kinds_and_texts(log) == [(Kind.TOOL_RESULT, text), (Kind.TOOL_ERROR, text)]


@pytest.mark.parametrize("content", [None, "", " \n ", []])
def test_empty_texts_yield_no_message(content: object) -> None:
    log = Log()
    log.result("t1", content)
    log.user(content)
    log.assistant({"type": "thinking", "thinking": "", "signature": "Eq"}, {"type": "text", "text": "\n"})
    assert read(log) == []


# --- assistant records -----------------------------------------------------------------------------------


def test_a_tool_input_shows_its_strings_as_they_are() -> None:
    log = Log()
    log.call("Edit", "t1", file_path="/a.py", new_string='print("hi")\n\tpass', replace_all=False, lines=[1, 2])
    log.call("MultiEdit", "t2", edits=[{"old": "a\nb", "new": "c"}])
    assert [text for _, text in kinds_and_texts(log)] == [
        'Edit\nfile_path: /a.py\nnew_string: print("hi")\n\tpass\nreplace_all: false\nlines: [1,2]',
        "MultiEdit\nedits[0].old: a\nb\nedits[0].new: c",
    ]


def test_replies_made_by_the_client_are_skipped_and_counted() -> None:
    log = Log()
    log.assistant({"type": "text", "text": "API Error: Overloaded"}, isApiErrorMessage=True)
    log.assistant({"type": "text", "text": "limit reached"}, reply={"model": "<synthetic>"})
    batch = read_messages(log.lines, 0)
    assert batch.messages == ()
    assert batch.skipped == {"assistant:synthetic": 2}


def test_a_reply_split_over_lines_is_the_same_messages_as_one_with_all_blocks() -> None:
    blocks = [
        {"type": "thinking", "thinking": "look first"},
        {"type": "text", "text": "look first"},
        {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}},
        {"type": "tool_use", "id": "t2", "name": "Read", "input": {"path": "a"}},
    ]
    whole, split = Log(), Log()
    whole.assistant(*blocks, message_id="msg-1")
    for block in blocks:
        split.assistant(block, message_id="msg-1")
    keys = [logged.message.key for logged in read(whole)]
    assert keys == [logged.message.key for logged in read(split)]
    assert len(set(keys)) == 4


def test_messages_of_one_record_never_share_a_key() -> None:
    log = Log()
    log.user([{"type": "text", "text": "[Request interrupted by user]"}, {"type": "text", "text": "go on"}])
    log.assistant({"type": "text", "text": "a"}, {"type": "thinking", "thinking": "a"}, reply={"id": None})
    keys = [logged.message.key for logged in read(log)]
    assert len(set(keys)) == len(keys) == 4


def test_a_legacy_record_with_role_and_content_on_top_is_read() -> None:
    lines = ['{"role":"user","content":"old\\nprompt"}', '{"role":"assistant","content":"old reply"}']
    found = [logged.message for logged in read_messages(lines, 0).messages]
    assert [(message.kind, message.text) for message in found] == [
        (Kind.PROMPT, "old\nprompt"),
        (Kind.STATEMENT, "old reply"),
    ]
    assert all(message.key.startswith("h:") for message in found)


def test_a_prompt_queued_during_work_is_steering_and_its_queue_record_is_skipped() -> None:
    log = Log()
    log.record("queue-operation", operation="enqueue", content="also check refunds")
    log.record("attachment", attachment={"type": "queued_command", "prompt": "also check refunds"})
    prompt = [{"type": "text", "text": "and taxes"}]
    log.record("attachment", attachment={"type": "queued_command", "prompt": prompt})
    note = "<task-notification>done</task-notification>"
    log.record("attachment", attachment={"type": "queued_command", "prompt": note})
    assert kinds_and_texts(log) == [
        (Kind.STEERING, "also check refunds"),
        (Kind.STEERING, "and taxes"),
        (Kind.NOTIFICATION, note),
    ]


# --- every family ----------------------------------------------------------------------------------------


def test_every_record_family_is_either_a_message_or_counted() -> None:
    lines = SAMPLES.read_text(encoding="utf-8").splitlines()
    batch = read_messages(lines, 0)
    assert Counter(logged.message.kind for logged in batch.messages) == {
        Kind.PROMPT: 1, Kind.STATEMENT: 1, Kind.THINKING: 1, Kind.TOOL_INPUT: 2, Kind.TOOL_RESULT: 2,
        Kind.COMMAND: 2, Kind.STEERING: 1, Kind.COMPACT_SUMMARY: 1,
    }  # fmt: skip
    assert batch.skipped["unknown:zz-future-record"] == 1
    assert batch.skipped["progress"] == 2
    assert batch.skipped["file-history-snapshot"] == batch.skipped["file-history-delta"] == 1
    lines_with_messages = {logged.line for logged in batch.messages}
    assert len(lines_with_messages) + sum(batch.skipped.values()) == len(lines)
    assert batch.malformed == 0


@pytest.mark.parametrize("value", [None, 3, "text", [], {}, [None], [[]], {"type": 3}])
@pytest.mark.parametrize("field", ["type", "message", "uuid", "timestamp", "attachment", "cwd", "origin", "isMeta"])
def test_a_field_of_any_shape_is_survived(field: str, value: object) -> None:
    for kind in ("user", "assistant", "attachment", "system"):
        record = {"type": kind, "message": {"content": [{"type": "text", "text": "x"}]}, field: value}
        read_messages([json.dumps(record), json.dumps({"type": kind, "message": {"content": value}})], 0)


READ = "     1\tThe client writes\n     2\t<system-reminder>\n     3\tlike this\n     4\t</system-reminder>"


@pytest.mark.parametrize("tag", ["system-reminder", "ide_selection"])
def test_what_the_client_adds_to_a_tools_output_is_left_out_and_what_the_output_quotes_stays(tag: str) -> None:
    added = f"<{tag}>\nThe file may be malicious.\n</{tag}>"
    log = Log()
    log.result("toolu_1", f"{READ}\n\n{added}\n")
    log.result("toolu_2", f"{added}\n    indented\n{added}\nand more")
    log.result("toolu_3", [{"type": "text", "text": f"one\n{added}"}, {"type": "text", "text": added}], is_error=True)
    log.result("toolu_4", added)
    log.result("toolu_5", f"it said {added}")
    assert kinds_and_texts(log) == [
        (Kind.TOOL_RESULT, READ),
        (Kind.TOOL_RESULT, f"    indented\n{added}\nand more"),
        (Kind.TOOL_ERROR, "one"),
        (Kind.TOOL_RESULT, f"it said {added}"),
    ]
    assert read_messages(log.lines, 0).skipped == {"user:injected": 5}


STOP_HOOK = "Stop hook feedback: what does that line in the log mean?"
TYPED: list[dict[str, object]] = [
    {"promptSource": "typed"},
    {"promptSource": "queued", "version": "2.0.1"},
    {"origin": {"kind": "human"}},
    {"permissionMode": "default", "version": "2.1.20"},
    {"version": "2.1.240"},
]
INJECTED: list[dict[str, object]] = [
    {},
    {"version": "2.0.76"},
    {"version": "2.1.240", "promptSource": "system"},
    {"version": "2.1.240", "isMeta": True},
    {"version": ["2.1.240"]},
]


@pytest.mark.parametrize("fields", TYPED)
def test_a_typed_prompt_stays_however_it_begins(fields: dict[str, object]) -> None:
    log = Log()
    log.user(STOP_HOOK, **fields)
    assert kinds_and_texts(log) == [(Kind.PROMPT, STOP_HOOK)]


@pytest.mark.parametrize("fields", INJECTED)
def test_feedback_of_a_hook_is_no_prompt_where_nothing_says_that_it_was_typed(fields: dict[str, object]) -> None:
    log = Log()
    log.user(STOP_HOOK, **fields)
    assert kinds_and_texts(log) == []
