"""LLM services as the summaries step meets them, on this machine: servers and commands that real clients call.

Each `Service` is one value of the setting `summarizer`, the settings that lead to it, and what its answers look like.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import paramiko
import pytest

from anamnesis_pipeline.pipeline.summarize import SummaryReport
from anamnesis_pipeline.services import wiring
from anamnesis_pipeline.services.ingest import SourceReport, ingest_all
from anamnesis_tests.support import anthropic_server, ollama_server, openai_server
from anamnesis_tests.support.archived_logs import FOLDER, SESSION, Home, record
from anamnesis_tests.support.llms import Clock
from anamnesis_tests.support.loopback import Answer, LoopbackServer
from anamnesis_tests.support.ssh_servers import SSHD, openssh_server
from anamnesis_tests.support.stand_in import StandIn, make_stand_in, result

SERVERS = ("anthropic", "ollama", "openai")
HERE = (*SERVERS, "claude_cli")
KINDS = (*HERE, pytest.param("claude over ssh", marks=pytest.mark.skipif(SSHD is None, reason="sshd is not installed")))


class Service(Protocol):
    """The far end of one summarizer."""

    settings: dict[str, Any]

    def respond(self, *answers: Any) -> None:
        """What it answers, call by call; the last for ever."""

    def says(self, text: str) -> Any:
        """An answer: this reply of the model."""

    @property
    def busy(self) -> Any:
        """An answer: wait, for some seconds where the service can say so."""

    @property
    def overloaded(self) -> Any:
        """An answer: 529, or what comes nearest."""

    @property
    def refused(self) -> Any:
        """An answer: 401, or what comes nearest."""

    @property
    def prompts(self) -> list[str]:
        """What it was asked so far."""


@dataclass
class HttpService:
    """A server on loopback, and how its protocol spells each answer."""

    server: LoopbackServer
    settings: dict[str, Any]
    protocol: Any
    streams: bool
    busy: Answer
    overloaded: Answer
    refused: Answer

    def respond(self, *answers: Answer) -> None:
        self.server.respond(*answers)

    def says(self, text: str) -> Answer:
        answer: Answer = self.protocol.streamed(text) if self.streams else self.protocol.completion(text)
        return answer

    @property
    def stalls(self) -> Answer:
        whole = self.says("{}")
        return replace(whole, pieces=whole.pieces[:1] if self.streams else (), after="stall")

    @property
    def prompts(self) -> list[str]:
        return [received.json["messages"][-1]["content"] for received in self.server.received]


def anthropic_service(server: LoopbackServer) -> HttpService:
    kind = anthropic_server
    settings = {"summarizer": "anthropic", "anthropic_url": server.url, "llm_daily_dollars": 1.0}
    return HttpService(
        server,
        settings,
        kind,
        True,
        kind.error(429, "rate_limit_error", retry_after="7"),
        kind.error(529, "overloaded_error"),
        kind.error(401, "authentication_error"),
    )


def ollama_service(server: LoopbackServer) -> HttpService:
    kind = ollama_server
    settings = {"summarizer": "ollama", "ollama_urls": [server.url]}
    return HttpService(server, settings, kind, True, kind.error(503), kind.error(529), kind.error(401))


def openai_service(server: LoopbackServer) -> HttpService:
    kind = openai_server
    settings = {"summarizer": "openai", "openai_url": f"{server.url}/v1", "summary_model": "qwen3"}
    return HttpService(
        server,
        settings,
        kind,
        False,
        kind.error(429, "requests", "rate_limit_exceeded", retry_after="7"),
        kind.error(529, "overloaded"),
        kind.error(401, "invalid_request_error", "invalid_api_key"),
    )


@dataclass
class ClaudeService:
    """A stand-in for Claude's command, here or on a host."""

    claude: StandIn
    host: str = ""
    settings: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        command = f'"{self.claude.path}"'
        self.settings = {"summarizer": "claude_cli", "claude_command": command, "claude_host": self.host}

    def respond(self, *answers: dict[str, Any]) -> None:
        self.claude.tell_in_turn(*answers)

    def says(self, text: str) -> dict[str, Any]:
        return {"stdout": result(text)}

    @property
    def busy(self) -> dict[str, Any]:
        text = f"Claude AI usage limit reached|{int(time.time()) + 30}"
        return {"stdout": result(text, is_error=True), "status": 1}

    @property
    def overloaded(self) -> dict[str, Any]:
        return {"stdout": result("API Error: Repeated 529 Overloaded errors", is_error=True), "status": 1}

    @property
    def refused(self) -> dict[str, Any]:
        return {"stdout": result("Not logged in · Please run /login", is_error=True), "status": 1}

    @property
    def prompts(self) -> list[str]:
        return [call["stdin"] for call in self.claude.calls]


