"""The points of the acceptance list that are about files: each through crawl, parse and publish on a real store."""

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from anamnesis_pipeline.model import SegmentKind
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.sqlite.opening import open_sqlite
from anamnesis_tests.exchanges.ingested import LATER, OTHER, Ingested
from anamnesis_tests.exchanges.log_lines import SESSION, Log

TRUNK = f"{SESSION}.jsonl"


@pytest.fixture
def home(store: Store, tmp_path: Path) -> Ingested:
    return Ingested(store, tmp_path)


def session() -> Log:
    log = Log()
    log.user("Why do webhook retries double-charge?")
    log.assistant({"type": "text", "text": "I look at the retry path."}, message_id="msg_01AA")
    log.tool("Grep", "toolu_01Qx", "billing.py:13: pay(order)", pattern="charge")
    log.user("and refunds?")
    log.say("Refunds are issued in one place only.")
    return log


def changed(lines: list[str], **fields: object) -> list[str]:
    return [json.dumps(json.loads(line) | fields) for line in lines]


def with_new_uuids(lines: list[str]) -> list[str]:
    return [json.dumps(json.loads(line) | {"uuid": f"rewritten-{n}"}) for n, line in enumerate(lines)]


def test_01_a_record_of_an_unknown_type_is_archived_as_it_is_and_counted(home: Ingested) -> None:
    log = session()
    log.lines.append('{"type":"zz-future-record","payload":{"x":1}}')
    home.write(log.lines)
    assert home.ingest().skipped["unknown:zz-future-record"] == 1
    assert home.archived() == log.lines


def test_02_a_torn_tail_waits_until_it_is_complete_and_is_then_read_once(home: Ingested) -> None:
    lines = session().lines
    whole = "".join(f"{line}\n" for line in lines).encode()
    home.write(whole[:-40])
    first = home.ingest()
    assert (first.messages, first.malformed) == (5, 0)
    assert home.ingest().bytes_read == 0, "a tail that did not change is not read again"
    home.append(whole[-40:])
    assert home.ingest().messages == 1
    assert home.archived() == lines
    assert home.texts().count("Refunds are issued") == 1


def test_03_of_a_line_that_was_torn_and_glued_to_the_next_the_whole_record_is_read(home: Ingested) -> None:
    lines = session().lines
    home.write([lines[0][:60] + lines[1], *lines[2:]])
    seen = home.ingest()
    assert (seen.messages, seen.malformed) == (5, 1)
    (letter,) = home.store.ingest.dead_letters()
    assert (letter.path, letter.line) == (TRUNK, 0)
    assert letter.reason.startswith("torn: 1 whole record")
    assert "I look at the retry path." in home.texts()


