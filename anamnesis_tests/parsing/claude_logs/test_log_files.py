"""What stands in logs, and what becomes of their files: through crawl, parse and publish on a real store."""

import json
from datetime import timedelta

import pytest

from anamnesis_tests.parsing.claude_logs.sessions import TRUNK, session
from anamnesis_tests.support.ingested import LATER, OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, Log


def test_a_torn_tail_waits_and_is_then_read_once(home: Ingested) -> None:
    lines = session().lines
    whole = "".join(f"{line}\n" for line in lines).encode()
    first = home.take(whole[:-40])
    assert (first.messages, first.malformed) == (5, 0)
    assert home.ingest().bytes_read == 0, "a tail that did not change is not read again"
    assert home.grow(whole[-40:]).messages == 1
    assert home.archived() == lines
    assert home.texts().count("Refunds are issued") == 1


def test_of_a_torn_line_with_a_glued_one_the_whole_is_read(home: Ingested) -> None:
    lines = session().lines
    seen = home.take([lines[0][:60] + lines[1], *lines[2:]])
    assert (seen.messages, seen.malformed) == (5, 1)
    (letter,) = home.store.messages.dead_letters()
    assert (letter.path, letter.line) == (TRUNK, 0)
    assert letter.reason.startswith("torn: 1 whole record")
    assert "I look at the retry path." in home.texts()


@pytest.mark.parametrize("rest", ["", '{"type":"user","mess'])
def test_what_was_archived_is_parsed_though_its_file_is_empty(home: Ingested, rest: str) -> None:
    home.write(session().lines)
    home.crawl()
    home.write(rest.encode())
    home.crawl()
    idle = LATER - timedelta(days=3_650)
    assert home.store.parts.unfinished_sources(idle) != set()
    assert sum(report.messages for report in home.parse()) == 6
    home.publish()
    home.record()
    assert home.store.parts.unfinished_sources(idle) == set()
    assert home.parse()[0].lines == 0


SET_ASIDE = {
    f"{TRUNK}.orphaned-1786698001120": "orphaned",
    f"{SESSION}.orphaned-1786698001120-ab12.jsonl": "orphaned",
    f"{TRUNK}.superseded-1786698001120": "superseded",
}


@pytest.mark.parametrize("name", SET_ASIDE)
def test_a_session_that_was_set_aside_is_read(home: Ingested, name: str) -> None:
    lines = session().lines
    bare = [json.dumps({k: v for k, v in json.loads(line).items() if k != "sessionId"}) for line in lines]
    home.write(bare, name)
    home.write(session().lines, "notes.jsonl")
    assert home.take(session().lines, f"{SESSION}/subagents/workflows/wf_1/journal.jsonl").messages == 6
    episodes = home.episodes()
    assert {episode.session_id for episode in episodes} == {SESSION}
    assert {episode.metadata["set_aside"] for episode in episodes} == {SET_ASIDE[name]}
    assert all("former-version" in episode.tags for episode in episodes)


@pytest.mark.parametrize("name", SET_ASIDE)
def test_present_log_owns_what_a_former_version_repeats(home: Ingested, name: str) -> None:
    log = session()
    home.write(log.lines, name)
    kept = log.lines[:4]
    log.user("only in the present log")
    home.take([*kept, log.lines[-1]])
    former = [e for e in home.episodes() if "former-version" in e.tags]
    present = [e for e in home.episodes() if "former-version" not in e.tags]
    assert former
    assert home.store.overview.counts().messages == 7
    first = json.loads(kept[0])["uuid"]
    assert [first in e.message_ids for e in present].count(True) == 1
    assert not any(first in e.message_ids for e in former)


def test_a_file_that_shrinks_or_moves_loses_and_repeats_nothing(home: Ingested) -> None:
    log = session()
    home.take(log.lines)
    log.user("typed after the file was cut")
    seen = home.take([*log.lines[:4], log.lines[-1]])
    assert (seen.replaced, seen.messages) == (1, 1)
    path = home.path(TRUNK)
    path.unlink()
    log.user("typed after the file was replaced")
    assert home.take(log.lines).messages == 1
    moved = home.path(TRUNK, folder="-home-dev-shop-worktree")
    path.rename(moved)
    log.user("typed after the move")
    assert home.grow(log.lines[-1:], folder="-home-dev-shop-worktree").messages == 1
    prompts = [episode.metadata["prompt"] for episode in home.episodes()]
    assert len(prompts) == len(set(prompts)) == 5
    assert home.store.overview.counts().messages == 9


def test_a_replaced_file_is_not_taken_for_a_copy_of_itself(home: Ingested) -> None:
    home.take(session().lines)
    other = Log(session=OTHER)
    other.minute, other._count = 60, 50
    other.user("another session under the same name")
    home.path(TRUNK).unlink()
    seen = home.take(other.lines)
    assert (seen.messages, seen.duplicates) == (1, 0)


def test_a_deleted_log_keeps_its_archive_and_its_episodes(home: Ingested) -> None:
    lines = session().lines
    home.write(lines).unlink()
    home.take(lines)
    before = home.episodes()
    home.path(TRUNK).unlink()
    assert home.ingest().gone == 1
    assert home.episodes() == before
    assert home.archived() == lines


def test_what_editors_and_crashes_leave_stops_nothing(home: Ingested) -> None:
    lines = [line.encode() for line in session().lines]
    lines[0] = b"\xef\xbb\xbf" + lines[0]
    lines[2] = b"\0\0\0" + lines[2]
    lines[4] = lines[4].replace(b"refunds", b"ref\xff\xfeunds")
    lines[5] = b'{"type":"progress",' + lines[5][1:]
    seen = home.take(b"\r\n".join(lines) + b"\r\n\r\n")
    assert (seen.messages, seen.malformed) == (6, 0)
    assert "and ref��unds?" in home.texts()


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