@contextmanager
def running_service(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The service of one of KINDS; whatever it needs ends with the block."""
    with ExitStack() as stack:
        match kind:
            case "anthropic":
                monkeypatch.setenv("ANAMNESIS_ANTHROPIC_API_KEY", "sk-ant-SECRET-KEY")
                yield anthropic_service(stack.enter_context(anthropic_server.AnthropicServer().running()))
            case "ollama":
                yield ollama_service(stack.enter_context(ollama_server.OllamaServer().running()))
            case "openai":
                yield openai_service(stack.enter_context(openai_server.OpenAiServer().running()))
            case "claude_cli":
                yield ClaudeService(make_stand_in(folder / "it's claude"))
            case _:
                place = stack.enter_context(_host(folder, monkeypatch))
                yield ClaudeService(make_stand_in(folder / "it's claude"), place)


@contextmanager
def _host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real sshd that knows the key of a home of its own, and is known there."""
    ssh = folder / "user" / ".ssh"
    ssh.mkdir(parents=True)
    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(ssh / "id_ecdsa"))
    monkeypatch.setenv("HOME", str(folder / "user"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with openssh_server(folder / "sshd", key) as server:
        (ssh / "known_hosts").write_text(server.known_host)
        yield server.place


class LlmHome(Home):
    """A home whose summaries come over the real wiring, with the settings stored in it; its clock stands still."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANAMNESIS_HOME", str(base / "home"))
        monkeypatch.setenv("ANAMNESIS_LOG_ROOTS", str(base / "projects"))
        monkeypatch.setenv("ANAMNESIS_MACHINE", "box")
        monkeypatch.setenv("ANAMNESIS_LLM_REQUESTS_PER_MINUTE", "10000")
        monkeypatch.setenv("ANAMNESIS_SUMMARY_MIN_CHARS", "0")
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        super().__init__(base)
        self.clock = Clock()

    def set(self, **settings: Any) -> None:
        """Store settings, as `anamnesis config set` does."""
        for name, value in settings.items():
            self.store.settings.set(f"{wiring.CONFIG_PREFIX}{name}", value)

    def converse(self, *numbers: int) -> None:
        """Exchanges that are worth an LLM, an hour apart."""
        for n in numbers:
            self.write(
                [
                    record("user", f"Why does retry {n} charge twice?", 60 * n),
                    record("assistant", "An error: the request failed. The fix is a key.", 60 * n + 1),
                ]
            )

    def run(self, *, by_hand: bool = False) -> SummaryReport:
        """One ingest of the logs with the settings as they are now, as a run of Dagster does it."""
        settings = wiring.effective_settings(self.store)
        pipeline = wiring.open_pipeline(settings, self.store)
        pipeline = replace(pipeline, llm=replace(pipeline.llm, clock=self.clock, sleep=self.clock.sleep))
        self.store.files.put_sources(wiring.discover_sources(settings).sources)
        source = self.source(FOLDER)
        pipeline.crawl(source)
        pipeline.parse(source)
        report = pipeline.summarize_parts(source, by_hand=by_hand)
        pipeline.publish(source)
        return report

    def ingest_all(self) -> list[SourceReport]:
        """Every source there is by now, as `anamnesis ingest` does it."""
        settings = wiring.effective_settings(self.store)
        return ingest_all(wiring.open_pipeline(settings, self.store), wiring.discover_sources(settings).sources)

    def later(self, **time_passed: float) -> None:
        self.clock.now += timedelta(**time_passed)

    @property
    def day(self) -> str:
        return f"{self.clock.now:%Y-%m-%d}"


def uuid_of(number: int) -> str:
    """The record of the answer in exchange `number` of `converse`."""
    return f"{SESSION[:4]}-u{60 * number + 1}"