COPIES = {
    "resumed into a new file": lambda lines: changed(lines, sessionId=OTHER),
    "fork": lambda lines: changed(lines, sessionId=OTHER, forkedFrom={"sessionId": SESSION}),
    "branch that writes every message twice": lambda lines: [
        twin for line in changed(lines, sessionId=OTHER) for twin in (line, *changed([line], forkedFrom={"x": 1}))
    ],
    "moved to the background": lambda lines: changed(lines, sessionId=OTHER, sessionKind="bg"),
    "rewritten by an upgrade": lambda lines: changed(lines, version="2.1.299", gitBranch="x", slug="quiet-otter"),
    "rewritten with new uuids": with_new_uuids,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("same_run", [True, False])
def test_06_a_copy_adds_no_message_and_the_earliest_session_keeps_it(home: Ingested, how: str, same_run: bool) -> None:
    lines = session().lines
    home.write(lines)
    if not same_run:
        home.ingest()
    copied = COPIES[how](lines)
    home.write(copied, f"{OTHER}.jsonl", folder="-another-folder" if not same_run else "-home-dev-shop")
    home.ingest()
    counts = home.store.ingest.counts()
    assert (counts.messages, counts.occurrences) == (6, len(copied))
    assert {episode.path.rpartition("/")[2] for episode in home.episodes()} == {TRUNK}
    assert home.texts().count("Why do webhook retries double-charge?") == 1
    keys = [key for episode in home.episodes() for key in episode.message_keys]
    found = {(o.path, o.line): o.message_key for _, o in home.store.ingest.occurrences_of(keys)}
    assert len(found) == len(copied), "each line is remembered under the key that its message has"
    assert {path for path, _ in found} == {f"{OTHER}.jsonl"}


@pytest.mark.parametrize("mark", [{"forkedFrom": {"sessionId": SESSION}}, {"sessionKind": "bg"}])
def test_06_an_original_that_went_on_after_its_fork_keeps_its_messages(home: Ingested, mark: dict[str, object]) -> None:
    log = session()
    home.write(changed(log.lines, sessionId=OTHER, **mark), f"{OTHER}.jsonl")
    log.say("The original goes on.")
    home.write(log.lines)
    home.ingest()
    assert {episode.path.rpartition("/")[2] for episode in home.episodes()} == {TRUNK}
    assert home.store.ingest.counts().occurrences == 6


def fork_of(lines: list[str], own: str, **mark: object) -> list[str]:
    """A copy under another session's name, which went on by itself."""
    log = Log(session=OTHER)
    log.minute, log._count = 60, 500
    log.user(own)
    return [*changed(lines, sessionId=OTHER, **mark), *log.lines]


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("mark", [{"forkedFrom": {"sessionId": SESSION}}, {"sessionKind": "bg"}])
@pytest.mark.parametrize("ticks", [1, 2, 5])
def test_06_a_fork_in_another_folder_gives_back_what_it_had_before_its_original(
    home: Ingested, mark: dict[str, object], ticks: int, twice: bool
) -> None:
    lines = session().lines
    copies = fork_of(lines, "The fork goes on.", **mark)
    if twice:
        copies = [twin for copy in copies for twin in (copy, json.dumps({**json.loads(copy), **dict.fromkeys(mark)}))]
        copies = [line.replace('"forkedFrom": null, ', "").replace('"sessionKind": null, ', "") for line in copies]
    home.write(copies, f"{OTHER}.jsonl", folder="-another-folder")
    home.ingest()
    for end in range(ticks, len(lines) + ticks, ticks):
        home.write(lines[:end])
        home.ingest()
    found = {(e.path.rpartition("/")[2], e.raw_exchange) for e in home.episodes()}
    assert (f"{OTHER}.jsonl", "[User]\nThe fork goes on.") in found
    assert {name for name, text in found if "The fork goes on." not in text} == {TRUNK}
    for text in ("double-charge?", "I look at the retry path.", "pay(order)", "Refunds are issued"):
        assert home.texts().count(text) == 1
    assert home.ingest().messages == 0


def test_06_what_was_deleted_of_a_fork_stays_away_when_its_original_comes(home: Ingested) -> None:
    lines = session().lines
    home.write(fork_of(lines, "The fork goes on.", sessionKind="bg"), f"{OTHER}.jsonl", folder="-another-folder")
    home.ingest()
    (gone,) = [e.episode_id for e in home.episodes() if "double-charge" in e.raw_exchange]
    home.store.episodes.delete(gone)
    home.write(lines)
    for _ in range(2):
        home.ingest()
        assert "double-charge" not in home.texts()
        assert "Refunds are issued" in home.texts()


def test_06_two_sessions_whose_service_gives_calls_the_same_ids_keep_their_own_results(home: Ingested) -> None:
    for name, output in ((SESSION, "first answer"), (OTHER, "second answer")):
        log = Log(session=name)
        log.tool("Bash", "call_0", output, command=f"ask {name}")
        lines = [line.replace('"uuid-', f'"{name}-').replace('"msg-', f'"msg-{name}-') for line in log.lines]
        home.write(lines, f"{name}.jsonl")
    assert home.ingest().messages == 4
    assert "first answer" in home.texts()
    assert "second answer" in home.texts()


def test_06_a_result_that_is_written_again_with_another_text_is_no_second_one(home: Ingested) -> None:
    log = session()
    home.write(log.lines)
    home.ingest()
    home.write([*log.lines, *(line.replace("pay(order)", "[cleared]") for line in log.lines)])
    assert home.ingest().messages == 0


@pytest.mark.parametrize("rest", ["", '{"type":"user","mess'])
def test_03_what_was_archived_but_not_parsed_when_its_file_was_emptied_is_parsed(home: Ingested, rest: str) -> None:
    home.write(session().lines)
    home.crawl()
    home.write(rest.encode())
    home.crawl()
    idle = LATER - timedelta(days=3_650)
    assert home.store.ingest.unfinished_sources(idle) != set()
    assert sum(report.messages for report in home.parse()) == 6
    home.publish()
    assert home.store.ingest.unfinished_sources(idle) == set()
    assert home.parse()[0].lines == 0


def test_06_what_follows_a_rewritten_copy_is_kept_in_the_exchange_that_it_goes_on_with(home: Ingested) -> None:
    log = session()
    home.write(log.lines)
    home.ingest()
    log.lines = with_new_uuids(log.lines)
    log.say("One more thing.")
    home.write(log.lines, f"{OTHER}.jsonl")
    assert home.ingest().messages == 1
    last, added = (e for e in home.episodes() if "Refunds are issued" in e.raw_exchange or "One more" in e.raw_exchange)
    assert last.metadata["exchange_id"] == added.metadata["exchange_id"]


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
    assert home.store.ingest.counts().files == 3, "a journal is no transcript"


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
    assert home.store.ingest.counts().unparsed_lines == 0


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
        assert other.ingest.counts().messages == home.store.ingest.counts().messages
    assert {(e.episode_id, e.raw_exchange) for e in home.episodes()} == expected
    assert home.texts().count("Find every place that issues refunds.") == 1
    assert home.texts().count("Refunds are issued in src/refunds.py:44 only.") == 1


def test_a_session_that_was_set_aside_is_read_and_other_files_are_not(home: Ingested) -> None:
    lines = session().lines
    bare = [json.dumps({k: v for k, v in json.loads(line).items() if k != "sessionId"}) for line in lines]
    home.write(bare, f"{TRUNK}.orphaned-1786698001120")
    home.write(session().lines, "notes.jsonl")
    home.write(session().lines, f"{SESSION}/subagents/workflows/wf_1/journal.jsonl")
    assert home.ingest().messages == 6
    assert {episode.session_id for episode in home.episodes()} == {SESSION}


def test_12_a_file_that_shrinks_is_replaced_or_moves_loses_and_repeats_nothing(home: Ingested) -> None:
    log = session()
    home.write(log.lines)
    home.ingest()
    log.user("typed after the file was cut")
    home.write([*log.lines[:4], log.lines[-1]])
    seen = home.ingest()
    assert (seen.replaced, seen.messages) == (1, 1)
    path = home.path(TRUNK)
    path.unlink()
    log.user("typed after the file was replaced")
    home.write(log.lines)
    assert home.ingest().messages == 1
    moved = home.path(TRUNK, folder="-home-dev-shop-worktree")
    path.rename(moved)
    log.user("typed after the move")
    home.append(log.lines[-1:], folder="-home-dev-shop-worktree")
    assert home.ingest().messages == 1
    prompts = [episode.metadata["prompt"] for episode in home.episodes()]
    assert len(prompts) == len(set(prompts)) == 5
    assert home.store.ingest.counts().messages == 9


def test_12_a_replaced_file_is_not_taken_for_a_copy_of_itself(home: Ingested) -> None:
    home.write(session().lines)
    home.ingest()
    other = Log(session=OTHER)
    other.minute, other._count = 60, 50
    other.user("another session under the same name")
    home.path(TRUNK).unlink()
    home.write(other.lines)
    seen = home.ingest()
    assert (seen.messages, seen.duplicates) == (1, 0)


def test_13_a_deleted_log_keeps_its_archive_and_its_episodes(home: Ingested) -> None:
    lines = session().lines
    home.write(lines).unlink()
    home.write(lines)
    home.ingest()
    before = home.episodes()
    home.path(TRUNK).unlink()
    assert home.ingest().gone == 1
    assert home.episodes() == before
    assert home.archived() == lines


def test_17_what_editors_and_crashes_leave_in_a_file_stops_nothing(home: Ingested) -> None:
    lines = [line.encode() for line in session().lines]
    lines[0] = b"\xef\xbb\xbf" + lines[0]
    lines[2] = b"\0\0\0" + lines[2]
    lines[4] = lines[4].replace(b"refunds", b"ref\xff\xfeunds")
    lines[5] = b'{"type":"progress",' + lines[5][1:]
    home.write(b"\r\n".join(lines) + b"\r\n\r\n")
    seen = home.ingest()
    assert (seen.messages, seen.malformed) == (6, 0)
    assert "and ref��unds?" in home.texts()


def test_the_kinds_of_speech_survive_the_whole_way(home: Ingested) -> None:
    home.write(session().lines)
    home.crawl()
    home.parse()
    (source,) = home.sources()
    pairs = home.store.ingest.parts_to_publish(source.key, 100)
    kinds = {segment.kind for part, _ in pairs for segment in part.segments}
    assert kinds == {SegmentKind.PROMPT, SegmentKind.STATEMENT, SegmentKind.TOOL_INPUT, SegmentKind.TOOL_RESULT}
