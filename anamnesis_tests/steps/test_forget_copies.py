"""What is forgotten goes from every file that has it, and what only looks the same stays."""

from pathlib import Path
from typing import Any

import pytest

from anamnesis_tests.steps.archived_logs import FOLDER, OTHER, SESSION, Home, record
from anamnesis_tests.steps.test_forget_step import forget, holding, left


@pytest.mark.parametrize("minutes", [5, 600])
def test_a_later_prompt_of_the_same_words_stays(tmp_path: Path, minutes: int) -> None:
    home = Home(tmp_path)
    again = [record("user", "continue", minutes), record("assistant", "Second, quite other work.", minutes + 1)]
    home.write([record("user", "continue", 0), record("assistant", "The first, secret thing.", 1)])
    home.ingest()
    forget(home, ids=(holding(home, "secret"),))
    home.write(again)
    home.ingest()
    assert [e.raw_exchange for e in home.episodes()] == ["[User]\ncontinue\n\n[Claude]\nSecond, quite other work."]
    home.close()


@pytest.mark.parametrize("how", ["a fork", "a subagent"])
def test_what_another_file_had_before_its_session_is_forgotten_there_too(tmp_path: Path, how: str) -> None:
    home = Home(tmp_path)
    text = "The zanzibar rows go through the okapi buffer, every single night."
    if how == "a fork":
        mark: dict[str, Any] = {"forkedFrom": {"sessionId": SESSION}}
        copies = [record("user", "Where do they go?", 1), record("assistant", text, 2)]
        fork = [line | mark | {"sessionId": OTHER} for line in copies]
        home.write([*fork, record("user", "elsewhere the gecko sleeps", 90, OTHER)], f"another/{OTHER}.jsonl")
        home.ingest()
        home.write(copies)
    else:
        said = {"isSidechain": True, "agentId": "a1"}
        agent = [record("user", "Look for it.", 1, **said), record("assistant", text, 2, **said)]
        home.write(agent, f"{FOLDER}/{SESSION}/subagents/agent-a1.jsonl")
        home.ingest()
        result = record("user", "", 3)
        result["message"]["content"] = [{"type": "tool_result", "tool_use_id": "t1", "content": text}]
        home.write([record("user", "Where do they go?", 0), result | {"toolUseResult": {"agentId": "a1"}}])
    home.ingest()
    assert left(home, "okapi") == ["okapi"]
    forget(home, ids=(holding(home, "okapi"),))
    assert left(home, "okapi") == []
    assert how == "a subagent" or left(home, "gecko") == ["gecko"]
    home.close()
