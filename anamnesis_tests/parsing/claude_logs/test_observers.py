"""Sessions of other memory tools: archived, counted, and never indexed."""

from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.parsing.claude_logs.observers import FILE, built_in, read_rules, rules_of
from anamnesis_pipeline.parsing.claude_logs.parser import FileOrigin, FileState, advance, read_messages
from anamnesis_pipeline.pipeline.sessions import observed_sessions
from anamnesis_pipeline.runtime.home_wiring import open_observers
from anamnesis_pipeline.services.store_checks import observers
from anamnesis_pipeline.settings import Settings
from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import SESSION, Log, parse, texts

FOLDER = "/home/dev/.claude-mem/observer-sessions"
PROMPT = "You are a Claude-Mem, a specialized observer tool for creating searchable memory."


def session(prompt: str, session_id: str = SESSION, **common: Any) -> Log:
    log = Log(session_id, **{"cwd": FOLDER, "entrypoint": "sdk-ts", **common})
    log.user(prompt, uuid=f"u-{session_id}")
    log.assistant({"type": "text", "text": "Timeout is 30"}, uuid=f"a-{session_id}", message_id=f"m-{session_id}")
    return log


OBSERVERS = {
    "in its folder": session("Warmup"),
    "on Windows": session("Warmup", cwd="C:\\Users\\ann\\.claude-mem\\observer-sessions"),
    "of a version without entrypoints": session(PROMPT, entrypoint=None),
    "by its prompt": session(PROMPT, cwd="/home/dev/shop", entrypoint="sdk-cli"),
    "by its ping": session("Warmup ping - reply with the single word: ready", cwd="/home/dev/shop"),
    "of another tool": session("Observe", cwd="/home/dev/.other/observer-sessions/x"),
}


@pytest.mark.parametrize("name", OBSERVERS)
def test_session_of_an_observer_is_left_out_and_counted(name: str) -> None:
    lines = OBSERVERS[name].lines
    assert parse(lines) == []
    batch = read_messages(lines, 0)
    step = advance(FileState(), None, batch, (), FileOrigin("s", "a.jsonl"), label=str, idle_minutes=30)
    assert (list(step.observed.values()), list(step.observers.values())) == ([2], [1])


USERS = {
    "who quotes the prompt": session(PROMPT, cwd="/home/dev/claude-mem", entrypoint="cli"),
    "who works in the tool's settings": session("fix it", cwd="/home/dev/.claude-mem", entrypoint="cli"),
    "who looks at the sessions": session("what is this", entrypoint="cli"),
    "of an application": session("hello", cwd="/home/dev/shop", entrypoint="sdk-py"),
}


@pytest.mark.parametrize("name", USERS)
def test_session_of_a_user_is_kept(name: str) -> None:
    assert len(texts(parse(USERS[name].lines))) == 2


def test_later_prompt_that_reads_like_an_observers_is_kept() -> None:
    log = session("hello", cwd="/home/dev/shop")
    log.user(PROMPT, uuid="later")
    assert PROMPT in texts(parse(log.lines))


def test_session_spliced_behind_an_observers_is_kept() -> None:
    lines = [
        *session("Warmup").lines,
        *session("mine", f"1{SESSION[1:]}", cwd="/home/dev/shop", entrypoint="cli").lines,
    ]
    assert texts(parse(lines)) == ["mine", "Timeout is 30"]
    assert texts(parse(lines, ticks=[1, 2, 3])) == ["mine", "Timeout is 30"]


def test_observers_are_archived_and_told(home: Ingested) -> None:
    home.write(session(PROMPT).lines)
    seen = home.take(['{"display":"Warmup","timestamp":1,"project":"' + FOLDER + '"}'], "history.jsonl")
    assert home.episodes() == []
    assert seen.skipped["observer:claude-mem"] == 3
    assert len(home.archived()) == 2
    assert observed_sessions(home.store.settings) == {"claude-mem": 1}
    home.ingest()
    assert "1 of claude-mem" in observers(home.store).detail


def test_rules_of_a_home_are_added(tmp_path: Path) -> None:
    assert read_rules(tmp_path) == built_in()
    (tmp_path / FILE).write_text('[[observer]]\nname = "mine"\ncwd = "/srv/watcher"\n')
    rules = open_observers(Settings(home=tmp_path))
    assert rules.name_of("/srv/watcher", "cli") == rules.name_of("/srv/watcher/", "") == "mine"
    assert rules.name_of("/srv/watchers", "cli") == ""
    assert rules.name_of(FOLDER, "sdk-ts") == "claude-mem"


BAD = [
    "[[observer",
    "observer = 1",
    '[[observer]]\nname = "x"',
    '[[observer]]\ncwd = "/x"',
    "[[observer]]\nname = 1",
    '[[observer]]\nname = "x"\ncwd = "/x"\nplace = "y"',
]


@pytest.mark.parametrize("text", BAD)
def test_rules_that_cannot_be_read_are_refused_and_add_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadSetting):
        rules_of(text)
    (tmp_path / FILE).write_text(text)
    assert open_observers(Settings(home=tmp_path)) == built_in()
