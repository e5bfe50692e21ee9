"""The points of the acceptance list that are about records, through crawl, parse and publish on a real store."""

import pytest

from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS, MEMORY_TAG, SUMMARIZER_MARK
from anamnesis_pipeline.search.quoting import fenced, one_line, quoted
from anamnesis_tests.exchanges.ingested import OTHER, Ingested
from anamnesis_tests.exchanges.log_lines import Log

BLOCK = fenced([f"- On 2026-03-05 (exchange): {quoted(one_line('Earlier you fixed the zeppelin.'))} [ep_1]"])


def test_a_reply_split_over_lines_is_each_block_once(home: Ingested) -> None:
    log = Log().talk("Why?")
    blocks = [
        {"type": "thinking", "thinking": "The retry path."},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "Grep", "input": {"pattern": "charge"}},
    ]
    for block in blocks:
        log.assistant(block, message_id="msg_01AA")
    for _ in range(2):  # written again, whole, while streaming
        log.assistant(*blocks, message_id="msg_01AA")
    seen = home.take(log.lines)
    assert (seen.messages, seen.duplicates) == (4, 6)
    (episode,) = home.episodes()
    assert episode.raw_exchange == (
        "[User]\nWhy?\n\n[Claude, thinking]\nThe retry path.\n\n[Claude]\nI look.\n\n[Tool call]\nGrep\npattern: charge"
    )


@pytest.mark.parametrize("tick", [None, 2, 3, 4])
def test_a_compaction_is_linked_and_its_summary_no_speech(home: Ingested, tick: int | None) -> None:
    log = Log()
    last = log.user("Make charges idempotent.")
    boundary = {"subtype": "compact_boundary", "parentUuid": None, "logicalParentUuid": last["uuid"]}
    first = log.record("system", content="Conversation compacted", **boundary)
    log.record("system", content="Conversation compacted", **boundary)  # written twice by some versions
    summary = "This session is being continued from a previous conversation that ran out of context. Idempotency."
    log.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True, parentUuid=first["uuid"])
    log.say("I go on.")
    home.take(log.lines[:tick])
    home.take(log.lines)
    asked, summarized, after = home.episodes()
    assert [e.kind for e in (asked, summarized, after)] == ["exchange", "compact_summary", "exchange"]
    assert len({e.metadata["exchange_id"] for e in (asked, summarized, after)}) == 1
    assert summarized.metadata["origin"] == last["uuid"] == asked.message_ids[-1]
    assert "[User" not in summarized.raw_exchange
    assert home.texts().count("Make charges idempotent.") == 1


def test_memory_that_was_put_in_is_cut_out_wherever_it_is(home: Ingested) -> None:
    log = Log()
    log.record("attachment", attachment={"type": "hook_success", "stdout": BLOCK})
    log.user(f"{BLOCK}\nWhy is it late?")
    log.user(f"<system-reminder>{BLOCK}</system-reminder>")
    log.call("Bash", "toolu_1", command=f"echo '{BLOCK}' | wc")
    log.result("toolu_1", [{"type": "text", "text": f"before {BLOCK} between {BLOCK} after"}])
    log.say(f"As I read: {BLOCK}")
    log.user(f"{MEMORY_BEGINS} is how it begins, it is not closed here")
    log.user(f'An example: <{MEMORY_TAG} id="42">any words{MEMORY_ENDS}')
    seen = home.take(log.lines)
    assert seen.skipped["own:memory"] == 7
    assert "zeppelin" not in home.texts()
    kept = ("Why is it late?", "echo '' | wc", "before  between  after", "As I read:", "is how it begins", "any words")
    assert [text for text in kept if text not in home.texts()] == []


@pytest.mark.parametrize("tick", [None, 1, 3])
def test_a_transcript_of_a_summarizers_call_yields_nothing(home: Ingested, tick: int | None) -> None:
    own = Log(session=OTHER)
    own._count = 100
    own.record("queue-operation", operation="enqueue", content="x")
    own.user(f"{SUMMARIZER_MARK}\nSummarize: we fixed the zeppelin.")
    own.say("The zeppelin was fixed.")
    own.user("again, please")
    about = Log().talk(f"Where is the mark defined? I mean {SUMMARIZER_MARK}")
    about.tool("Grep", "toolu_1", f"model.py: {SUMMARIZER_MARK}", pattern="mark")
    home.write(about.lines)
    first = home.take(own.lines[:tick], f"{OTHER}.jsonl")
    second = home.take(own.lines, f"{OTHER}.jsonl")
    assert first.skipped["own:summarizer"] + second.skipped["own:summarizer"] == 3
    assert "zeppelin" not in home.texts()
    assert SUMMARIZER_MARK in home.texts(), "only a session that begins with it is one of ours"
    assert len(home.archived(f"{OTHER}.jsonl")) == 4


def test_each_sender_in_a_user_record_has_a_speaker_of_its_own(home: Ingested) -> None:
    log = Log()
    log.user('<channel source="chat" user="mira">\nmove the export\n</channel>', isMeta=True)
    log.user('Another Claude session sent a message:\n<agent-message from="a17">\ndone\n</agent-message>')
    log.user("go on", promptSource="system")
    log.record("system", subtype="away_summary", content="It was moved.")
    home.take(log.lines)
    (episode,) = home.episodes()
    assert episode.metadata["prompt"] == "move the export"
    assert episode.raw_exchange == (
        "[User, through a channel (mira)]\nmove the export\n\n[Message of another session or agent (a17)]\ndone\n\n"
        "[Prompt sent by Claude Code]\ngo on\n\n[Recap made by Claude Code]\nIt was moved."
    )
