"""With `local_only` nothing is dialed, whatever summarizer is set; without it the same runs are caught dialing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.summaries import extractive
from anamnesis_tests.steps.services import LlmHome
from anamnesis_tests.steps.watched_ingest import ELSEWHERE
from anamnesis_tests.summaries.loopback import Answer
from anamnesis_tests.summaries.ollama_server import OllamaServer


def ingest(home: LlmHome, tmp_path: Path, how: str, *, local_only: bool, url: str = "") -> dict[str, dict[str, Any]]:
    """What a watched process says of its ingests, by summarizer."""
    home.converse(1)
    environment = {
        **os.environ, "ANAMNESIS_LOCAL_ONLY": str(local_only), "ANAMNESIS_ANTHROPIC_API_KEY": "sk-ant-SECRET-KEY",
        "HOME": str(tmp_path / "user"),
    }  # fmt: skip
    command, root = [sys.executable, "-m", "anamnesis_tests.steps.watched_ingest"], Path(__file__).parents[2]
    command += [str(home.base), how, url]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    assert found.keys() == ({"ollama here"} if url else ELSEWHERE.keys())
    return found


@pytest.mark.parametrize("how", ["ingest", pytest.param("whole", marks=pytest.mark.slow)])
def test_nothing_is_dialed_and_the_status_says_why(llm_home: LlmHome, tmp_path: Path, how: str) -> None:
    for name, seen in ingest(llm_home, tmp_path, how, local_only=True).items():
        assert seen["refused"] == [], name
        assert seen["counts"] == {extractive.MODEL: 1}, name
        assert seen["problem"].startswith("local_only keeps all text here"), name
    if how == "whole":
        (space,) = llm_home.store.spaces.all()
        assert llm_home.store.vectors.pending_sources(space.key) == {}


def test_without_it_each_of_these_summarizers_is_caught_dialing(llm_home: LlmHome, tmp_path: Path) -> None:
    for name, seen in ingest(llm_home, tmp_path, "ingest", local_only=False).items():
        assert seen["refused"] != [], name
        assert seen["counts"] == {"problem": 1}, name


def test_a_server_here_that_passes_prompts_on_is_not_followed(llm_home: LlmHome, tmp_path: Path) -> None:
    with OllamaServer().running() as server:
        server.respond(Answer(307, headers={"location": "http://203.0.113.9:11434/api/chat?key=SECRET"}))
        (seen,) = ingest(llm_home, tmp_path, "ingest", local_only=True, url=server.url).values()
    assert len(server.received) == 1
    assert seen["refused"] == []
    assert seen["counts"] == {"problem": 1}
