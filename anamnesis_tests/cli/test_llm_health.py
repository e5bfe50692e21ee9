"""`anamnesis doctor` on the LLM: real clients look at servers and commands of this machine, and ask them nothing."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.services import model_health as llm_health
from anamnesis_pipeline.services import store_checks
from anamnesis_pipeline.services.machine_checks import Finding
from anamnesis_tests.support.llm_services import (
    KINDS,
    SERVERS,
    ClaudeService,
    HttpService,
    LlmHome,
    Service,
    running_service,
)
from anamnesis_tests.support.loopback import Answer, json_answer

LISTED = {
    "anthropic": {"id": "claude-haiku-5-5", "type": "model", "display_name": "", "created_at": "2026-01-01T00:00:00Z"},
    "ollama": {"models": [{"model": "llama3.2:latest"}]},
    "openai": {"object": "list", "data": [{"id": "qwen3"}]},
}
"""What each service answers who asks for its models."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmHome]:
    with closing(LlmHome(tmp_path / "base", monkeypatch)) as home:
        yield home


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with running_service(request.param, tmp_path, monkeypatch) as service:
        if isinstance(service, HttpService):
            service.respond(json_answer(LISTED[request.param]))
        yield service


def found(home: LlmHome, **settings: Any) -> Finding:
    home.set(**settings)
    return store_checks.llm(home.store)


def test_an_llm_that_is_there_is_well_and_was_asked_nothing(home: LlmHome, service: Service) -> None:
    finding = found(home, **service.settings)
    assert finding.ok, finding.detail
    if isinstance(service, HttpService):
        assert [received.method for received in service.server.received] == ["GET"]
    if isinstance(service, ClaudeService):
        assert [call["arguments"] for call in service.claude.calls] == [["--version"]]
    assert home.store.llm.used(home.day).calls == 0


def test_local_only_looks_at_nobody_elsewhere(home: LlmHome, service: Service) -> None:
    found(home, **service.settings, local_only=True)
    if isinstance(service, HttpService):
        is_here = home.store.settings.get("config.summarizer") != "anthropic"
        assert bool(service.server.received) == is_here
    if isinstance(service, ClaudeService):
        assert service.claude.calls == []


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], HttpService]]:
    """Begins services over HTTP, which end with the test."""
    with ExitStack() as stack:

        def begin(kind: str) -> HttpService:
            service = stack.enter_context(running_service(kind, tmp_path, monkeypatch))
            assert isinstance(service, HttpService)
            return service

        yield begin


def test_missing_command_is_named_with_what_to_do(home: LlmHome) -> None:
    finding = found(home, summarizer="claude_cli", claude_command="/nowhere/claude")
    assert not finding.ok
    assert "cannot run '/nowhere/claude' (No such file or directory); set claude_command to its path" in finding.detail


@pytest.mark.parametrize("kind", SERVERS)
def test_refused_key_is_found(home: LlmHome, running: Callable[[str], HttpService], kind: str) -> None:
    service = running(kind)
    service.respond(service.refused)
    finding = found(home, **service.settings)
    assert (finding.ok, "answered 401" in finding.detail) == (False, True)
    assert "SECRET" not in finding.detail


def test_model_that_no_ollama_server_has_is_named(home: LlmHome, running: Callable[[str], HttpService]) -> None:
    one, other = running("ollama"), running("ollama")
    one.respond(json_answer({"models": [{"model": "mistral:latest"}]}))
    other.respond(json_answer(LISTED["ollama"]))
    assert "run `ollama pull llama3.2` there" in found(home, **one.settings).detail
    assert found(home, ollama_urls=[one.server.url, other.server.url]).ok, "one that any has will do"


def test_service_without_a_list_is_there_and_one_that_hangs_is_not(
    home: LlmHome, running: Callable[[str], HttpService], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = running("openai")
    service.respond(json_answer({}, 404))
    assert found(home, **service.settings).ok
    monkeypatch.setattr(llm_health, "PROBE_S", 1.0)
    service.respond(Answer(200, after="stall"))
    assert "openai did not answer within" in found(home, **service.settings).detail
