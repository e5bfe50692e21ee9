"""Servers on loopback that speak what the LLM services speak."""

import socket
from collections.abc import Iterator

import pytest

from anamnesis_pipeline.summaries.base import Request
from anamnesis_tests.summaries.anthropic_server import AnthropicServer
from anamnesis_tests.summaries.ollama_server import OllamaServer
from anamnesis_tests.summaries.openai_server import OpenAiServer


@pytest.fixture
def anthropic_server() -> Iterator[AnthropicServer]:
    with AnthropicServer().running() as server:
        yield server


@pytest.fixture
def ollama_server() -> Iterator[OllamaServer]:
    with OllamaServer().running() as server:
        yield server


@pytest.fixture
def openai_server() -> Iterator[OpenAiServer]:
    with OpenAiServer().running() as server:
        yield server


@pytest.fixture
def request_() -> Request:
    """A call as the summaries step makes it, small."""
    return Request("0123456789abcdef" * 2, "Summarize.", "SECRET-PROMPT: why did the webhook charge twice?", 1_500)


@pytest.fixture
def free_port() -> int:
    """A port of loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
