import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anamnesis_pipeline.model import SegmentKind as Kind
from anamnesis_pipeline.parsing.claude_logs.blocks import without_runs
from anamnesis_pipeline.parsing.claude_logs.chunking import HARD
from anamnesis_pipeline.parsing.claude_logs.parser import FileOrigin, FileState, advance, read_messages
from anamnesis_pipeline.parsing.claude_logs.projects import git_identity, project_label
from anamnesis_tests.parsing.claude_logs.sessions import COPIES, changed, session
from anamnesis_tests.support.log_lines import REAL_LOGS, ROOT, SESSION, Log, lines_of, parse, real_logs, texts

needs_real_logs = pytest.mark.skipif(not REAL_LOGS.is_dir(), reason=f"no logs at {REAL_LOGS}")
EXAMPLE = ROOT / "examples/claude_logs"
FAST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- a fold ----------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["prompt", "say", "think", "tool", "error", "commit", "call", "summary", "note", "again", "glued", "torn"]
        ),
        st.integers(0, 9_000),
        st.sampled_from([0, 0, 0, 5, 45, -90]),
    ),
    max_size=40,
)


def generated_log(steps: list[tuple[str, int, int]]) -> list[str]:
    log = Log()
    for number, (what, length, minutes) in enumerate(steps):
        log.minute += minutes
        text = f"{what} {number} " + "lorem ipsum\n" * (length // 12)
        if what == "again" and log.lines:
            log.lines.append(log.lines[length % len(log.lines)])
        elif what == "glued" and log.lines:
            log.lines.append(log.lines[-1][: length % 200] + log.lines[0])
        elif what == "torn" and log.lines:
            log.lines.append(log.lines[-1][: length % 200 + 1])
        elif what in {"tool", "error", "commit"}:
            log.tool("Bash", f"t{number}", text, is_error=what == "error", command=f"git {what}")
        elif what == "call":
            log.call("Read", f"t{number}", path=text)
        elif what == "think":
            log.assistant({"type": "thinking", "thinking": text}, {"type": "text", "text": text})
        elif what == "say":
            log.say(text)
        else:
            wrapped = f"<task-notification>{text}" if what == "note" else text
            log.user(wrapped, isCompactSummary=what == "summary")
    return log.lines


@given(STEPS, st.data())
@FAST
def test_parts_are_the_same_for_any_number_of_calls(steps: list[tuple[str, int, int]], data: st.DataObject) -> None:
    lines = generated_log(steps)
    ticks = data.draw(st.lists(st.integers(0, len(lines)), max_size=12))
    assert parse(lines, ticks=ticks) == parse(lines)


@given(STEPS)
@FAST
def test_lines_added_later_change_only_the_last_part(steps: list[tuple[str, int, int]]) -> None:
    lines = generated_log(steps)
    whole = {part.part_id: part for part in parse(lines)}
    for end in {len(lines) // 3, 2 * len(lines) // 3}:
        assert all(whole[part.part_id] == part for part in parse(lines[:end])[:-1])


@given(STEPS)
@FAST
def test_every_message_is_in_the_parts_whole_and_once(steps: list[tuple[str, int, int]]) -> None:
    lines = generated_log(steps)
    parts = parse(lines)
    expected = {logged.message.key: logged.message.text for logged in reversed(read_messages(lines, 0).messages)}
    assert sorted(texts(parts)) == sorted(expected.values())
    assert all(sum(len(segment.text) for segment in part.segments) <= HARD for part in parts)
    assert [part.ordinal for part in parts] == list(range(len(parts)))


@needs_real_logs
@pytest.mark.parametrize("path", real_logs(), ids=lambda path: path.name)
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_real_logs_give_the_same_parts_wherever_the_ticks_fall(path: Path, data: st.DataObject) -> None:
    lines = lines_of(path)
    ticks = data.draw(st.lists(st.integers(0, len(lines)), max_size=30))
    assert parse(lines, path.name, ticks) == parse(lines, path.name)


def test_the_state_survives_a_round_trip_and_refuses_another_version() -> None:
    log = Log().talk("prompt")
    log.call("Bash", "t1", command="git commit -m x")
    step = advance(
        FileState(), None, read_messages(log.lines, 0), (), FileOrigin("s", "a.jsonl"), label=str, idle_minutes=30
    )
    text = step.state.to_json()
    assert FileState.from_json(text) == step.state
    assert FileState.from_json(text.replace('"version":1', '"version":2')) is None
    assert FileState.from_json("[]") is FileState.from_json("{") is FileState.from_json("{}") is None
    assert len(text) < 2_000


# --- copies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_brings_no_new_message_and_is_recorded(name: str) -> None:
    log = session()
    copied = COPIES[name](log.lines)
    batch = read_messages(copied, 0)
    step = advance(
        FileState(),
        None,
        batch,
        read_messages(log.lines, 0).keys,
        FileOrigin("s", "copy.jsonl"),
        label=str,
        idle_minutes=30,
    )
    assert (step.parts, step.keys) == ((), ())
    assert {occurrence.line for occurrence in step.occurrences} == set(range(len(copied)))
    assert all(occurrence.path == "copy.jsonl" for occurrence in step.occurrences)
    assert parse(log.lines + copied) == parse(log.lines)


def test_what_a_resumed_session_adds_belongs_to_the_exchange_it_goes_on_with() -> None:
    log = session()
    known = read_messages(log.lines, 0).keys
    earlier = parse(log.lines)
    log.lines = changed(log.lines, sessionId="resumed")
    log.say("One more thing.")
    (part,) = parse(log.lines, "resumed.jsonl", known=known)
    assert texts([part]) == ["One more thing."]
    assert (part.exchange_id, part.prompt) == (earlier[-1].exchange_id, "and refunds?")
    assert part.lead == "Refunds are issued in one place only."


# --- where it was said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [f"{SESSION}/subagents/agent-a1.jsonl", f"{SESSION}/subagents/workflows/wf_1/agent-a1.jsonl", "agent-a1.jsonl"],
)
def test_a_subagent_is_told_by_its_file_in_every_layout_or_by_its_records(path: str) -> None:
    log = Log(isSidechain=True, agentId="a1").talk("Explore")
    (part,) = parse(log.lines, path)
    assert (part.kind, part.agent_id, part.session_id, part.prompt) == ("subagent", "a1", SESSION, "Explore")
    (part,) = parse(log.lines)
    assert (part.kind, part.agent_id) == ("subagent", "a1")


def test_the_agent_that_compacts_a_session_yields_nothing_but_compaction_summaries() -> None:
    log = Log(isSidechain=True, agentId="acompact-1f").talk("Your task is to create a detailed summary", "Summary: ...")
    assert {part.kind for part in parse(log.lines, "agent-acompact-1f.jsonl")} == {"compact_summary"}


def test_a_session_without_an_id_is_named_after_its_file() -> None:
    (part,) = parse(['{"type":"user","message":{"content":"hi"}}'], "p/abc.jsonl")
    assert part.session_id == "abc"


@pytest.mark.parametrize("ticks", [(), (1,)])
def test_a_session_that_changes_directory_stays_with_its_project(ticks: tuple[int, ...]) -> None:
    log = Log(cwd="/home/dev/shop").talk("first")
    log.user("second", cwd="/srv/elsewhere")
    parts = parse(log.lines, ticks=ticks)
    assert [(part.project, part.cwd) for part in parts] == [
        ("/home/dev/shop", "/home/dev/shop"),
        ("/home/dev/shop", "/srv/elsewhere"),
    ]


def spliced(*sessions: tuple[str, str], **fields: Any) -> list[str]:
    """A question and an answer of each (session, directory), one after the other in one file."""
    lines: list[str] = []
    for number, (name, cwd) in enumerate(sessions):
        log = Log(name, cwd)
        log.minute = 10 * number
        log.user(f"question {number}", uuid=f"q{number}", **fields)
        log.assistant({"type": "text", "text": f"answer {number}"}, message_id=f"m{number}", uuid=f"a{number}")
        lines += log.lines
    return lines


def test_spliced_session_has_its_own_project_and_context() -> None:
    lines = spliced(("one", "/home/dev/open"), ("two", "/home/dev/payroll"), ("one", "/home/dev/open/src"))
    parts = parse(lines)
    assert [(part.session_id, part.project, part.cwd, part.lead) for part in parts] == [
        ("one", "/home/dev/open", "/home/dev/open", ""),
        ("two", "/home/dev/payroll", "/home/dev/payroll", ""),
        ("one", "/home/dev/open", "/home/dev/open/src", ""),
    ]
    assert all(parse(lines, ticks=[tick]) == parts for tick in range(len(lines)))


def test_answers_of_interleaved_sessions_keep_their_prompts() -> None:
    lines = spliced(("one", "/home/dev/open"), ("two", "/home/dev/payroll"))
    parts = parse([lines[0], lines[2], lines[1], lines[3]])
    said = [(part.project, part.prompt, *(segment.text for segment in part.segments)) for part in parts]
    assert said == [
        ("/home/dev/open", "question 0", "question 0"),
        ("/home/dev/payroll", "question 1", "question 1"),
        ("/home/dev/open", "question 0", "answer 0"),
        ("/home/dev/payroll", "question 1", "answer 1"),
    ]


def test_spliced_session_without_prompt_or_folder_inherits_neither() -> None:
    lines = spliced(("one", "/home/dev/payroll"), ("two", ""))
    (_, part) = parse([*lines[:2], lines[3]])
    assert (part.session_id, part.project, part.cwd, part.prompt) == ("two", "", "", "answer 1")


def test_resumed_session_in_a_subfolder_stays_with_its_project() -> None:
    lines = spliced(("one", "/home/dev/shop"), ("two", "/home/dev/shop/api"), parentUuid="a0")
    first, second = parse(lines)
    assert (second.session_id, second.project, second.lead) == ("two", "/home/dev/shop", "answer 0")
    assert first.project == second.project


# --- projects --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cwd", "label"),
    [
        ("/home/dev/shop", "~/shop"),
        ("/Users/ann/code/shop/", "~/code/shop"),
        ("C:\\Users\\Ann\\shop", "~/shop"),
        ("/root/shop", "~/shop"),
        ("/home/dev", "~"),
        ("/srv/home/dev/shop", "/srv/home/dev/shop"),
        ("D:\\code\\shop", "D:/code/shop"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_label_is_the_path_without_anybodys_home(cwd: str, label: str) -> None:
    assert project_label(cwd) == label


def test_paths_whose_folder_names_collide_are_different_projects() -> None:
    assert len({project_label(f"/home/dev/{name}") for name in ("a-b", "a_b", "a/b", "a.b")}) == 4


def git(where: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *arguments], cwd=where, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    main = tmp_path / "shop"
    (main / "src/deep").mkdir(parents=True)
    git(main, "init")
    git(main, "commit", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "../shop-feature")
    return main


@pytest.mark.parametrize(
    ("url", "project"),
    [
        ("git@github.com:acme/shop.git", "acme/shop"),
        ("https://token:secret@GitHub.com/acme/shop.git", "acme/shop"),
        ("ssh://git@ssh.github.com:443/acme/shop", "acme/shop"),
        ("git@git.corp:acme/shop.git", "git.corp/acme/shop"),
        ("https://token:secret@git.corp:8443/acme/shop/", "git.corp/acme/shop"),
        ("ssh://git@git.corp:2222/acme/shop", "git.corp/acme/shop"),
        ("git://[2001:db8::1]:9418/acme/shop.git", "[2001:db8::1]/acme/shop"),
        ("/srv/git/shop.git", ""),  # no remote: that of the main worktree
    ],
)
def test_every_worktree_of_a_repository_is_the_project_of_its_remote(repository: Path, url: str, project: str) -> None:
    git(repository, "remote", "add", "origin", url)
    places = [repository, repository / "src/deep", repository.parent / "shop-feature"]
    assert {git_identity(str(place)) for place in places} == {project or project_label(str(repository))}


def test_a_directory_without_repository_or_not_on_this_machine_has_no_identity(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / ".git").write_text("gitdir: /nowhere/.git/worktrees/x")
    for cwd in ("", "relative/path", "C:\\work", "/no/such/directory", "/bad\0path"):
        assert git_identity(cwd) is None
    assert git_identity(str(broken)) == project_label(str(broken))


# --- real logs -------------------------------------------------------------------------------------------


def spoken(value: Any) -> list[str]:
    """Every string in a tool's input that a reader would look for."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for item in value for text in spoken(item)] if isinstance(value, list) else []


ADDED = re.compile(r"\n+<system-reminder>[^<]*</system-reminder>\s*\Z")
"""What the client puts behind a tool's output."""


def wanted_texts(record: dict[str, Any]) -> list[str]:
    """What must be found again: texts, thinking, tool inputs and results of a record; read without our parser."""
    if record["type"] not in {"user", "assistant"} or record.get("isMeta"):
        return []
    content = record["message"]["content"]
    wanted: list[str] = []
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        result = block.get("content")
        wanted += [block.get("text") or "", block.get("thinking") or "", *spoken(block.get("input"))]
        results = [result] if isinstance(result, str) else [inner.get("text", "") for inner in result or []]
        wanted += [ADDED.sub("", text) for text in results]
    return [text for text in wanted if text.strip()]


@needs_real_logs
@pytest.mark.parametrize("path", real_logs(), ids=lambda path: path.name)
def test_a_real_log_is_in_its_parts_and_only_what_was_typed_is_a_prompt(path: Path) -> None:
    lines = lines_of(path)
    records, parts = [json.loads(line) for line in lines], parse(lines, path.name)
    whole = "\n".join(texts(parts))
    for text in (text for record in records for text in wanted_texts(record)):
        assert text in whole or without_runs(text) in whole
    assert max(sum(len(segment.text) for segment in part.segments) for part in parts) <= HARD
    typed = {
        record["message"]["content"]
        for record in records
        if record["type"] == "user"
        and isinstance(record["message"]["content"], str)
        and not any(record.get(flag) for flag in ("isMeta", "isCompactSummary", "isSidechain"))
        and not record["message"]["content"].startswith("<")
    }
    assert set(texts(parts, Kind.PROMPT)) == typed


# --- the example -----------------------------------------------------------------------------------------


def test_the_example_shows_every_kind_of_segment_and_its_subagent_is_linked() -> None:
    paths = sorted(EXAMPLE.rglob("*.jsonl"))
    parts = [part for path in paths for part in parse(lines_of(path), path.relative_to(EXAMPLE).as_posix())]
    kinds = {segment.kind for part in parts for segment in part.segments}
    of_documents = {Kind.DOCUMENT, Kind.OUTLINE, Kind.CODE}
    sent_by_others = {Kind.CHANNEL, Kind.PEER, Kind.MACHINE_PROMPT, Kind.PLAN, Kind.SKILL, Kind.RECAP}
    assert kinds == set(Kind) - of_documents - sent_by_others
    assert {part.kind for part in parts} == {"exchange", "subagent", "compact_summary"}
    assert {part.project for part in parts} == {"/home/mira/code/parcel-api", "/home/mira/code/tide_board.web"}
    (agent,) = {part.agent_id for part in parts} - {""}
    (meta,) = EXAMPLE.rglob(f"agent-{agent}.meta.json")
    spawning = json.loads(meta.read_text(encoding="utf-8"))["toolUseId"]
    assert any(spawning in line for path in paths if agent not in path.name for line in lines_of(path))
