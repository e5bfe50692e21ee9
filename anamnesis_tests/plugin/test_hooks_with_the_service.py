"""The hooks against the real service: what they bring, what it costs, and that it is never remembered as news."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from anamnesis_pipeline.embeddings.pieces import minilm_pieces
from anamnesis_pipeline.parsing.claude_logs.own_text import without_memory
from anamnesis_tests.sidecar.conftest import know_the_unrelated
from anamnesis_tests.sidecar.mcp.conftest import Sidecar, environment, run_sidecar
from anamnesis_tests.support.hooks import fire, harmless

__all__ = ["environment"]


@pytest.fixture
def guarded(tmp_path: Path, environment: None) -> Iterator[Sidecar]:
    yield from run_sidecar(tmp_path, "s3cret")


TOKEN = {"CLAUDE_PLUGIN_OPTION_API_TOKEN": "s3cret"}
TEXT = "Webhook retries double-charged because the idempotency key lacked the attempt id"


def test_prompt_gets_what_is_known_once_a_session(guarded: Sidecar, tmp_path: Path) -> None:
    know_the_unrelated(guarded.services.store)
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text('[remote "origin"]\n\turl = git@github.com:acme/shop.git\n')
    episode = guarded.post(TEXT, project="acme/shop", kind="decision", timestamp="2026-03-05T10:00:00Z")
    asked = {
        "prompt": "why webhook retries double-charged: the idempotency key lacked the attempt id?",
        "cwd": str(folder),
        "session_id": "s1",
    }
    done = fire("UserPromptSubmit", guarded.base, env=TOKEN, **asked)
    assert TEXT in done.context
    assert episode in done.context
    assert "2026-03-05" in done.context
    (spans,) = minilm_pieces().spans([done.context])
    assert len(spans) <= 400
    assert without_memory(done.context) == ("", 1)
    harmless("UserPromptSubmit", guarded.base, env=TOKEN, **asked)
    assert TEXT in fire("UserPromptSubmit", guarded.base, env=TOKEN, **{**asked, "session_id": "s2"}).context


def test_a_start_tells_where_the_project_stands(guarded: Sidecar) -> None:
    guarded.post(TEXT, project="acme/shop", kind="decision")
    done = fire("SessionStart", guarded.base, env=TOKEN, cwd="/home/ann/acme/shop")
    assert TEXT in done.context
    (spans,) = minilm_pieces().spans([done.context])
    assert len(spans) <= 800


def test_nothing_is_said_of_the_unknown_or_to_a_wrong_token(guarded: Sidecar) -> None:
    harmless("SessionStart", guarded.base, env=TOKEN, cwd="/home/ann/new")
    harmless("UserPromptSubmit", guarded.base, env=TOKEN, prompt="bake a cake with three eggs and some flour")
    guarded.post(TEXT)
    harmless("UserPromptSubmit", guarded.base, env={"CLAUDE_PLUGIN_OPTION_API_TOKEN": "wrong"})


def test_nudge_is_taken(guarded: Sidecar) -> None:
    harmless("SessionEnd", guarded.base, env=TOKEN)
    metrics = httpx.get(f"{guarded.base}/metrics", headers={"Authorization": "Bearer s3cret"}, timeout=60).text
    assert 'route="/api/jsonl/nudge",status="202"' in metrics
