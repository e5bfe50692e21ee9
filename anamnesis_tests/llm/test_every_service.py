"""What the clients of all HTTP services do alike: time-outs, nobody there, and prompts that are not passed on."""

import traceback
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from anamnesis_pipeline.errors import LlmRefused, LlmUnavailable
from anamnesis_pipeline.llm.factory import open_provider
from anamnesis_pipeline.llm.provider import LlmOptions, Provider
from anamnesis_tests.support import anthropic_server, ollama_server, openai_server
from anamnesis_tests.support.loopback import REQUEST, SUMMARY, Answer, LoopbackServer


def opened(kind: str, url: str, timeout_s: float = 5.0) -> Provider:
    options = LlmOptions(
        model={"anthropic": "", "ollama": ollama_server.MODEL, "openai": "qwen3"}[kind],
        timeout_s=timeout_s,
        anthropic_api_key="sk-ant-SECRET-KEY",
        anthropic_url=url,
        ollama_urls=(url,),
        openai_url=f"{url}/v1",
        input_price=0.0,
        output_price=0.0,
    )
    return open_provider(kind, options)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("anthropic", anthropic_server.streamed(SUMMARY, after="stall", pieces=0)),
        ("anthropic", anthropic_server.streamed(SUMMARY, after="stall", pieces=4)),
        ("ollama", ollama_server.streamed(SUMMARY, after="stall", pieces=1)),
        ("openai", Answer(200, (), after="stall")),
        ("openai", Answer(200, (b'{"choices": [',), after="stall")),
    ],
)
def test_a_stall_ends_with_the_time_out(kind: str, answer: Answer) -> None:
    with (
        LoopbackServer().respond(answer).running() as server,
        closing(opened(kind, server.url, 0.5)) as backend,
        pytest.raises(LlmUnavailable, match=r"silent|too long"),
    ):
        backend.ask(REQUEST)


@pytest.mark.parametrize("kind", ["anthropic", "ollama", "openai"])
def test_nobody_listening_is_said_to_be_out_of_reach(kind: str, free_port: int) -> None:
    backend = opened(kind, f"http://127.0.0.1:{free_port}", 2.0)
    with closing(backend), pytest.raises(LlmUnavailable, match="cannot be reached"):
        backend.ask(REQUEST)


@pytest.mark.parametrize(
    ("kind", "status", "good"),
    [
        ("anthropic", 307, anthropic_server.streamed(SUMMARY)),
        ("ollama", 307, ollama_server.streamed(SUMMARY)),
        ("openai", 308, openai_server.completion(SUMMARY)),
    ],
)
def test_a_prompt_is_not_passed_on_to_another_host(kind: str, status: int, good: Answer) -> None:
    with LoopbackServer().respond(good).running() as other, LoopbackServer().running() as server:
        location = f"http://localhost:{urlsplit(other.url).port}/elsewhere?key=SECRET"
        server.respond(Answer(status, headers={"location": location}))
        with closing(opened(kind, server.url)) as backend, pytest.raises(LlmRefused, match="localhost") as caught:
            backend.ask(REQUEST)
    assert (other.received, len(server.received)) == ([], 1)
    assert "SECRET" not in "".join(traceback.format_exception_only(caught.value))
